"""Random draws are a function: the same arguments give the same draw, one at a time or as a vector."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.engine import jitter
from sim.network.network import link_of

WHO = st.integers(0, (1 << 64) - 1)


@given(
    seed=st.integers(0, 1 << 32),
    who=st.lists(WHO, min_size=1, max_size=8),
    which=st.integers(0, 1 << 62),
    limit=st.integers(1, (1 << 32) - 1),
)
def test_vectors_draw_the_same_as_scalars(seed: int, who: list[int], which: int, limit: int) -> None:
    sources = jitter.keys(seed, np.array(who, dtype=np.uint64))
    assert sources.tolist() == [jitter.key(seed, one) for one in who]
    drawn = jitter.each_below(limit, sources, which)
    assert drawn.tolist() == [jitter.below(limit, int(source), which) for source in sources]
    assert all(0 <= one < limit for one in drawn.tolist())


def test_draws_are_spread_evenly_and_seeds_are_independent() -> None:
    drawn = [jitter.below(10, jitter.key(1, 5), which) for which in range(20_000)]
    assert all(1_800 < drawn.count(digit) < 2_200 for digit in range(10))
    assert [jitter.below(1000, jitter.key(2, 5), w) for w in range(9)] != [
        jitter.below(1000, jitter.key(1, 5), w) for w in range(9)
    ]


def test_no_two_links_share_a_source() -> None:
    names = [-5, -2, -1, 0, 1, 2, 511]
    links = [link_of(one, other) for one in names for other in names]
    assert len(set(links)) == len(links)


@pytest.mark.parametrize("bad", [{"latency": -1}, {"stragglers": 2.0}, {"straggler_factor": 0.5}])
def test_invalid_noise_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="noise"):
        jitter.Noise(**bad)  # type: ignore[arg-type]
