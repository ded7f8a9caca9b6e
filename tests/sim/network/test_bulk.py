"""Contents between hosts: when they arrive, from bandwidths and latencies alone."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.topology import Cluster
from core.protocol.dataplane import Chunk
from core.record.trace import Trace
from sim.engine.clock import SimClock
from sim.hardware.setups import load
from sim.network.bulk import BulkNetwork, Roads

GB = 1e9  # bytes a second: a byte takes a nanosecond
LATENCY, PCIE_LATENCY = 1_000, 100
FIRST_BYTE = LATENCY + 2 * PCIE_LATENCY


class Sent(NamedTuple):
    sender: int
    receiver: int
    nbytes: int
    at: int = 0


def cluster() -> Cluster:
    islands = [
        {"name": f"i{number}", "kind": "cpu", "hosts": 4, "devices_per_host": 1} for number in range(2)
    ]
    return load({"name": "two", "island": islands}).cluster


def arrivals(sent: list[Sent], **roads: float) -> list[int]:
    """When the last byte of each has arrived."""
    clock, there = SimClock(), [-1] * len(sent)

    def arrive(receiver: int, sender: int, number: int, chunk: Chunk) -> None:
        there[chunk.transfer] = clock.now

    ways: dict[str, float] = {
        "nic": GB, "latency": LATENCY, "pcie": 4 * GB, "pcie_latency": PCIE_LATENCY, "ici": 0, "torus_latency": 10,
    }  # fmt: skip
    cargo = BulkNetwork(clock, cluster(), Roads(**(ways | roads)), arrive, Trace())  # type: ignore[arg-type]
    for number, each in enumerate(sent):
        chunk = Chunk(number, each.sender, each.receiver, 0, 0, each.nbytes)
        cargo.send(each.sender, each.receiver, chunk, each.nbytes, each.at)
    clock.run()
    return there


@pytest.mark.parametrize("nbytes", [100, FIRST_BYTE, 1_000_000])
def test_a_chunk_takes_its_bandwidth_once_however_long_it_is(nbytes: int) -> None:
    assert arrivals([Sent(0, 1, nbytes)]) == [FIRST_BYTE + nbytes]


def test_the_slower_of_card_and_bus_determines_the_time() -> None:
    assert arrivals([Sent(0, 1, 10_000)], pcie=GB / 2) == [FIRST_BYTE + 20_000]


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
    assert arrivals([Sent(0, 0, 8_000)]) == [2_000]  # by PCIe
    assert arrivals([Sent(0, 1, 8_000)], ici=8 * GB) == [1_010]
    assert arrivals([Sent(0, 4, 8_000)], ici=8 * GB) == [FIRST_BYTE + 8_000]  # to another island


@pytest.mark.parametrize(("oversubscription", "times"), [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4)])
def test_an_uplink_that_is_narrower_than_the_card_determines_the_time(
    oversubscription: float, times: int
) -> None:
    """Four hosts share it: one alone may have all of it."""
    assert arrivals([Sent(0, 4, 10_000)], oversubscription=oversubscription) == [FIRST_BYTE + times * 10_000]
    assert arrivals([Sent(0, 1, 10_000)], oversubscription=oversubscription) == [FIRST_BYTE + 10_000]


def test_an_uplink_is_shared_by_all_hosts_of_its_island() -> None:
    sent = [Sent(host, 4 + host, 10_000) for host in range(4)]
    last = max(arrivals(sent, oversubscription=4))
    assert last == FIRST_BYTE + 40_000


chunks = st.builds(Sent, st.integers(0, 3), st.integers(4, 7), st.integers(1, 50_000), st.integers(0, 20_000))


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
