"""Copies of arrays to other devices of the session, or beside themselves: programs that reshard, and compute nothing.

Neighbours: `cluster_programs`, `cluster_devices`.
"""

from __future__ import annotations

from core.client import Blocked, Client

from ..protocol import MLIR
from ..session import ArrayType, StatusError, unsupported
from .cluster_programs import Places, copy_program

KINDS = frozenset(MLIR.values())
Copy = tuple[ArrayType, ArrayType]  # an array, and what it becomes
MOST = 1024  # programs of copies that are kept


class ClusterCopies:
    def __init__(self, places: Places) -> None:
        self._places = places
        self._registered: dict[tuple[Copy, ...], int] = {}

    @staticmethod
    def fault(target: ArrayType) -> StatusError | None:
        """Why such arrays cannot be copied."""
        return None if target.kind in KINDS else unsupported("arrays of this type cannot be copied")

    def registered(self, copies: tuple[Copy, ...], client: Client, now: int) -> int:
        """The program by its name at core's client; 0: there is no room for it now."""
        known = self._registered.get(copies)
        if known is None:
            if len(self._registered) >= MOST:
                client.unregister(self._registered.pop(next(iter(self._registered))), now)
            found = client.register(copy_program(self._places, copies), now)
            if isinstance(found, Blocked):
                return 0
            known = self._registered[copies] = found
        return known
