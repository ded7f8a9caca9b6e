"""Collectives take the links and cards of contents under way: closed forms, in milliseconds."""

from __future__ import annotations

from typing import Any

import pytest

from core.model.place import Grid, Place, line
from sim.engine.clock import SimClock
from sim.hardware import Collective, Kernel, load, road_times
from sim.network.ports import Ports
from sim.network.roads import Roads, taking, ways_of

MS, MB = 1_000_000, 1_000_000
GPUS: dict[str, Any] = {  # a card carries a megabyte a millisecond, and a link four
    "island": [{"kind": "h100", "hosts": 4, "devices_per_host": 4, "ici_bandwidth": "4 GB/s"}],
    "chip": {"h100": {"network_bandwidth": "1 GB/s", "network_latency": "0us", "ici_latency": "0us"}},
    "dcn": {"bandwidth": "4 GB/s", "latency": "0us"},
}
TPUS: dict[str, Any] = {
    "island": [{"kind": "v5e", "count": 2, "hosts": 4, "devices_per_host": 4, "ici_bandwidth": "4 GB/s"}],
    "chip": {"v5e": {"ici_latency": "0us"}},
    "dcn": {"bandwidth": "1 GB/s", "latency": "0us"},
}
FIRSTS = Place(0, (Grid(0, (4,), (4,)),))  # the first GPU of each host
SECONDS = Place(0, (Grid(1, (4,), (4,)),))
HOST = line(0, 0, 4)  # all GPUs of the first host


class Rig:
    """Gangs that compute and then reduce so many megabytes, and chunks on the first port of their route."""

    def __init__(self, table: dict[str, Any]) -> None:
        self.setup, self.clock = load({"name": "rig", **table}), SimClock()
        ways, nic = ways_of(self.setup), self.setup.dcn.bandwidth
        self.roads = Roads(self.setup.cluster, ways, 0, 0, nic, 1.0, Ports(self.clock))
        self.waits: dict[int, float] = {}  # of gangs, by number
        self.begun: dict[int, float] = {}  # when chunks begin to pass

    def gang(self, number: int, at: int, place: Place, own: int, mbytes: int) -> None:
        kernel = Kernel("step", own * MS, (Collective("all-reduce", mbytes * MB),))
        island = self.setup.cluster.islands[0]
        roads = road_times(kernel, place, island, self.setup.chips[0], small=1 << 16)
        assert roads is not None

        def start() -> None:
            self.waits[number] = self.roads.collectives.wait(number, place, (at + own) * MS, roads) / MS

        self.clock.at(at * MS, start)

    def chunk(self, number: int, at: float, hosts: tuple[int, int], mbytes: int, sources: tuple[int, ...]) -> None:
        def leaves() -> None:
            receiver = tuple(self.setup.cluster.devices_of(hosts[1]))[-len(sources) :]
            leg = self.roads.route(*hosts, sources, receiver)[0]

            def begins(start: int) -> None:
                self.begun[number] = start / MS

            took = taking(mbytes * MB, leg.bandwidth)
            self.roads.ports.put(leg.port, self.clock.now, (hosts[1], number, 0, 0), took, begins)

        self.clock.at(int(at * MS), leaves)

    def run(self) -> tuple[list[float], list[float]]:
        """(how long each gang waits, when each chunk begins)."""
        self.clock.run()
        return [self.waits[at] for at in sorted(self.waits)], [self.begun[at] for at in sorted(self.begun)]


def test_a_chunk_out_of_a_card_waits_for_an_all_reduce_on_it_unless_it_is_over_before() -> None:
    """100 MB over 4 hosts at 1 MB/ms take 2 * 3/4 * 100 ms, after 10 ms of computing."""
    rig = Rig(GPUS)
    rig.gang(0, 0, FIRSTS, own=10, mbytes=100)
    for number, at, mbytes in ((0, 1, 4), (1, 6, 4), (2, 7, 4), (3, 50, 1)):
        rig.chunk(number, at, (0, 1), mbytes, (0,))
    assert rig.run() == ([0], [1, 6, 160, 164])


def test_an_all_reduce_waits_for_what_came_to_its_cards_before_its_gang_started() -> None:
    rig = Rig(GPUS)
    for number in range(4):
        rig.chunk(number, 0, (0, 1), 16, (0,))
    rig.gang(0, 1, FIRSTS, own=3, mbytes=100)
    assert rig.run() == ([4 * 16 - 4], [0, 16, 32, 48])


