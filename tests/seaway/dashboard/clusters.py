"""Clusters in a thread of their own, for tests that block in a browser meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any

from tests.backend.cluster import Cluster, chain

PATIENCE = 120.0


class LoopThread:
    """An asyncio loop in a thread, and the clusters that live on it."""

    def __enter__(self) -> LoopThread:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._open: dict[int, AbstractAsyncContextManager[Cluster]] = {}
        return self

    def __exit__(self, *about: object) -> None:
        for number in list(self._open):
            self._leave(number)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def begin(self, context: AbstractAsyncContextManager[Cluster]) -> Cluster:
        found: Cluster = self.run(context.__aenter__()).result(PATIENCE)
        self._open[id(found)] = context
        return found

    def end(self, found: Cluster) -> None:
        self._leave(id(found))

    def run(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _leave(self, number: int) -> None:
        self.run(self._open.pop(number).__aexit__(None, None, None)).result(PATIENCE)


async def busy(found: Cluster, name: str = "ann") -> None:
    """Run programs of three steps, one after the other, until cancelled."""
    user = found.user(name)
    devices = found.server.cluster.devices
    program = user.call(lambda client, now: client.register(chain(3, devices), now))
    while True:
        await user.ended(user.submit(program, bytes(32)).run)
