"""Computes the number up to which all roots of one tree have seen the messages that were for them.

The controller may forget messages up to this number. A root that has seen all that was written to it does not hold the
number back, however long ago that was. Numbers of written messages are kept by set of hosts, and what all roots have
seen as one number. So 25,000 roots that get the same messages and send the same beats cost no more than one root.

Neighbours: `stream` reports what it writes and which beats come, and trims its log by `low`.
"""

from ..model import Spans
from .tree import Tree

KEPT = 512  # sets of hosts whose roots are remembered


class Frontier:
    """The state of one tree. All roots have seen their messages up to number `fence` when it starts."""

    def __init__(self, shape: Tree, fence: int) -> None:
        self._shape = shape
        self._root_of = {shape.below(root): root for root in shape.roots}
        self._roots: dict[Spans, tuple[int, ...]] = {}  # hosts -> the roots that reach them
        self._covered: dict[Spans, tuple[int, ...]] = {}  # hosts -> the roots with only these below them
        self.written: dict[Spans, int] = {}  # hosts -> the last number written for them; `Stream` sets it
        self._written_to: dict[int, int] = {}  # root -> the same, from entries that were folded
        self._all = fence  # every root has seen its messages up to this number
        self._ahead: dict[int, int] = {}  # root -> a higher number that it has seen
        self._holding: set[int] = set()  # the roots that have not passed `_low`; it stays while there are any
        self._low = fence

    def roots(self, hosts: Spans) -> tuple[int, ...]:
        """Return the roots through which messages for these hosts go."""
        found = self._roots.get(hosts)
        if found is None:
            found = _remember(self._roots, hosts, self._shape.roots_for(hosts))
        return found

    def fold(self) -> None:
        """Replace the entries of `written` by one for each root. Call this if there are more than KEPT."""
        self._written_to, self.written = self._by_root(), {}

    def seen(self, hosts: Spans, number: int) -> None:
        """All of these hosts have seen their messages up to this number.

        It counts for a root only if all hosts below the root are among them.
        """
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
        """Return the number up to which all roots have seen their messages. `newest` is the last number given out."""
        if not self._holding:
            if self._ahead:
                self._scan_roots(newest)
            else:
                last = max(self.written.values(), default=-1), max(self._written_to.values(), default=-1)
                self._low = self._all if max(last) > self._all else newest
        return self._low

    def _scan_roots(self, newest: int) -> None:
        """Compute `_low` and `_holding` again, from all roots."""
        self._low = newest
        for root, last in self._by_root().items():
            seen = self._ahead.get(root, self._all)
            if seen < min(last, self._low + 1):
                if seen < self._low:
                    self._low = seen
                    self._holding.clear()
                self._holding.add(root)

    def _by_root(self) -> dict[int, int]:
        """Return, for each root, the last number written to it."""
        written = dict(self._written_to)
        for number, hosts in sorted((number, hosts) for hosts, number in self.written.items()):
            written.update(dict.fromkeys(self.roots(hosts), number))
        return written

    def _cover(self, hosts: Spans) -> tuple[int, ...]:
        found = self._covered.get(hosts)
        if found is None:
            found = _remember(self._covered, hosts, self._shape.roots_within(hosts))
        return found


def _remember(known: dict[Spans, tuple[int, ...]], hosts: Spans, roots: tuple[int, ...]) -> tuple[int, ...]:
    if len(known) >= KEPT:
        known.clear()
    known[hosts] = roots
    return roots
