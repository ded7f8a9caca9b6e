"""A gang of n steps is as good as n gangs, and ends with the step under way when it is cut: in both fidelities."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.model.program import Program
from core.protocol import effects as e
from core.schedule.policy import Fifo
from sim.cohort import history
from sim.hardware.profiles import COSTS, Profile, profile
from sim.hardware.setups import load
from sim.simulation.simulation import Simulation
from tests.core.build import Build
from tests.laws import examples
from tests.sim import fault_scene, scene

MS, S = 1_000_000, 1_000_000_000
SEEDS = st.integers(0, 1 << 20)
FREE: Profile = profile("seaway").changed(**dict.fromkeys(COSTS, 0))


def program(devices: int, steps: int, each: int) -> Program:
    b = Build("train", s=devices)
    return b.program(b.call("step", "s", [b.arg("s", devices)], cost=steps * each, steps=steps))


class Played:
    """Calls of a program with nothing to slow them down but the network, on an island of two hosts of four devices."""

    def __init__(self, fidelity: Any, made: Program) -> None:
        setup = load("B", hosts=2, devices_per_host=4, dcn={"bandwidth": 1e13})  # no message takes time for its bytes
        self.sim = Simulation(setup, policy=Fifo, profile=FREE, fidelity=fidelity)
        self.to_devices = 2 * self.sim.network.latency + self.sim.times.pcie_latency  # what a client's word takes
        self.client, self.undone = self.sim.client("a"), dict[int, int]()
        self.client.on_effect = self._hear
        self.sim.run(until=S)
        self.number: Any = self.client.call(lambda c, now: c.register(made, now))
        self._literal = bytes(made.args[0].nbytes)

    def _hear(self, effect: e.Command) -> None:
        if isinstance(effect, e.RunEnded):
            assert effect.blame is None
            self.undone[effect.run] = effect.undone

    def submit(self) -> int:
        made: Any = self.client.call(lambda c, now: c.submit(self.number, (self._literal,), now))
        return int(made.run)

    def stop(self, run: int, at: int) -> None:
        self.sim.run(until=at)
        self.client.call(lambda c, now: c.stop(run, now))

    def all_ended(self, number: int) -> list[tuple[int, int]]:
        self.sim.run(until=lambda: len(self.undone) == number)
        return self.gangs()

    def gangs(self) -> list[tuple[int, int]]:
        """When each has started, and ended; below 0: not yet."""
        return [(row["started"], row["ended"]) for row in self.sim.trace.rows("gangs")]


FIDELITIES = pytest.mark.parametrize("fidelity", ["exact", "cohort"])
DEVICES = st.sampled_from([1, 4, 8])


@FIDELITIES
@given(devices=DEVICES, steps=st.integers(1, 30), each=st.integers(1 * MS, 50 * MS))
@examples(5)
def test_one_call_of_n_steps_ends_when_n_calls_of_one_step_end(
    fidelity: str, devices: int, steps: int, each: int
) -> None:
    many, one = Played(fidelity, program(devices, 1, each)), Played(fidelity, program(devices, steps, each))
    for _ in range(steps):
        many.submit()
    one.submit()
    rows, (alone,) = many.all_ended(steps), one.all_ended(1)
    assert rows[-1][1] - rows[0][0] == alone[1] - alone[0] == steps * each


@FIDELITIES
@given(devices=DEVICES, steps=st.integers(2, 30), each=st.integers(1 * MS, 9 * MS), after=st.integers(0, 300 * MS))
@example(devices=8, steps=5, each=MS, after=2 * MS)  # the word comes when a step ends
@examples(5)
def test_a_stop_ends_it_at_the_first_end_of_a_step_when_or_after_the_word_comes_to_its_devices(
    fidelity: str, devices: int, steps: int, each: int, after: int
) -> None:
    played = Played(fidelity, program(devices, steps, each))
    run = played.submit()
    played.sim.run(until=lambda: any(start >= 0 for start, _ in played.gangs()))
    start, _ = played.gangs()[0]
    word = max(played.sim.now + played.to_devices, start + after)
    played.stop(run, word - played.to_devices)
    ((_, ended),) = played.all_ended(1)
    done = min(steps, -((start - word) // each))
    assert (ended, played.undone[run]) == (start + done * each, steps - done)


@FIDELITIES
def test_what_waits_in_the_queue_of_a_device_does_no_step_and_what_is_behind_begins_at_once(fidelity: str) -> None:
    played = Played(fidelity, program(8, 10, 10 * MS))
    first, second, third = played.submit(), played.submit(), played.submit()
    at = played.sim.now + 35 * MS
    played.stop(second, at)
    played.stop(first, at + 10 * MS)
    one, two, three = played.all_ended(3)
    assert one[1] == two[0] == two[1] == three[0] == one[0] + 50 * MS
    assert three[1] == three[0] + 100 * MS
    assert played.undone == {first: 5, second: 10, third: 0}


@given(seed=SEEDS)
@examples(8)
def test_cuts_take_the_same_time_in_both_fidelities(seed: int) -> None:
    drawn = scene.draw(seed, moves=Random(seed).random() < 0.5)
    drawn.stops = 0.7
    scene.assert_equal(drawn)


@given(seed=SEEDS)
@examples(4)
def test_cuts_take_the_same_time_around_faults(seed: int) -> None:
    """A cohort that is to be simulated host by host remembers which steps its gangs are at, and so do its hosts when
    they are a cohort again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "SPACING", 0)
        drawn = fault_scene.draw(seed, after=30)
        drawn.stops = 0.7
        scene.assert_equal(drawn)
