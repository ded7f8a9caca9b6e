"""Turns of unary calls: how much of an asyncio loop calls may use, and which waiting call is next.

    handler --turn(address)--> waits in its connection's queue, within its host's --> answers --> is charged

A controller works for its members in the same loop that answers calls from strangers. So calls of all hosts
together get a share of its time (`SHARE`). The next call is from the host that has used the least CPU, and within
that host from the connection that has used the least. At most `ROOM` calls wait. Beyond that, the last call of the
host with the most waiting calls is refused, after a delay: a caller that is answered at once asks again at once. A
call's message is read when it is its turn, so unread messages stay with their senders. A slow one delays its own host.

`CallTurns` decides and has no clock; `TurnGate` runs it in a loop. Neighbours: `calls`, `health`, `node`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Generator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from .refusal_log import host_of

SHARE = 0.25  # of the loop's time
BURST = 20_000_000  # most nanoseconds that can be saved up
CALL = 300_000  # nanoseconds that a call costs beside the measured time: gRPC's own work for it in this loop
ROOM = 1024  # calls that may wait
AT_ONCE = 4  # calls that are answered at the same time; each may wait for a thread or a disk
READING = 10.0  # seconds for the message of a call whose turn it is
READERS = 8  # messages of one host that are awaited at the same time
SLOWLY = 0.25  # seconds until a caller learns that it was refused for want of room ...
SLOW = 4096  # ... unless so many such callers wait already
SLICE = 1_000_000  # nanoseconds that one stream's messages take before others have a turn

T = TypeVar("T")
R = TypeVar("R")


class Busy(Exception):
    """There is no room for another waiting call."""


class Queue(Generic[T]):
    """The calls of one connection, or of one host. taken: nanoseconds used; a new queue begins at the value of the
    queue that was chosen last. reached: `taken` of the connection that was chosen last."""

    __slots__ = ("reached", "taken", "waiting", "within")

    def __init__(self, taken: int) -> None:
        self.taken, self.reached = taken, 0
        self.waiting: deque[T] = deque()  # if this is a connection
        self.within: dict[str, Queue[T]] = {}  # if this is a host: its connections


class CallTurns(Generic[T]):
    """Decides which call is next. `address`: of a connection. Waiting items are opaque; time is in nanoseconds."""

    def __init__(self, now: int, share: float = SHARE, burst: int = BURST, room: int = ROOM) -> None:
        self._share, self._burst, self._room = share, burst, room
        self._credit, self._since = float(burst), now
        self._hosts: dict[str, Queue[T]] = {}
        self._reached = 0  # `taken` of the host that was chosen last
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def wait(self, host: str, address: str, item: T) -> T | None:
        """Adds a waiting call. Without room, returns the call to refuse: this one, or the busiest host's last."""
        queue = self._hosts.get(host)
        if queue is None:
            queue = self._hosts[host] = Queue(self._reached)
        mine = queue.within.get(address)
        if mine is None:
            mine = queue.within[address] = Queue(queue.reached)
        mine.waiting.append(item)
        self._count += 1
        return self._last_of_most() if self._count > self._room else None

    def _last_of_most(self) -> T:
        host = max(self._hosts, key=lambda each: _length(self._hosts[each]))
        within = self._hosts[host].within
        address = max(within, key=lambda each: len(within[each].waiting))
        out = within[address].waiting.pop()
        self._left(host, address)
        return out

    def next(self, now: int, held: Container[str] = ()) -> tuple[T, str, str] | None:
        """The next call, with its host and address; None if no call waits or the share is used up. `held`: hosts
        whose calls must wait for other calls of the same host."""
        self._earn(now)
        hosts = [each for each in self._hosts if each not in held]
        if not hosts or self._credit <= 0:
            return None
        host = min(hosts, key=lambda each: self._hosts[each].taken)
        queue = self._hosts[host]
        address = min(queue.within, key=lambda each: queue.within[each].taken)
        mine = queue.within[address]
        item = mine.waiting.popleft()
        for each in (queue, mine):
            each.taken += CALL
        # A later queue begins behind this turn; otherwise a new one would always be first.
        self._reached, queue.reached = queue.taken, mine.taken
        self._credit -= CALL
        self._left(host, address)
        return item, host, address

    def _left(self, host: str, address: str) -> None:
        self._count -= 1
        within = self._hosts[host].within
        if not within[address].waiting:
            del within[address]
        if not within:
            del self._hosts[host]

    def charge(self, host: str, address: str, spent: int) -> None:
        """Charges what a call took beside CALL. A host without waiting calls has no queue, and is not charged."""
        self._credit -= spent
        queue = self._hosts.get(host)
        if queue is not None:
            queue.taken += spent
            if address in queue.within:
                queue.within[address].taken += spent

    def ready_at(self, now: int, held: Container[str] = ()) -> int | None:
        """When the share allows another call, if a call waits that may have it."""
        self._earn(now)
        if all(each in held for each in self._hosts):
            return None
        return now if self._credit > 0 else now + int(-self._credit / self._share) + 1

    def forget(self, host: str, address: str, item: T) -> None:
        """Removes a waiting call that has given up."""
        queue = self._hosts.get(host)
        mine = queue.within.get(address) if queue is not None else None
        if mine is not None and item in mine.waiting:
            mine.waiting.remove(item)
            self._left(host, address)

    def _earn(self, now: int) -> None:
        self._credit = min(float(self._burst), self._credit + (now - self._since) * self._share)
        self._since = now


