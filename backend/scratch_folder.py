"""Folders, in the temporary directory or another, that last as long as their process, also if that is killed.

A process that ends in order removes its folder. What killed ones have left, the next process of the same user that
makes one removes. The lock on a file inside says that the owner lives: the kernel releases it when the process ends.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "seaway-"
OWNER = ".owner"


class ScratchFolder(tempfile.TemporaryDirectory[str]):
    """`kind`: a word for its name. `below`: where it is; None: in the temporary directory."""

    def __init__(self, kind: str = "", below: Path | None = None) -> None:
        sweep(below or Path(tempfile.gettempdir()))
        super().__init__(prefix=f"{PREFIX}{kind}-" if kind else PREFIX, dir=below, ignore_cleanup_errors=True)
        self._lock = -1
        with suppress(OSError):  # a file system without locks: nobody will sweep this folder
            fresh = Path(self.name) / f"{OWNER}.new"
            self._lock = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fresh.rename(fresh.with_name(OWNER))  # it is locked as long as it has this name

    def cleanup(self) -> None:
        super().cleanup()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(directory: Path) -> None:
    """Remove what dead processes of this user have left here."""
    for folder in directory.glob(f"{PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # its owner lives, or somebody else removes it now
        finally:
            os.close(lock)
