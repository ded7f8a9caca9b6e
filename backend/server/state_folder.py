"""A controller's folder for its next start: the number of its starts and its secret, the agents' host numbers, and
clients' code. One process uses it at a time.

When a controller restarts, agents and clients that reconnect need not enrol again or send code again. If the folder
cannot be written, the log and the status say so, and it is tried again. The controller goes on, and its next start
knows less.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_origin

import msgspec

from core.model import Spans
from core.protocol import SuspendedSlices

from ..auth import AccessRefused
from ..contents import LATELY, LIMIT, InUse, hash_of
from ..plain_files import plain_bytes, replace_file
from ..wire import Enrol

NAME = re.compile("[0-9a-f]{64}")
DYING = 2.0  # seconds for the lock of a process that has ended to be released
log = logging.getLogger("seaway.controller")


class HeldFolder:
    """Locks a folder for this process, until it is released or the process ends. The kernel keeps the lock, and no
    child inherits it. Raises Refused, naming the process that has it. `option`: which one named the folder."""

    def __init__(self, folder: Path, option: str = "--state", lock: str = "lock") -> None:
        self._option = option
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(folder / lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise AccessRefused(f"{option} {folder}: it is no folder") from None
        except OSError as error:
            raise AccessRefused(f"{option} {folder}: {error.strerror}") from None
        try:
            self._take(folder)
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, str(os.getpid()).encode(), 0)
        except OSError as error:  # a full disk
            os.close(self._lock)
            raise AccessRefused(f"{option} {folder}: {error.strerror}") from None
        except BaseException:
            os.close(self._lock)
            raise

    def _take(self, folder: Path) -> None:
        until = time.monotonic() + DYING
        while True:
            try:
                return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(self._lock, 32, 0).decode(errors="replace")
                if _lives(owner) or time.monotonic() > until:
                    raise AccessRefused(
                        f"{self._option} {folder} is in use by process {owner or '(unknown)'}: end that one first, "
                        f"or give this one another folder"
                    ) from None
            except OSError as error:
                raise AccessRefused(f"{self._option} {folder} cannot be locked: {error.strerror}") from None
            time.sleep(0.01)  # the owner is about to end, or has not written its id yet

    def __enter__(self) -> HeldFolder:
        return self

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._lock, 0)
        os.close(self._lock)


def new_start() -> int:
    """A number for this start of the controller, which no other start has."""
    return secrets.randbits(62) + 1


def _lives(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # a process of another user
    return True


class SavedState(NamedTuple):
    starts: int
    secret: bytes
    ids: tuple[int, ...]  # of the starts so far, this one last: by them hosts know whether a state is theirs


class _StateFile(msgspec.Struct):
    starts: int
    secret: str  # in hexadecimal digits
    ids: tuple[int, ...] = ()
    sum: str = ""  # of all else; files of earlier versions have none

    def summed(self) -> str:
        return sha256(f"{self.starts} {self.secret} {self.ids}".encode()).hexdigest()[:16]


def remembered(folder: Path | None, forget: bool = False) -> SavedState:
    """The state of earlier starts. This start is written to the folder before any process learns of it. `forget`: as
    if there had been none. The secret is another one then, so agents of these starts are refused, and enrol anew.
    Raises AccessRefused if the file is damaged: with another secret or number, agents would refuse us."""
    if folder is None:
        if forget:
            raise AccessRefused("--forget: of which --state FOLDER? Without one, nothing is remembered")
        return SavedState(0, b"", ())
    path = folder / "controller.json"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if forget:
            for name in ("agents.json", "cluster.json", "suspended.json", "cordons.json", "hosts.json"):
                (folder / name).unlink(missing_ok=True)
        file = None
        if path.exists() and not forget:
            file = msgspec.json.decode(plain_bytes(path), type=_StateFile)
            if file.starts < 0 or len(file.secret) != 64 or file.sum not in ("", file.summed()):
                raise ValueError
        fresh = _StateFile(file.starts + 1 if file else 0, file.secret if file else secrets.token_hex(32))
        fresh.ids = (*(file.ids if file else ()), new_start())
        fresh.sum, secret = fresh.summed(), bytes.fromhex(fresh.secret)
        replace_file(path, msgspec.json.encode(fresh))
        return SavedState(fresh.starts, secret, fresh.ids)
    except OSError as error:
        raise AccessRefused(f"--state {folder}: {error.filename}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise AccessRefused(
            f"--state {folder}: {path} is damaged. Put back a copy of that file, if there is one of this controller's "
            "last start; or add --forget, once: the cluster then starts anew, and clients lose what they hold"
        ) from None


class JsonFile:
    """What a later start is to know, too. `what`: what it does not know if this file cannot be read or written. `old`:
    whether what is out of date is better than nothing. If not, a file that cannot be written anew is removed."""

    def __init__(self, path: Path, kind: Any, what: str, old: bool) -> None:
        self._path, self._kind, self._what, self._old = path, kind, what, old
        self._value: Any = None
        self.wrong = ""  # why the file has not what was written last

    def read(self) -> Any:
        """Nothing, of this kind, if there is no file, or it is damaged."""
        try:
            found = msgspec.json.decode(plain_bytes(self._path), type=self._kind)
            msgspec.msgpack.encode(found)  # no number in it is larger than the event log can hold
            return found
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, OverflowError, RecursionError) as error:
            log.warning("%s of earlier starts cannot be read: %s: %s", self._what, self._path, error)
        return get_origin(self._kind)()

    def write(self, value: Any) -> None:
        self._value, was, self.wrong = value, self.wrong, ""
        try:
            replace_file(self._path, msgspec.json.encode(value), durable=False)
        except OSError as error:
            self.wrong = f"a later start will not know {self._what}: {self._path}: {error.strerror}{self._drop()}"
        if self.wrong and self.wrong != was:
            log.error("%s. It is tried again", self.wrong)
        elif was and not self.wrong:
            log.warning("a later start will know %s again: %s is written", self._what, self._path)

    def _drop(self) -> str:
        try:
            if not self._old:
                self._path.unlink(missing_ok=True)
        except OSError:
            return ". It will believe what that file says, which is out of date: remove it before the next start"
        return ""

    def write_again(self) -> None:
        if self.wrong:
            self.write(self._value)


COUNT = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
KNOWN: dict[str, tuple[Any, str, bool]] = {  # by the file's name: what is in it, and the rest as of `JsonFile`
    "agents": (dict[int, Enrol], "the agents", True),  # by host
    "cordons": (list[int], "cordons", True),  # hosts
    "suspended": (tuple[SuspendedSlices, ...], "what is suspended", False),
    "hosts": (Spans, "which hosts have ever joined", False),
    # accounts, hours of the calendar, and the fields of `Used`
    "usage": (tuple[tuple[str, COUNT, COUNT, COUNT, COUNT, COUNT], ...], "what accounts used", True),
}


def known_file(folder: Path, name: str) -> JsonFile:
    return JsonFile(folder / f"{name}.json", *KNOWN[name])


class CodeFolder:
    """Code by its hash, one file each. Beyond `limit` bytes the oldest files are deleted, except code that is in
    use or was left lately. From any thread."""

    def __init__(self, folder: Path, limit: int = LIMIT, in_use: InUse = tuple, lately: float = LATELY) -> None:
        self._folder, self._limit, self._in_use, self._lately = folder, limit, in_use, lately
        self._nbytes = -1  # of all files; -1: not counted yet
        self._told = False
        self._lock = threading.Lock()

    def keep(self, name: str, code: bytes) -> None:
        path = self._folder / name
        try:
            if self.find(name) is not None:
                os.utime(path)  # it was left again: now it is the newest
            else:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                replace_file(path, code)
                self._bound(len(code))
        except OSError as error:
            if not self._told:
                self._told = True
                log.warning("a later start will not have clients' code: %s: %s", path, error.strerror)

    def _bound(self, more: int) -> None:
        with self._lock:
            if self._nbytes >= 0:
                self._nbytes += more
                if self._nbytes <= self._limit:
                    return
            used, before = self._in_use(), time.time() - self._lately
            files = sorted(_files(self._folder))
            self._nbytes = sum(nbytes for _, nbytes, _ in files)
            for left, nbytes, path in files:
                unfinished = not NAME.fullmatch(path.name)  # its writer died
                if left < before and (unfinished or (self._nbytes > self._limit and path.name not in used)):
                    path.unlink(missing_ok=True)
                    self._nbytes -= nbytes

    def find(self, name: str) -> bytes | None:
        """None: it is not there, or damaged, which is the same to those who ask: its client leaves it again."""
        if not NAME.fullmatch(name):
            return None
        path = self._folder / name
        try:
            code = plain_bytes(path)
        except OSError:
            return None
        if hash_of(code) == name:
            return code
        log.warning("%s is damaged, and deleted: clients that have this code leave it again", path)
        with suppress(OSError):
            path.unlink()
        with self._lock:
            self._nbytes = -1
        return None


def _files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """(when it was left, its bytes, its path) of each file."""
    for path in folder.iterdir():
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        yield found.st_mtime, found.st_size, path
