"""A TCP proxy between two processes. All of its connections can be cut, held, held in one direction, or delayed.

TCP loses nothing, so a direction that lets nothing through is one that is held: what was written meanwhile arrives when
it is over, as after an outage of a wire. Runs in the asyncio loop that it is started in.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

PIECE = 1 << 16


class Proxy:
    """Listens on a port of its own, `port`, and connects to `to`. Modes: "", cut, hold, up, down, delay."""

    def __init__(self, to: tuple[str, int], delay: float = 0.2) -> None:
        self.to, self.delay, self.port = to, delay, 0
        self.mode = ""
        self._changed = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> Proxy:
        self._server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def set(self, mode: str) -> None:
        self.mode = mode
        self._changed.set()
        self._changed = asyncio.Event()
        if mode == "cut":
            for writer in list(self._open):
                writer.transport.abort()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self.set("cut")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection, until either side ends it."""
        if self.mode == "cut":
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.to)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, far_writer)
        self._open.update(pair)
        tasks = [
            asyncio.create_task(self._carry(reader, far_writer, "up")),
            asyncio.create_task(self._carry(far_reader, writer, "down")),
        ]
        self._tasks.update(tasks)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in pair:
                each.transport.abort()
            self._open.difference_update(pair)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tasks.difference_update(tasks)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        with suppress(OSError):
            while data := await reader.read(PIECE):
                while self.mode in ("hold", way):
                    await self._changed.wait()
                if self.mode == "delay":
                    await asyncio.sleep(self.delay)
                writer.write(data)
                await writer.drain()
