"""The event log of a controller, in a file: all events since its start, so that they can be replayed.

    controller --Recorder--> LogFile --a thread, twice a second--> FILE (gzip)
    FILE --read--> core.record.eventlog.Log --machine_of--> a controller that gets the same events

A process that is killed leaves what it had written until half a second before; `partial` reads such a file.
Neighbours: `server`, which records; `core.record.eventlog`, which has the format.
"""

from __future__ import annotations

import gzip
import inspect
import logging
import threading
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from core.controller import Config, Controller
from core.model import Cluster, Impossible
from core.record import Log, LogAbout, LogError, Recorder, Trace, decode
from core.schedule.policy import Policy

EVERY = 0.5  # seconds between writes
LEVEL = 1  # of gzip: it makes a log five times smaller; more effort gains little
Make = Callable[[], Policy]
log = logging.getLogger("seaway.controller")


class LogFile:
    """A sink for `Recorder`: a thread of its own writes what is put. `lost` says why, when writing has failed (for
    example because the disk is full)."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("xb")
        except FileExistsError:
            raise Impossible(
                f"the event log {path} is there already: give another name, or remove it"
            ) from None
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


def read(path: Path, *, partial: bool = False) -> Log:
    """Reads a log. Raises LogError if it is no log, damaged, of another version, or cut short (unless `partial`)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LogError(f"{path} cannot be read: {error.strerror}") from None
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(data)
    except zlib.error as error:
        raise LogError(f"{path} is no event log, or is damaged: {error}") from None
    if not unpacker.eof and not partial:
        raise LogError(
            f"{path} was cut short: its writer was killed. The part that was written can be read: add --partial"
        )
    try:
        return decode(text, partial=partial)
    except LogError as error:
        raise LogError(f"{path}: {error}") from None


# --- the recorded controller ----------------------------------------------------------------------------------------


def about(
    cluster: Cluster, config: Config, make: Make, incarnation: int, starts: tuple[int, ...] = ()
) -> LogAbout:
    """What is needed to make the controller again. A policy is recorded by name and settings; a hash of its source
    shows whether it has changed."""
    made = make()
    return LogAbout(
        core=version("seaway"), machine="controller", policy=name_of(made), policy_source=source_of(made),
        config=msgspec.to_builtins(
            {"controller": config, "incarnation": incarnation, "starts": starts, "settings": _settings(made)}
        ),
        cluster=msgspec.to_builtins(cluster),
    )  # fmt: skip


def machine_of(found: LogAbout, *, policy: Make | None = None, trace: Trace | None = None) -> Controller:
    """The controller as at its start. `policy` makes the policy, if its name is not enough (a class of a program)."""
    if found.machine != "controller":
        raise LogError(f"it is the log of {found.machine!r}; only a controller's log can be replayed")
    given: dict[str, Any] = found.config
    make = policy or (lambda: policy_from(found.policy, given["settings"]))
    source = source_of(make())
    if source != found.policy_source:
        raise LogError(
            f"it was made under policy {found.policy!r}, whose source has changed since ({found.policy_source}, "
            f"now {source}): its decisions cannot be reproduced"
        )
    return Controller(
        msgspec.convert(found.cluster, Cluster), make, msgspec.convert(given["controller"], Config),
        incarnation=given["incarnation"], starts=tuple(given["starts"]), trace=trace,
    )  # fmt: skip


def name_of(made: Policy) -> str:
    return f"{type(made).__module__}:{type(made).__qualname__}"


def policy_from(name: str, settings: dict[str, Any] | None) -> Policy:
    module, _, within = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in within.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError):
        found = None
    if found is None or module == "__main__" or settings is None:
        raise LogError(
            f"it was made under policy {name!r}, which cannot be made from here: add --policy FILE.py:NAME "
            f"(a class, or a function that makes a policy)"
        )
    made: Policy = found(**settings)
    return made


def source_of(made: Policy) -> str:
    """A hash of the source of its class and base classes."""
    digest = blake2b(digest_size=8)
    for kind in type(made).__mro__:
        if issubclass(kind, Policy):
            try:
                digest.update(inspect.getsource(kind).encode())
            except (OSError, TypeError):  # a class that was typed at a prompt
                digest.update(kind.__qualname__.encode())
    return digest.hexdigest()


def _settings(made: Policy) -> dict[str, Any] | None:
    """The arguments with which it was made. None: it does not store them under their names, or they are not plain
    values; then only the program that made it can make it again."""
    found = {name: getattr(made, name, made) for name in inspect.signature(type(made)).parameters}
    plain = all(isinstance(value, (int, float, str, bool, type(None))) for value in found.values())
    return found if plain else None
