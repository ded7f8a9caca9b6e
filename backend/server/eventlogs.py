"""The event log of a controller, in a file: all events since its start, so that they can be replayed. `--record` has
one for each start, in a folder: ev.1, ev.2 ...

    controller --Recorder--> LogFile --a thread, twice a second--> FILE (gzip)
    FILE --read--> core.record.eventlog.Log --machine_of--> a controller that gets the same events

A process that is killed leaves what it had written until half a second before; `partial` reads such a file.

A start has one file, however large: a log begins with a new controller, so a second file of the same start would be of
no use without the first, and neither could be deleted before the other. Earlier starts are kept up to a number of
bytes, not of starts: so much disk is all that they take, and a controller that fails at once again and again leaves
only small files, which do not displace the log that shows why.

Neighbours: `server`, which records; `core.record.eventlog`, which has the format.
"""

import functools
import gzip
import inspect
import logging
import os
import re
import stat
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from core.controller import Config, Controller
from core.model import Cluster, Impossible, spans
from core.record import MAGIC, Log, LogAbout, LogError, Recorder, Trace, decode
from core.schedule.policy import Policy

from ..plain_files import opener
from .policy_loading import known_class, name_of
from .state_folder import HeldFolder

EVERY = 0.5  # seconds between writes
LEVEL = 1  # of gzip: it makes a log five times smaller; more effort gains little
PIECE = 1 << 20  # bytes that are read, or unpacked, at a time
# Bytes that a log may unpack to, and for each byte of its file. Calls with 4 KiB of zeros each come to 100.
MOST, MOST_TIMES = 64 << 20, 400
NAME = re.compile(r"ev\.([1-9][0-9]{0,8})")
KEPT = 4 << 30  # bytes of the logs of earlier starts
Make = Callable[[], Policy]
Plain = int | float | str | bool | None  # what a setting of a policy may be
log = logging.getLogger("seaway.controller")


