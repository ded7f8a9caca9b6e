"""An island is a cohort until its fault falls due, and then its hosts go on one by one, with the same past."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sim.cohort import history
from sim.cohort.history import OrderLeft
from sim.simulation import takeover
from sim.simulation.faults import Fault
from sim.simulation.simulation import Simulation
from tests.core.build import Build
from tests.laws import examples
from tests.sim import fault_scene, scene
from tests.sim.fault_scene import steady

MS = 1_000_000
SEEDS = st.integers(0, 1 << 20)


def assert_equal(drawn: scene.Scene, spacing: int = 0) -> None:
    """`spacing`: of checkpoints; 0: wherever one may be."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "SPACING", spacing)
        scene.assert_equal(drawn)


@given(seed=SEEDS)
@examples(3)
def test_faults_of_all_kinds_take_the_same_time_in_both_fidelities(seed: int) -> None:
    assert_equal(fault_scene.draw(seed), history.SPACING)


@given(seed=SEEDS)
@example(seed=9173)  # not all hosts know what is settled, and at a new seat they say again what is not
@examples(2)
def test_any_checkpoint_will_do(seed: int) -> None:
    assert_equal(fault_scene.draw(seed))


@pytest.mark.parametrize(
    ("seed", "after"),
    [
        (1079, 40),  # reports of an island wait for their turn at the controller, while one of its devices is lost
        (5019, 10),  # a gang that is no collective is under way at a checkpoint
        (3255, 40),  # a checkpoint was made between a report and when the controller heard it
    ],
)
def test_scenes_that_took_another_time_once(seed: int, after: int) -> None:
    assert_equal(fault_scene.draw(seed, after=after))


@pytest.mark.parametrize("hosts", [16, 64])
def test_a_crash_takes_the_same_time_on_more_hosts(hosts: int) -> None:
    drawn = fault_scene.draw(3, kinds=("crash_host",), hosts=hosts, wide=True)
    drawn.acts, drawn.clients = 5, 1
    assert_equal(drawn)


# --- what is played again -------------------------------------------------------------------------------------


def test_an_island_is_a_cohort_until_its_fault_falls_due() -> None:
    sim = steady(Fault(50 * MS, "crash_host", 2))
    sim.run(until=50 * MS - 1)
    assert list(sim.islands) == [0]
    assert not sim.lone_hosts
    sim.run(until=50 * MS)
    assert not sim.islands
    assert [sim.lone_hosts[host].alive for host in range(4)] == [True, True, False, True]


def orders_played(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many orders each takeover plays again."""
    played: list[int] = []
    play = takeover.Replay.play

    def counted(self: takeover.Replay) -> None:
        played.append(sum(isinstance(each, OrderLeft) for each in self._inputs))
        play(self)

    monkeypatch.setattr(takeover.Replay, "play", counted)
    return played


@pytest.mark.parametrize("at", [40, 160])
def test_what_is_played_again_does_not_grow_with_what_was_before(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    played = orders_played(monkeypatch)
    sim = steady(Fault(at * MS, "crash_host", 2))
    sim.run(until=at * MS)
    assert len(sim.trace) > at
    assert 0 < played[0] <= 4 * history.SPACING


def test_what_is_played_again_does_not_grow_while_one_gang_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    played = orders_played(monkeypatch)
    monkeypatch.setattr(history, "MOST", 40)
    ended = []
    for fidelity in ("exact", "cohort"):
        sim = beside_a_long_gang(Fault(160 * MS, "crash_host", 3), fidelity=fidelity)
        sim.run(until=200 * MS)
        ended.append([(row["seq"], row["started"], row["ended"]) for row in sim.trace.rows("gangs")])
    assert ended[0] == ended[1]
    assert len(ended[0]) > 160
    assert played
    assert max(played) <= 42


def beside_a_long_gang(*faults: Fault, fidelity: Any) -> Simulation:
    """Half of an island's hosts run one gang all the time, and the other half many."""
    programs = []
    for name, cost in (("long", 10_000 * MS), ("short", MS // 10)):
        build = Build(name, **{name: 8})
        programs.append(build.program(build.call(name, name, [build.arg(name, 8)], cost=cost)))
    return steady(*faults, programs=programs, fidelity=fidelity)


def ended_gangs(sim: Simulation) -> list[tuple[int, int, int]]:
    sim.run(until=90 * MS)
    return [(row["seq"], row["started"], row["ended"]) for row in sim.trace.rows("gangs")]


def test_nobody_hears_again_what_is_played_again() -> None:
    sim, other = steady(Fault(500 * MS, "crash_host", 2)), steady()
    sim.clock.at(60 * MS, sim.take_over, 0)
    sim.run(until=60 * MS)
    assert not sim.islands
    assert ended_gangs(sim) == ended_gangs(other)


def test_where_no_checkpoint_can_be_made_hosts_are_simulated_one_by_one_before_it_is_too_much_to_play_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "MOST", 40)
    monkeypatch.setattr(history.History, "_may_cut", lambda self: False)
    moments: list[int] = []
    take_over = Simulation.take_over

    def noted(self: Simulation, island: int) -> None:
        moments.append(self.now)
        take_over(self, island)

    monkeypatch.setattr(Simulation, "take_over", noted)
    sim, other = steady(Fault(500 * MS, "crash_host", 2)), steady()
    assert ended_gangs(sim) == ended_gangs(other)
    assert moments
    assert moments[0] < 60 * MS


def test_a_fault_that_comes_unannounced_to_an_island_with_announced_faults_is_taken_in() -> None:
    sim = steady(Fault(500 * MS, "crash_host", 2))
    sim.run(until=20 * MS)
    sim.trouble.crash_host(1)
    assert not sim.lone_hosts[1].alive
