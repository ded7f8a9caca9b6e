"""Arrays on their way, in whole simulations, against the bandwidths of what they pass."""

from __future__ import annotations

from typing import Any, Literal

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import seaway as sw

SPLIT: Any = PartitionSpec("d")  # type: ignore[no-untyped-call]
shape: Any = jax.ShapeDtypeStruct
CARD, LINK = 12.5e9, 82e9  # bytes a second: a host's card; an ICI link of a v3 chip
TWO = {"name": "two", "island": [{"name": f"i{n}", "kind": "v3", "hosts": 4} for n in range(2)]}
Fidelity = Literal["cohort", "exact"]


def took(nbytes: int, cluster: Any, there: str, fidelity: Fidelity = "cohort", **options: Any) -> float:
    """Seconds of moving so many bytes of each of four hosts to four other ones: with one call, less a small one's."""
    times = []
    with sw.simulate(cluster, values="shapes", fidelity=fidelity, **options) as session:
        here, away = (sw.slice(devices=32, mesh={"d": 32}, island=name) for name in ("i0", there))
        for size in (32, 4 * nbytes):
            x = sw.put(shape((size,), np.uint8), devices=here, sharding=SPLIT)
            x.block_until_ready()
            begun = session.now()
            sw.put(x, devices=away, sharding=SPLIT).block_until_ready()
            times.append(session.now() - begun)
    return times[1] - times[0]


def test_a_host_sends_as_fast_as_its_card() -> None:
    assert took(800_000_000, TWO, "i1") == pytest.approx(800e6 / CARD, rel=0.01)


def test_a_host_sends_to_its_neighbour_over_the_links_that_face_it() -> None:
    one = {"name": "one", "island": [{"name": "i0", "kind": "v3", "hosts": 8, "torus": [4, 16], "block": [2, 4]}]}
    assert took(800_000_000, one, "i0") == pytest.approx(800e6 / (2 * LINK), rel=0.02)


@pytest.mark.parametrize("fidelity", ["cohort", "exact"])
@pytest.mark.parametrize("nbytes", [17_000_000, 16 << 20, (16 << 20) + 32, 40_000_032])
def test_contents_land_whatever_their_size(nbytes: int, fidelity: Fidelity) -> None:
    """Chunks have up to 16 MiB. A process needs less time to write the last one, if that is short."""
    assert 0.003 < took(nbytes, TWO, "i1", fidelity, profile="seaway") < 0.1


# --- one device, and many into one ----------------------------------------------------------------------------------

GPUS = {"name": "gpus", "island": [{"name": f"i{n}", "kind": "h100", "hosts": 1} for n in range(2)]}
CUBE = {"name": "cube", "island": [{"name": "i0", "kind": "v4", "hosts": 16}]}  # 4x4x4 chips, 2x2x1 a host
FOUR = {"name": "four", "island": [{"name": f"i{n}", "kind": "v4", "hosts": 2} for n in range(4)]}


def rate(cluster: Any, moves: list[tuple[Any, Any]], fidelity: Fidelity, nbytes: int = 4_000_000_000) -> float:
    """Bytes a second of all these moves together, each of so many bytes from a slice to a slice."""
    times = []
    with sw.simulate(cluster, values="shapes", fidelity=fidelity, profile="ideal") as session:
        for size in (4096, nbytes):
            arrays = [sw.put(shape((size,), np.uint8), devices=here, sharding=SPLIT) for here, _ in moves]
            sw.block_until_ready(arrays)
            begun = session.now()
            sw.block_until_ready(
                [sw.put(x, devices=there, sharding=SPLIT) for x, (_, there) in zip(arrays, moves, strict=True)]
            )
            times.append(session.now() - begun)
    return len(moves) * nbytes / (times[1] - times[0])


def devices(count: int, island: str = "i0") -> Any:
    return sw.slice(devices=count, mesh={"d": count}, island=island, exclusive=True)


@pytest.mark.parametrize("fidelity", ["cohort", "exact"])
@pytest.mark.parametrize(
    ("cluster", "count", "into", "there", "wanted"),
    [
        (GPUS, 1, 8, "i1", 50e9),  # a device's own card, whatever the other end has
        (GPUS, 8, 1, "i1", 50e9),
        (GPUS, 8, 8, "i1", 400e9),
        (GPUS, 1, 1, "i0", 450e9),  # NVLink within a host
        (FOUR, 1, 1, "i1", 15e9),  # PCIe of one chip, and not of four
        (FOUR, 8, 8, "i1", 50e9),  # the cards of two hosts
        (CUBE, 4, 4, "i0", 200e9),  # to the host beside it: 4 links
    ],
)  # fmt: skip
def test_devices_send_and_hear_over_roads_of_their_own_then_their_hosts(
    cluster: Any, count: int, into: int, there: str, wanted: float, fidelity: Fidelity
) -> None:
    assert rate(cluster, [(devices(count), devices(into, there))], fidelity) == pytest.approx(wanted, rel=0.03)


@pytest.mark.parametrize("fidelity", ["cohort", "exact"])
def test_two_transfers_share_one_device_s_card_and_not_those_of_two_devices(fidelity: Fidelity) -> None:
    one, other, far, away = devices(1), devices(1), devices(1, "i1"), devices(1, "i1")
    assert rate(GPUS, [(one, far), (other, away)], fidelity) == pytest.approx(100e9, rel=0.03)
    assert rate(GPUS, [(one, far), (one, away)], fidelity) == pytest.approx(50e9, rel=0.03)
    assert rate(GPUS, [(one, far), (other, far)], fidelity) == pytest.approx(50e9, rel=0.03)


@pytest.mark.parametrize("fidelity", ["cohort", "exact"])
def test_islands_into_one_take_as_long_as_its_downlink_needs(fidelity: Fidelity) -> None:
    """At 4:1, three islands of two hosts with cards of 25 GB/s into one."""
    crowded = {**FOUR, "dcn": {"oversubscription": 4.0}}
    into = [(devices(8, f"i{n}"), sw.slice(devices=8, mesh={"d": 8}, island="i3")) for n in range(3)]
    assert rate(crowded, into, fidelity) == pytest.approx(2 * 25e9 / 4, rel=0.05)


@pytest.mark.parametrize("fidelity", ["cohort", "exact"])
def test_a_host_of_a_torus_hears_no_more_than_the_side_that_is_turned_to_the_senders_carries(
    fidelity: Fidelity,
) -> None:
    """Eight hosts, all of which come over the four links of one side: short contents, for which nobody waits."""
    assert 0.9 < rate(CUBE, [(devices(32), devices(4))], fidelity, 200_000_000) / 200e9 < 1.0
