"""What-if foretells what another policy changes, and nothing else. The truth is a simulation of the same program."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import seaway as sw
from backend.server import eventlogs
from core.record.eventlog import Recorder, decode
from core.schedule.policy import named
from experiments.bench.prediction.whatif import client
from seaway.tools.whatif import call_durations, report, settings, whatif_runs
from seaway.tools.whatif.report import Column, Figure
from seaway.tools.whatif.workload import workload_of
from sim.hardware.profiles import profile
from sim.hosts.processes import ControllerProcess
from sim.simulation import simulation

CLUSTER = {"name": "t", "island": [{"name": "i", "hosts": 3, "devices_per_host": 2}]}
heavy = sw.synthetic("heavy", devices=4, duration="6ms", allreduce="4B")
light = sw.synthetic("light", devices=2, duration="1500us")
mid = sw.synthetic("mid", devices=2, duration="3ms", allreduce="4B")
PEOPLE = (("ann", 1, 80, heavy, 1), ("bob", 2, 200, light, 4), ("cy", 1, 120, mid, 0), ("di", 4, 60, heavy, 8))


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Recorder]:
    """The recorders of the controllers that are simulated in the test."""
    found: list[Recorder] = []

    def recording(sim: Any, machine: Any) -> ControllerProcess:
        policy = machine.state.islands[0].scheduler.policy
        about = eventlogs.about(sim.cluster, sim.config, lambda: policy, 0)
        found.append(Recorder(machine, about))
        return ControllerProcess(sim, found[-1])  # type: ignore[arg-type]

    monkeypatch.setattr(simulation, "ControllerProcess", recording)
    return found


def really(policy: str, records: list[Recorder]) -> Any:
    with sw.simulate(CLUSTER, policy=policy, profile="seaway", fidelity="exact") as session:
        sw.block_until_ready([step(np.float32(0)) for step in (heavy, light, mid)])
        for name, weight, calls, step, read in PEOPLE:
            session.spawn(client, calls, step, read, name=name, weight=weight)
    return workload_of(decode(records[-1].log()))


def changes(before: Column, after: Column) -> dict[Figure, float]:
    was, now = report.figures(before), report.figures(after)
    return {name: now[name] / was[name] - 1 for name in was}


@pytest.mark.parametrize(("recorded", "other"), [("stride", "fifo"), ("fifo", "stride"), ("fifo", "round_robin")])
def test_a_policy_changes_what_it_really_changes(recorded: str, other: str, records: list[Recorder]) -> None:
    """Clients come within a fraction of a millisecond, and share devices as they are bound: what-if once let another
    one come first, and said that fifo halves the latency of `di`, which does not notice it."""
    before, after = really(recorded, records), really(other, records)
    assert before.places == after.places, "or the policies would not be compared"
    took = call_durations.measured(before)
    same = settings.as_recorded(before, profile("seaway"))
    foretold = [
        report.of_world(whatif_runs.run(before, each, took))
        for each in (same, same._replace(make=lambda: named(other)))
    ]
    truth = report.of_record(before, took), report.of_record(after, took)
    assert max(map(abs, report.errors(truth[0], foretold[0]).values())) < 0.03
    for name, change in changes(*truth).items():
        assert changes(*foretold)[name] == pytest.approx(change, rel=0.05, abs=0.03), name


def test_a_change_within_the_models_own_error_is_not_called_one() -> None:
    def column(title: str, p50: float) -> Column:
        return Column(title, 10**9, 0.5, 0.0, (report.ClientReport("ann", 1, 10, 0, p50, p50, 1.0),))

    worlds = [column("recorded", 100), column("same settings", 104), column("a", 107), column("b", 52)]
    doubt = report.doubts(worlds[0], [worlds[1], column("again", 95)])
    (p50,) = [line for line in report.lines(worlds, doubt) if "p50" in line]
    assert re.split(" {2,}", p50) == ["", "p50 latency", "100 µs", "104 µs (+4.0%)", "107 µs (±5.0%)", "52 µs (-50.0%)"]
