"""Opens files that may not be what they should be; writes them whole, and makes the names of files last.

To open or read a pipe is to wait for its other end, perhaps for ever, and a device has no end.
"""

import logging
import os
import stat
import tempfile
from pathlib import Path

log = logging.getLogger("seaway.files")
OURS = 0o600  # the mode that a new temporary file has


def opener(path: str, flags: int) -> int:
    """For `open(path, "rb", opener=opener)`: what is no plain file is an OSError."""
    number = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(number).st_mode):
        return number
    os.close(number)
    raise OSError(0, "it is no plain file", path)


def plain_bytes(path: Path) -> bytes:
    with open(path, "rb", opener=opener) as file:
        return file.read()


def own_folder(folder: Path) -> Path | None:
    """Makes the folder, which only this user may write to: other writers could pass code of their own."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        log.warning("%s: %s; nothing is kept there", folder, error.strerror)
        return None
    about = folder.stat()
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        log.warning("%s: other users may write there, so it is not used", folder)
        return None
    return folder


def settle(folder: Path) -> None:
    """Makes sure that the folder's names are on disk, too."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes, *, durable: bool = True, mode: int = OURS) -> None:
    """Writes all of a file or nothing, even if the process dies, or two write at once. `durable`: also if the machine
    loses power."""
    handle, fresh = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if mode != OURS:
                os.fchmod(file.fileno(), mode)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(fresh, path)
        if durable:
            settle(path.parent)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise
