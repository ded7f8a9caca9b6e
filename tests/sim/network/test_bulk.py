"""Contents between hosts: when they arrive, from bandwidths and latencies alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.topology import Cluster
from core.protocol.dataplane import Chunk
from core.record.trace import Trace
from sim.engine.clock import SimClock
from sim.hardware.setups import load
from sim.network.bulk import BulkNetwork
from sim.network.ports import Ports
from sim.network.roads import IslandRoads, Roads

GB = 1e9  # bytes a second: a byte takes a nanosecond
LATENCY, PCIE_LATENCY = 1_000, 100
FIRST_BYTE = LATENCY + 2 * PCIE_LATENCY


class Sent(NamedTuple):
    sender: int
    receiver: int
    nbytes: int
    at: int = 0
    cost: int = 0  # of the thread that writes it


def cluster() -> Cluster:
    islands = [{"name": f"i{number}", "kind": "cpu", "hosts": 4, "devices_per_host": 1} for number in range(2)]
    return load({"name": "two", "island": islands}).cluster


def torus(**changed: object) -> Cluster:
    """Two islands of 4x2 hosts, each a block of 2x2 chips of two devices."""
    island: dict[str, object] = {"kind": "v3", "hosts": 8, "torus": [8, 8], "block": [2, 4]}
    return load({"name": "tori", "island": [island | changed | {"name": f"i{n}"} for n in range(2)]}).cluster


def arrivals(
    sent: list[Sent], hosts: Cluster | None = None, oversubscription: float = 1.0, taking: int = 0, **ways: float
) -> list[int]:
    """When the last byte of each has arrived. Each is a piece of one transfer. `taking`: how many devices of each host
    take part; 0: that is not known."""
    clock, there = SimClock(), [-1] * len(sent)

    def arrive(receiver: int, sender: int, number: int, chunk: Chunk) -> None:
        there[chunk.piece] = clock.now

    cluster_ = hosts or cluster()
    usual: dict[str, Any] = {"nic": GB, "card": GB, "ici": 0, "torus": bool(cluster_.islands[0].torus), "hop": 10}
    each_way = IslandRoads(**(usual | ways))
    roads = Roads(
        cluster_, (each_way,) * len(cluster_.islands), LATENCY, PCIE_LATENCY, GB, oversubscription, Ports(clock)
    )
    bulk = BulkNetwork(clock, cluster_, roads, arrive, Trace())
    if taking:
        devices = {host: tuple(cluster_.devices_of(host))[:taking] for each in sent for host in each[:2]}
        route = roads.route
        roads.route = lambda one, other: route(one, other, devices[one], devices[other])  # type: ignore[assignment]
    for number, each in enumerate(sent):
        chunk = Chunk(7, each.sender, each.receiver, number, 0, each.nbytes)
        clock.at(each.at, bulk.send, each.sender, each.receiver, chunk, each.nbytes, each.cost)
    clock.run()
    return there


@pytest.mark.parametrize("nbytes", [100, FIRST_BYTE, 1_000_000])
def test_a_chunk_takes_its_bandwidth_once_however_long_it_is(nbytes: int) -> None:
    assert arrivals([Sent(0, 1, nbytes)]) == [FIRST_BYTE + nbytes]


def test_devices_that_reach_less_than_their_host_has_determine_the_time() -> None:
    assert arrivals([Sent(0, 1, 10_000)], card=GB / 2, taking=1) == [FIRST_BYTE + 20_000]


def test_devices_share_what_they_reach_and_hosts_their_cards() -> None:
    """Eight hosts of a torus, each of eight devices, go over cards: a device reaches a quarter of its host's."""
    there, sent = torus(), [Sent(0, 8, 10_000), Sent(0, 9, 10_000)]
    for count, took in ((1, 4), (2, 2), (4, 1), (8, 1)):
        assert arrivals(sent, there, card=GB / 4, taking=count) == [
            FIRST_BYTE + 10_000 * took, FIRST_BYTE + 20_000 * took
        ]  # fmt: skip
    into = [Sent(0, 8, 10_000), Sent(1, 8, 10_000)]
    assert sorted(arrivals(into, there, card=GB / 4, taking=1)) == [FIRST_BYTE + 40_000, FIRST_BYTE + 80_000]


@pytest.mark.parametrize("oversubscription", [2, 4])
def test_an_island_that_is_sent_to_by_others_hears_no_more_than_its_downlink_carries(oversubscription: int) -> None:
    """Each of the four hosts of three islands sends to one of the last island."""
    islands = [{"name": f"i{number}", "kind": "cpu", "hosts": 4, "devices_per_host": 1} for number in range(4)]
    sent = [Sent(4 * island + host, 12 + host, 10_000) for _ in range(20) for island in range(3) for host in range(4)]
    there = arrivals(sent, load({"name": "four", "island": islands}).cluster, oversubscription)
    downlink = 4 * GB / oversubscription
    assert max(there) == pytest.approx(sum(each.nbytes for each in sent) / downlink * 1e9, rel=0.03)


def test_chunks_of_one_sender_follow_each_other_without_a_gap() -> None:
    sent = [Sent(0, receiver, 10_000) for receiver in (1, 1, 2)]
    assert arrivals(sent) == [FIRST_BYTE + after for after in (10_000, 20_000, 30_000)]


def test_chunks_of_several_senders_share_the_receiver_s_card() -> None:
    assert sorted(arrivals([Sent(sender, 3, 10_000) for sender in (0, 1, 2)])) == [
        FIRST_BYTE + after for after in (10_000, 20_000, 30_000)
    ]


def test_the_first_chunk_is_carried_first_even_if_it_takes_longer() -> None:
    assert arrivals([Sent(0, 2, 50_000), Sent(1, 2, 100, at=5)]) == [FIRST_BYTE + 50_000, FIRST_BYTE + 50_100]


def test_on_a_torus_and_within_a_host_no_card_is_used() -> None:
    there = torus()
    assert arrivals([Sent(0, 0, 8_000)], there, ici=GB, chip=2) == [2_000]  # by the links of four chips
    assert arrivals([Sent(0, 1, 8_000)], there, ici=GB, chip=2) == [4_010]
    assert arrivals([Sent(0, 8, 8_000)], there, ici=GB, chip=2) == [FIRST_BYTE + 8_000]  # to another island


def test_a_device_sends_by_its_own_chip_s_link_and_hears_by_one() -> None:
    there = torus()
    assert arrivals([Sent(0, 1, 8_000)], there, ici=GB, chip=2, taking=1) == [8_010]
    assert arrivals([Sent(0, 1, 8_000), Sent(0, 1, 8_000)], there, ici=GB, chip=2, taking=2) == [8_010, 16_010]
    assert arrivals([Sent(0, 0, 8_000)], there, hbm=GB, taking=1) == [8_000], "to itself"


def test_a_host_hears_by_the_links_of_the_side_that_is_turned_to_the_senders() -> None:
    """Seven hosts of a 4x2 torus send to one. Four of them come along the last axis, over the two links there."""
    there = arrivals([Sent(host, 0, 8_000) for host in range(1, 8)], torus(), ici=GB, chip=2)
    assert max(there) == 10 + 8_000 * 4 // 2


@pytest.mark.parametrize(("block", "links"), [([2, 4], (2, 2)), ([4, 2], (1, 4)), ([8, 1], (1, 8))])
def test_a_host_reaches_another_by_the_links_of_one_side(block: list[int], links: tuple[int, int]) -> None:
    """To the next host along the last axis, and along the first. A device is half a chip on the last axis."""
    if block == [8, 1]:
        there, chip = torus(torus=[8, 8], block=block, kind="v5e", devices_per_host=8), 1
    else:
        there, chip = torus(block=block), 2
    along = (1, 8 // block[1])  # the numbers of these hosts; host 0 is at the corner
    for host, number in zip(along, reversed(links), strict=True):
        if host < 8:
            assert arrivals([Sent(0, host, 8_000)], there, ici=GB, chip=chip) == [8_000 // number + 10]


def test_the_sides_of_a_host_do_not_share_links() -> None:
    """Hosts 1 and 2 are its neighbours along either axis, 6 the other one along the first, round the torus."""
    around = [Sent(0, host, 8_000) for host in (1, 2, 6)]
    assert arrivals(around, torus(wraps=[True, False]), ici=GB, chip=2) == [4_010] * 3
    assert max(arrivals(around, torus(), ici=GB, chip=2)) == 8_010, "without a way round, 6 lies behind 2"


pairs = st.integers(0, 3), st.integers(4, 7)
chunks = st.builds(Sent, *pairs, st.integers(1, 50_000), st.integers(0, 20_000), st.just(0))
written = st.builds(Sent, *pairs, st.integers(1, 50_000), st.integers(0, 20_000), st.integers(1, 10_000))


@given(
    sent=st.lists(written, min_size=2, max_size=12),
    oversubscription=st.sampled_from([1, 8, 40]),
    ici=st.sampled_from([0, GB]),
)
def test_chunks_of_a_transfer_arrive_in_order_whatever_their_sizes(
    sent: list[Sent], oversubscription: float, ici: float
) -> None:
    sent.sort(key=lambda each: each.at)
    for hosts in (torus(), cluster()):
        there = arrivals(sent, hosts, oversubscription, ici=ici if hosts.islands[0].torus else 0)
        for number, each in enumerate(sent):
            for before in range(number):
                if sent[before][:2] == each[:2]:
                    assert there[before] <= there[number]


@given(sent=st.lists(chunks, min_size=1, max_size=12))
def test_no_card_exceeds_its_bandwidth_and_none_is_idle_while_something_waits(sent: list[Sent]) -> None:
    """Compared with: each card carries chunks in the order in which their first bytes came."""
    free: dict[tuple[str, int], int] = {}
    begun = {}
    for number in sorted(range(len(sent)), key=lambda which: (sent[which].at, sent[which].receiver, which)):
        each = sent[number]
        begun[number] = max(each.at, free.get(("out", each.sender), 0))
        free["out", each.sender] = begun[number] + each.nbytes
    expected = [0] * len(sent)
    for number in sorted(begun, key=lambda which: (begun[which], sent[which].sender, which)):
        each = sent[number]
        start = max(begun[number] + FIRST_BYTE, free.get(("in", each.receiver), 0))
        free["in", each.receiver] = expected[number] = start + each.nbytes
    assert arrivals(sent) == expected
