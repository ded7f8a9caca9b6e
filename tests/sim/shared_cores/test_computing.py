"""Devices that compute on their hosts' cores, in slices."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from sim.engine.clock import SimClock
from sim.hosts import Takes
from sim.shared_cores.computing import NEGLIGIBLE, SLICE, Computing
from sim.shared_cores.cores import DEVICE, READ, Cores

US = 1000


class Someone:
    alive = True

    def __init__(self, name: int) -> None:
        self.name = name


class Rig:
    """Hosts on a machine with this number of cores; `ended`: when each run ended."""

    def __init__(self, cores: int, hosts: int) -> None:
        self.clock = SimClock()
        self.cores = Cores(self.clock, cores)
        people = [Someone(host) for host in range(hosts)]
        by_host = dict.fromkeys(range(hosts), self.cores)
        self.computing = Computing(self.clock, by_host, people.__getitem__)  # type: ignore[arg-type]
        self.hosts = hosts
        self.ended: list[int] = []

    def run(self, takes: Takes) -> None:
        self.computing.run(dict.fromkeys(range(self.hosts), 1), takes, lambda: self.ended.append(self.clock.now))

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


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 4))
def test_where_there_are_cores_for_all_it_takes_what_it_takes_on_however_many(own: int, links: int, hosts: int) -> None:
    rig = Rig(64, hosts)
    rig.run(Takes(own, links))
    assert rig.lasted() == own + links
    assert [rig.cores.spent[host, DEVICE] for host in range(hosts)] == [own] * hosts


def test_hosts_that_are_more_than_cores_wait_for_each_other() -> None:
    rig = Rig(1, 2)
    rig.run(Takes(80 * US, 20 * US))
    assert rig.lasted() == 2 * 80 * US + 20 * US


@given(st.integers(1000, 10**6), st.floats(1, 8), st.integers(1, 4))
def test_a_computation_that_keeps_several_cores_busy_uses_as_much_of_them_in_its_own_time(
    own: int, cores: float, hosts: int
) -> None:
    rig = Rig(64, hosts)
    rig.run(Takes(own, 0, cores=cores))
    assert rig.lasted() == own
    used = rig.cores.spent[0, DEVICE] / own
    assert abs(used - cores) <= max(NEGLIGIBLE, 0.01)


@given(st.floats(1.1, 2), st.integers(2, 4))
def test_hosts_whose_computations_want_all_cores_share_them(cores: float, hosts: int) -> None:
    """Together they take as long as their work needs on these cores, and not less."""
    own = 50 * SLICE
    rig = Rig(2, hosts)
    rig.run(Takes(own, 0, cores=cores))
    least = hosts * own * cores / 2
    assert least - SLICE <= rig.lasted() <= max(own, least) + 2 * SLICE


def test_whoever_wakes_up_waits_no_longer_than_a_slice() -> None:
    rig = Rig(1, 1)
    rig.run(Takes(10 * SLICE, 0))
    heard: list[int] = []
    share = rig.cores.share(Someone(5), READ)  # type: ignore[arg-type]
    wake: Callable[[], None] = lambda: share.work((0, 0), 1, lambda: heard.append(rig.clock.now))  # noqa: E731
    rig.clock.at(SLICE // 2, wake)
    rig.clock.run()
    assert heard == [SLICE + 1]