@pytest.mark.parametrize(("device", "begins"), [(0, 160), (1, 20)])
def test_the_cards_of_other_devices_are_free(device: int, begins: int) -> None:
    rig = Rig(GPUS)
    rig.gang(0, 0, FIRSTS, own=10, mbytes=100)
    rig.chunk(0, 20, (0, 1), 4, (device,))
    assert rig.run() == ([0], [begins])


def test_links_and_cards_are_different_roads() -> None:
    """40 MB over 4 GPUs of a host take 2 * 3/4 * 10 ms of links, and contents to another host take cards."""
    rig = Rig(GPUS)
    rig.gang(0, 0, HOST, own=10, mbytes=40)
    rig.chunk(0, 12, (0, 1), 4, (0,))
    rig.chunk(1, 12, (0, 0), 4, (0,))
    assert rig.run() == ([0], [12, 25])
    rig = Rig(GPUS)
    rig.gang(0, 0, FIRSTS, own=10, mbytes=100)  # no two of them on a host
    rig.chunk(0, 12, (0, 0), 4, (0,))
    assert rig.run() == ([0], [12])
    rig = Rig(GPUS)
    rig.gang(0, 0, line(0, 0, 16), own=10, mbytes=100)  # all of them: 2 * 15/16 * 100 / (1 + 4) ms, on both roads
    wide = 10 + 2 * 100 * max(3 / 4 / 4, 15 / 16 / 5, 3 / 16)
    for number, receiver in enumerate((0, 1)):
        rig.chunk(number, 12, (0, receiver), 4, (0,))
    assert rig.run()[1] == [pytest.approx(wide)] * 2


def test_on_a_torus_contents_wait_within_an_island_and_not_between_islands() -> None:
    rig = Rig(TPUS)
    rig.gang(0, 0, line(0, 0, 16), own=10, mbytes=64)
    for number, receiver in enumerate((1, 4)):
        rig.chunk(number, 12, (0, receiver), 4, (0, 1, 2, 3))
    _, (over_ici, between) = rig.run()
    kernel, island = Kernel("step", 0, (Collective("all-reduce", 64 * MB),)), rig.setup.cluster.islands[0]
    roads = road_times(kernel, line(0, 0, 16), island, rig.setup.chips[0], small=0)
    assert roads is not None
    assert (between, roads[1]) == (12, 0)
    assert over_ici == pytest.approx(10 + roads[0] / MS)


def test_several_gangs_do_not_wait_for_each_other_and_contents_wait_for_all_of_them() -> None:
    """From 10 to 160 ms on the first GPU of each host, and from 200 to 350 on the second. 60 MB over both cards take 30
    ms, and fit between."""
    rig = Rig(GPUS)
    rig.gang(0, 0, FIRSTS, own=10, mbytes=100)
    rig.gang(1, 0, SECONDS, own=200, mbytes=100)
    for number, at, mbytes in ((0, 20, 60), (1, 100, 30), (2, 110, 30)):
        rig.chunk(number, at, (0, 1), mbytes, (0, 1))
    assert rig.run() == ([0, 0], [160, 350, 365])


def test_chips_of_islands_that_count_them_in_other_ways_share_no_links() -> None:
    """Device 16 is a chip of the first island, and devices 32 and 33 are one of the second."""
    v5e = {"name": "a", "kind": "v5e", "hosts": 8, "devices_per_host": 4}
    rig = Rig({"island": [v5e, {"name": "b", "kind": "v3", "hosts": 4, "devices_per_host": 8}]})
    one, other = rig.roads.route(4, 4, (16,), (17,)), rig.roads.route(8, 8, (32,), (34,))
    assert not {leg.port for leg in one} & {leg.port for leg in other}


def test_what_is_small_takes_no_road() -> None:
    rig = Rig(GPUS)
    island, chip = rig.setup.cluster.islands[0], rig.setup.chips[0]
    for nbytes, takes in ((1 << 16, False), (1 + (1 << 16), True)):
        kernel = Kernel("step", 0, (Collective("all-reduce", nbytes),))
        assert (road_times(kernel, FIRSTS, island, chip, small=1 << 16) is not None) == takes


def test_a_gang_that_starts_again_when_the_past_is_played_again_waits_as_long_as_before() -> None:
    rig = Rig(GPUS)
    for _ in range(2):
        rig.gang(0, 1, FIRSTS, own=3, mbytes=100)
        rig.chunk(0, 0, (0, 1), 16, (0,))
        rig.clock.run()
        assert rig.waits[0] == 12
        rig.clock.now = 0
