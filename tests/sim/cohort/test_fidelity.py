"""The fidelities agree: whatever clients do, every time in the trace is the same, to the nanosecond."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.model.program import Program
from sim.cohort import history
from sim.engine.jitter import Noise
from tests.core.build import Build
from tests.laws import examples
from tests.sim import fault_scene, move_scene, scene, wide_scene

SEEDS = st.integers(0, 1 << 20)


def assert_equal(drawn: scene.Scene, *, moves: bool) -> None:
    exact = scene.assert_equal(drawn, moves=moves)
    assert exact["runs"] or drawn.troubles or not any(exact["heard"])


@given(seed=SEEDS)
@example(seed=256)  # gangs of two hosts behind gangs of six
@examples(10)
def test_gangs_take_the_same_time(seed: int) -> None:
    """Programs on overlapping slices, collectives or not; sequential and parallel dispatch; slow hosts."""
    assert_equal(scene.draw(seed, moves=False), moves=False)


def wide_and_narrow(seed: int, wide: int, narrow: int, acts: int) -> scene.Scene:
    """Two clients call two programs, whose nodes take these times: one has all four hosts, and one has two of them.
    Nothing is a collective, so each host runs its part by itself."""

    def program(name: str, devices: int, cost: int) -> Program:
        build = Build(name, **{name: devices})
        return build.program(build.call("f", name, [build.arg(name, 8)], cost=cost, collective=False))

    programs = [program("wide", 16, wide), program("narrow", 8, narrow)]
    slices = [spec for each in programs for spec in each.slices]
    return scene.Scene(
        seed=seed, hosts=4, devices_per_host=4, islands=1, policy=0, fanout=100, noise=Noise(), slices=slices,
        programs=programs, clients=2, acts=acts, troubles=[],
    )  # fmt: skip


def test_a_gang_waits_for_one_that_its_first_host_has_run_before_its_last_host_starts_it() -> None:
    """The cohort simulation once knew too late when the gang behind could start, and set its clock back."""
    assert_equal(wide_and_narrow(3, wide=10_000, narrow=3_000, acts=3), moves=False)


def test_a_gang_ends_on_its_first_host_while_its_last_host_runs_the_gang_before_it() -> None:
    """The cohort simulation once told the last host of both ends in the wrong order."""
    assert_equal(wide_and_narrow(2, wide=700_000, narrow=40_000, acts=2), moves=False)


@given(seed=SEEDS)
@example(seed=1213)  # chunks from several hosts come to one in the same nanosecond
@example(seed=5044)  # reports of one host on two gangs come in the same nanosecond
@example(seed=54346)  # codes are compiled last at a host for which no other one speaks
@examples(3)
def test_contents_take_the_same_time(seed: int) -> None:
    """As above, with puts, gets, moves between slices and islands, irregular nodes and sparse exchanges."""
    assert_equal(scene.draw(seed), moves=True)


@given(seed=SEEDS)
@examples(4)
def test_collectives_and_contents_wait_for_each_other_in_the_same_way(seed: int) -> None:
    """On links, or on slow cards, sometimes with faults: what is played again waits as long as before."""
    drawn = (move_scene.draw, move_scene.draw, fault_scene.draw, scene.draw)[seed % 4](seed)
    scene.assert_equal(scene.draw_reducing(drawn))


TROUBLES = ("crash_host", "slow", "leave_host")


@given(seed=SEEDS, moves=st.booleans())
@example(seed=135, moves=True)  # a cohort's hosts blame two different causes for one gang
@example(seed=157, moves=True)
@example(seed=6879, moves=True)  # the last host to report a step blames, after others that did not
@examples(2)
def test_an_island_with_faults_takes_the_same_time_and_so_do_the_others(seed: int, moves: bool) -> None:
    """Contents from the faulty island fail, and a cohort's hosts blame different causes for that."""
    assert_equal(scene.draw(seed, moves=moves, troubles=TROUBLES), moves=moves)


@given(seed=SEEDS, moves=st.booleans(), troubled=st.booleans())
@examples(4)
def test_devices_are_kept_free_at_the_same_times(seed: int, moves: bool, troubled: bool) -> None:
    drawn = scene.draw_reserving(seed, moves=moves, troubles=TROUBLES if troubled else ("slow",))
    assert_equal(drawn, moves=moves)


def test_scenes_with_policies_that_reserve_have_reservations() -> None:
    kept = [scene.play(scene.draw_reserving(seed, moves=False), "cohort", moves=False) for seed in range(8)]
    assert sum(bool(each["reservations"]) for each in kept) > 2


@pytest.mark.parametrize("fidelity", ["exact", "cohort"])
def test_the_same_seed_gives_the_same_trace(fidelity: str) -> None:
    drawn = scene.draw(7)
    assert scene.play(drawn, fidelity) == scene.play(drawn, fidelity)


def test_another_seed_gives_other_jitter() -> None:
    one, other = scene.draw(7), scene.draw(7)
    one.noise = other.noise = Noise(latency=9_000)
    other.seed += 1000  # the simulation's seed; the actions of clients depend on it, too
    assert scene.play(one, "cohort")["intervals"] != scene.play(other, "cohort")["intervals"]


@pytest.mark.full
@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: scene.draw(seed, troubles=TROUBLES if seed % 2 else ("slow",)), move_scene.draw, wide_scene.draw,
        wide_scene.draw_mixed, fault_scene.draw, lambda seed: fault_scene.draw(seed, after=60),
        lambda seed: scene.draw_reducing(move_scene.draw(seed)),
    ],
)  # fmt: skip
@given(seed=SEEDS)
@settings(max_examples=200, deadline=None)
def test_the_fidelities_agree_on_many_more_scenes(draw: Callable[[int], scene.Scene], seed: int) -> None:
    """Checkpoints are made wherever one may be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "SPACING", 0)
        scene.assert_equal(draw(seed))
