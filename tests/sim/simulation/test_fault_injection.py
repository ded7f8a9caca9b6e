"""Faults in a simulation: announced or refused; and what happens to runs."""

from __future__ import annotations

import pytest

from core.protocol import effects as e
from core.schedule.policy import Fifo
from sim.engine.clock import Stuck, Unannounced
from sim.hardware.profiles import profile
from sim.hardware.setups import load
from sim.hosts.client_process import SimClient
from sim.hosts.context import RareTimes
from sim.simulation.faults import Fault, drawn
from sim.simulation.simulation import Simulation
from tests.core.build import chain

MS = 1_000_000
QUICK = RareTimes(lease=3 * MS, form=MS, join=MS, restart=MS)


def simulation(*faults: Fault, islands: int = 1) -> Simulation:
    setup = load("B", hosts=4, devices_per_host=4, islands=islands)
    return Simulation(setup, policy=Fifo, profile=profile("seaway"), faults=faults, times=QUICK)


def ends_of(sim: Simulation, client: SimClient, runs: int = 1) -> list[e.RunEnded]:
    ended: list[e.RunEnded] = []
    client.on_effect = lambda effect: ended.append(effect) if isinstance(effect, e.RunEnded) else None
    program = client.call(lambda c, now: c.register(chain(40, 16), now))
    for _ in range(runs):
        client.call(lambda c, now: c.submit(program, (bytes(64),), now))  # type: ignore[arg-type]
    sim.run(until=lambda: len(ended) == runs)
    return ended


def test_faults_that_divide_a_cohort_must_be_announced() -> None:
    sim = simulation()
    with pytest.raises(Unannounced, match="announced"):
        sim.trouble.crash_host(2)


def test_a_crash_ends_runs_by_name_and_the_island_goes_on_when_the_host_is_back() -> None:
    sim = simulation(Fault(4 * MS, "crash_host", 2), Fault(20 * MS, "return_host", 2))
    client = sim.client("a")
    (ended,) = ends_of(sim, client)
    assert ended.blame is not None
    assert ended.blame.code == "host-lost"
    assert "host 2" in str(ended.blame)
    (again,) = ends_of(sim, client)
    assert again.blame is None


def test_only_the_island_with_faults_is_simulated_host_by_host_once_the_first_falls_due() -> None:
    sim = simulation(Fault(MS, "crash_host", 5), islands=2)
    assert list(sim.islands) == [0, 1]
    sim.run(until=MS)
    assert list(sim.islands) == [0]
    assert sorted(sim.lone_hosts) == [4, 5, 6, 7]


def test_a_slow_host_slows_its_gangs_down_and_divides_no_cohort() -> None:
    plain, slowed = simulation(), simulation(Fault(0, "slow", 1, factor=3.0))
    assert list(slowed.islands) == [0]
    for sim in (plain, slowed):
        ends_of(sim, sim.client("a"))
    took = [[row["ended"] - row["started"] for row in sim.trace.rows("gangs")] for sim in (plain, slowed)]
    assert took[1] == [3 * each for each in took[0]]


def test_a_wait_that_cannot_end_is_reported() -> None:
    sim = simulation()
    with pytest.raises(Stuck, match="nothing more can happen"):
        sim.run(until=lambda: False)


def test_faults_are_drawn_from_a_seed() -> None:
    cluster = load("C").cluster
    assert drawn(1, cluster, 5, 9 * MS) == drawn(1, cluster, 5, 9 * MS)
    assert drawn(1, cluster, 5, 9 * MS) != drawn(2, cluster, 5, 9 * MS)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"at": 0, "what": "crash_hots", "whom": 1}, "did you mean 'crash_host'"),
        ({"at": -1, "what": "slow", "whom": 1}, "time begins at 0"),
        ({"at": 0, "what": "crash_client", "whom": 1}, "client, by name"),
    ],
)
def test_an_invalid_fault_is_refused(bad: dict[str, int | str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Fault(**bad)  # type: ignore[arg-type]


def test_reports_of_devices_do_not_reach_a_restarted_host() -> None:
    """The report is under way over PCIe while the host restarts."""
    plain = simulation(Fault(10**12, "crash_host", 1))
    ends_of(plain, plain.client("a"))
    (first, *_) = plain.trace.rows("gangs")
    within = first["ended"] + plain.times.pcie_latency // 2
    sim = simulation(Fault(within, "return_host", 1))
    (ended,) = ends_of(sim, sim.client("a"))
    assert ended.blame is not None
    assert ended.blame.code == "host-lost"


def test_a_host_that_left_and_came_back_restarts_when_it_is_dismissed() -> None:
    sim = simulation(Fault(MS, "leave_host", 2), Fault(2 * MS, "return_host", 2))
    sim.run(until=3 * MS)
    sim.trouble.stopped(sim.lone_hosts[2], "it began anew")
    assert not sim.lone_hosts[2].alive
    sim.run(until=5 * MS)
    assert sim.lone_hosts[2].alive
