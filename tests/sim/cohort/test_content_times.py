"""When contents pass between a client and hosts: for one host as for many, and later as it was before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from sim.cohort.content_times import ClientCosts, get_times, put_times
from sim.cohort.host_times import as_vector
from sim.hardware.profiles import profile

HOSTS = 4
TIMES = st.integers(0, 300_000)
EACH = st.lists(TIMES, min_size=HOSTS, max_size=HOSTS)
SIZES = st.lists(st.integers(0, 9000), min_size=1, max_size=3).map(tuple)


def costs(name: str) -> ClientCosts:
    return ClientCosts(profile(name), 40_000, 46_000, lambda nbytes: nbytes // 12, 4096)


def vector(numbers: list[int]) -> Any:
    return np.array(numbers, dtype=np.int64)


@pytest.mark.parametrize("follow", [put_times, get_times])
@given(EACH, EACH, TIMES, EACH, SIZES, st.sampled_from(("paper", "seaway")))
def test_what_is_so_at_each_host_alone_is_so_at_all(
    follow: Any, opened: list[int], connected: list[int], client: int, turns: list[int], sizes: tuple[int, ...],
    name: str,
) -> None:  # fmt: skip
    together = follow(costs(name), vector(opened), vector(connected), client, vector(turns), sizes)
    alone = [
        follow(costs(name), *each, client, turn, sizes) for *each, turn in zip(opened, connected, turns, strict=True)
    ]
    assert as_vector(together.over).tolist() == [times.over for times in alone]
    heard = [times.heard for times in alone]
    assert (together.heard, together.last) == (max(heard), heard.index(max(heard)))
    assert together.left == min(times.left for times in alone)
    assert together.came == max(times.came for times in alone)


@pytest.mark.parametrize("follow", [put_times, get_times])
@given(EACH, TIMES, EACH, SIZES, TIMES, st.sampled_from(("paper", "seaway")))
def test_what_begins_later_ends_as_much_later(
    follow: Any, opened: list[int], client: int, turns: list[int], sizes: tuple[int, ...], later: int, name: str
) -> None:
    """Where hosts are connected when they open their ends: so times can be remembered."""
    here, turn = vector(opened), vector(turns)
    times = follow(costs(name), here, here, client, turn, sizes)
    moved = follow(costs(name), here + later, here + later, client + later, turn + later, sizes)
    expected = times.shifted(later)
    assert as_vector(moved.over).tolist() == as_vector(expected.over).tolist()
    assert astuple(moved)[1:] == astuple(expected)[1:]
