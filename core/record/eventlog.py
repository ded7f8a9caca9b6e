"""Everything that a machine was told, and when: enough to run it again, command for command, to the byte.

    recorder = Recorder(machine, about)         # in place of the machine; `about` says what it is
    commands = recorder.handle(event, now)      # as ever
    data = recorder.log()                       # or give Recorder a `sink`, and write as you go

    log = decode(data)                          # LogError, if it is not whole and ours
    commands = replay(log, lambda about: Controller(...))       # Diverged, at the first event that differs

As bytes: MAGIC, then records. A record is its length (varint), its crc32 chained to those before, and
msgpack: first `About`, then one `Entry` an event, last `Trailer`, without which a log is known to be cut
short. An entry has the time since the one before, the event (see eventcodec), and a hash of all commands up
to and including its own.

A client's calls carry what it had waited for and how long it thought (`Submit.waited`, `think`), so the same
log also drives a what-if, where answers come at other times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Protocol
from zlib import crc32

import msgspec

from .eventcodec import EventCodec, Unknown

FORMAT = 1
MAGIC = b"seaway log\n"
_NOT_READ = (msgspec.MsgspecError, ValueError, RecursionError)


class LogError(Exception):
    """This is no whole log of ours; the text says what is wrong, and where."""


class Diverged(Exception):
    """A replay did something else. `index` is the first event after which commands differ."""

    def __init__(self, index: int, entry: Replayable, replayed: str) -> None:
        recorded = (
            entry.commands or "(only a hash was recorded: Recorder(..., keep_commands=True) keeps the text)"
        )
        super().__init__(
            f"event {index} at {entry.now}: {entry.event}\n  recorded: {recorded}\n  replayed: {replayed}"
        )
        self.index = index
        self.event = entry.event
        self.recorded = recorded
        self.replayed = replayed


class Machine(Protocol):
    def handle(self, event: Any, now: int, /) -> Sequence[Any]: ...

    def next_wakeup(self) -> int | None: ...


class About(msgspec.Struct, frozen=True, tag="about"):
    """The first record: what made this log. The caller fills in what replay needs to make it again."""

    core: str = ""  # version
    machine: str = ""  # which one: "controller", "executor of host 3"
    policy: str = ""
    policy_source: str = ""  # its hash
    config: Any = None  # builtins and Structs; decoded as builtins: msgspec.convert(about.config, Config)
    cluster: Any = None
    start: int = 0
    format: int = FORMAT
    vocabulary: str = ""  # hash of all kinds of events and messages, and their fields


class Entry(msgspec.Struct, frozen=True, tag=0, array_like=True):
    since: int  # nanoseconds since the event before
    kind: int
    commands_hash: int
    fields: msgspec.Raw
    commands: str = ""


class Trailer(msgspec.Struct, frozen=True, tag=1, array_like=True):
    """Nothing was lost behind the last entry."""


class Replayable(msgspec.Struct, frozen=True):
    """An entry as it is used: its event whole, its time absolute."""

    now: int
    event: Any
    commands_hash: int
    commands: str = ""  # as text, if they were kept


class Log(msgspec.Struct, frozen=True):
    about: About
    entries: tuple[Replayable, ...]
    whole: bool = True


class CommandHash:
    """Of all commands so far, in order."""

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
    """Wraps a machine: passes events on, keeps them and a hash of what came out.

    `more`: kinds of events beyond core's own effects and messages. `sink`: is handed each piece of the log as
    it is made. An event that the machine refuses (Illegal) has changed nothing and is not recorded."""

    def __init__(
        self, machine: Machine, about: About | None = None, *, start: int = 0, keep_commands: bool = False,
        sink: Callable[[bytes], object] | None = None, more: Sequence[type[msgspec.Struct]] = (),
    ) -> None:  # fmt: skip
        self.machine = machine
        self._pieces: list[bytes] = []
        self._sink = sink if sink is not None else self._pieces.append
        self._keep_commands = keep_commands
        self._codec = EventCodec(more)
        self._encoder = msgspec.msgpack.Encoder()
        self._hash = CommandHash()
        self._crc = 0
        self._now = start
        about = msgspec.structs.replace(
            about or About(), start=start, format=FORMAT, vocabulary=self._codec.vocabulary
        )
        self._sink(MAGIC)
        self._write(about)

    def handle(self, event: Any, now: int) -> Sequence[Any]:
        kind, fields = self._codec.encode(event)  # first: what cannot be recorded must not happen
        commands = self.machine.handle(event, now)
        commands_hash = self._hash.add(commands)
        text = "; ".join(map(str, commands)) if self._keep_commands else ""
        self._write(Entry(now - self._now, kind, commands_hash, msgspec.Raw(fields), text))
        self._now = now
        return commands

    def next_wakeup(self) -> int | None:
        return self.machine.next_wakeup()

    def close(self) -> None:
        """The last record. A log without it still holds all its events, and is known to be cut short."""
        self._write(Trailer())

    def log(self) -> bytes:
        """All of it so far, as a whole log. Only without a `sink`."""
        trailer, _ = _record(self._encoder.encode(Trailer()), self._crc)
        return b"".join([*self._pieces, trailer])

    def _write(self, record: msgspec.Struct) -> None:
        piece, self._crc = _record(self._encoder.encode(record), self._crc)
        self._sink(piece)


def decode(
    data: bytes, *, core: str | None = None, partial: bool = False, more: Sequence[type[msgspec.Struct]] = ()
) -> Log:
    """`core`: the version it must be of. `partial`: take a log that was cut short, as far as it goes."""
    if not data.startswith(MAGIC):
        raise LogError(f"this is no event log: it starts with {data[:12]!r}, not with {MAGIC!r}")
    records = _records(data, partial)
    codec = EventCodec(more)
    about = _about(next(records, None), core, codec)
    reader = msgspec.msgpack.Decoder(Entry | Trailer)
    entries: list[Replayable] = []
    now, whole = about.start, False
    for at, payload in records:
        if whole:
            raise LogError(f"at byte {at}: something follows the last record")
        try:
            record = reader.decode(payload)
            if isinstance(record, Trailer):
                whole = True
                continue
            now += record.since
            event = codec.decode(record.kind, record.fields)
        except (*_NOT_READ, Unknown) as error:
            raise LogError(f"event {len(entries)}, at byte {at}: {error}") from None
        entries.append(Replayable(now, event, record.commands_hash, record.commands))
    if not whole and not partial:
        raise LogError(
            f"cut short at byte {len(data)}, after event {len(entries) - 1}: it has no last record"
        )
    return Log(about, tuple(entries), whole)


def replay(log: Log, make_machine: Callable[[About], Machine]) -> list[Sequence[Any]]:
    """The commands that came of each event, the same to the byte; `Diverged` where they are not."""
    return list(replayed(log, make_machine(log.about)))


def replayed(log: Log, machine: Machine) -> Iterator[Sequence[Any]]:
    """The same, one event after another: whoever takes them may look at the machine in between."""
    hashed = CommandHash()
    for index, entry in enumerate(log.entries):
        try:
            commands = machine.handle(entry.event, entry.now)
        except Exception as error:  # whatever it is: the recorded machine did not raise it
            raise Diverged(index, entry, f"{type(error).__name__}: {error}") from error
        if hashed.add(commands) != entry.commands_hash:
            raise Diverged(index, entry, "; ".join(map(str, commands)) or "(no commands)")
        yield commands


def _about(first: tuple[int, bytes] | None, core: str | None, codec: EventCodec) -> About:
    if first is None:
        raise LogError(f"cut short at byte {len(MAGIC)}: its first record is missing")
    try:
        format_found = msgspec.msgpack.decode(first[1]).get("format")
        if format_found != FORMAT:
            raise LogError(f"at byte {first[0]}: a log of format {format_found}; this reads format {FORMAT}")
        about = msgspec.msgpack.decode(first[1], type=About)
    except (*_NOT_READ, AttributeError) as error:
        raise LogError(f"at byte {first[0]}: its first record is not readable: {error}") from None
    if core is not None and about.core != core:
        raise LogError(f"at byte {first[0]}: recorded by core {about.core!r}; this is {core!r}")
    if about.vocabulary != codec.vocabulary:
        raise LogError(
            f"at byte {first[0]}: recorded by core {about.core!r}, whose events or messages have other fields"
            f" than this one's (vocabulary {about.vocabulary}, here {codec.vocabulary})"
        )
    return about


def _record(payload: bytes, crc: int) -> tuple[bytes, int]:
    crc = crc32(payload, crc)
    length, size = bytearray(), len(payload)
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes(length) + crc.to_bytes(4, "big") + payload, crc


def _records(data: bytes, partial: bool) -> Iterator[tuple[int, bytes]]:
    """(where it starts, what it holds)."""
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
            at = len(data) + 1  # the length itself is cut
        end = at + 4 + size
        if end > len(data):
            if partial:
                return
            raise LogError(f"cut short at byte {len(data)}: the record at byte {start} is not whole")
        payload = data[at + 4 : end]
        crc = crc32(payload, crc)
        if crc != int.from_bytes(data[at : at + 4], "big"):
            raise LogError(f"at byte {start}: damaged (its checksum does not fit)")
        yield start, payload
        at = end
