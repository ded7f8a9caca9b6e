"""What one session of a door has of a simulated cluster: core's client, in a simulated process.

    devices --act--> SimulatedLink --> sim's client, after the time that a call takes --> simulated controller, hosts
    devices <--heard-- SimulatedLink <--news-- sim's client

It implements `backend.door.SimulatedLine`, as `RemoteLink` does for a cluster that exists. A session that ends lets its
runs end first: a program need not wait for its last step to have it in the trace. Neighbours: `simulated_time`, which
asks it whether its program waits; `simulated_cluster`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from backend.client import PutOffer
from backend.contents import hash_of, shard_io
from backend.door import StatusCode, StatusError
from core.client import Client
from core.model import Value
from core.protocol import Command, LogLine
from sim.engine import LATE
from sim.hosts import SimClient

if TYPE_CHECKING:
    from .simulated_cluster import SimulatedCluster

log = logging.getLogger("seaway.door")
T = TypeVar("T")
PATIENCE = 10.0  # seconds that the runs of a session which ends may take this machine


class SimulatedLink:
    def __init__(self, cluster: SimulatedCluster, client: SimClient) -> None:
        self.name, self.client = client.title, client
        self.codes: set[str] = set()  # by hash: code of this session
        self.heard: Callable[[Command], None] = lambda command: None
        self.failed: Callable[[StatusError], None] = lambda fault: None
        self._cluster, self._time = cluster, cluster.time
        self._loop = asyncio.get_running_loop()
        client.on_effect = lambda command: self._time.news.append((self, command))
        self.spoke_at = self._loop.time()
        self._waits = self._works = 0
        self._resume: Callable[[], None] | None = None  # called when its thread is free
        self._paid = False  # the time of the next call has passed already
        self._free = False  # calls under way take no time
        self.leaving = self._broken = False
        self._then: list[Callable[[], None]] = []
        self._closed: asyncio.Future[None] = self._loop.create_future()

    # --- calls -----------------------------------------------------------------------------------------------

    def act(self, act: Callable[[Client, int], T]) -> T:
        if self._paid or self._free:
            self._paid = False
            found = self.client.act(act)
        else:
            found = self.client.call(act)
        if self._time.news or self.client.client.expecting:
            self._time.poke()
        return found

    def soon(self, function: Callable[[], None]) -> None:
        """What is released because nobody refers to it any more is no call of the program's, and takes it no time."""
        with suppress(RuntimeError):  # the loop is closed: so are all sessions
            self._loop.call_soon_threadsafe(self._freely, function)

    def _freely(self, function: Callable[[], None]) -> None:
        self._free = True
        try:
            function()
        finally:
            self._free = False

    def now(self) -> int:
        return self._cluster.simulation.now

    def offer(self, buffer: int) -> PutOffer:
        return PutOffer(False)  # of which nothing is read: the simulation moves no contents

    def taken(self, request: int, value: Value) -> Any:
        """Zeros, which take no memory: contents are not the simulation's."""
        return np.broadcast_to(np.zeros((), shard_io.numpy_dtype(value.dtype)), value.shape)

    async def keep(self, blob: bytes) -> None:
        key = hash_of(blob)
        self.codes.add(key)
        self.works()
        try:
            await self._cluster.learn(key, blob)
        finally:
            self.worked()

    def expected(self, code: str, devices: int) -> int:
        return self._cluster.expected(code, devices)

    # --- what the program does -------------------------------------------------------------------------------

    def speaks(self) -> None:
        self.spoke_at = self._loop.time()

    def waits(self) -> None:
        self._waits += 1
        self._time.poke()

    def waited(self) -> None:
        self._waits -= 1

    def works(self) -> None:
        self._works += 1

    def worked(self) -> None:
        self._works -= 1
        self.speaks()
        self._time.poke()

    def calling(self, resume: Callable[[], None]) -> bool:
        if self._paid or self._broken or self.leaving:
            return False
        self._resume = resume
        self._at(self.client.due)
        self._time.poke()
        return True

    def _at(self, when: int) -> None:
        sim = self._cluster.simulation
        sim.clock.at(max(when, sim.now), self._time.news.append, (self, None), priority=LATE)

    @property
    def in_call(self) -> bool:
        return self._resume is not None

    @property
    def at_work(self) -> bool:
        return self._works > 0 and not self.leaving

    @property
    def needs_time(self) -> bool:
        """Whether there is something that only simulated time can bring."""
        if self._broken:
            return False
        return bool(self._waits) or self.in_call or self.client.client.expecting or self.leaving

    # --- what it hears ---------------------------------------------------------------------------------------

    def hears(self, command: Command | None) -> None:
        try:
            if command is None:
                self._come()
            elif isinstance(command, LogLine):
                log.info("client %r: %s", self.name, command.text)
            elif not self.leaving:
                self.heard(command)
        except Exception:
            log.exception("client %r: %s", self.name, type(command).__name__)

    def _come(self) -> None:
        """The time of a call has passed; where cores are short it may have grown meanwhile."""
        if self._resume is None:
            return
        if self.client.free_at > self._cluster.simulation.now:
            self._at(self.client.free_at)
            return
        resume, self._resume, self._paid = self._resume, None, True
        resume()

    def fails(self, text: str) -> None:
        if not self._broken:
            self._broken = True
            resume, self._resume = self._resume, None
            self.failed(StatusError(StatusCode.INTERNAL, text))
            if resume is not None:
                resume()
            self.leave()

    # --- the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        if not self.leaving:
            self.leaving, self._resume = True, None
            self._loop.call_later(PATIENCE, self._break_off)
            self._time.poke()

    def _break_off(self) -> None:
        if not self._closed.done():
            left = self.client.client.unfinished
            log.warning("client %r is closed with %d runs under way", self.name, left)
            self._broken = True
            self.leave()

    @property
    def closed_there(self) -> bool:
        return self.client.client.state == "closed"

    def leave(self) -> None:
        """Closes it if it is to be closed and nothing of it is under way."""
        client = self.client.client
        if not self.leaving or self._closed.done():
            return
        if client.state in ("new", "open", "away") and (self._broken or not client.unfinished):
            self.client.act(lambda client, now: client.close(now))
        if client.state == "closed" or self._broken:
            self._time.links.pop(self, None)
            self._closed.set_result(None)
            for then in self._then:
                then()

    def callbacks(self, islands: Collection[str]) -> None:
        """Nothing is computed that would call."""

    def when_closed(self, then: Callable[[], None]) -> None:
        self._then.append(then)

    async def closed(self) -> None:
        self.close()
        await self._closed
