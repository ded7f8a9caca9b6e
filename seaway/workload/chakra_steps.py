"""What the ranks of a Chakra execution trace do together, in an order that suits all of them.

Nodes of ranks that do the same are one step, and so are the nodes of one collective, and the sends and receives of a
permute. If ranks that do the same wait for one another, as the stages of a pipeline do, each is taken by itself.

Neighbours: `chakra_ranks` reads nodes; `chakra_playback` plays steps. The functions that matter: `steps_of`,
`_collectives`, `_messages`, `_permutes`.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..chakra_files import COLLECTIVE, COMPUTE, METADATA, RECV, SEND

if TYPE_CHECKING:
    from sim.hardware import Kind

PERMUTE = 8  # beside the types of nodes: a send and a receive of all ranks of some rings
Ranks = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]  # of ranks


class ChakraNode(NamedTuple):
    """`after`: positions, in the rank's list. `takes`: nanoseconds; -1: not said. `work`: operations and bytes."""

    label: str  # the file, and the node's number and name
    number: int
    name: str
    kind: int
    after: tuple[int, ...]
    takes: int
    work: tuple[int, int] = (0, 0)
    collective: Kind | None = None
    nbytes: int = 0
    group: Ranks = ()
    peer: int = -1
    tag: int = 0

    @property
    def alike(self) -> tuple[Any, ...]:
        """What nodes have in common that different ranks may do together."""
        return (self.kind, self.after, self.takes, self.work, self.collective, self.nbytes, len(self.group))


class ChakraStep(NamedTuple):
    """Nodes that are played together. `after`: earlier steps. `groups`: of a collective. `to`: of sends: by the step
    that receives, pairs of ranks."""

    node: ChakraNode
    kind: int
    ranks: Ranks
    after: frozenset[int]
    groups: tuple[Ranks, ...] = ()
    to: tuple[tuple[int, Pairs], ...] = ()


def slices_of(ranks: Sequence[Sequence[ChakraNode]], most: int) -> list[Ranks]:
    """Ranks that collectives join, and those that do the same, if they are not more than `most`."""
    joined = JoinedNumbers(len(ranks))
    alike: dict[Any, list[int]] = defaultdict(list)
    for rank, nodes in enumerate(ranks):
        for group in {id(node.group): node.group for node in nodes if node.group}.values():
            joined.join(rank, group[0])
        alike[tuple(node.alike for node in nodes)].append(rank)
    for some in alike.values():
        homes = set(map(joined.of, some))
        if len(homes) > 1 and sum(joined.of(rank) in homes for rank in range(len(ranks))) <= most:
            for rank in some:
                joined.join(some[0], rank)
    return joined.sets()


def steps_of(ranks: Sequence[Sequence[ChakraNode]], slices: Sequence[Ranks]) -> list[ChakraStep]:
    alike: dict[Any, list[int]] = defaultdict(list)
    for home in slices:
        for rank in home:
            alike[home[0], tuple(node.alike for node in ranks[rank])].append(rank)
    blocks = [tuple(some) for some in alike.values()]
    home_of = {rank: home for home in slices for rank in home}
    found = StepsOfRanks(ranks, blocks, home_of).steps()
    if isinstance(found, ChakraNode):
        found = StepsOfRanks(ranks, blocks).steps()
    if isinstance(found, ChakraNode):
        found = StepsOfRanks(ranks, [(rank,) for rank in range(len(ranks))]).steps()
    if isinstance(found, ChakraNode):
        raise ValueError(f"{found.label} waits for itself, by way of other ranks: they disagree about the order")
    return found


