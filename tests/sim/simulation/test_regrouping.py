"""An island is a cohort again when its fault is over, and its hosts have the same past as processes that went on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.client.client import Client
from core.model import spans
from core.model.program import Program
from core.schedule.policy import Fifo
from sim.hardware.profiles import profile
from sim.hardware.setups import load
from sim.hosts import RareTimes
from sim.simulation.faults import Fault
from sim.simulation.simulation import Simulation
from tests.core.build import Build, chain
from tests.laws import examples
from tests.sim import fault_scene
from tests.sim.fault_scene import steady
from tests.sim.simulation.test_takeover import assert_equal

MS = 1_000_000
SEEDS = st.integers(0, 1 << 20)
QUICK = RareTimes(lease=3 * MS, form=MS, join=MS, restart=MS, beat=MS)


@given(seed=SEEDS)
@examples(4)
def test_what_comes_long_after_faults_takes_the_same_time_in_both_fidelities(seed: int) -> None:
    assert_equal(fault_scene.draw(seed, after=30))


@pytest.mark.parametrize("hosts", [16, 64])
def test_what_comes_after_a_crash_takes_the_same_time_on_more_hosts(hosts: int) -> None:
    drawn = fault_scene.draw(3, kinds=("crash_host",), hosts=hosts, wide=True)
    drawn.acts, drawn.clients = 12, 1
    assert_equal(drawn)


# --- when -----------------------------------------------------------------------------------------------------


def simulation(*faults: Fault, devices: int = 16) -> Simulation:
    return steady(*faults, programs=[chain(1, devices)], times=QUICK)


REPAIRED = {
    "crash_host": [Fault(50 * MS, "crash_host", 2), Fault(60 * MS, "return_host", 2)],
    "leave_host": [Fault(50 * MS, "leave_host", 2), Fault(60 * MS, "return_host", 2)],
    "return_host": [Fault(50 * MS, "return_host", 2)],
    "cut": [Fault(50 * MS, "cut", 2, duration=MS)],
    "fail_gang": [Fault(50 * MS, "fail_gang", 2, name="step 0")],
}


@pytest.mark.parametrize("kind", REPAIRED)
def test_an_island_is_a_cohort_again_when_a_fault_is_repaired(kind: str) -> None:
    sim = simulation(*REPAIRED[kind])
    sim.run(until=51 * MS)
    assert not sim.islands
    sim.run(until=100 * MS)
    assert list(sim.islands) == [0]
    assert not sim.lone_hosts
    assert sim.islands[0].parts.everyone == ((0, 4),)
    before = len(sim.trace)
    sim.run(until=120 * MS)
    assert len(sim.trace) >= before + 30


def test_an_island_short_of_a_lost_host_is_a_cohort_of_the_others() -> None:
    sim = simulation(Fault(50 * MS, "crash_host", 2), devices=8)
    sim.run(until=100 * MS)
    assert sim.islands[0].parts.everyone == ((0, 2), (3, 4))
    assert list(sim.lone_hosts) == [2]
    assert not sim.lone_hosts[2].alive
    before = len(sim.trace)
    sim.run(until=120 * MS)
    assert len(sim.trace) >= before + 30


def test_a_lost_host_may_come_back_to_a_cohort_of_the_others() -> None:
    sim = simulation(Fault(50 * MS, "crash_host", 2), Fault(150 * MS, "return_host", 2), devices=8)
    sim.run(until=149 * MS)
    assert list(sim.lone_hosts) == [2]
    sim.run(until=151 * MS)
    assert len(sim.lone_hosts) == 4
    sim.run(until=200 * MS)
    assert spans.count(sim.islands[0].parts.everyone) == 4


def test_checkpoints_are_kept_only_while_another_fault_is_announced() -> None:
    sim = simulation(*REPAIRED["cut"], Fault(150 * MS, "fail_gang", 1, name="step 0"))
    sim.run(until=100 * MS)
    (first,) = sim.islands.values()
    assert first.history is not None
    assert not first.contents_together
    sim.run(until=150 * MS)
    assert not sim.islands
    sim.run(until=200 * MS)
    (second,) = sim.islands.values()
    assert second.history is None
    assert second.contents_together


def test_hosts_are_together_until_a_gang_comes_that_is_to_fail() -> None:
    sim = simulation(Fault(50 * MS, "fail_gang", 2, name="of another program"))
    sim.run(until=100 * MS)
    (island,) = sim.islands.values()
    assert island.history is not None


def test_a_gang_that_is_to_fail_may_come_when_hosts_are_together_again() -> None:
    """The fault falls due while gangs of that name are known, but none is under way."""
    sim = simulation(Fault(50 * MS, "cut", 2, duration=MS), Fault(60 * MS, "fail_gang", 2, name="of another program"))
    sim.run(until=150 * MS)
    assert list(sim.islands) == [0]
    assert sim.islands[0].history is not None


def registering(program: Program) -> Callable[[Client, int], Any]:
    return lambda client, now: client.register(program, now)


def submitting(program: int) -> Callable[[Client, int], Any]:
    return lambda client, now: client.submit(program, (bytes(64),), now)


def late_gang(fidelity: Any) -> tuple[list[tuple[int, str]], list[bool]]:
    """What a client hears of gangs of which one is to fail, long after the fault fell due; and of each gang, whether
    hosts were together all the time until it was over."""
    sim = Simulation(
        load("B", hosts=4, devices_per_host=4), policy=Fifo, profile=profile("seaway"), fidelity=fidelity,
        faults=[Fault(5 * MS, "fail_gang", 2, name="late")], times=QUICK,
    )  # fmt: skip
    client, heard, together = sim.client("a"), list[tuple[int, str]](), list[bool]()
    client.on_effect = lambda effect: heard.append((sim.now, repr(effect)))

    def calls() -> Any:
        for number, name in enumerate(["early", "late"] + ["early"] * 20, 1):
            build = Build(name, s=16)
            made = build.program(build.call("f", "s", [build.arg("s", 16)], node=name, cost=200_000))
            yield from client.turn()
            client.act(registering(made))
            yield sim.env.timeout(9 * MS)
            yield from client.turn()
            client.act(submitting(number))
            together.append(True)
            for _ in range(100):
                yield sim.env.timeout(MS // 100)
                together[-1] &= bool(sim.islands)

    sim.env.process(calls())
    sim.run(until=250 * MS)
    return heard, together


def test_a_gang_that_fails_long_after_its_fault_fell_due_takes_the_same_time() -> None:
    (exact, _), (cohort, together) = late_gang("exact"), late_gang("cohort")
    assert cohort == exact
    assert sum("user" in text for _, text in exact) == 1
    assert together == [True, False, *[True] * 20]
