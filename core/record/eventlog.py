"""The event log of a machine: all its events with their times, from which it can be run again, command for command.

    recorder = Recorder(machine, about)         # use it in place of the machine; `about` describes the machine
    commands = recorder.handle(event, now)      # as the machine's own
    data = recorder.log()                       # or give Recorder a `sink` to write the log as it is made

    log = decode(data)                          # LogError if it is damaged, cut short or of another version
    for commands in replayed(log, Controller(...)): ...         # Diverged at the first event that gives other commands

The bytes are MAGIC, then records. A record is its length (varint), its crc32 (chained to the records before), and
msgpack. The first record is `LogAbout`. One `LogEntry` for each event follows. The last record is `Trailer`, which
shows that the log was not cut short. An entry has the time since the one before, the event (see eventcodec), and a
hash of all commands up to and including its own.

A client's calls say which runs the client had waited for, and how long it thought then (`Submit.waited`, `think`). So
a what-if study can use the same log, with answers at other times.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Protocol, overload
from zlib import crc32

import msgspec

from ..model import SeawayError
from .eventcodec import EventCodec, UnknownKind

FORMAT = 1
MAGIC = b"seaway log\n"
MOST = 33 << 20  # bytes of a record: no connection carries a larger message
MOST_ABOUT = 8 << 20  # bytes of the first
TIMES = 1 << 63  # a time is less than this, as in traces
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


class LogError(SeawayError):
    """The bytes are not a complete event log of this version. The text says what is wrong, and where."""


class Diverged(Exception):
    """A replay gave other commands than were recorded, for the first time at event `index`."""

    def __init__(self, index: int, entry: Replayable, replayed: str) -> None:
        super().__init__(f"event {index} at {entry.now}: {entry.event}\n  replayed: {replayed}")
        self.index = index
        self.event = entry.event
        self.replayed = replayed


class LoggedMachine(Protocol):
    def handle(self, event: Any, now: int, /) -> Sequence[Any]: ...

    def next_wakeup(self) -> int | None: ...


class LogAbout(msgspec.Struct, frozen=True, tag="about"):
    """The first record: a description of the machine. The caller adds what a replay needs to make the machine again."""

    core: str = ""  # version of core
    machine: str = ""  # "controller", or "executor of host 3"
    policy: str = ""
    policy_source: str = ""  # hash of its source
    config: Any = None  # builtins and Structs; decoded as builtins: msgspec.convert(about.config, Config)
    cluster: Any = None
    start: int = 0
    format: int = FORMAT
    vocabulary: str = ""  # hash of all kinds of events and messages, with their fields


class _LogFormat(msgspec.Struct):
    format: int | None = None


class LogEntry(msgspec.Struct, frozen=True, tag=0, array_like=True):
    """The record of one event."""

    since: int  # nanoseconds since the event before
    kind: int
    commands_hash: int
    fields: msgspec.Raw


class Trailer(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """The last record: no entry after this was lost."""


class Replayable(msgspec.Struct, frozen=True):
    """A decoded entry, with its absolute time."""

    now: int
    event: Any
    commands_hash: int


class Entries(Sequence[Replayable]):
    """The entries of a log. Each is decoded when it is asked for: all of them decoded would take ten times the memory
    of their bytes, or a hundred times if somebody made them to."""

    def __init__(self, data: bytes | bytearray, codec: EventCodec) -> None:
        self._data, self._codec = data, codec
        self._from, self._to, self._times = array("q"), array("q"), array("q")
        self._reader = msgspec.msgpack.Decoder(LogEntry)

    def add(self, begin: int, end: int, now: int) -> None:
        for column, value in ((self._from, begin), (self._to, end), (self._times, now)):
            column.append(value)

    def __len__(self) -> int:
        return len(self._times)

    @overload
    def __getitem__(self, index: int) -> Replayable: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Replayable, ...]: ...
    def __getitem__(self, index: int | slice) -> Replayable | tuple[Replayable, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        record = self._reader.decode(self._data[self._from[index] : self._to[index]])
        event = self._codec.decode(record.kind, record.fields)
        return Replayable(self._times[index], event, record.commands_hash)


class Log(msgspec.Struct, frozen=True):
    """A decoded log."""

    about: LogAbout
    entries: Sequence[Replayable]
    whole: bool = True  # whether it has its last record


class CommandHash:
    """The hash of all commands so far, in order."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=8)
        self._encoder = msgspec.msgpack.Encoder()

    def add(self, commands: Sequence[Any]) -> int:
        for command in commands:
            name = type(command).__qualname__.encode()
            body = self._encoder.encode(command)
            self._hash.update(b"%d %d " % (len(name), len(body)))
            self._hash.update(name)
            self._hash.update(body)
        return int.from_bytes(self._hash.digest(), "big")


class Recorder:
    """Wraps a machine: passes events on to it, and records them with a hash of the commands that it returned.

    `sink` gets each piece of the log as it is made. An event that the machine refuses (Illegal) has changed nothing and
    is not recorded.
    """

    def __init__(
        self, machine: LoggedMachine, about: LogAbout | None = None, *, start: int = 0,
        sink: Callable[[bytes], object] | None = None,
    ) -> None:  # fmt: skip
        self.machine = machine
        self._pieces: list[bytes] = []
        self._sink = sink if sink is not None else self._pieces.append
        self._codec = EventCodec()
        self._encoder = msgspec.msgpack.Encoder()
        self._hash = CommandHash()
        self._crc = 0
        self._now = start
        about = msgspec.structs.replace(
            about or LogAbout(), start=start, format=FORMAT, vocabulary=self._codec.vocabulary
        )
        self._sink(MAGIC)
        self._write(about)

    def handle(self, event: Any, now: int) -> Sequence[Any]:
        kind, fields = self._codec.encode(event)  # before the machine gets it: each event must be recorded
        commands = self.machine.handle(event, now)
        self._write(LogEntry(now - self._now, kind, self._hash.add(commands), msgspec.Raw(fields)))
        self._now = now
        return commands

    def next_wakeup(self) -> int | None:
        return self.machine.next_wakeup()

    def close(self) -> None:
        """Write the last record. A log without it has all its events, but counts as cut short."""
        self._write(Trailer())

    def log(self) -> bytes:
        """Return what has been recorded so far as a complete log. This works only without a `sink`."""
        trailer, _ = _record(self._encoder.encode(Trailer()), self._crc)
        return b"".join([*self._pieces, trailer])

    def _write(self, record: msgspec.Struct) -> None:
        piece, self._crc = _record(self._encoder.encode(record), self._crc)
        self._sink(piece)