class StepsOfRanks:
    """`blocks`: ranks that do the same. A place is a position in the list of a block. `homes`: the slice of each rank,
    on which nodes that are alike and have one number are one step."""

    def __init__(
        self, ranks: Sequence[Sequence[ChakraNode]], blocks: Sequence[Ranks], homes: Mapping[int, Ranks] | None = None
    ) -> None:
        self._ranks = ranks
        self._nodes: list[ChakraNode] = []  # by place
        self._blocks: list[Ranks] = []
        self._first: dict[int, int] = {}  # by rank
        for block in blocks:
            self._first |= dict.fromkeys(block, len(self._nodes))
            self._nodes += ranks[block[0]]
            self._blocks += [block] * len(ranks[block[0]])
        self._joined = JoinedNumbers(len(self._nodes))
        self._groups: dict[int, dict[int, Ranks]] = defaultdict(dict)  # by place; each once
        self._pairs: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)  # by the places of both ends
        first: dict[Any, int] = {}
        for place, node in enumerate(self._nodes if homes else ()):
            if homes and node.kind in (COMPUTE, COLLECTIVE):
                key = homes[self._blocks[place][0]][0], node.number, node.kind, *node.alike[2:]
                self._joined.join(first.setdefault(key, place), place)

    def steps(self) -> list[ChakraStep] | ChakraNode:
        """A node of a circle, if there is one."""
        self._collectives()
        self._messages()
        self._permutes()
        sets = self._joined.sets()
        for places in sets:
            if len(places) > len({self._first[self._blocks[place][0]] for place in places}):
                if self._nodes[places[0]].kind in (COMPUTE, COLLECTIVE):
                    return self._nodes[places[0]]
        step_of = {place: number for number, places in enumerate(sets) for place in places}
        after = [self._after(places, step_of) for places in sets]
        for begin, end in self._pairs:
            after[step_of[end]].add(step_of[begin])
        keys = [min(place - self._first[self._blocks[place][0]] for place in places) for places in sets]
        order = ordered([sorted(some) for some in after], keys)
        if len(order) < len(sets):
            return self._nodes[sets[min(set(range(len(sets))).difference(order))][0]]
        number = {step: place for place, step in enumerate(order)}
        to: dict[int, list[tuple[int, Pairs]]] = defaultdict(list)
        for (begin, end), pairs in self._pairs.items():
            to[step_of[begin]].append((number[step_of[end]], tuple(sorted(pairs))))
        found = []
        for step in order:
            node = self._nodes[sets[step][0]]
            groups = [group for place in sets[step] for group in self._groups[place].values()]
            here = sorted({rank for place in sets[step] for rank in self._blocks[place]})
            kind = PERMUTE if groups and node.kind != COLLECTIVE else node.kind
            if kind == COMPUTE and (not node.takes or (node.takes < 0 and node.work == (0, 0))):
                kind = METADATA
            waits = frozenset(number[each] for each in after[step])
            found.append(ChakraStep(node, kind, tuple(here), waits, tuple(sorted(set(groups))), tuple(to[step])))
        return found

    def _after(self, places: Sequence[int], step_of: dict[int, int]) -> set[int]:
        found = {
            step_of[self._first[self._blocks[place][0]] + each] for place in places for each in self._nodes[place].after
        }
        if self._nodes[places[0]].kind != COLLECTIVE:  # to receive, a permute may wait for its own send
            found.discard(step_of[places[0]])
        return found

    def _collectives(self) -> None:
        """On each of its ranks, the first collective of a group is the same one, and so on."""
        met: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)  # its position by rank
        for rank, nodes in enumerate(self._ranks):
            counted: Counter[int] = Counter()
            for position, node in enumerate(nodes):
                if node.kind == COLLECTIVE:
                    group = id(node.group)  # all ranks have one tuple of it
                    met[group, counted[group]][rank] = position
                    counted[group] += 1
        for positions in met.values():
            first = next(iter(positions))
            one = self._ranks[first][positions[first]]
            for rank in one.group:
                if rank not in positions:
                    raise ValueError(f"{one.label} has no counterpart on rank {rank}, which is of its group, too")
                other = self._ranks[rank][positions[rank]]
                if (one.collective, one.nbytes) != (other.collective, other.nbytes):
                    raise ValueError(f"{one.label} is another collective than its counterpart, {other.label}")
                place = self._first[rank] + positions[rank]
                self._joined.join(self._first[first] + positions[first], place)
                self._groups[place][id(one.group)] = one.group

    def _messages(self) -> None:
        """Of two ranks and one tag, the first send belongs to the first receive, and so on."""
        ends: dict[int, dict[Any, list[tuple[int, ChakraNode]]]] = {SEND: defaultdict(list), RECV: defaultdict(list)}
        for rank, nodes in enumerate(self._ranks):
            for position, node in enumerate(nodes):
                if node.kind in ends:
                    source, target = (rank, node.peer) if node.kind == SEND else (node.peer, rank)
                    ends[node.kind][source, target, node.tag].append((self._first[rank] + position, node))
        for key in {**ends[SEND], **ends[RECV]}:
            sends, receives = (ends[kind].get(key, []) for kind in (SEND, RECV))
            both = min(len(sends), len(receives))
            if alone := [*sends[both:], *receives[both:]]:
                raise ValueError(f"{alone[0][1].label} has no counterpart on rank {alone[0][1].peer}")
            for (begin, one), (end, other) in zip(sends, receives, strict=True):
                if one.nbytes != other.nbytes:
                    raise ValueError(f"{one.label} has {one.nbytes:,} bytes; its counterpart, {other.label}, others")
                self._pairs[begin, end].append(key[:2])

    def _permutes(self) -> None:
        for (begin, end), pairs in list(self._pairs.items()):
            block, next_of = self._blocks[begin], dict(pairs)
            here = self._first[block[0]]
            waits = [set(self._nodes[place].after) - {begin - here, end - here} for place in (begin, end)]
            whole = set(block) == set(next_of) == set(next_of.values())
            circle = end - here in self._nodes[begin].after
            if block != self._blocks[end] or not whole or waits[0] != waits[1] or circle or len(block) < 2:
                continue
            del self._pairs[begin, end]
            self._joined.join(begin, end)
            while next_of:
                ring = [min(next_of)]
                while (one := next_of.pop(ring[-1])) != ring[0]:
                    ring.append(one)
                self._groups[begin][ring[0]] = tuple(ring)


class JoinedNumbers:
    """Sets of numbers, of which some are joined."""

    def __init__(self, count: int) -> None:
        self._home = list(range(count))

    def of(self, one: int) -> int:
        home = self._home
        while home[one] != one:
            home[one] = one = home[home[one]]
        return one

    def join(self, one: int, other: int) -> None:
        one, other = sorted((self.of(one), self.of(other)))
        self._home[other] = one

    def sets(self) -> list[tuple[int, ...]]:
        found: dict[int, list[int]] = defaultdict(list)
        for one in range(len(self._home)):
            found[self.of(one)].append(one)
        return [tuple(some) for some in found.values()]


def ordered(after: Sequence[Sequence[int]], keys: Sequence[Any]) -> list[int]:
    """All that wait for no circle, each behind what it waits for; else by their keys."""
    left = [len(some) for some in after]
    waiting: dict[int, list[int]] = defaultdict(list)
    for one, some in enumerate(after):
        for each in some:
            waiting[each].append(one)
    heap = [(keys[one], one) for one, number in enumerate(left) if not number]
    heapq.heapify(heap)
    found = []
    while heap:
        found.append(heapq.heappop(heap)[1])
        for one in waiting[found[-1]]:
            left[one] -= 1
            if not left[one]:
                heapq.heappush(heap, (keys[one], one))
    return found
