"""Two ends of a stream, a port with callers, and a loop in which an unhandled error fails the test."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from backend.auth import Access, RefusalLogger, TurnGate
from backend.streams import Connection, GrpcPipe, Listener, StreamRefused, Tls, ask, dial, new_loop
from backend.wire.framing import (
    MAGIC,
    MESSAGE,
    NO_CONTENTS,
    PACKET,
    Answered,
    Contents,
    FrameReader,
    Opening,
    StreamFrame,
    framed,
    read,
)
from core.link import Unreadable

PATIENCE = 20.0  # seconds, after which a wait has failed
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop, "uvloop": new_loop}


either_loop = pytest.mark.parametrize("loop", LOOPS)


def drive(work: Coroutine[Any, Any, None], factory: Callable[[], asyncio.AbstractEventLoop] = new_loop) -> None:
    """Runs the work. Errors that a loop would only log, such as those in callbacks, fail the test."""
    unhandled: list[dict[str, Any]] = []

    async def whole() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
        async with asyncio.timeout(2 * PATIENCE):
            await work

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(whole())
    assert not unhandled


class End:
    """One end of a stream. It keeps the frames that come, once it is started."""

    def __init__(self, sock: socket.socket, tls: Tls | None = None) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.connection = Connection(asyncio.get_running_loop(), sock, tls, "ipv4:127.0.0.1:1", "a stream")
        self.frames: list[StreamFrame] = []
        self.wrong: Unreadable | None = None
        self._changed = asyncio.Event()

    def start(self) -> None:
        self.connection.start(self._arrived)

    def _arrived(self) -> None:
        try:
            while (frame := self.connection.next()) is not None:
                self.frames.append(frame)
        except Unreadable as error:
            self.wrong = error
        self._changed.set()

    async def until(self, done: Callable[[], Any]) -> None:
        """Waits until `done` is true after bytes have come."""
        async with asyncio.timeout(PATIENCE):
            while not done():
                self._changed.clear()
                await self._changed.wait()

    async def got(self, count: int) -> list[StreamFrame]:
        await self.until(lambda: len(self.frames) >= count)
        return self.frames

    async def over(self) -> str:
        """Waits for the end of the stream; returns its reason."""
        async with asyncio.timeout(PATIENCE):
            await self.connection.over.wait()
        return self.connection.why

    def close(self) -> None:
        self.connection.close()


def pair() -> tuple[End, End]:
    here, there = socket.socketpair()
    return End(here), End(there)


@asynccontextmanager
async def both(ends: tuple[End, End] | None = None) -> AsyncIterator[tuple[End, End]]:
    """The two ends of a stream, neither started; both are closed at last."""
    ends = ends or pair()
    try:
        yield ends
    finally:
        for end in ends:
            end.close()


def packet(message: bytes, contents: Contents = NO_CONTENTS) -> StreamFrame:
    return StreamFrame(PACKET, message, contents)


def say(end: End, *sent: StreamFrame) -> None:
    for each in sent:
        end.connection.put(*each)
    end.connection.flush()


def talk(end: End, sent: list[StreamFrame]) -> None:
    """Says each frame by itself."""
    for each in sent:
        say(end, each)


def in_threads(count: int, act: Callable[[int], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=act, args=(number,)) for number in range(count)]
    for each in threads:
        each.start()
    return threads


async def joined(threads: list[threading.Thread]) -> None:
    for each in threads:
        await asyncio.to_thread(each.join, PATIENCE)
        assert not each.is_alive()


# --- a port -----------------------------------------------------------------------------------------------------------


class Port:
    """A listener that admits "peer/N" as peer N, and its callers."""

    def __init__(self, access: Access, **options: Any) -> None:
        self.access, self.refusals, self.gate = access, RefusalLogger(), TurnGate()
        self.listener = Listener(access, self.refusals, self.gate, **options)
        self.taken: dict[int, Connection] = {}  # the latest of each peer
        self._all: list[Connection] = []
        self._callers: list[Caller] = []
        self.address = ""

    def open(self, address: str) -> None:
        self.address = self.listener.open(address)
        self.listener.start(self._admit, self._accept)

    def _admit(self, opening: Opening, connection: Connection) -> int:
        kind, _, number = opening.name.partition("/")
        if kind != "peer" or not number.isdigit():
            raise StreamRefused("name", f"no process here is called {opening.name!r}")
        return int(number)

    def _accept(self, peer: int, connection: Connection) -> None:
        self.taken[peer] = connection
        self._all.append(connection)

    async def stop(self) -> None:
        for caller in self._callers:
            caller.writer.transport.abort()
        await self.listener.close()
        for each in self._all:
            each.close()
        self.refusals.close()
        self.gate.close()

    @property
    def refused(self) -> dict[str, int]:
        """How many callers were refused, by kind."""
        return dict(+self.refusals.totals)

    async def until_refused(self, **counts: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.refused != counts:
                await asyncio.sleep(0.002)

    async def no_nameless(self) -> None:
        """Waits until no connection is about to introduce itself, or be told why it was refused."""
        async with asyncio.timeout(PATIENCE):
            while self.listener._tasks:
                await asyncio.sleep(0.002)

    async def gets_in(self, name: str = "peer/7") -> None:
        """An honest caller opens a stream and is heard."""
        connection = await self.dial(name)
        try:
            connection.put(PACKET, b"hello")
            connection.flush()
            assert await heard_by(self.taken[int(name[5:])]) == StreamFrame(PACKET, b"hello", b"")
        finally:
            connection.close()

    async def dial(self, name: str = "peer/1", access: Access | None = None) -> Connection:
        return await dial(self.address, access or self.access, name, "")

    async def ask(self, request: Any, access: Access | None = None) -> bytes:
        return await ask(self.address, access or self.access, request, PATIENCE)

    async def caller(self, said: bytes = b"", host: str = "127.0.0.1") -> Caller:
        """Connects from this address of the machine, and says something."""
        place, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(place, int(port), local_addr=(host, 0))
        writer.write(said)
        self._callers.append(Caller(reader, writer))
        return self._callers[-1]


class Caller:
    """A connection that says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        host, port = writer.get_extra_info("sockname")[:2]
        self.address = f"ipv4:{host}:{port}"

    async def heard(self) -> bytes:
        """All that the other end says until it closes the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""
            finally:
                self.writer.close()


async def heard_by(connection: Connection) -> StreamFrame:
    """The next frame of a stream that was not started."""
    async with asyncio.timeout(PATIENCE):
        return await connection.greeting(MESSAGE)


def answer_in(data: bytes) -> Answered:
    """The answer of which these bytes consist."""
    reader = FrameReader()
    reader.space()[: len(data)] = data
    reader.came(len(data))
    frame = reader.next()
    assert frame is not None
    found = read(frame.kind, frame.message)
    assert isinstance(found, Answered)
    assert reader.next() is None
    return found


def refusals_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "seaway.refused"]


def only_line(caplog: pytest.LogCaptureFixture) -> str:
    """The only refusal in the log."""
    (line,) = refusals_in(caplog)
    return line


def opening(name: str = "peer/1", token: str = "", **fields: str) -> bytes:
    """How a caller begins, without TLS."""
    return MAGIC + framed(Opening(token=token, name=name, **fields))


@asynccontextmanager
async def port(
    access: Access | None = None, bind: str = "127.0.0.1:0", pipe: Callable[[RefusalLogger], GrpcPipe] | None = None,
    **options: Any,
) -> AsyncIterator[Port]:  # fmt: skip
    found = Port(access or Access(), **options)
    if pipe is not None:
        found.listener._pipe = pipe(found.refusals)
    found.open(bind)
    try:
        yield found
    finally:
        await found.stop()
