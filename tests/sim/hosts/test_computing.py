"""Devices that compute on their hosts' cores: in threads, in slices, and collectives in rounds."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine.clock import SimClock
from sim.hardware.kernels import Collective, Kernel
from sim.hosts.computing import ROUNDS, SLICE, Computing, Takes, begun, part, rounds
from sim.hosts.cores import DEVICE, READ, Cores

US = 1000


class Someone:
    alive = True

    def __init__(self, name: int) -> None:
        self.name = name


class Rig:
    """Hosts on a machine with this number of cores; `ended`: when each run ended."""

    def __init__(self, cores: int, hosts: int, meet: int = 0) -> None:
        self.clock = SimClock()
        self.cores = Cores(self.clock, cores)
        people = [Someone(host) for host in range(hosts)]
        by_host = dict.fromkeys(range(hosts), self.cores)
        self.computing = Computing(self.clock, by_host, people.__getitem__, meet)  # type: ignore[arg-type]
        self.hosts = hosts
        self.ended: list[int] = []

    def run(self, takes: Takes) -> None:
        self.computing.run(
            dict.fromkeys(range(self.hosts), 1), takes, lambda: self.ended.append(self.clock.now)
        )

    def busy(self, each: int) -> None:
        """Another process on these cores that works for `each` nanoseconds, again and again."""
        share = self.cores.share(Someone(99), READ)  # type: ignore[arg-type]

        def again() -> None:
            if self.clock.now < 100 * each:
                share.work((0, self.clock.now), each, again)

        again()

    def lasted(self) -> int:
        self.clock.run()
        (ended,) = self.ended
        return ended


@given(
    st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 2 * ROUNDS), st.integers(1, 4), st.floats(1.0, 8.0)
)  # fmt: skip
def test_where_there_are_cores_for_all_it_takes_what_it_takes_on_however_many(
    own: int, links: int, many: int, hosts: int, busy: float
) -> None:
    rig = Rig(64, hosts)
    rig.run(Takes(own, links, busy, many))
    assert rig.lasted() == own + links
    threads, turns = ceil(busy), max(1, min(many, ROUNDS))
    for host in range(hosts):
        assert rig.cores.spent[host, DEVICE] == pytest.approx(own * busy, abs=threads * turns)


@pytest.mark.parametrize("many", [1, 4])
def test_hosts_that_are_more_than_cores_wait_for_each_other(many: int) -> None:
    rig = Rig(1, 2)
    rig.run(Takes(80 * US, 20 * US, 1.0, many))
    assert rig.lasted() == 2 * 80 * US + 20 * US


def test_a_sum_waits_for_those_who_have_the_cores_in_each_of_its_rounds() -> None:
    lasted = {}
    for many in (1, 4):
        rig = Rig(1, 2)
        rig.busy(50 * US)
        rig.run(Takes(8 * US, 0, 1.0, many))
        lasted[many] = rig.lasted()
    assert lasted[4] - lasted[1] == 3 * 50 * US


def test_who_comes_to_a_collective_pays_for_it_once_and_whoever_needs_no_peer_nothing() -> None:
    for meets in (1, 5):
        rig = Rig(2, 2, meet=7 * US)
        rig.run(Takes(80 * US, 20 * US, rounds=2 * meets, meets=meets))
        assert rig.lasted() == (80 + 20 + 7) * US
    rig = Rig(2, 2, meet=7 * US)
    rig.run(Takes(80 * US, 20 * US))
    assert rig.lasted() == (80 + 20) * US


def test_who_finds_that_others_have_had_its_core_pays_again_at_each_collective() -> None:
    """On one core, two hosts take turns: each begins every collective after the other has used the core."""
    rig = Rig(1, 2, meet=7 * US)
    rig.run(Takes(80 * US, 0, rounds=8, meets=4))
    assert rig.lasted() == 2 * (80 + 4 * 7) * US


def test_what_keeps_more_than_one_core_busy_lasts_no_less_for_that() -> None:
    """One of its threads is busy all the time, the other for four fifths of it."""
    rig = Rig(2, 1)
    rig.run(Takes(300 * US, 0, 1.8))
    assert rig.lasted() == 300 * US
    assert rig.cores.spent == {(0, DEVICE): 540 * US}


def test_who_has_one_core_for_two_threads_takes_as_long_as_both() -> None:
    rig = Rig(1, 1)
    rig.run(Takes(300 * US, 0, 2.0))
    assert rig.lasted() == 600 * US


def test_whoever_wakes_up_waits_no_longer_than_a_slice() -> None:
    rig = Rig(1, 1)
    rig.run(Takes(10 * SLICE, 0))
    heard: list[int] = []
    share = rig.cores.share(Someone(5), READ)  # type: ignore[arg-type]
    wake: Callable[[], None] = lambda: share.work((0, 0), 1, lambda: heard.append(rig.clock.now))  # noqa: E731
    rig.clock.at(SLICE // 2, wake)
    rig.clock.run()
    assert heard == [SLICE + 1]


@given(st.integers(0, 10**9), st.integers(1, ROUNDS))
def test_parts_are_even_and_nothing_is_lost(whole: int, many: int) -> None:
    parts = [part(whole, turn, many) for turn in range(many)]
    assert sum(parts) == whole
    assert max(parts) - min(parts) <= 1


@given(st.integers(1, 1000), st.integers(1, ROUNDS))
def test_each_collective_begins_once(number: int, many: int) -> None:
    found = [begun(number, turn, many) for turn in range(many)]
    assert found[0] == 1
    assert number - number // many <= sum(found) <= number


def test_sums_go_there_and_back_and_others_one_way() -> None:
    def of(kind: str, hosts: int, count: int = 1) -> int:
        return rounds(Kernel("k", 1, (Collective(kind, 4, count=count),)), hosts)  # type: ignore[arg-type]

    assert [of("all-reduce", hosts) for hosts in (1, 2, 3, 4, 8)] == [0, 2, 4, 4, 6]
    assert of("all-gather", 4) == 2
    assert [of("permute", hosts) for hosts in (1, 8)] == [0, 1]
    assert of("all-reduce", 2, 5) == 10
    assert rounds(Kernel("k", 1), 4) == 0
