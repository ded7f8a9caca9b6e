"""Programs of one slice have executors of their own, until they touch anything else; all times stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.client.client import Client
from core.model import spans
from core.model.program import Program, SliceSpec
from core.protocol import effects as e
from core.schedule.policy import Fifo
from sim.cohort import slice_parts
from sim.hardware.profiles import profile
from sim.hardware.setups import load
from sim.hosts import RareTimes, SimClient
from sim.simulation.faults import Fault
from sim.simulation.simulation import Simulation
from tests.core.build import Build
from tests.laws import examples
from tests.sim import scene, wide_scene

SEEDS = st.integers(0, 1 << 20)
MS = 1_000_000
HOUR = 3600 * 1_000 * MS


@given(seed=SEEDS, hosts=st.sampled_from([4, 8, 16]), kind=st.sampled_from(["overlapping", "slices"]))
@examples(8)
def test_programs_on_many_slices_take_the_same_time(seed: int, hosts: int, kind: str) -> None:
    scene.assert_equal(wide_scene.draw(seed, kind=kind, hosts=hosts))


@given(seed=SEEDS)
@examples(4)
def test_beside_other_programs_they_take_the_same_time(seed: int) -> None:
    scene.assert_equal(wide_scene.draw_mixed(seed))


@given(seed=SEEDS)
@examples(4)
def test_slices_of_which_nothing_is_left_are_forgotten_at_any_time(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slice_parts, "KEPT", 0)
        scene.assert_equal(wide_scene.draw_mixed(seed))


# --- who is told what -------------------------------------------------------------------------------------------------


class Slices:
    """Six slices of half of an island's eight hosts, and a client that calls a program on each, again and again."""

    def __init__(self, *faults: Fault, compiling: int = 0) -> None:
        setup, times = load("B", hosts=8, devices_per_host=2), RareTimes(compile=compiling)
        self.sim = Simulation(setup, policy=Fifo, profile=profile("seaway"), faults=faults, times=times)
        self.client: SimClient = self.sim.client("a")
        self.ended: list[e.RunEnded] = []
        self.client.on_effect = lambda effect: self.ended.append(effect) if isinstance(effect, e.RunEnded) else None
        self.programs = [self.register(f"slice {number}", 7) for number in range(6)]
        self.island = self.sim.islands[0]

    def register(self, name: str, devices: int, collective: bool = True) -> int:
        build = Build(name)
        build.slices.append(SliceSpec(name, devices))
        step = build.call("step", name, [build.arg(name, 8)], cost=100_000, collective=collective)
        made: Program = build.program(step)
        number = self.client.call(lambda c, now: c.register(made, now))
        assert isinstance(number, int)
        return number

    def calls(self, *args: Any, programs: list[int] | None = None) -> list[int]:
        """A call of each program; waits for them, and returns their results."""
        number = len(self.ended)
        made = [
            self.client.call(submitting(program, arg))
            for program, arg in zip(programs or self.programs, args or [bytes(32)] * 6, strict=False)
        ]
        self.sim.run(until=lambda: len(self.ended) == number + len(made))
        assert all(each.blame is None for each in self.ended)
        return [run.results[0] for run in made]


def submitting(program: int, arg: Any) -> Callable[[Client, int], Any]:
    return lambda client, now: client.submit(program, (arg,), now)


def releasing(*results: int) -> Callable[[Client, int], Any]:
    return lambda client, now: client.release(results, now)


def test_slices_that_overlap_do_not_divide_the_island() -> None:
    slices = Slices()
    results = slices.calls()
    for _ in range(3):
        before, results = results, slices.calls(*results)
        slices.client.call(releasing(*before))
    assert len(slices.island.parts.all) == 1
    assert len(slices.island.slices.known) == 6


def test_a_slice_has_one_executor_though_its_last_host_has_other_devices_in_it() -> None:
    slices = Slices()
    slices.calls()
    for each in slices.island.slices.known.values():
        assert each.part.members == each.hosts
        assert spans.count(each.hosts) == 4


def test_gangs_on_one_host_do_not_divide_the_island_though_they_are_no_collectives() -> None:
    slices = Slices()
    small = [slices.register(f"small {number}", 1, collective=False) for number in range(6)]
    slices.calls(programs=small)
    assert len(slices.island.parts.all) == 1
    assert len(slices.island.slices.known) == 6 + 6


def test_an_array_that_is_read_brings_its_slice_back_and_no_other() -> None:
    slices = Slices()
    results = slices.calls()
    slices.client.call(lambda c, now: c.get(results[0], now))
    slices.sim.run(until=slices.sim.now + 5 * MS)
    assert len(slices.island.parts.all) > 1
    assert len(slices.island.slices.known) == 5
    slices.calls(*results)  # one is an argument of a program that the island's parts know


def test_an_array_that_another_program_takes_brings_both_slices_back() -> None:
    slices = Slices()
    results = slices.calls()
    slices.calls(results[1], results[0], programs=slices.programs[:2])
    assert len(slices.island.slices.known) == 4


def test_where_hosts_will_differ_each_has_one_executor() -> None:
    slices = Slices(Fault(HOUR, "crash_host", 1))
    slices.calls()
    assert not slices.island.slices.known


def test_code_of_a_program_that_is_taken_back_while_it_is_compiled_comes_to_those_that_asked() -> None:
    slices = Slices(compiling=20 * MS)
    slices.client.call(lambda c, now: c.unregister(slices.programs[0], now))
    slices.sim.run(until=slices.sim.now + 5 * MS)
    assert len(slices.island.slices._of_plan) == len(slices.island.slices.known) - 1 == 5
    slices.sim.run(until=slices.sim.now + 30 * MS)
    slices.calls(programs=slices.programs[1:])
    last = slices.register("slice 0", 7)
    slices.sim.run(until=slices.sim.now + 30 * MS)
    slices.client.call(lambda c, now: c.unregister(last, now))
    slices.sim.run(until=slices.sim.now + 5 * MS)
    assert not slices.island.slices._of_forgotten


def test_runs_of_which_nothing_is_left_are_forgotten() -> None:
    slices = Slices()
    for _ in range(2 * slice_parts.KEPT // 6):
        slices.client.call(releasing(*slices.calls()))
    assert len(slices.island.slices._runs) <= slice_parts.KEPT + 6
