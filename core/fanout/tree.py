"""Makes the tree of hosts through which one message reaches all hosts of an island.

A process that writes one message to 512 connections spends most of its turn on that. One that writes to 23 hosts, each
of which passes the message on to 22 more, does not. `tree` cuts the members into as many contiguous groups as the
fanout allows. The first host of a group is the parent of the rest of the group, which is cut in the same way. So a
tree has as many levels as it needs (two for 512 hosts at fanout 23). A subtree is a range of consecutive hosts, and
the spans that name it are one pair as long as the member numbers have no gaps.
"""

from collections.abc import Callable
from itertools import pairwise

import msgspec

from ..model import Illegal, Spans, spans

CONTROLLER = -1  # the parent of the roots


class Tree(msgspec.Struct, frozen=True):
    """Parents and children of all members. `tree` makes it. Methods raise KeyError for a host that is not a member."""

    members: Spans
    roots: tuple[int, ...]  # the hosts to which the controller writes
    parents: dict[int, int]
    spans_below: dict[int, Spans]  # host -> all hosts below it, itself included
    nodes: dict[int, tuple[int, ...]]  # host -> its children

    def parent(self, host: int) -> int:
        """Return the host that writes to this one, or CONTROLLER."""
        return self.parents[host]

    def is_root(self, host: int) -> bool:
        return self.parents.get(host) == CONTROLLER

    def below(self, host: int) -> Spans:
        return self.spans_below[host]

    def children(self, host: int) -> tuple[tuple[int, Spans], ...]:
        """Return `Seat.children`: each child with all hosts below it, itself included."""
        return tuple((child, self.spans_below[child]) for child in self.nodes[host])

    def roots_for(self, hosts: Spans) -> tuple[int, ...]:
        """Return the roots through which a message for these hosts must go."""
        return tuple(root for root in self.roots if spans.overlap(self.spans_below[root], hosts))

    def roots_within(self, hosts: Spans) -> tuple[int, ...]:
        """Return the roots that have only these hosts below them."""
        return tuple(root for root in self.roots if spans.within(self.spans_below[root], hosts))

    def depth(self, host: int) -> int:
        """Return how many hosts a message passes before it reaches this one: 0 for a root."""
        parent = self.parents[host]
        return 0 if parent == CONTROLLER else 1 + self.depth(parent)


TreeShape = Callable[[Spans, int, Spans], Tree]  # makes a tree of these members, with the arguments of `tree`


def fanout_for(members: int) -> int:
    """Return the smallest fanout at which two levels are enough for so many hosts: 23 for 512."""
    fanout = 1
    while fanout * (fanout + 1) < members:
        fanout += 1
    return fanout


def tree(members: Spans, fanout: int, apart: Spans = spans.EMPTY) -> Tree:
    """Return a tree with at most `fanout` roots, in which each host has at most `fanout` children.

    The hosts of `apart` become additional roots without children, so that no other host passes messages to them.
    """
    if fanout < 1:
        raise Illegal(f"a tree's fanout is at least 1, not {fanout}")
    apart = spans.meet(members, apart)
    hosts = list(spans.items(spans.minus(members, apart)))
    parents: dict[int, int] = {}
    below: dict[int, Spans] = {}
    nodes: dict[int, tuple[int, ...]] = {}
    work = [(CONTROLLER, 0, len(hosts))]  # (parent, from, to): put these hosts below that parent
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
    """Cut a range into at most so many parts of nearly equal length, the longer ones first, none of them empty."""
    parts = min(parts, stop - start)
    if parts == 0:
        return []
    size, longer = divmod(stop - start, parts)
    edges = [start + at * size + min(at, longer) for at in range(parts + 1)]
    return list(pairwise(edges))
