"""The tree of hosts by which one message reaches all of an island, fixed for an epoch and numbered within it.

A process that writes one message to 512 connections spends most of its turn doing so; one that writes to 23
hosts, each of which passes it on to 22 more, does not. Members are cut into as many contiguous groups as the
fanout allows; the first host of a group is its head, and the rest of the group hangs below it in the same
way. So a tree has as many levels as it needs (two for 512 hosts at fanout 23), a subtree is a run of
neighbours, and the spans that name it stay one pair long while the members have no holes.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from ..model import Illegal, Spans, spans

CONTROLLER = -1  # the parent of the roots


class Tree(msgspec.Struct, frozen=True):
    """Which host writes to which. Made by `tree`. A host that is no member is a KeyError, for only the owner asks."""

    members: Spans
    roots: tuple[int, ...]  # the hosts to which the controller writes
    parents: dict[int, int]
    spans_below: dict[int, Spans]  # of each host: all hosts below it, itself included
    nodes: dict[int, tuple[int, ...]]  # of each host: its children

    def parent(self, host: int) -> int:
        """The host that writes to this one, or CONTROLLER."""
        return self.parents[host]

    def is_root(self, host: int) -> bool:
        return self.parents.get(host) == CONTROLLER

    def below(self, host: int) -> Spans:
        return self.spans_below[host]

    def children(self, host: int) -> tuple[tuple[int, Spans], ...]:
        """As `Seat.children` wants them: each child with all hosts below it, itself included."""
        return tuple((child, self.spans_below[child]) for child in self.nodes[host])

    def roots_for(self, hosts: Spans) -> tuple[int, ...]:
        """The roots through which a message for these hosts must go."""
        return tuple(root for root in self.roots if spans.overlap(self.spans_below[root], hosts))

    def roots_within(self, hosts: Spans) -> tuple[int, ...]:
        """The roots with all hosts below them among these."""
        return tuple(root for root in self.roots if spans.within(self.spans_below[root], hosts))

    def depth(self, host: int) -> int:
        """How many hosts a message passes before it reaches this one: 0 for a root."""
        parent = self.parents[host]
        return 0 if parent == CONTROLLER else 1 + self.depth(parent)


def fanout_for(members: int) -> int:
    """The smallest fanout at which two levels hold so many hosts: 23 for 512."""
    fanout = 1
    while fanout * (fanout + 1) < members:
        fanout += 1
    return fanout


def tree(members: Spans, fanout: int, apart: Spans = spans.EMPTY) -> Tree:
    """At most `fanout` roots and at most `fanout` children a host; flat where `fanout` >= the number of
    members.

    Hosts of `apart` are roots beside these, with no host below them: no other host is to reach them."""
    if fanout < 1:
        raise Illegal(f"a tree's fanout is at least 1, not {fanout}")
    apart = spans.meet(members, apart)
    hosts = list(spans.items(spans.minus(members, apart)))
    parents: dict[int, int] = {}
    below: dict[int, Spans] = {}
    nodes: dict[int, tuple[int, ...]] = {}
    work = [(CONTROLLER, 0, len(hosts))]  # (parent, from, to): these hosts are to hang below that parent
    while work:
        parent, start, stop = work.pop()
        heads = []
        for low, high in _cut(start, stop, fanout):
            head = hosts[low]
            heads.append(head)
            parents[head] = parent
            below[head] = spans.of(hosts[low:high])
            work.append((head, low + 1, high))
        nodes[parent] = tuple(heads)
    roots = list(nodes.pop(CONTROLLER))
    for host in spans.items(apart):
        roots.append(host)
        parents[host], below[host], nodes[host] = CONTROLLER, spans.one(host), ()
    return Tree(members, tuple(sorted(roots)), parents, below, nodes)


def _cut(start: int, stop: int, parts: int) -> list[tuple[int, int]]:
    """So many runs of nearly equal length, the longer ones first; none of them empty."""
    parts = min(parts, stop - start)
    if parts == 0:
        return []
    size, longer = divmod(stop - start, parts)
    edges = [start + at * size + min(at, longer) for at in range(parts + 1)]
    return list(pairwise(edges))
