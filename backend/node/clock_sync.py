"""How far hosts' clocks are from the controller's. Each process of hosts measures it, and tells the controller.

    HostClock (one a process of hosts)  --Tick: what is known so far-->  Clocks (of the controller)
              core.record.clocks        <--Tock: when it came, when this left; when to ask again--

When a host joins, exchanges follow each other quickly, and later every few seconds. They are unary calls beside the
streams, so that they delay no gang and no gang delays them. Core's controller does not see them, and no event log has
them: no decision depends on the time of another machine. All clocks are monotonic: between machines, the offset is
mostly the difference of their start times. Neighbours: `core.record.clocks`, the arithmetic; `gang_times`, which
needs it; `cluster_status`, `metrics`.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable

import grpc
import grpc.aio
import msgspec

from core.record import MILLION, RATE, ClockExchange, Estimate, PeerClock, drift

from ..auth import Access, access
from ..wire import call_messages
from . import calls
from .calls import CallError

S = 1_000_000_000
PAUSE = 4.0  # seconds between exchanges ...
EACH = 0.02  # ... or this much for each process, if longer: 512 processes make 50 calls a second
# the first pause is this part of a full one; each further pause is twice as long as the one before
FIRST = 1 / 256
PATIENCE = 10.0  # seconds to wait for an answer
LATELY = 60 * S  # a process that has not called for so long is not counted any more

log = logging.getLogger("seaway.clocks")


class HostClock:
    """A host process's side. `now`: this process's clock, which stamps its gangs. Use within a loop."""

    def __init__(self, now: Callable[[], int] = time.monotonic_ns) -> None:
        self.now, self.clock = now, PeerClock()
        self.refused = 0  # answers that could not be used
        self._hosts: set[int] = set()
        self._secret = b""
        self._theirs = 0  # identifies the clock that answers
        self._part = FIRST  # part of a full pause: shorter while little is known
        self._task: asyncio.Task[None] | None = None

    def join(self, host: int, secret: bytes, controller: str, shown: Access) -> None:
        """Takes in that a host of this process has its number. All hosts of a process have one controller."""
        self._hosts.add(host)
        self._secret = secret
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep(controller, shown))

    async def leave(self, host: int) -> None:
        self._hosts.discard(host)
        if self._task is not None and not self._hosts:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep(self, controller: str, shown: Access) -> None:
        channel = shown.channel(controller)
        try:
            while True:
                pause = PAUSE
                try:
                    pause = await self._ask(channel, shown)
                except CallError as wrong:
                    log.info("the controller does not tell its time: %s", wrong)
                except (msgspec.MsgspecError, ValueError) as error:
                    self.refused += 1
                    log.warning("the controller's answer about its clock is impossible: %s", error)
                await asyncio.sleep(pause)
        finally:
            await channel.close()

    async def _ask(self, channel: grpc.aio.Channel, shown: Access) -> float:
        """Makes one exchange; returns the seconds until the next."""
        hosts = tuple(sorted(self._hosts))
        proof = access.proof(self._secret, _name(hosts))
        asked = self.now()
        known = self.clock.at(asked) or Estimate(0, -1)
        tick = call_messages.Tick(hosts, proof, asked, known.offset, known.bound, self.clock.jumps)
        tock: call_messages.Tock = await calls.ask(channel, shown, tick, PATIENCE)
        answered = self.now()
        if tock.start != self._theirs:
            if self._theirs:  # the controller was started again, perhaps on another machine
                self.clock.forget(asked)
            self._theirs, self._part = tock.start, FIRST
        jumps = self.clock.jumps
        self.clock.heard(ClockExchange(asked, tock.received, tock.sent, answered))
        if self.clock.jumps > jumps:
            self._part = FIRST
        part, self._part = self._part, min(1.0, 2 * self._part)
        return part * tock.pause / S


class HostOffset(msgspec.Struct, frozen=True):
    at: int  # by our clock, at the earliest
    offset: int  # ours = theirs + offset
    bound: int
    jumps: int


class Clocks:
    """The controller's side. `now`: the clock that stamps its trace."""

    def __init__(self, hosts: Callable[[], int], secret: bytes, now: Callable[[], int]) -> None:
        self._hosts, self._secret, self.now = hosts, secret, now
        self._start = secrets.randbits(60) + 1
        self._told: dict[int, HostOffset] = {}
        self._heard: dict[int, int] = {}  # the first host of a process -> when it last called

    async def answer(self, tick: call_messages.Tick) -> call_messages.Tock:
        """Answers an exchange. Raises Wrong if the caller has not these hosts."""
        received = self.now()
        if not access.proves(self._secret, _name(tick.hosts), tick.proof):
            raise CallError("only hosts are told what time it is", grpc.StatusCode.PERMISSION_DENIED)
        if max(tick.hosts) >= self._hosts():
            raise CallError(f"there is no host {max(tick.hosts)}")
        if tick.bound >= 0:
            told = HostOffset(tick.asked + tick.offset - tick.bound, tick.offset, tick.bound, tick.jumps)
            self._told.update(dict.fromkeys(tick.hosts, told))
        self._heard[tick.hosts[0]] = received
        pause = self._pause(received)
        return call_messages.Tock(self._start, received, self.now(), pause)

    def _pause(self, now: int) -> int:
        """Nanoseconds until the next exchange: longer, the more processes call."""
        if any(now - at > LATELY for at in self._heard.values()):
            self._heard = {host: at for host, at in self._heard.items() if now - at <= LATELY}
        return round(max(PAUSE, EACH * len(self._heard)) * S)

    def of(self, host: int) -> dict[str, int] | None:
        """What is known now of a host's clock, in nanoseconds; `offset`: how far it is ahead of ours."""
        told = self._told.get(host)
        if told is None:
            return None
        bound = told.bound + drift(self.now() - told.at, RATE)
        return {"offset": -told.offset, "bound": bound, "jumps": told.jumps}


def _name(hosts: tuple[int, ...]) -> str:
    return f"clock/{','.join(map(str, hosts))}"


# --- for tests ----------------------------------------------------------------------------------------------------


def shifted(text: str) -> Callable[[], int]:
    """ "SECONDS" or "SECONDS:PPM": a clock that is ahead by this much, and gains this much; raises ValueError.

    For tests of clock synchronisation on one machine, where all clocks are the same. It changes only the times that a
    host reports for its gangs; nothing waits for them or depends on them."""
    seconds, _, rate = text.partition(":")
    ahead, gains, begun = round(float(seconds) * S), int(rate or 0), time.monotonic_ns()

    def now() -> int:
        real = time.monotonic_ns()
        return real + ahead + (real - begun) * gains // MILLION

    return now