class LogFile:
    """A sink for `Recorder`: a thread of its own writes what is put. `lost` says why, when writing has failed (for
    example because the disk is full)."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("xb")
        except FileExistsError:
            raise Impossible(f"the event log {path} is there already: give another name, or remove it") from None
        except OSError as error:
            raise Impossible(f"the event log {path} cannot be written: {error.strerror}") from None
        self.path, self.lost = path, ""  # why the file is incomplete
        self._packed = gzip.GzipFile(fileobj=self._file, mode="wb", compresslevel=LEVEL, mtime=0)
        self._pieces: deque[bytes] = deque()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="event log", daemon=True)
        self._thread.start()

    def write(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._over.wait(EVERY):
                self._write()
            self._write()
            self._packed.close()
            self._file.close()
        except OSError as error:  # a full disk must not stop a cluster
            self._pieces = deque(maxlen=0)
            self.lost = (
                f"the event log {self.path} could not be written any more ({error.strerror}), and nothing has been "
                f"recorded since: the part that was written can be read with --partial"
            )
            log.error("%s", self.lost)
            for file in (self._packed, self._file):  # each of them tries once more to write its buffer
                with suppress(OSError):
                    file.close()

    def _write(self) -> None:
        found = []
        while self._pieces:
            found.append(self._pieces.popleft())
        if found:
            self._packed.write(b"".join(found))
            self._packed.flush(zlib.Z_SYNC_FLUSH)
            self._file.flush()


class Recording(Recorder):
    """Takes the place of a controller: passes events on, and records them."""

    def __init__(self, controller: Controller, path: Path, make: Make, now: int) -> None:
        self.file = LogFile(path)
        found = about(controller.cluster, controller.config, make, controller.incarnation, controller.starts)
        super().__init__(controller, found, start=now, sink=self.file.write)

    def close(self) -> None:
        super().close()
        self.file.close()


# --- a folder with a log of each start ------------------------------------------------------------------------------


@contextmanager
def next_log(folder: Path | None, most: int = KEPT) -> Iterator[Path | None]:
    """The file for this start. Meanwhile no other controller records in the folder. The oldest logs go, if all have
    more than `most` bytes (0: no limit); that of the last start stays. Raises AccessRefused, or Impossible."""
    if folder is None:
        yield None
        return
    with HeldFolder(folder, "--record", "ev.lock"):
        try:
            if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
                raise Impossible(f"--record {folder}: no file can be made there")
            logs = logs_in(folder)
            nbytes = 0
            for at, (number, size) in enumerate(sorted(logs.items(), reverse=True)):
                nbytes += size
                if most and nbytes > most and at:
                    (folder / f"ev.{number}").unlink(missing_ok=True)
        except OSError as error:
            raise Impossible(f"--record {folder}: {error.strerror}") from None
        after = (folder / f"ev.{number}" for number in count(max(logs, default=0) + 1))
        yield next(path for path in after if not os.path.lexists(path))  # something else may have the name


def logs_in(folder: Path) -> dict[int, int]:
    """The size of each log, by the number of its start. What else is there counts for nothing."""
    found = {}
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            if (match := NAME.fullmatch(path.name)) and stat.S_ISREG((about := path.lstat()).st_mode):
                found[int(match[1])] = about.st_size
    return found


def chosen_log(path: Path, start: int | None) -> Path:
    """The log of this start in a folder; None: of the latest one. The path of a log is itself."""
    if not os.path.isdir(path):
        if start is not None:
            raise Impossible(f"--start {start}: {path} is no folder of --record")
        return path
    try:
        logs = logs_in(path)
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror}") from None
    if not logs:
        raise LogError(f"{path} has no event log: there is no file ev.1, ev.2 ...")
    if start is not None and start not in logs:
        raise Impossible(f"--start {start}: {path} has the starts {spans.text(spans.of(logs))}")
    return path / f"ev.{start or max(logs)}"


# --- reading a log --------------------------------------------------------------------------------------------------


def read(path: Path, *, partial: bool = False) -> Log:
    """Reads a log. Raises LogError if it is no log, damaged, of another version, or cut short (unless `partial`)."""
    text, whole = _unpacked(path)
    if not whole and not partial:
        raise LogError(
            f"{path} was cut short: its writer was killed, or still writes. The part that was written can be read: "
            f"add --partial"
        )
    try:
        found = decode(text, partial=partial)
        _recorded(found.about)
        return found
    except LogError as error:
        raise LogError(f"{path}: {error}") from None


def _unpacked(path: Path) -> tuple[bytearray, bool]:
    """What the file unpacks to, and whether it has its end. A few bytes may unpack to very many: a bomb."""
    unpacker, text = zlib.decompressobj(wbits=31), bytearray()
    try:
        with open(path, "rb", opener=opener) as file:
            most = MOST + MOST_TIMES * os.fstat(file.fileno()).st_size
            while not unpacker.eof and (piece := unpacker.unconsumed_tail or file.read(PIECE)):
                text += unpacker.decompress(piece, PIECE)
                if not text.startswith(MAGIC[: len(text)]):
                    break  # `decode` says so
                if len(text) > most:
                    raise LogError(f"{path} is no event log: it unpacks to more than {most:,} bytes")
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror}") from None
    except zlib.error as error:
        raise LogError(f"{path} is no event log, or is damaged: {error}") from None
    return text, unpacker.eof


# --- the recorded controller ----------------------------------------------------------------------------------------


class _Recorded(msgspec.Struct, frozen=True):
    """What a log keeps of a controller. `settings`: the policy's; None: they were no plain values."""

    controller: Config
    incarnation: int
    starts: tuple[int, ...]
    settings: dict[str, Plain] | None


