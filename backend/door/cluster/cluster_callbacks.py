"""A session's streams to hosts, on which its programs call functions of its client's process.

    a host --asked--> ClusterCallbacks --> SessionCallbacks --> the client
           <--answered-----------------<--------------------

They are opened when the first program with callbacks is compiled: one to each host of which the session may have
devices, again when it was lost. `key` is in the program's code, and tells a host whose program it is. Neighbours:
`agent.callback_lines`, the other end; `cluster_executables`.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Mapping
from functools import partial

from backend.auth import Access
from backend.contents import CallbackFault, callbacks
from backend.streams import Connection, StreamRefused, dial
from backend.wire import framing
from core.link import Unreadable

from ..session import SessionCallbacks

log = logging.getLogger("seaway.door")
AGAIN = 1.0  # seconds until a host that was lost is tried again


class ClusterCallbacks:
    """`directory`: addresses of hosts, by "host/NUMBER". `hosts`: the numbers of those that may call. `mine`: the name
    of this client towards a host, and its proof."""

    def __init__(
        self, directory: Mapping[str, str], hosts: Collection[int], access: Access,
        mine: Callable[[int], tuple[str, str]],
    ) -> None:  # fmt: skip
        self.key = secrets.token_hex(16)
        self._directory, self._hosts, self._access, self._mine = directory, hosts, access, mine
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, session: SessionCallbacks) -> None:
        """From now on. A host that calls before its stream is there waits for it."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [loop.create_task(self._keep(host, session)) for host in self._hosts]

    async def _keep(self, host: int, session: SessionCallbacks) -> None:
        while True:
            address = self._directory.get(f"host/{host}")
            try:
                if address is not None:
                    name, proof = self._mine(host)
                    await self._serve(await dial(address, self._access, name, proof, asks=callbacks.STREAM), session)
            except (OSError, StreamRefused) as error:
                log.info("host %d takes no stream for callbacks: %s", host, error)
            await asyncio.sleep(AGAIN)

    async def _serve(self, connection: Connection, session: SessionCallbacks) -> None:
        joined = callbacks.Joined()

        def arrived() -> None:
            try:
                while (frame := connection.next()) is not None:
                    if (call := joined.take(bytes(frame.message))) is not None:
                        session.ask(call[1], partial(_answer, connection, call[0]))
            except (Unreadable, CallbackFault) as error:
                connection.close(str(error))

        try:
            connection.put(framing.REQUEST, self.key.encode())
            connection.flush()
            connection.start(arrived)
            await connection.over.wait()
        finally:
            connection.close()

    def close(self) -> None:
        for each in self._tasks:
            each.cancel()


def _answer(connection: Connection, number: int, body: bytes) -> None:
    for piece in callbacks.pieces(number, body):
        connection.put(framing.REPLY, piece)
    connection.flush()
