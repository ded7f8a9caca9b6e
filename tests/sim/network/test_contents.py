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
