"""Files of a checkpoint, read as if a stranger had made them, and written so that they survive a power failure.

A file is read only if it is a regular one of the size that it should have, inside the folder: no part of its name may
be a link. A chunk ends with its checksum (CRC-32C, as zarr's codec `crc32c` has it). Nothing of a size that a file
states is taken into memory before that size has been compared with the file's.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..plain_files import settle
from .documents import CheckpointError

Array = np.ndarray[Any, Any]
FDS = "/proc/self/fd"
SUM = 4  # bytes of a checksum
# bytes read and summed at a time: still in the cache, and no other thread waits long for a sum
PIECE = 256 << 10
LARGEST_DOCUMENT = 64 << 20  # bytes of a zarr.json
READERS = 8  # threads that read: their caller waits for them
WRITERS = 2  # ... that write, while steps go on in this process: more would delay those
FIX = "restore another step, or bring the file back from a copy; `seaway checkpoint verify` names all damaged files"


class Damaged(CheckpointError):
    """A file of a checkpoint that is missing, or is not as it was written."""

    def __init__(self, folder: Path, name: str, what: str, fix: str = FIX) -> None:
        what = "".join(each if each.isprintable() else "?" for each in what)  # it may quote a stranger
        super().__init__(f"checkpoint {folder}: file {name} {what}; {fix}")
        self.name, self.what = name, what


class Missing(Damaged):
    """There is no such file."""


def crc32c() -> Callable[[int, Array], int]:
    """The function that goes on with a checksum. Raises CheckpointError if its package is not installed."""
    try:
        from google_crc32c import extend
    except ImportError:
        raise CheckpointError(
            "checkpoints need google-crc32c, which is not installed here; on every host: "
            "pip install 'seaway[checkpoint]'"
        ) from None
    found: Callable[[int, Array], int] = extend
    return found


def in_threads(work: Iterable[Callable[[], None]], threads: int = READERS) -> None:
    """Does all of it, a few at a time. Raises the first error; what has not begun by then is not done."""
    pool = ThreadPoolExecutor(threads, "checkpoint files")
    waiting: deque[Future[None]] = deque()
    try:
        for each in work:
            waiting.append(pool.submit(each))
            if len(waiting) == 2 * threads:
                waiting.popleft().result()
        while waiting:
            waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


# --- reading ------------------------------------------------------------------------------------------------------


def opened(folder: Path, name: str) -> BinaryIO:
    """A file below the folder. Raises Damaged."""
    at = -1
    try:
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        *parents, last = name.split("/")
        for part in parents:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        if not stat.S_ISREG(os.stat(last, dir_fd=at, follow_symlinks=False).st_mode):
            raise OSError(errno.ENOTDIR, "")
        return os.fdopen(os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at), "rb")
    except FileNotFoundError:
        raise Missing(folder, name, "is missing") from None
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise Damaged(folder, name, "is no file, or lies behind a link") from None
        raise Damaged(folder, name, f"cannot be read: {error.strerror}") from None
    finally:
        if at >= 0:
            os.close(at)


def document(folder: Path, name: str) -> bytes:
    """The text of a document. Raises Damaged."""
    with opened(folder, name) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_DOCUMENT:
            raise Damaged(folder, name, f"has {size} bytes, and no such document has that many")
        return file.read(size)


def stored_sum(folder: Path, name: str, nbytes: int) -> str:
    """The checksum at the end of a chunk. Raises Damaged."""
    with opened(folder, name) as file:
        _has_size(folder, name, file, nbytes + SUM)
        file.seek(nbytes)
        return _told(file.read(SUM))


def read_chunk(folder: Path, name: str, nbytes: int, listed: str, into: Array | None, *, ends: bool = True) -> None:
    """Reads a chunk and compares its checksum. `listed`: which one it has in a list; "": there is no list. `ends`:
    whether the file ends with it. `into`: bytes; None: it is only read. Raises Damaged."""
    extend, crc = crc32c(), 0
    scratch = np.empty(min(PIECE, nbytes), np.uint8) if into is None else None
    try:
        with opened(folder, name) as file:
            _has_size(folder, name, file, nbytes + (SUM if ends else 0))
            for at in range(0, nbytes, PIECE):
                size = min(PIECE, nbytes - at)
                part = into[at : at + size] if into is not None else scratch[:size]  # type: ignore[index]
                if file.readinto(part) != size:  # type: ignore[attr-defined]
                    raise Damaged(folder, name, "has become shorter while it was read")
                if ends or listed:
                    crc = extend(crc, part)
            stored = file.read(SUM) if ends else b""
    except OSError as error:
        raise Damaged(folder, name, f"cannot be read: {error.strerror}") from None
    found = crc.to_bytes(SUM, "little")
    if ends and stored != found:
        raise Damaged(folder, name, "is damaged: its checksum is wrong")
    if listed and listed != _told(found):
        raise Damaged(folder, name, "is not the one that was saved here: another part, or of another save")


def _has_size(folder: Path, name: str, file: BinaryIO, wanted: int) -> None:
    size = os.fstat(file.fileno()).st_size
    if size != wanted:
        raise Damaged(folder, name, f"has {size} bytes, and should have {wanted}")


def _told(stored: bytes) -> str:
    return f"{int.from_bytes(stored, 'little'):08x}"


# --- writing ------------------------------------------------------------------------------------------------------


@contextmanager
def held(folder: Path) -> Iterator[int]:
    """A folder to write to, by its real path. If it is removed meanwhile, and made again, that is another one."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.path.isdir(FDS) and os.readlink(f"{FDS}/{at}") != os.fspath(folder):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        yield at
    finally:
        os.close(at)


def write_chunk(at: int, name: str, contents: Array, *, ends: bool = True) -> str:
    """Writes contents. Returns their checksum, with which the file `ends`."""
    extend, crc = crc32c(), 0
    contents = np.ascontiguousarray(contents).reshape(-1).view(np.uint8)
    with _created(at, name) as file:
        for first in range(0, contents.size, PIECE):
            part = contents[first : first + PIECE]
            crc = extend(crc, part)
            file.write(part.data)
        found = crc.to_bytes(SUM, "little")
        if ends:
            file.write(found)
    return _told(found)


def write_document(at: int, name: str, text: bytes) -> None:
    with _created(at, name) as file:
        file.write(text)


def remove_in(at: int, name: str) -> None:
    with suppress(FileNotFoundError), _inside(at, name) as (folder, last):
        os.unlink(last, dir_fd=folder)


def settle_in(at: int, name: str) -> None:
    """Blocks until a file is on disk, or a folder's names. To write many and then to settle them is faster than one
    after the other, since a file system writes its journal for all that have changed."""
    with _inside(at, name) as (folder, last):
        handle = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _created(at: int, name: str) -> BinaryIO:
    """The folders between are made. None of them is a link: a client may have put it there."""
    with _inside(at, name, make=True) as (folder, last):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe is not waited for
        file = os.fdopen(os.open(last, flags, 0o666, dir_fd=folder), "wb")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        return file


@contextmanager
def _inside(at: int, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The folder that a name is in, and its last part."""
    *parents, last = name.split("/")
    here = os.dup(at)
    try:
        for part in parents:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=here)
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        yield here, last
    finally:
        os.close(here)


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it, so that their names are on disk. Other hosts may make it at the same time."""
    try:
        folder.mkdir()
    except (FileNotFoundError, NotADirectoryError):
        make_folder(folder.parent)
        make_folder(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is no folder") from None
    else:
        settle(folder.parent)
