"""Two ends of a stream in one loop, and a loop in which an unhandled error fails the test."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from backend.streams import Connection, Tls, new_loop
from backend.wire.frames import Frame
from core.link import Unreadable

PATIENCE = 20.0  # seconds, after which a wait has failed
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": new_loop}


def drive(
    work: Coroutine[Any, Any, None], factory: Callable[[], asyncio.AbstractEventLoop] = new_loop
) -> None:
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
        self.frames: list[Frame] = []
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

    async def got(self, count: int) -> list[Frame]:
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
