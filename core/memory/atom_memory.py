"""The memory counters of one atom, and the queue that tells for which gang a receive must wait.

A gang takes its memory at its turn in the order. A receive takes memory as soon as it comes, while gangs before it in
the order have not run yet. So each atom keeps the gangs that have entered and not finished, with the level of memory
at each of them. A receive must wait for the last gang at whose level it would not fit (`Ledger.after`). Behind the
last gang it always fits, because it was admitted (ledger.py). So a receive waits only for gangs of its own devices
that entered before it, and these wait only for steps that entered before them. The global sequence has no cycle, so
nothing deadlocks. (A device waits for its *own* gangs with seqs up to `after`: gang `after` itself may run on only
some of the devices.)
"""

from __future__ import annotations

from collections import deque

import msgspec


class AtomMemory(msgspec.Struct, eq=False):
    """The counters of one atom, in bytes on each of its devices."""

    capacity: int
    resident: int = 0  # see ledger.py
    committed: int = 0  # see ledger.py
    floor: int = 0  # what `committed` will be when all admitted runs have ended
    active: int = 0  # number of admitted runs
    extras: dict[int, int] = {}  # extra of a run -> number of runs with this extra
    top: int = 0  # the largest extra; -1 if not known
    # unfinished gangs as (seq, level - shift), levels falling
    queue: deque[tuple[int, int]] = msgspec.field(default_factory=deque)
    shift: int = 0  # bytes that came or went out of order, and so change the level at all gangs in the queue
    done: int = -1  # the latest gang that has finished

    def copy(self, capacity: int) -> AtomMemory:
        return msgspec.structs.replace(self, capacity=capacity, extras=self.extras.copy(), queue=self.queue.copy())

    def extra(self) -> int:
        """Return the largest extra."""
        if self.top < 0:
            self.top = max(self.extras, default=0)
        return self.top

    def swap(self, old: int, new: int) -> None:
        """Change a run's extra; 0 means that it has none."""
        if old:
            if self.extras[old] == 1:
                del self.extras[old]
                self.top = -1 if old == self.top else self.top
            else:
                self.extras[old] -= 1
        if new:
            self.extras[new] = self.extras.get(new, 0) + 1
            self.top = new if 0 <= self.top < new else self.top

    def leave(self, nbytes: int, after: int) -> None:
        """Count memory as free behind gang `after`. Unless that gang has finished, the levels in the queue stay."""
        self.resident -= nbytes
        self.committed -= nbytes
        if after <= self.done:
            self.shift -= nbytes

    def last_above(self, level: int) -> int:
        """Return the seq of the last gang in the queue at which memory is above this level, or -1."""
        found = -1
        for seq, high in self.queue:
            if high + self.shift <= level:
                break
            found = seq
        return found