def _length(queue: Queue[Any]) -> int:
    return sum(len(each.waiting) for each in queue.within.values())


class TurnGate:
    """Gives calls their turns, in one asyncio loop."""

    def __init__(self) -> None:
        self._turns: CallTurns[asyncio.Future[bool]] = CallTurns(time.monotonic_ns())
        self._timer: asyncio.TimerHandle | None = None
        self._inside = self._slow = 0
        self._reading: Counter[str] = Counter()  # by host

    @asynccontextmanager
    async def turn(self, address: str, strange: bool = False) -> AsyncIterator[CallTurn]:
        """Waits for a turn. Raises Busy. `strange`: the caller has no token, and competes only with such callers."""
        host = ("?" if strange else "") + host_of(address)
        await self._entered(host, address)
        turn = CallTurn(self, host, address)
        try:
            yield turn
        finally:
            self._turns.charge(host, address, turn.spent)
            self._move(-1)

    async def _entered(self, host: str, address: str) -> None:
        entered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        out = self._turns.wait(host, address, entered)
        if out is not None:
            out.set_result(False)
        self._admit()
        try:
            may = await entered
        except BaseException:
            if entered.done() and not entered.cancelled() and entered.result():
                self._move(-1)  # it gave up in the moment in which it got its turn
            else:
                self._turns.forget(host, address, entered)
            raise
        if not may:
            await self._slowly()
            raise Busy(f"{ROOM} calls wait already; ask again later")

    async def _slowly(self) -> None:
        if self._slow < SLOW:
            self._slow += 1
            try:
                await asyncio.sleep(SLOWLY)
            finally:
                self._slow -= 1

    def _move(self, inside: int, host: str = "") -> None:
        """Changes the number of calls inside by `inside`; `host`: the call begins or ends reading its message."""
        self._inside += inside
        if host:
            self._reading[host] -= inside
            if not self._reading[host]:
                del self._reading[host]
        self._admit()

    def _admit(self) -> None:
        now = time.monotonic_ns()
        held = {host for host, count in self._reading.items() if count >= READERS}
        while self._inside < AT_ONCE and (found := self._turns.next(now, held)) is not None:
            item, _, _ = found
            if not item.done():  # otherwise it has given up, and the next call gets the turn
                self._inside += 1
                item.set_result(True)
        # otherwise the next call that leaves calls this again
        due = self._turns.ready_at(now, held) if self._inside < AT_ONCE else None
        if due is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later((due - now) / 1e9, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._admit()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Meter:
    """Measures the time that a call takes of its loop's thread: `await meter.of(work)`."""

    def __init__(self, clock: Callable[[], int] = time.thread_time_ns) -> None:
        self.spent = 0
        self._clock = clock

    def of(self, work: Awaitable[T]) -> Metered[T]:
        return Metered(self, work)

    def step(self, act: Callable[..., R], *given: Any) -> R:
        begun = self._clock()
        try:
            return act(*given)
        finally:
            self.spent += self._clock() - begun


class CallTurn(Meter):
    """The turn of a call that is being answered."""

    def __init__(self, gate: TurnGate, host: str, address: str) -> None:
        super().__init__()
        self._gate, self._host, self.address = gate, host, address

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """While the call's message is being read, which may take long, other calls are answered."""
        self._gate._move(-1, self._host)
        try:
            yield
        finally:
            self._gate._move(1, self._host)


class Metered(Generic[T]):
    """A coroutine whose own steps are measured, but not its waits."""

    def __init__(self, meter: Meter, work: Awaitable[T]) -> None:
        self._meter, self._work = meter, work

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self._work.__await__()
        act, given = steps.send, None
        while True:
            try:
                waits_for = self._meter.step(act, given)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
            try:
                given = yield waits_for
                act = steps.send
            except BaseException as error:
                act, given = steps.throw, error
