"""The watchdog: every wait has a soft bound, at which it is reported by name, and a hard one, at which it is ended.

A room that begins to wait says so (`begin`), with what to do at each bound; it says when the wait is over (`end`).
Bounds scale with the expected cost: `floor + factor * expected`. Only `next_wakeup` and `now` know of time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush

import msgspec


class Bounds(msgspec.Struct, frozen=True):
    """How patient the controller is, in nanoseconds."""

    floor: int = 5_000_000_000
    factor: int = 10
    hard: int = 6  # the hard bound is so many times the soft one ...
    contents: int = 12  # ... and no more than this of a put or get: how long bytes take is known
    absent: int = (
        600_000_000_000  # for hosts that are not there, though what is asked for cannot be had without them
    )
    compile: int = 300_000_000_000  # expected of a compilation
    byte: int = 10  # expected of a byte that is moved: 100 MB/s is slow

    def soft(self, expected: int) -> int:
        return self.floor + self.factor * expected

    @property
    def answer(self) -> int:
        """For all hosts that are asked to say what they have launched."""
        return self.floor // 10


class Wait:
    __slots__ = ("hard_at", "on_hard", "on_soft", "soft_at")

    def __init__(
        self, soft_at: int, hard_at: int, on_soft: Callable[[int], None], on_hard: Callable[[int], None]
    ) -> None:
        self.soft_at = soft_at
        self.hard_at = hard_at
        self.on_soft = on_soft
        self.on_hard = on_hard


class Watchdog:
    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._waits: dict[Hashable, Wait] = {}
        self._heap: list[
            tuple[int, int, Hashable, Wait]
        ] = []  # a wait that is over is dropped when it comes up
        self._count = 0

    def begin(
        self, key: Hashable, now: int, expected: int,
        on_soft: Callable[[int], None], on_hard: Callable[[int], None], hard: int = 0,
    ) -> None:  # fmt: skip
        """A second `begin` under one key starts its bounds anew. `hard`: so many times the soft one; 0: as always."""
        soft = self.bounds.soft(expected)
        wait = Wait(now + soft, now + (hard or self.bounds.hard) * soft, on_soft, on_hard)
        self._waits[key] = wait
        self._push(wait.soft_at, key, wait)

    def begin_for(self, key: Hashable, now: int, length: int, on_end: Callable[[int], None]) -> None:
        """A grace: something happens when so much time has passed, unless it is ended before."""
        wait = Wait(now + length, now + length, on_end, on_end)
        self._waits[key] = wait
        self._push(wait.hard_at, key, wait)

    def end(self, key: Hashable) -> None:
        self._waits.pop(key, None)

    def waits_for(self, key: Hashable) -> bool:
        return key in self._waits

    def __len__(self) -> int:
        return len(self._waits)

    def next_wakeup(self) -> int | None:
        while self._heap and self._waits.get(self._heap[0][2]) is not self._heap[0][3]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def wakeup(self, now: int) -> None:
        while (at := self.next_wakeup()) is not None and at <= now:
            _, _, key, wait = heappop(self._heap)
            if at < wait.hard_at:
                self._push(wait.hard_at, key, wait)
                wait.on_soft(now)
            else:
                del self._waits[key]
                wait.on_hard(now)

    def _push(self, at: int, key: Hashable, wait: Wait) -> None:
        self._count += 1  # ties are broken by the order in which waits began
        heappush(self._heap, (at, self._count, key, wait))
