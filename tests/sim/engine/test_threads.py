"""Lanes serve by arrival, then by source. A swarm that is absorbed at once takes as long as its items one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.clock import SimClock
from sim.engine.threads import HELD, SimThread


def served(lane_cost: int = 0) -> tuple[SimClock, SimThread, list[tuple[int, Any]]]:
    clock, log = SimClock(), []

    def serve(what: Any, now: int) -> int:
        log.append((now, what))
        return now + lane_cost

    return clock, SimThread(clock, serve), log


def test_the_first_to_arrive_is_served_first_and_the_next_waits() -> None:
    clock, lane, log = served(lane_cost=5)
    clock.at(10, lane.put, (1, 0), 7, "a")
    clock.at(12, lane.put, (0, 0), 7, "b")
    clock.run(until=1000)
    assert log == [(17, "a"), (29, "b")]


def test_the_lower_of_two_simultaneous_sources_is_first_whichever_called_first() -> None:
    clock, lane, log = served()
    clock.at(10, lane.put, (2, 0), 3, "from 2")
    clock.at(10, lane.put, (1, 0), 3, "from 1")
    clock.run(until=1000)
    assert log == [(13, "from 1"), (16, "from 2")]


def test_a_held_lane_takes_nothing_until_it_is_released() -> None:
    clock = SimClock()
    log: list[tuple[int, str]] = []

    def serve(what: str, now: int) -> int:
        log.append((now, what))
        return HELD if what == "held" else now

    lane = SimThread(clock, serve)
    for number, what in enumerate(("held", "next", "last")):
        lane.put((0, number), 3, what)
    clock.at(50, lane.go_on)
    clock.run(until=1000)
    assert log == [(3, "held"), (53, "next"), (56, "last")]
    clock.at(2000, lane.put, (0, 9), 3, "held")
    clock.at(2010, lane.go_on)
    clock.at(2020, lane.put, (0, 10), 3, "later")
    clock.run(until=3000)
    assert log[3:] == [(2003, "held"), (2023, "later")]


@given(
    swarms=st.lists(st.tuples(st.integers(1, 9), st.lists(st.integers(1, 60), min_size=1, max_size=12)), max_size=3),
    events=st.lists(st.tuples(st.integers(1, 80), st.integers(0, 9), st.integers(0, 6)), min_size=1, max_size=6),
)
def test_a_swarm_takes_as_long_as_its_items_one_by_one(
    swarms: list[tuple[int, list[int]]], events: list[tuple[int, int, int]]
) -> None:
    """Compared with the same lane and an event for each item. Sources have items of several numbers at one time."""
    clock, lane, log = served(lane_cost=2)
    other_clock, other, other_log = served(lane_cost=2)
    other._serve = lambda what, now: now if what is None else _log(other_log, what, now)
    for first, (cost, times) in enumerate(swarms):
        ordered = np.array(sorted(times), dtype=np.int64)
        sources = np.arange(len(ordered))
        lane.absorb(ordered, sources, cost, 2 * first + 1)
        for at, source in zip(ordered.tolist(), sources.tolist(), strict=True):
            other_clock.at(at, other.put, (source, 2 * first + 1), cost, None)
    for number, (at, cost, source) in enumerate(events):
        clock.at(at, lane.put, (source, 2 * number), cost, number)
        other_clock.at(at, other.put, (source, 2 * number), cost, number)
    clock.run(until=10_000)
    other_clock.run(until=10_000)
    assert log == other_log


def _log(log: list[tuple[int, Any]], what: Any, now: int) -> int:
    log.append((now, what))
    return now + 2


def test_an_item_is_put_back_for_one_that_comes_in_the_same_nanosecond_and_precedes_it() -> None:
    clock, lane, log = served()
    lane.absorb(np.array([10, 10, 10]), np.array([1, 3, 5]), 7)
    clock.at(10, lane.put, (4, 0), 3, "from 4")  # behind two of the swarm
    clock.at(10, lane.put, (2, 0), 3, "from 2")  # behind one of them
    clock.at(10, lane.put, (6, 0), 3, "from 6")
    clock.run(until=1000)
    assert log == [(20, "from 2"), (30, "from 4"), (40, "from 6")]
    assert lane.free == 40


def test_items_of_one_source_in_the_same_nanosecond_are_taken_by_number() -> None:
    clock, lane, log = served()
    lane.absorb(np.array([10]), np.array([3]), 7, 1)
    clock.at(10, lane.put, (3, 2), 3, "second")
    lane.absorb(np.array([50]), np.array([3]), 7, 2)
    clock.at(50, lane.put, (3, 1), 3, "first")
    clock.run(until=1000)
    assert log == [(20, "second"), (53, "first")]


def test_a_swarm_that_is_announced_in_the_same_nanosecond_is_not_overtaken() -> None:
    clock, lane, log = served()
    clock.at(10, lane.put, (4, 0), 3, "from 4")
    clock.at(10, lane.absorb, np.array([10, 11]), np.array([1, 1]), 7)
    clock.at(12, lane.put, (0, 0), 3, "later")
    clock.run(until=1000)
    assert log == [(20, "from 4"), (30, "later")]


@given(
    times=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    items=st.lists(st.integers(1, 60), max_size=6),
    recanted=st.integers(0, 61),
    cost=st.integers(1, 9),
)
def test_what_is_recanted_takes_no_time_and_what_had_arrived_before_takes_as_long(
    times: list[int], items: list[int], recanted: int, cost: int
) -> None:
    logs = []
    for known in (times, [time for time in times if time < recanted]):
        clock, lane, log = served(lane_cost=2)
        clock.at(recanted, lane.recant, range(100, 200))
        for number, at in enumerate(items):
            clock.at(at, lane.put, (number, 0), 3, number)
        arrivals = np.array(sorted(known), dtype=np.int64)
        lane.absorb(arrivals, np.arange(100, 100 + len(known)), cost)
        clock.run(until=1000)
        logs.append(log)
    assert logs[0] == logs[1]


@given(
    swarms=st.lists(st.tuples(st.integers(1, 9), st.lists(st.integers(1, 60), min_size=1, max_size=12)), max_size=3),
    events=st.lists(st.tuples(st.integers(1, 80), st.integers(0, 9), st.integers(0, 6)), max_size=6),
    when=st.integers(1, 90),
)
def test_what_was_announced_can_be_heard_item_by_item_from_any_moment_on(
    swarms: list[tuple[int, list[int]]], events: list[tuple[int, int, int]], when: int
) -> None:
    """Compared with a lane that gets all items one by one from the beginning."""
    clock, lane, log = served()
    other_clock, other, other_log = served()
    lane._serve = lambda what, now: _log(log, what, now) - (0 if isinstance(what, int) else 2)
    other._serve = lambda what, now: _log(other_log, what, now) - (0 if isinstance(what, int) else 2)
    spans = [0, 0]

    def hear() -> None:
        spans[0] = len(log)
        lane.recant(range(100, 400))
        lane.unfold(range(100, 400), lambda order: order)
        lane.catch_up()
        spans[1] = len(log)

    clock.at(when, hear)
    for first, (cost, times) in enumerate(swarms):
        ordered = np.array(sorted(times), dtype=np.int64)
        sources = 100 + 100 * first + np.arange(len(ordered))
        lane.absorb(ordered, sources, cost, first)
        for at, source in zip(ordered.tolist(), sources.tolist(), strict=True):
            other_clock.at(at, other.put, (source, first), cost, (source, first))
            if at >= when:
                clock.at(at, lane.put, (source, first), cost, (source, first))
    for number, (at, cost, source) in enumerate(events):
        clock.at(at, lane.put, (source, number), cost, number)
        other_clock.at(at, other.put, (source, number), cost, number)
    clock.run(until=10_000)
    other_clock.run(until=10_000)
    assert log[spans[1] :] == [each for each in other_log if each[0] >= when]
    before = {what for at, what in other_log if at < when and not isinstance(what, int)}
    assert {
        what for _, what in log[spans[0] : spans[1]]
    } <= before  # the rest were accounted for when others were served


def test_what_has_arrived_can_become_something_else_for_the_same_cost() -> None:
    clock, lane, log = served()
    for number, what in enumerate(("one", "two", "three")):
        clock.at(number, lane.put, (number, 0), 10, what)
    clock.at(15, lane.exchange, lambda order, what: f"{what} of {order[0]}")
    clock.at(16, lane.put, (9, 0), 10, "four")
    clock.run(until=1000)
    assert log == [(10, "one"), (20, "two of 1"), (30, "three of 2"), (40, "four")]