def about(cluster: Cluster, config: Config, make: Make, incarnation: int, starts: tuple[int, ...] = ()) -> LogAbout:
    """What is needed to make the controller again. A policy is recorded by name and settings; a hash of its source
    shows whether it has changed."""
    made = make()
    return LogAbout(
        core=version("seaway"), machine="controller", policy=name_of(type(made)),
        policy_source=source_of(type(made)),
        config=msgspec.to_builtins(_Recorded(config, incarnation, starts, _settings(made))),
        cluster=msgspec.to_builtins(cluster),
    )  # fmt: skip


def cluster_of(found: LogAbout) -> Cluster:
    return _recorded(found)[1]


def _recorded(found: LogAbout) -> tuple[_Recorded, Cluster]:
    if found.machine != "controller":
        raise LogError(f"it is the log of {found.machine!r}; only a controller's log can be replayed")
    try:
        return msgspec.convert(found.config, _Recorded), msgspec.convert(found.cluster, Cluster)
    except (msgspec.ValidationError, Impossible, RecursionError) as error:
        raise LogError(f"its first record describes no controller: {' '.join(str(error).split())}") from None


def machine_of(found: LogAbout, *, policy: Make | None = None, trace: Trace | None = None) -> Controller:
    """The controller as at its start. `policy` makes the policy, if a log may not name it (a class of a program)."""
    given, cluster = _recorded(found)
    if policy is None:
        make = policy_of(found)
    else:
        make = policy
        _check_source(type(make()), found)
    try:
        return Controller(
            cluster, make, given.controller, incarnation=given.incarnation, starts=given.starts, trace=trace
        )
    except Exception as error:  # the recorded controller raised none
        raise LogError(f"its controller cannot be made: {type(error).__name__}: {error}") from None


def policy_of(found: LogAbout) -> Make:
    """What makes the recorded policy. A log may be a stranger's: it chooses among Seaway's policies and those of
    installed packages. Whatever else it names is neither imported nor called."""
    kind, settings = known_class(found.policy), _recorded(found)[0].settings
    if kind is None or settings is None:
        raise LogError(
            f"it was made under policy {found.policy!r}, which cannot be made from here: a log may only name Seaway's "
            f"policies and those of installed packages. If you trust its code, add --policy FILE.py:NAME, or "
            f"module:NAME (for whatif: --recorded-policy): a class, or a function that makes a policy"
        )
    _check_source(kind, found)
    takes = inspect.signature(kind)
    try:
        given = takes.bind(**settings).arguments
    except TypeError as error:
        raise LogError(f"the settings of its policy do not fit {kind.__name__}{takes}: {error}") from None
    for name, value in given.items():
        usual = takes.parameters[name].default
        if any(isinstance(usual, plain) and not isinstance(value, plain) for plain in (int | float, str)):
            raise LogError(f"the settings of its policy do not fit {kind.__name__}{takes}: {name}={value!r:.60}")
    return functools.partial(kind, **settings)


def _check_source(kind: type[Policy], found: LogAbout) -> None:
    if (source := source_of(kind)) != found.policy_source:
        raise LogError(
            f"it was made under policy {found.policy!r}, whose source has changed since ({found.policy_source!r:.20}, "
            f"now {source!r}): its decisions cannot be reproduced"
        )


def source_of(kind: type[Policy]) -> str:
    """A hash of the source of the class and its base classes."""
    digest = blake2b(digest_size=8)
    for each in kind.__mro__:
        if issubclass(each, Policy):
            try:
                digest.update(inspect.getsource(each).encode())
            except (OSError, TypeError):  # a class that was typed at a prompt
                digest.update(each.__qualname__.encode())
    return digest.hexdigest()


def _settings(made: Policy) -> dict[str, Plain] | None:
    """The arguments with which it was made. None: it does not store them under their names, or they are not plain
    values; then only the program that made it can make it again."""
    found: dict[str, Any] = {name: getattr(made, name, made) for name in inspect.signature(type(made)).parameters}
    return found if all(isinstance(value, Plain) for value in found.values()) else None
