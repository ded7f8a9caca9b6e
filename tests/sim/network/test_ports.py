"""A port carries one thing at a time, in the order in which things come; for many hosts at once it is the same."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.engine import SimClock
from sim.network.ports import Key, Ports, Which


class Put(NamedTuple):
    port: int
    key: Key
    when: int
    took: int


keys = st.tuples(*[st.integers(0, 2)] * 4)
puts = st.builds(Put, st.integers(0, 3), keys, st.integers(0, 30), st.integers(0, 9))


def test_a_port_carries_one_thing_at_a_time() -> None:
    clock, begun = SimClock(), []
    ports = Ports(clock)
    port = ports.number("a")
    for number in (2, 0, 1):
        ports.put(port, 5, (number, 0, 0, 0), 10, lambda start, which: begun.append((start, which)), number)
    clock.run()
    assert begun == [(5, 0), (15, 1), (25, 2)]


def test_each_name_is_another_port() -> None:
    ports = Ports(SimClock())
    assert [ports.number(name) for name in (*range(100), 3, 99, 100)] == [*range(100), 3, 99, 100]


@given(groups=st.lists(st.tuples(st.integers(0, 5), st.lists(puts, min_size=1, max_size=6)), max_size=5))
def test_what_comes_together_passes_as_if_it_came_one_by_one(groups: list[tuple[int, list[Put]]]) -> None:
    """Some groups come at once, as vectors, and are told some time ahead; others come one by one."""
    unique = {(each.port, each.key): each for _, group in groups for each in group}
    clock, ports, begun = SimClock(), Ports(SimClock()), dict[tuple[int, Key], int]()
    ports = Ports(clock)
    for port in range(4):
        ports.number(port)

    def one(start: int, which: tuple[int, Key]) -> None:
        begun[which] = start

    for told, group in groups:
        mine = sorted(each for each in group if unique.pop((each.port, each.key), None))
        if told % 2:
            for each in mine:
                clock.at(each.when, ports.put, each.port, each.when, each.key, each.took, one, each[:2])
        elif mine:

            def many(which: Which, starts: np.ndarray, mine: list[Put] = mine) -> None:
                for index, start in zip(np.arange(len(mine))[which], starts.tolist(), strict=True):
                    begun[mine[index][:2]] = start

            columns = [np.array(column) for column in zip(*(each.key for each in mine), strict=True)]
            ports.put_many(
                np.array([each.port for each in mine]), np.array([each.when for each in mine]),
                (columns[0], columns[1], columns[2], columns[3]), np.array([each.took for each in mine]), many,
            )  # fmt: skip
    clock.run()
    first: dict[tuple[int, Key], Put] = {}
    for _, group in groups:
        for each in group:
            if each[:2] in begun:
                first.setdefault(each[:2], each)
    assert begun == expected(list(first.values()))


def expected(things: list[Put]) -> dict[tuple[int, Key], int]:
    free: dict[int, int] = {}
    begun = {}
    for each in sorted(things, key=lambda each: (each.when, each.key)):
        start = begun[each[:2]] = max(each.when, free.get(each.port, 0))
        free[each.port] = start + each.took
    return begun
