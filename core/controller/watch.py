"""The watchdog: every wait has a soft bound, at which it is reported by name, and a hard one, at which it is ended.

A module that begins to wait says so (`begin`), with what to do at each bound; it says when the wait is over (`end`).
Bounds scale with the expected cost: `floor + factor * expected`. Only `next_wakeup` and `now` know of time.

A wait that begins and ends with almost every gang, as an island's for its oldest, is made once (`standing`) and begun
anew by setting two numbers: it is not in the heap.
"""

from collections.abc import Callable, Hashable
from heapq import heappop, heappush

import msgspec


class Bounds(msgspec.Struct, frozen=True):
    """How patient the controller is, in nanoseconds."""

    floor: int = 5_000_000_000
    factor: int = 10
    hard: int = 6  # the hard bound is so many times the soft one ...
    contents: int = 12  # ... and no more than this for a put or get: how long bytes take is known
    absent: int = 600_000_000_000  # for hosts that are not there, when a request cannot be met without them
    compile: int = 300_000_000_000  # expected of a compilation
    byte: int = 10  # expected of a byte that is moved: 100 MB/s is slow

    def soft(self, expected: int) -> int:
        return self.floor + self.factor * expected

    @property
    def answer(self) -> int:
        """How long hosts have to say what they have launched."""
        return self.floor // 10


class Wait(msgspec.Struct, eq=False):
    on_soft: Callable[[int], None]
    on_hard: Callable[[int], None]
    at: tuple[int, int] = (0, 0)  # its next bound, and a number: ties are broken by the order in which waits began
    hard_at: int = 0
    active: bool = False


class Watchdog:
    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._waits: dict[Hashable, Wait] = {}
        self._standing: list[Wait] = []
        # of `_waits`; one that is over is dropped later
        self._heap: list[tuple[tuple[int, int], Hashable, Wait]] = []
        self.begun = 0  # waits that have begun: ties are broken by it

    def begin(
        self, key: Hashable, now: int, expected: int, on_soft: Callable[[int], None], on_hard: Callable[[int], None]
    ) -> None:
        """A second `begin` under one key starts its bounds anew."""
        soft = self.bounds.soft(expected)
        self._begin(key, now + soft, now + self.bounds.hard * soft, Wait(on_soft, on_hard))

    def begin_for(self, key: Hashable, now: int, length: int, on_end: Callable[[int], None]) -> None:
        """A grace: something happens when so much time has passed, unless it is ended before."""
        self._begin(key, now + length, now + length, Wait(on_end, on_end))

    def end(self, key: Hashable) -> None:
        self._waits.pop(key, None)

    def waits_for(self, key: Hashable) -> bool:
        return key in self._waits

    def standing(self, on_soft: Callable[[int], None], on_hard: Callable[[int], None]) -> Wait:
        """A wait that its owner begins by setting `at`, `hard_at` and `active`, and ends by `active = False`."""
        wait = Wait(on_soft, on_hard)
        self._standing.append(wait)
        return wait

    def __len__(self) -> int:
        return len(self._waits) + sum(wait.active for wait in self._standing)

    def next_wakeup(self) -> int | None:
        found = self._next()
        return found[0][0] if found is not None else None

    def wakeup(self, now: int) -> None:
        while (found := self._next()) is not None and found[0][0] <= now:
            at, key, wait = found
            if key is not None:
                heappop(self._heap)
            if at[0] < wait.hard_at:
                self.begun += 1
                wait.at = (wait.hard_at, self.begun)
                if key is not None:
                    heappush(self._heap, (wait.at, key, wait))
                wait.on_soft(now)
            else:
                if key is None:
                    wait.active = False
                else:
                    del self._waits[key]
                wait.on_hard(now)

    def _next(self) -> tuple[tuple[int, int], Hashable, Wait] | None:
        """The first bound, and whose it is; the key of a standing wait is None."""
        heap, waits = self._heap, self._waits
        while heap and waits.get(heap[0][1]) is not heap[0][2]:
            heappop(heap)
        found = heap[0] if heap else None
        for wait in self._standing:
            if wait.active and (found is None or wait.at < found[0]):
                found = (wait.at, None, wait)
        return found

    def _begin(self, key: Hashable, soft_at: int, hard_at: int, wait: Wait) -> None:
        self.begun += 1
        wait.at, wait.hard_at = (soft_at, self.begun), hard_at
        self._waits[key] = wait
        heappush(self._heap, (wait.at, key, wait))
