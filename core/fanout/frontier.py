"""How far all roots of one tree have come: the number below which no host owes anything any more.

A root that has seen all that was written to it holds nothing back, however long ago that was. What was written is
kept by set of hosts, and what all have seen is kept as one number. So 25,000 roots that are told the same and say the
same cost no more than one.

Neighbours: `stream` tells it what goes out and which beats come, and trims its log by `low`.
"""

from __future__ import annotations

from ..model import Spans
from .tree import Tree

KEPT = 512  # sets of hosts whose roots are remembered


class Frontier:
    """`fence`: the number up to which nothing is owed in this tree."""

    def __init__(self, shape: Tree, fence: int) -> None:
        self._shape = shape
        self._root_of = {shape.below(root): root for root in shape.roots}
        self._roots: dict[Spans, tuple[int, ...]] = {}  # by hosts: the roots through which they are reached
        self._covered: dict[
            Spans, tuple[int, ...]
        ] = {}  # by hosts: the roots with all hosts below them among these
        self._written: dict[Spans, int] = {}  # by hosts: the last number written for them
        self._written_to: dict[int, int] = {}  # by root: the same, of sets of hosts that are no longer kept
        self._all = fence  # every root has seen this ...
        self._ahead: dict[int, int] = {}  # ... and these more
        self._holding: set[int] = set()  # roots that hold back at `_low`: while there are any, it stays
        self._low = fence

    def roots(self, hosts: Spans) -> tuple[int, ...]:
        """The roots through which messages for these hosts go."""
        found = self._roots.get(hosts)
        if found is None:
            found = _keep(self._roots, hosts, self._shape.roots_for(hosts))
        return found

    def written(self, hosts: Spans, number: int) -> None:
        self._written[hosts] = number
        if len(self._written) > KEPT:
            self._written_to, self._written = self._by_root(), {}

    def seen(self, hosts: Spans, number: int) -> None:
        """All of these hosts have seen all that was for them up to this number. Roots that are not wholly among them
        have said nothing yet."""
        if hosts == self._shape.members:
            self._all = max(self._all, number)
            self._ahead = {root: seen for root, seen in self._ahead.items() if seen > number}
            self._holding.clear()
            return
        root = self._root_of.get(hosts)
        for each in self._cover(hosts) if root is None else (root,):
            if number > self._ahead.get(each, self._all):
                self._ahead[each] = number
                self._holding.discard(each)

    def low(self, newest: int) -> int:
        """Up to this number all have seen what was for them. `newest`: the last number there is."""
        if not self._holding:
            if self._ahead:
                self._look(newest)
            else:
                owing = max(self._written.values(), default=-1), max(self._written_to.values(), default=-1)
                self._low = self._all if max(owing) > self._all else newest
        return self._low

    def _look(self, newest: int) -> None:
        """Look for the lowest number at every root."""
        self._low = newest
        for root, last in self._by_root().items():
            seen = self._ahead.get(root, self._all)
            if seen < min(last, self._low + 1):
                if seen < self._low:
                    self._low = seen
                    self._holding.clear()
                self._holding.add(root)

    def _by_root(self) -> dict[int, int]:
        """The last number written to each."""
        written = dict(self._written_to)
        for number, hosts in sorted((number, hosts) for hosts, number in self._written.items()):
            written.update(dict.fromkeys(self.roots(hosts), number))
        return written

    def _cover(self, hosts: Spans) -> tuple[int, ...]:
        found = self._covered.get(hosts)
        if found is None:
            found = _keep(self._covered, hosts, self._shape.roots_within(hosts))
        return found


def _keep(known: dict[Spans, tuple[int, ...]], hosts: Spans, roots: tuple[int, ...]) -> tuple[int, ...]:
    if len(known) >= KEPT:
        known.clear()
    known[hosts] = roots
    return roots
