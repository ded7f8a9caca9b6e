"""What saves leave behind if they do not end: which of it nobody writes any more, so that the next save deletes it.

    13.partial-8f3a.../    being written
    12.replaced-8f3a.../   what step 12 was, until the new one has its name
    11.old-8f3a.../        being deleted

Each host that writes a part of a step puts a mark into its folder, and holds a lock on it until the step is complete or
its run is over; the system releases the lock of a process that dies. A host deletes the marks of its own machine that
nobody holds, and the one that deletes the last mark deletes the folder. So no living save is touched, on any
machine. Marks of machines that do not come back, and folders without marks, are deleted when they are a day old.
"""

import fcntl
import os
import re
import shutil
import socket
from contextlib import suppress
from itertools import count
from pathlib import Path

from .documents import CheckpointError, Discarded
from .files import make_folder
from .metadata import ROOT_FILE

DAY = 86400.0  # seconds
MARK, BEGUN = ".writing-", ".begun-"
OURS = re.compile(r"(\d+)\.(partial|replaced|old)-([0-9a-f]{16})")
_numbers = count()


class Mark:
    """Says that this process writes into the folder, for as long as this object exists. Where file systems have no
    locks, it says so for a day."""

    def __init__(self, partial: Path) -> None:
        name = f"{_machine()}-{os.getpid()}-{next(_numbers)}"
        begun = partial / f"{BEGUN}{name}"
        self._handle = os.open(begun, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with suppress(OSError):
            fcntl.flock(self._handle, fcntl.LOCK_EX)
        begun.rename(partial / f"{MARK}{name}")  # nobody sees it without its lock
        self.now = os.fstat(self._handle).st_mtime  # by the clock of the file system

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._handle)


def begin(partial: Path) -> Mark:
    """Makes the folder of a save, with our mark. Raises CheckpointError, or Discarded if another host removed it."""
    try:
        make_folder(partial)
        return Mark(partial)
    except OSError as error:
        kind = Discarded if isinstance(error, FileNotFoundError) else CheckpointError
        raise kind(f"checkpoint {partial}: {error.strerror}") from None


def unmark(partial: Path) -> None:
    """The step is complete."""
    for name in _names(partial):
        if name.startswith((MARK, BEGUN)):
            (partial / name).unlink(missing_ok=True)


def tidy(folder: Path, now: float) -> None:
    """Deletes what dead saves have left, as far as possible. `now`: by the clock of the file system."""
    for name in _names(folder):
        known = OURS.fullmatch(name)
        if known is None or (folder / name).is_symlink():
            continue
        step, kind, nonce = known.groups()
        whole = folder / step
        if kind == "replaced" and not (whole / ROOT_FILE).exists():
            # its save died between two renames: the new step was complete
            new = folder / f"{step}.partial-{nonce}"
            with suppress(OSError):
                (new if (new / ROOT_FILE).exists() else folder / name).rename(whole)
        elif kind != "partial" or not alive(folder / name, now):
            shutil.rmtree(folder / name, ignore_errors=True)


def alive(partial: Path, now: float) -> bool:
    """Whether a process may still write to the folder."""
    marks = [partial / name for name in _names(partial) if name.startswith(MARK)]
    if not marks:  # it has just begun, or is just being completed
        return _young(partial, now)
    alive = False
    for mark in marks:
        if _held(mark, now):
            alive = True
        else:
            mark.unlink(missing_ok=True)
    return alive


def _held(mark: Path, now: float) -> bool:
    try:
        handle = os.open(mark, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return _young(mark, now)
    finally:
        os.close(handle)
    return not mark.name.startswith(f"{MARK}{_machine()}-") and _young(mark, now)


def _young(path: Path, now: float) -> bool:
    try:
        return now - path.stat().st_mtime < DAY
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _machine() -> str:
    """Processes of one boot of a machine see each other's locks, in containers too."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()
