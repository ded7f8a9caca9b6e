"""What a controller's folder keeps for its next start: which agent has which number, and clients' code.

Agents and clients that come back to a controller that was started anew do not say again what they have said. A folder
that cannot be written is told of once; the controller goes on, and its next start knows less.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from pathlib import Path

import msgspec

from .blobs import hash_of
from .calls import Enrol

log = logging.getLogger("seaway.controller")


class Known:
    """The agents, in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told = False

    def read(self) -> dict[int, Enrol]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[int, Enrol])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("what earlier starts knew of agents cannot be read: %s: %s", self._path, error)
            return {}

    def write(self, agents: dict[int, Enrol]) -> None:
        try:
            _replace(self._path, msgspec.json.encode(agents))
        except OSError as error:
            if not self._told:
                self._told = True
                log.warning("a later start will not know its agents: %s: %s", self._path, error.strerror)


class CodeFolder:
    """Code by its hash, a file each. In any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told = False

    def keep(self, name: str, code: bytes) -> None:
        path = self._folder / name
        try:
            if not path.exists():
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                _replace(path, code)
        except OSError as error:
            if not self._told:
                self._told = True
                log.warning("a later start will not have clients' code: %s: %s", path, error.strerror)

    def find(self, name: str) -> bytes | None:
        if not re.fullmatch("[0-9a-f]{64}", name):
            return None
        try:
            code = (self._folder / name).read_bytes()
        except OSError:
            return None
        return code if hash_of(code) == name else None


def _replace(path: Path, data: bytes) -> None:
    """All of it or nothing, whenever we die."""
    handle, fresh = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(fresh, path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise
