"""An island's tree as index arrays: which hosts a message passes on its way, and in which order it is written.

Rows are host numbers within the island. `Rows` selects hosts from a vector: a slice where they are neighbours,
which costs no copy.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.fanout import Tree
from core.model import Island, Spans, spans

from ..engine import Ints
from ..network import CONTROLLER

Rows = slice | NDArray[np.intp]


def one_root(members: Spans, fanout: int = 0, apart: Spans = spans.EMPTY) -> Tree:
    """The tree in which the controller sees a cohort: its first host speaks for all."""
    first, *rest = spans.items(members)
    alone: dict[int, tuple[int, ...]] = dict.fromkeys(rest, ())
    below = {host: spans.one(host) for host in rest}
    return Tree(members, (first,), {first: CONTROLLER, **dict.fromkeys(rest, first)}, {first: members, **below},
                {first: tuple(rest), **alone})  # fmt: skip


def rows_of(hosts: Spans, island: Island) -> Rows:
    return indices_of(hosts, island.base_host)


def indices_of(numbers: Spans, base: int) -> Rows:
    """Hosts or devices, in a vector in which this one is the first."""
    if len(numbers) == 1:
        ((low, high),) = numbers
        return slice(low - base, high - base)
    return np.concatenate([np.arange(low - base, high - base) for low, high in numbers])


class TreeLevel(NamedTuple):
    """The hosts that a message reaches after the same number of hops, with children of one parent next to each
    other."""

    rows: Rows
    parents: NDArray[np.intp]  # the parent of each row
    rank: Ints  # 1 for the child to which its parent writes first, 2 for the next, ...
    firsts: NDArray[np.intp]  # the index at which each parent's children begin
    heads: NDArray[np.intp]  # the parent of each such group


class CohortRoute(NamedTuple):
    roots: Rows
    number: int  # of roots
    rank: Ints  # 1 for the root to which the controller writes first, 2 for the next, ...
    root_hosts: Ints  # numbered in the cluster
    levels: tuple[TreeLevel, ...]
    ways: Ints | None  # by host: to how many hosts it passes the message on; None if the tree is flat
    path: tuple[int, ...] = ()  # the rows that it passes one after another, if it is for one host


class CohortTree:
    """The tree of one epoch, as index arrays."""

    def __init__(self, island: Island, shape: Tree) -> None:
        self._island, base = island, island.base_host
        self._parents = np.full(island.hosts, -1, dtype=np.intp)
        self.members = np.zeros(island.hosts, dtype=bool)
        for host, parent in shape.parents.items():
            self.members[host - base] = True
            if parent >= 0:
                self._parents[host - base] = parent - base
        self._levels = [np.array(shape.roots, dtype=np.intp) - base]
        while True:
            below = [child - base for head in self._levels[-1] for child in shape.nodes[int(head) + base]]
            if not below:
                break
            self._levels.append(np.array(below, dtype=np.intp))
        # number of connections between a host and the controller
        self.depths = np.zeros(island.hosts, dtype=np.int64)
        for number, level in enumerate(self._levels, 1):
            self.depths[level] = number
        self.route = lru_cache(maxsize=512)(self._route)  # by the hosts that a message is for

    def parent(self, row: int) -> int:
        """The row of a host's parent; -1: the controller."""
        return int(self._parents[row])

    def parents(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """The rows of these hosts' parents."""
        found: NDArray[np.intp] = self._parents[rows]
        return found

    def root(self, row: int) -> int:
        """The row of the root above a host, or of the host itself."""
        while self._parents[row] >= 0:
            row = int(self._parents[row])
        return row

    def _route(self, hosts: Spans) -> CohortRoute:
        reached = np.zeros(self._island.hosts, dtype=bool)
        reached[rows_of(hosts, self._island)] = True
        reached &= self.members
        for level in reversed(self._levels[1:]):
            np.logical_or.at(reached, self._parents[level], reached[level])
        roots = self._levels[0][reached[self._levels[0]]]
        levels = []
        for level in self._levels[1:]:
            here = level[reached[level]]
            if len(here):
                levels.append(_level(here, self._parents[here]))
        ways = None
        if levels:
            ways = np.zeros(self._island.hosts, dtype=np.int64)
            for below in levels:
                np.add.at(ways, below.parents, 1)
        base = self._island.base_host
        path = self._path(hosts[0][0] - base) if spans.count(hosts) == 1 and len(roots) else ()
        return CohortRoute(
            _compact(roots), len(roots), np.arange(1, len(roots) + 1), (roots + base).astype(np.int64),
            tuple(levels), ways, path,
        )  # fmt: skip

    def _path(self, row: int) -> tuple[int, ...]:
        above = self.parent(row)
        return (row,) if above < 0 else (*self._path(above), row)


def _level(here: NDArray[np.intp], parents: NDArray[np.intp]) -> TreeLevel:
    """A level of a route. A level lists rows parent by parent, so children of one parent stand together."""
    firsts = np.flatnonzero(np.concatenate(([True], parents[1:] != parents[:-1])))
    lengths = np.diff(np.append(firsts, len(parents)))
    rank = np.arange(len(parents)) - np.repeat(firsts, lengths) + 1
    return TreeLevel(_compact(here), parents, rank.astype(np.int64), firsts, parents[firsts])


def _compact(rows: NDArray[np.intp]) -> Rows:
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows) and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
