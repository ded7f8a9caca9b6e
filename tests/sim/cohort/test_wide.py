"""The fidelities agree on what users write, at 4 to 64 hosts, however often parts of a cohort are merged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cohort import parts
from tests.laws import examples
from tests.sim import scene, wide_scene

SEEDS = st.integers(0, 1 << 20)


def assert_equal(drawn: scene.Scene) -> None:
    assert scene.assert_equal(drawn)["gangs"]


@given(seed=SEEDS, hosts=st.sampled_from([4, 8, 16]))
@examples(6)
def test_programs_that_users_write_take_the_same_time(seed: int, hosts: int) -> None:
    assert_equal(wide_scene.draw(seed, hosts=hosts))


@given(seed=SEEDS)
@examples(6)
def test_parts_that_are_compared_before_each_order_take_the_same_time(seed: int) -> None:
    """Parts are merged wherever they can be, and divided again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "FIRST", 0)
        patch.setattr(parts, "MOST", 0)
        assert_equal(wide_scene.draw(seed, hosts=8))


@pytest.mark.parametrize("kind", sorted(wide_scene.KINDS))
def test_each_kind_of_program_takes_the_same_time_on_64_hosts(kind: str) -> None:
    drawn = wide_scene.draw(1, kind=kind, hosts=64)
    drawn.acts, drawn.clients = 4, 1
    assert_equal(drawn)


@given(seed=SEEDS)
@examples(3)
def test_an_island_without_faults_is_a_cohort_beside_one_that_has_some(seed: int) -> None:
    assert_equal(wide_scene.draw(seed, hosts=4, faults=True))
