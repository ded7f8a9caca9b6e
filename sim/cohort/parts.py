"""The parts of an island: which hosts share an executor now. Messages divide parts, and parts of equal states merge.

Parts of equal states are found by an index of their states, never by comparing pairs. States may be equal while gangs
are under way. Comparing costs time, and so does telling each of many parts the same. So parts are compared when telling
them apart has cost about as much as comparing them would; and less and less often while that finds nothing, or
while what was merged is soon divided again.

Neighbours: `alike` has the executors, and says what divides them; `island` and `commands` ask for parts by hosts.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from operator import attrgetter

from core.model import Island, Spans, spans
from core.protocol import Cause
from core.protocol import messages as m

from .alike import AlikeHosts
from .routes import rows_of

KEPT = 4096  # answers of each kind that are remembered
# What comparing a part is taken to cost, in events that one part is told: at first, at most.
FIRST, MOST = 8, 256


class CohortPart:
    """An executor and the hosts for which it stands. `of_slice`: it knows programs of one slice alone."""

    __slots__ = ("_island", "executor", "host", "members", "number", "of_slice", "open", "rows")

    def __init__(self, island: Island, executor: AlikeHosts, of_slice: bool = False) -> None:
        self._island, self.executor, self.of_slice = island, executor, of_slice
        self.open = 0  # halves of transfers that have not ended
        self.stand()

    def stand(self) -> None:
        """Its executor's members have changed."""
        self.members: Spans = self.executor.members
        self.number = spans.count(self.members)
        self.rows = rows_of(self.members, self._island)
        self.host = self.members[0][0]


class PartGroup:
    """The hosts of several parts, which do the same."""

    __slots__ = ("members", "number", "rows")

    def __init__(self, members: Spans, island: Island) -> None:
        self.members, self.number, self.rows = members, spans.count(members), rows_of(members, island)


class Parts:
    """`differ_later`: hosts will be simulated one by one. Then each must know how far it was told, and no more: at a
    new seat it says again what is not settled as far as it knows."""

    def __init__(self, island: Island, alike: Sequence[AlikeHosts], differ_later: bool = False) -> None:
        self._island, self._differ_later = island, differ_later
        # by their first hosts
        self.all: list[CohortPart] = sorted([CohortPart(island, each) for each in alike], key=attrgetter("host"))
        self.everyone = spans.union(*(part.members for part in self.all))
        self._of_row: list[CohortPart] = [self.all[0]] * island.hosts
        for part in self.all[1:]:
            self._owns(part)
        # what follows from `all`; forgotten when that changes
        self._among = lru_cache(maxsize=KEPT)(self._that_have)
        self._together = lru_cache(maxsize=KEPT)(self._of_parts)
        self.group = lru_cache(maxsize=KEPT)(partial(PartGroup, island=island))  # some hosts, of whatever parts
        self._told = 0  # how often one part more was told an event, since parts were last compared
        self._price = FIRST
        self._merged = -1  # the order at which parts were merged; -1: parts have been divided since

    # --- by hosts -----------------------------------------------------------------------------------------

    def of_host(self, host: int) -> CohortPart:
        return self._of_row[host - self._island.base_host]

    def among(self, hosts: Spans) -> list[CohortPart]:
        """The parts that have some of these hosts, by their first hosts."""
        if len(self.all) == 1 or hosts == self.everyone:
            return self.all
        return self._among(hosts)

    def _that_have(self, hosts: Spans) -> list[CohortPart]:
        base = self._island.base_host
        some: dict[int, CohortPart] = {}
        for low, high in hosts:
            for part in self._of_row[max(0, low - base) : max(0, high - base)]:
                some[part.host] = part
        return [some[host] for host in sorted(some)]

    def together(self, parts: Sequence[CohortPart]) -> CohortPart | PartGroup:
        return parts[0] if len(parts) == 1 else self._together(tuple(parts))

    def _of_parts(self, parts: tuple[CohortPart, ...]) -> PartGroup:
        return PartGroup(spans.union(*(part.members for part in parts)), self._island)

    # --- divide -------------------------------------------------------------------------------------------

    def divide(self, message: m.Ordered) -> list[CohortPart]:
        """Divides parts as a message demands; returns the new ones, and those that they were part of."""
        changed: list[CohortPart] = []
        for part in [*self.all] if len(self.all) == 1 else list(self.among(message.hosts)):
            groups = part.executor.divides(message)
            if groups:
                changed.append(part)
                changed += self._split(part, groups[1:])
        if changed:
            self._changed()
            if self._merged >= 0:  # whether it has paid to merge them
                lasted = message.number - self._merged
                self._price = FIRST if lasted > self._price else min(MOST, 2 * self._price)
                self._merged = -1
        return changed

    def set_apart(self, members: Spans) -> list[CohortPart]:
        """Divides parts of which only some hosts are among these members; returns what is told of `divide`."""
        changed: list[CohortPart] = []
        for part in list(self.among(members)):
            mine = spans.meet(part.members, members)
            if mine != part.members:
                changed.append(part)
                changed += self._split(part, (mine,))
        if changed:
            self._changed()
        return changed

    def single_out(self, hosts: Spans) -> list[CohortPart]:
        """Makes each host a part whose part has some of these; returns what is told of `divide`."""
        changed: list[CohortPart] = []
        for part in list(self.among(hosts)):
            for host in spans.items(part.members if part.number > 1 else spans.EMPTY):
                changed += self.set_apart(spans.one(host))
        return changed

    def _split(self, part: CohortPart, groups: Sequence[Spans]) -> list[CohortPart]:
        made = []
        for group in groups:
            other = CohortPart(self._island, part.executor.split(group))
            other.open = part.open
            made.append(other)
            self.all.append(other)
            self._owns(other)
        part.stand()
        for each in (part, *made):
            each.open -= each.executor.drop_others_sends()
        return made

    def _owns(self, part: CohortPart) -> None:
        base = self._island.base_host
        for low, high in part.members:
            self._of_row[low - base : high - base] = [part] * (high - low)

    def _changed(self) -> None:
        self.all.sort(key=attrgetter("host"))
        self._among.cache_clear()
        self._together.cache_clear()

    # --- merge --------------------------------------------------------------------------------------------

    def told(self, parts: int) -> None:
        """So many of these parts were told the same event."""
        self._told += parts - 1

    @property
    def due(self) -> bool:
        """Whether parts should be compared now."""
        return self._told > self._price * len(self.all)

    def merge(self, number: int, settled: int, past: Callable[[Cause], bool]) -> None:
        """Merges parts whose states are equal. The messages up to `number` have been told to all whom they concern."""
        self._told = 0
        outlines: dict[Hashable, list[CohortPart]] = {}
        for part in self.all:
            if not self._differ_later:
                part.executor.passed_on(number, settled)
            outline = None if part.open else part.executor.outline()
            if outline is not None:
                outlines.setdefault(outline, []).append(part)
        gone: set[int] = set()
        for parts in outlines.values():
            if len(parts) == 1:
                continue
            states: dict[Hashable, list[CohortPart]] = {}
            for part in parts:
                states.setdefault(part.executor.remembered(past), []).append(part)
            for same in states.values():
                if len(same) > 1:
                    same[0].executor.absorb([part.executor for part in same[1:]])
                    gone.update(id(part) for part in same[1:])
                    same[0].stand()
                    self._owns(same[0])
        if gone:
            self.all = [part for part in self.all if id(part) not in gone]
            self._changed()
            self._merged = number
        else:
            self._price = min(MOST, 2 * self._price)
