"""No cliffs in what users write naturally: each makes few more Python calls, events and parts than the plain case.

A row that misses its aim is marked with what is wrong, as an `xfail` that must go when its row is repaired: none is.
"""

from __future__ import annotations

import math
import sys
import threading
from functools import cache
from types import FrameType
from typing import Any, Literal, NamedTuple

import pytest

from sim.engine import SimClock

from .cliff_programs import Play
from .cliff_rows import PLAIN, ROWS, Row

HOSTS = 64  # where a row varies something else
MOST_GANGS = 40  # counted, unless a row needs more
TOLERANCE = 0.25  # of an exponent: 1.4 times at four times the size
AT = SimClock.at.__code__
NAMES = list(ROWS)
HOSTS_VARY = [name for name, row in ROWS.items() if row.varies_hosts]


class Counts(NamedTuple):
    """For each gang: calls of Python functions, and events: what was put into the clock. Of all: the most parts that an
    island had."""

    calls: float
    events: float
    parts: int


class Counter:
    """Takes in gangs, and counts what happens from when `warm` gangs have been made until `gangs` more have."""

    def __init__(self, warm: int, gangs: int) -> None:
        self.warm, self.gangs = warm, gangs
        self.made = self.calls = self.events = self.parts = 0
        self.counts: Counts | None = None
        self._first: int | None = None

    def watch(self, session: Any) -> None:
        self._islands = session.simulation.islands

    def __call__(self, number: int) -> bool:
        self.made += number
        if self._first is None:
            if self.made >= self.warm:
                self._first, self.calls, self.events = self.made, 0, 0
        elif self.counts is None and (gangs := self.made - self._first) >= self.gangs:
            self.counts = Counts(self.calls / gangs, self.events / gangs, self.parts)
        self.parts = max([self.parts, *(len(island.parts.all) for island in self._islands.values())])
        return self.counts is not None

    def see(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            self.calls += 1
            self.events += frame.f_code is AT


def count(row: Row, size: int, hosts: int, fidelity: Literal["exact", "cohort"] = "cohort") -> Counts:
    gangs = row.gangs(size)
    counter = Counter(row.warm(size), gangs if row.against == "exact" else min(gangs, MOST_GANGS))
    threading.setprofile(counter.see)  # for the threads of clients
    sys.setprofile(counter.see)
    try:
        row.program(Play(row.hosts(size, hosts), counter, fidelity, counter.watch), size)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert counter.counts is not None
    return counter.counts


@cache
def counted(name: str, size: int) -> Counts:
    return count(ROWS[name], size, HOSTS)


@cache
def compared(name: str, size: int) -> Counts:
    """What a row is compared with at this size: `exact`, or the plain case on as many hosts."""
    row = ROWS[name]
    if row.against == "exact":
        return count(row, size, HOSTS, "exact")
    return count(PLAIN, 0, row.hosts(size, HOSTS))


def exponent(smaller: int, less: float, larger: int, more: float) -> float:
    """0: the costs are the same; 1: they grow as the sizes do."""
    return math.log(more / less) / math.log(larger / smaller)


@pytest.mark.parametrize("name", NAMES)
def test_a_gang_makes_no_more_calls_than_the_bound_allows(name: str) -> None:
    for size in ROWS[name].sizes:
        assert counted(name, size).calls <= ROWS[name].bound * compared(name, size).calls, size


@pytest.mark.parametrize("name", NAMES)
def test_calls_grow_no_faster_than_linearly(name: str) -> None:
    """Where a row varies slices, nodes, clients or the hosts of a stage, each gang makes as many calls as before."""
    less, more = ROWS[name].sizes
    grown = exponent(less, counted(name, less).calls, more, counted(name, more).calls)
    assert grown <= ROWS[name].law + TOLERANCE


@pytest.mark.parametrize("name", HOSTS_VARY)
def test_alike_hosts_cost_no_events(name: str) -> None:
    less, more = ROWS[name].sizes
    assert counted(name, more).events <= 1.1 * counted(name, less).events


@pytest.mark.parametrize("name", HOSTS_VARY)
def test_alike_hosts_stay_together(name: str) -> None:
    """The host that sends a result to a client, or all of them do, is another part than the others."""
    assert counted(name, ROWS[name].sizes[1]).parts <= 2


@pytest.mark.parametrize("name", ["disjoint-slices", "overlapping-slices", "small-slices"])
def test_slices_divide_nobody_and_cost_little_more_than_one(name: str) -> None:
    for size in ROWS[name].sizes:
        assert counted(name, size).parts == 1
        assert counted(name, size).calls <= 1.2 * compared(name, size).calls


def test_a_gang_of_the_plain_case_costs_the_same_on_any_number_of_hosts() -> None:
    few, many = count(PLAIN, 0, 8), count(PLAIN, 0, 512)
    assert many.calls <= 1.2 * few.calls  # the tree of hosts is deeper by a level
    assert 5 <= many.events <= 1.2 * few.events
    assert (few.parts, many.parts) == (1, 1)


def test_a_thread_that_waits_for_other_threads_costs_no_events() -> None:
    """The main thread waits for a client that has a thread of its own."""
    assert counted("clients", 1).events <= 1.05 * compared("clients", 1).events