def decode(data: bytes | bytearray, *, core: str | None = None, partial: bool = False) -> Log:
    """Decode a log; raise LogError if that is not possible.

    `core` is the version that must have recorded it. `partial`: accept a log that was cut short, as far as it goes.
    """
    if not data.startswith(MAGIC):
        raise LogError(f"this is not an event log: it starts with {bytes(data[:12])!r}, not with {MAGIC!r}")
    records = _records(data, partial)
    codec = EventCodec()
    about = _about(next(records, None), core, codec)
    reader = msgspec.msgpack.Decoder(LogEntry | Trailer)
    entries = Entries(data, codec)
    now, whole = about.start, False
    for at, payload, end in records:
        if whole:
            raise LogError(f"at byte {at}: there is more after the last record")
        try:
            record = reader.decode(payload)
            if isinstance(record, Trailer):
                whole = True
                continue
            now += record.since
            codec.decode(record.kind, record.fields)
        except (*_DECODE_ERRORS, UnknownKind) as error:
            raise LogError(f"event {len(entries)}, at byte {at}: {_line(error)}") from None
        if not 0 <= now < TIMES:
            raise LogError(f"event {len(entries)}, at byte {at}: no clock shows the time {now}")
        entries.add(end - len(payload), end, now)
    if not whole and not partial:
        raise LogError(f"cut short at byte {len(data)}, after event {len(entries) - 1}: it has no last record")
    return Log(about, entries, whole)


def replayed(log: Log, machine: LoggedMachine) -> Iterator[Sequence[Any]]:
    """Run a log through this machine, and yield the commands of one event after the other."""
    hashed = CommandHash()
    for index, entry in enumerate(log.entries):
        try:
            commands = machine.handle(entry.event, entry.now)
            # a stranger's numbers may be too large to encode
            alike = hashed.add(commands) == entry.commands_hash
        except Exception as error:  # the recorded machine raised none
            raise Diverged(index, entry, f"{type(error).__name__}: {error}") from error
        if not alike:
            raise Diverged(index, entry, "; ".join(map(str, commands)) or "(no commands)")
        yield commands


def _about(first: tuple[int, bytes | bytearray, int] | None, core: str | None, codec: EventCodec) -> LogAbout:
    if first is None:
        raise LogError(f"cut short at byte {len(MAGIC)}: its first record is missing")
    if len(first[1]) > MOST_ABOUT:
        raise LogError(f"at byte {first[0]}: its first record has {len(first[1]):,} bytes; none is so long")
    try:
        format_found = msgspec.msgpack.decode(first[1], type=_LogFormat).format
        if format_found != FORMAT:
            raise LogError(f"at byte {first[0]}: a log of format {format_found}; this reads format {FORMAT}")
        about = msgspec.msgpack.decode(first[1], type=LogAbout)
    except _DECODE_ERRORS as error:
        raise LogError(f"at byte {first[0]}: its first record is not readable: {_line(error)}") from None
    if core is not None and about.core != core:
        raise LogError(f"at byte {first[0]}: recorded by core {about.core!r}; this is {core!r}")
    if about.vocabulary != codec.vocabulary:
        raise LogError(
            f"at byte {first[0]}: recorded by core {about.core!r}, whose events or messages have other fields"
            f" than this one's (vocabulary {about.vocabulary!r}, here {codec.vocabulary})"
        )
    if not f"{about.core}{about.policy}{about.machine}".isprintable() or not 0 <= about.start < TIMES:
        raise LogError(f"at byte {first[0]}: its first record makes no sense: {about!r:.200}")
    return about


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _record(payload: bytes, crc: int) -> tuple[bytes, int]:
    crc = crc32(payload, crc)
    length, size = bytearray(), len(payload)
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes(length) + crc.to_bytes(4, "big") + payload, crc


def _records(data: bytes | bytearray, partial: bool) -> Iterator[tuple[int, bytes | bytearray, int]]:
    """Yield (where it starts, its payload, where it ends) of each record."""
    at, crc = len(MAGIC), 0
    while at < len(data):
        start, size, shift = at, 0, 0
        while at < len(data):
            size |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if not data[at - 1] & 0x80 or shift > 56:
                break
        else:
            at = len(data) + 1  # the log ends within the length
        if size > MOST:
            raise LogError(f"at byte {start}: a record of {size:,} bytes; no event has more than {MOST:,}")
        end = at + 4 + size
        if end > len(data):
            if partial:
                return
            raise LogError(f"cut short at byte {len(data)}: the record at byte {start} is incomplete")
        payload = data[at + 4 : end]
        crc = crc32(payload, crc)
        if crc != int.from_bytes(data[at : at + 4], "big"):
            raise LogError(f"at byte {start}: damaged (the checksum does not match)")
        yield start, payload, end
        at = end
