"""A simulated cluster grows at an announced time, as a real one does, and in both fidelities alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model import Impossible
from core.schedule.policy import Fifo
from sim.hardware import Setup, load
from sim.hardware.profiles import profile
from sim.hosts import RareTimes
from sim.simulation import Fault, Simulation
from tests.core.build import chain
from tests.laws import examples
from tests.sim import fault_scene, scene
from tests.sim.scene import MS

TIMES = RareTimes(lease=3 * MS, form=MS, join=MS, restart=MS, beat=MS)


def flat(*hosts: int) -> Setup:
    islands = [
        {"name": f"i{at}", "hosts": each, "devices_per_host": 4, "kind": "h100"} for at, each in enumerate(hosts)
    ]
    return load({"island": islands})


@given(seed=st.integers(0, 1 << 20))
@examples(4)
def test_growth_takes_the_same_time_in_both_fidelities(seed: int) -> None:
    scene.assert_equal(fault_scene.draw_growing(seed))


@pytest.mark.parametrize("fidelity", ["exact", "cohort"])
def test_hosts_and_islands_come_when_they_are_announced_and_a_cohort_takes_them_in(fidelity: Any) -> None:
    growth = [Fault(5 * MS, "grow", 4), Fault(30 * MS, "grow", 6)]
    sim = Simulation(flat(6, 3), policy=Fifo, profile=profile("seaway"), faults=growth, fidelity=fidelity, times=TIMES)
    client, program = sim.client("a"), chain(1, 24)
    number: Any = client.call(lambda c, now: c.register(program, now))

    def calls() -> Any:
        while True:
            yield from client.turn()
            client.act(lambda c, now: c.submit(number, (bytes(program.args[0].nbytes),), now))
            yield sim.env.timeout(MS // 2)

    sim.env.process(calls())
    members, gangs = [], []
    for at in (4 * MS, 25 * MS, 90 * MS):
        sim.run(at)
        members.append([island.members for island in sim.controller.snapshot().islands])
        gangs.append(len(sim.trace.gangs))
    assert members == [[((0, 4),)], [((0, 6),)], [((0, 6),), ((6, 9),)]]
    assert 0 == gangs[0] < gangs[1] < gangs[2], "24 devices are there when the island has grown"
    assert sorted(sim.islands) == ([0] if fidelity == "cohort" else []), "it was alone while it grew"


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        ((0,), "hosts before 0, of 9: 1 to 8 can be there at first"),
        ((9,), "hosts before 9, of 9: 1 to 8 can be there at first"),
        ((6, 4), "it grows by the hosts from 6, 4 on, in this order: they come by number"),
    ],
)
def test_growth_that_cannot_be_is_refused_before_the_run(hosts: tuple[int, ...], why: str) -> None:
    faults = [Fault(at * MS, "grow", host) for at, host in enumerate(hosts, 1)]
    with pytest.raises(Impossible, match=why):
        Simulation(flat(6, 3), policy=Fifo, profile=profile("seaway"), faults=faults)


def test_a_torus_comes_as_a_whole() -> None:
    with pytest.raises(Impossible, match="island 'b' is a torus, of which all hosts come together"):
        Simulation(load("B"), policy=Fifo, profile=profile("seaway"), faults=[Fault(MS, "grow", 4)])
