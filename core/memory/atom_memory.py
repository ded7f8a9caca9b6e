"""Memory counters of one atom, and which of its queued gangs a receive must wait for.

A receive is not a gang: it takes memory when it comes and not at its turn, while gangs before it in the
order still wait to run. `after` says for which gang it must wait. Each atom remembers the gangs that have
entered and not finished with the level at each; the receive waits for the last at which it would not fit.
Behind the last of all it fits, for the tail has room for it (it was admitted, ledger.py). So a receive
waits only for gangs that entered before it, of its own devices; those wait only for what entered before
them; the global sequence has no cycle, and nothing deadlocks. (A device waits for its *own* gangs with seqs
up to `after`, as `after` may be a gang that only some of them run.)
"""

from __future__ import annotations

from collections import deque


class Level:
    """Counters of one atom."""

    __slots__ = (
        "active", "capacity", "committed", "done", "extras", "floor", "queue", "resident", "shift", "top",
    )  # fmt: skip

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.resident = 0
        self.committed = 0
        self.floor = 0  # what `committed` will be when all admitted runs have ended
        self.active = 0  # admitted runs here
        self.extras: dict[int, int] = {}  # multiset
        self.top = 0  # its maximum; -1: not known
        self.queue: deque[tuple[int, int]] = deque()  # unfinished gangs: (seq, level - shift), falling
        self.shift = 0  # what came or went at once, below all gangs of the queue
        self.done = -1  # latest gang that has finished

    def copy(self, capacity: int) -> Level:
        twin = Level(capacity)
        for name in ("resident", "committed", "floor", "active", "top", "shift", "done"):
            setattr(twin, name, getattr(self, name))
        twin.extras, twin.queue = self.extras.copy(), self.queue.copy()
        return twin

    def extra(self) -> int:
        if self.top < 0:
            self.top = max(self.extras, default=0)
        return self.top

    def swap(self, old: int, new: int) -> None:
        """A run's extra has changed."""
        if old:
            if self.extras[old] == 1:
                del self.extras[old]
                self.top = -1 if old == self.top else self.top
            else:
                self.extras[old] -= 1
        if new:
            self.extras[new] = self.extras.get(new, 0) + 1
            self.top = new if 0 <= self.top < new else self.top

    def enter(self, seq: int, made: int, freed: int, scratch: int, drop: int, old: int, new: int) -> None:
        """A gang enters the order behind all that is there."""
        high, queue = self.resident + made, self.queue
        peak = high + scratch - self.shift
        while queue and queue[-1][1] <= peak:
            queue.pop()  # what would wait for that gang waits for this one anyhow
        queue.append((seq, peak))
        self.resident = high - freed
        self.committed -= drop
        if old != new:
            self.swap(old, new)

    def leave(self, nbytes: int, after: int) -> None:
        """Behind gang `after`. While that is in the queue, all of the queue is taken to run with it still
        there."""
        self.resident -= nbytes
        self.committed -= nbytes
        if after <= self.done:
            self.shift -= nbytes

    def last_above(self, level: int) -> int:
        found = -1
        for seq, high in self.queue:
            if high + self.shift <= level:
                break
            found = seq
        return found
