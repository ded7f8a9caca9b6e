"""What was found of clients' code before, on this machine: one small file each, by what the code is.

The file's lock says that somebody looks at the same code now, so that agents which share the folder look at it once.
Nothing is kept of code that ran into a limit: another day it may not. Without JAX. Neighbours: `code_gate`.
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

log = logging.getLogger("seaway.pjrt")
VERSION = 1  # of what is looked for: counts up whenever code that was passed might not be any more
MOST = 8192  # codes that are remembered in memory
LOOK_S = 0.02  # seconds between looks whether the other has done
FOLDER = "checked"  # beside compiled code


class Verdict(msgspec.Struct, frozen=True):
    """Of one code; `part`: which of those that are fused in it."""

    kind: str  # "ok"; "refused", for what is in it; "failed": it does not compile; "room": it took too much memory
    part: int = 0
    reason: str = ""


class Verdicts:
    """`folder`: None: nothing outlives this process."""

    def __init__(self, folder: Path | None) -> None:
        self._known: dict[str, Verdict] = {}
        self._folder = None if folder is None else _made(folder / FOLDER)

    @contextmanager
    def about(self, key: str, patience: float) -> Iterator[Slot]:
        """Nobody else on this machine who shares the folder is in here with the same key; but whoever is gets so many
        seconds, and no more: it may be one that stands still."""
        known = self._known.get(key)
        file = (
            None
            if known is not None or self._folder is None
            else _locked(self._folder / f"{key}.json", patience)
        )
        try:
            slot = Slot(known, file)
            yield slot
            if slot.verdict is not None:
                self._known[key] = slot.verdict
            while len(self._known) > MOST:
                self._known.pop(next(iter(self._known)))
        finally:
            if file is not None:
                os.close(file)  # and with it the lock


class Slot:
    """`verdict`: what is known; None: nothing yet."""

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
                log.warning("what was found of a client's code is not kept: %s", error.strerror)


def _made(folder: Path) -> Path | None:
    """Nobody else may write there: who could would pass code of his own."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        log.warning("%s: %s; clients' code is looked at anew at each start", folder, error.strerror)
        return None
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        log.warning("%s: others may write there, so it is not used", folder)
        return None
    return folder


def _locked(path: Path, patience: float) -> int | None:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        log.warning("%s: %s; what is found of this code is not kept", path, error.strerror)
        return None
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(LOOK_S)
        except OSError as error:  # some file systems have no locks
            log.info("%s: %s; others may look at the same code now", path, error.strerror)
            break
    return file


def _read(file: int) -> Verdict | None:
    try:
        return msgspec.json.decode(os.pread(file, 1 << 16, 0), type=Verdict)
    except (OSError, msgspec.DecodeError):
        return None
