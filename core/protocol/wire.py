"""What all messages are made of: `Wire`, the base of those that travel, and `Blame`, why something failed.

Neighbours: `client_messages`, `host_messages` and `dataplane`, whose messages are made of these.
"""

from __future__ import annotations

from typing import Any, Self

import msgspec


class Blame(msgspec.Struct, frozen=True):
    """Why something failed, as the user is told: the cause, and the program, node and host where it arose."""

    # "user", "cancelled", "host-lost", "refused", "no-memory", "timeout", "client-lost", "restart", ...; a driver also
    # says "peer" if a collective failed because of another member (the lease that runs out shows which), see `better`
    code: str
    cause: str  # the text of the first failure
    program: str = ""
    node: str = ""
    host: int = -1

    def __deepcopy__(self, memo: dict[int, Any]) -> Blame:
        return self  # it is immutable

    def __str__(self) -> str:
        parts = [f"program {self.program!r}" if self.program else "", f"node {self.node!r}" if self.node else ""]
        where = ", ".join(p for p in [*parts, f"host {self.host}" if self.host >= 0 else ""] if p)
        return f"[{self.code}] {self.cause}" + (f" ({where})" if where else "")


class Wire(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages between processes. They are encoded as compact arrays with a short tag."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it is immutable


# --- which blame is kept if several hosts report why one gang failed --------------------------------------------------

# Codes with which a host reports that another host failed: its collective broke off, or the files that it wrote were
# removed meanwhile. The other host reports the cause itself, or its lease runs out.
OF_ANOTHER = frozenset(("peer", "discarded"))


def better(known: Blame | None, reported: Blame | None) -> Blame | None:
    """Return the known blame, unless it only says that another host failed and the reported one gives the cause."""
    if known is None:
        return reported
    if reported is not None and known.code in OF_ANOTHER and reported.code not in OF_ANOTHER:
        return reported
    return known
