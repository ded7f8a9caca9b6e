"""Cores of a machine that has fewer cores than threads: first come, first served.

    share = cores.share(process, ENQUEUE)             a thread of a process
    share.ask(order, begin, ...)                      `begin(...)` is called when the thread has a core
    share.give_back(at)                               the thread keeps the core until `at`

A thread keeps a core for one item and all its consequences; it is never interrupted. Requests of the same nanosecond
are put in a canonical order, after all else of that nanosecond, so that both fidelities serve the same one first.

In a Python process, one thread works at a time, however many cores there are. What a device computes on these cores
is no Python thread, and runs in slices. Machines on which no thread can ever wait have no `Cores`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from math import log
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..engine import LATE, SimClock
from ..engine import jitter as chance
from ..network import rank

if TYPE_CHECKING:
    from ..hosts import Process

LATER = LATE + 1  # threads choose their next item at LATE; cores are handed out when all have chosen
Order = tuple[int, int]

# Threads of a process, in the order in which they are served at the same nanosecond.
READ, PASS_ON, ENQUEUE, COMPLETE, CONTENTS, REPORTS, PREPARE, WRITE, CALL, SEND, DEVICE = range(11)
STALLS = 0x57A11  # the source of randomness for stalls
THREADS = (
    "read",
    "pass on",
    "enqueue",
    "complete",
    "contents",
    "reports",
    "prepare",
    "write",
    "call",
    "send",
    "device",
)


class Ask:
    """A request for a core. `key`: its place among the requests of the same nanosecond."""

    __slots__ = ("args", "begin", "key", "share")

    def __init__(self, key: tuple[Any, ...], share: Share, begin: Callable[..., None], args: Any) -> None:
        self.key, self.share, self.begin, self.args = key, share, begin, args


class Cores:
    """The cores of one machine.

    `one_at_a_time` names the Python process of a peer: threads of one process run one at a time; None: no such bound.
    `stalls`: what delays its threads.
    """

    def __init__(
        self, clock: SimClock, number: int, one_at_a_time: Callable[[int], object] | None = None,
        stalls: CoreStalls | None = None,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._stalls = stalls
        self.free = self.number = number
        self.process_of = one_at_a_time
        self._at_work: set[object] = set()
        self._count = 0
        self._new: list[Ask] = []  # requests of this nanosecond
        self._line: deque[Ask] = deque()
        self._called = False  # cores are handed out later in this nanosecond
        # by (process, thread); turns that go on have their start subtracted
        self._spent: Counter[tuple[int, int]] = Counter()
        self._going_on: Counter[tuple[int, int]] = Counter()

    @property
    def spent(self) -> Counter[tuple[int, int]]:
        """Nanoseconds of core time so far, by (process, thread)."""
        now = self._clock.now
        return Counter(
            {thread_key: some + self._going_on[thread_key] * now for thread_key, some in self._spent.items()}
        )

    def share(self, owner: Process, thread: int) -> Share:
        return Share(self, owner, thread)

    def ask(self, order: Order, share: Share, begin: Callable[..., None], args: Any) -> None:
        self._count += 1
        key = rank(share.owner.name), share.thread, order, self._count
        self._new.append(Ask(key, share, begin, args))
        self._look()

    def give_back(self, share: Share, at: int) -> None:
        share.lasted = at - share.begun
        thread_key = share.owner.name, share.thread
        self._spent[thread_key] += at
        self._going_on[thread_key] -= 1
        if at > self._clock.now:
            self._clock.at(at, self._come_free, share)
        else:
            self._come_free(share)

    def _come_free(self, share: Share) -> None:
        self.free += 1
        if share.process is not None:
            self._at_work.discard(share.process)
        self._look()

    def _look(self) -> None:
        if not self._called:
            self._called = True
            self._clock.at(self._clock.now, self._hand_out, priority=LATER)

    def _hand_out(self) -> None:
        self._called = False
        self._new.sort(key=attrgetter("key"))
        self._line += self._new
        self._new = []
        left: deque[Ask] = deque()  # requests whose process works already
        while self.free and self._line:
            ask = self._line.popleft()
            share = ask.share
            if not share.owner.alive:
                continue  # a dead process needs no core
            if share.process is not None:
                if share.process in self._at_work:
                    left.append(ask)
                    continue
                self._at_work.add(share.process)
            self.free -= 1
            self._give_core(ask)
        self._line.extendleft(reversed(left))

    def _give_core(self, ask: Ask) -> None:
        """Gives a thread a core: it begins after a stall."""
        share, stall = ask.share, 0
        if share.process is not None and self._stalls is not None:
            stall = self._stalls.of(share.lasted)
        share.begun = self._clock.now + stall
        thread_key = share.owner.name, share.thread
        self._spent[thread_key] -= share.begun
        self._going_on[thread_key] += 1
        if stall:
            self._clock.at(share.begun, ask.begin, *ask.args)
        else:
            ask.begin(*ask.args)


class CoreStalls:
    """Random delays of threads by other work on their core: the system's, another user's, a page fault.

    On average, one in `every` nanoseconds of a thread's work, `each` nanoseconds long.
    """

    def __init__(self, every: int, each: int, seed: int) -> None:
        self._every, self._each = every, each
        self._source = chance.key(seed, STALLS)
        self._count = 0

    def of(self, work: int) -> int:
        """Nanoseconds of delay before a turn; `work`: how long such turns last."""
        self._count += 2
        if chance.fraction(self._source, self._count) * self._every >= work:
            return 0
        return round(-log(1.0 - chance.fraction(self._source, self._count + 1)) * self._each)


class Share:
    """One thread of a process, or a pool of threads. `lasted`: the length of its last turn."""

    __slots__ = ("_cores", "begun", "lasted", "owner", "process", "thread")

    def __init__(self, cores: Cores, owner: Process, thread: int) -> None:
        self._cores, self.owner, self.thread = cores, owner, thread
        self.begun = self.lasted = 0
        python = cores.process_of if thread != DEVICE else None
        self.process = python(owner.name) if python else None

    def ask(self, order: Order, begin: Callable[..., None], *args: Any) -> None:
        self._cores.ask(order, self, begin, args)

    def give_back(self, at: int) -> None:
        self._cores.give_back(self, at)

    def work(self, order: Order, cost: int, then: Callable[..., object], *args: Any) -> None:
        """For a pool: takes a core for `cost`, and then calls `then`."""
        self.ask(order, self._begin, cost, then, args)

    def _begin(self, cost: int, then: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._cores._clock.at(self._cores._clock.now + cost, self._worked, then, args)

    def _worked(self, then: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._cores.give_back(self, self._cores._clock.now)
        then(*args)
