"""Remembers what was found about clients' code on this machine: one small file for each code, by its contents.

The file's lock says that another process checks the same code now, so agents that share the folder check it once.
Results of limits are not kept, since another attempt may succeed. It does not import JAX. Neighbour: `code_gate`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ..plain_files import own_folder

log = logging.getLogger("seaway.pjrt")
VERSION = 1  # of the checks: raise it when code that passed might not pass any more
MOST = 8192  # codes that are kept in memory
LOOK_S = 0.02  # seconds between attempts to get the lock
FOLDER = "checked"  # beside compiled code


class Verdict(msgspec.Struct, frozen=True):
    """The verdict on one code."""

    kind: str  # "ok"; "refused": its contents; "failed": it does not compile; "room": it took too much memory
    reason: str = ""

    @property
    def spends(self) -> bool:
        return self.kind == "room"


class Verdicts:
    """`folder`: where verdicts are kept; None: only in this process."""

    def __init__(self, folder: Path | None) -> None:
        self._known: dict[str, Verdict] = {}
        self._folder = None if folder is None else own_folder(folder / FOLDER)

    @contextmanager
    def about(self, key: str, patience: float) -> Iterator[VerdictSlot]:
        """Holds the lock for this key among the processes that share the folder. It waits for another holder for
        `patience` seconds at most, since that one may be stuck."""
        known = self._known.get(key)
        file = None if known is not None or self._folder is None else _locked(self._folder / f"{key}.json", patience)
        try:
            slot = VerdictSlot(known, file)
            yield slot
            if slot.verdict is not None:
                self._known[key] = slot.verdict
            while len(self._known) > MOST:
                self._known.pop(next(iter(self._known)))
        finally:
            if file is not None:
                os.close(file)  # this releases the lock


class VerdictSlot:
    """`verdict`: the known one; None: there is none yet."""

    def __init__(self, known: Verdict | None, file: int | None) -> None:
        self._file = file
        self.verdict = _read(file) if known is None and file is not None else known

    def keep(self, verdict: Verdict) -> None:
        if verdict.kind not in ("ok", "refused"):
            return
        self.verdict = verdict
        if self._file is not None:
            try:
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, msgspec.json.encode(verdict), 0)
            except OSError as error:
                log.warning("the verdict on a client's code is not kept: %s", error.strerror)


def _locked(path: Path, patience: float) -> int | None:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        log.warning("%s: %s; the verdict on this code is not kept", path, error.strerror)
        return None
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(LOOK_S)
        except OSError as error:  # some file systems have no locks
            log.info("%s: %s; other agents may check the same code at the same time", path, error.strerror)
            break
    return file


def _read(file: int) -> Verdict | None:
    try:
        return msgspec.json.decode(os.pread(file, 1 << 16, 0), type=Verdict)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
