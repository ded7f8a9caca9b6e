"""Policies that keep devices free, in a record: its replay has the same reservations, and what-ifs show them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from core.controller import Config
from core.model.program import Program
from core.schedule.policy import Fifo, Policy
from seaway.cli import main
from seaway.tools.whatif import report
from seaway.trace import Trace
from tests.backend.cluster import chain
from tests.reserving.backfill import EasyBackfill
from tests.reserving.gang_reservation import GangReservation

from .recording import MS, Recorded
from .test_whatif import order, run_again, workload

POLICIES = (EasyBackfill, lambda: EasyBackfill(lead=MS), lambda: GangReservation(least=0))
EASY = "tests/reserving/backfill.py:EasyBackfill"


def gang(name: str, devices: int, cost: int) -> Program:
    found = chain(1, devices, cost=cost)
    does = msgspec.structs.replace(found.computations[0], key=name, name=name)
    return msgspec.structs.replace(found, name=name, computations=(does,))


def played(patch: pytest.MonkeyPatch, policy: Callable[[], Policy]) -> Recorded:
    """One client wants all devices again and again; two others have gangs on half of them, and ask without end."""
    recorded = Recorded(patch, policy=policy, config=Config(fanout=4, window=1))
    recorded.person("long", gang("long", 2, cost=10 * MS), runs=8, waits=False)
    recorded.person("wide", gang("wide", 4, cost=3 * MS), runs=8, starts=MS, think=MS)
    recorded.person("short", gang("short", 2, cost=4 * MS), runs=20, starts=2 * MS, waits=False)
    return recorded.run()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_replay_and_the_same_settings_keep_the_same_devices_free(
    monkeypatch: pytest.MonkeyPatch, policy: Callable[[], Policy]
) -> None:
    recorded = played(monkeypatch, policy)
    kept = list(recorded.sim.trace.rows("reservations"))
    assert kept, "it kept devices"
    found = workload(recorded, policy)
    assert list(found.trace.rows("reservations")) == kept
    world = run_again(found)
    assert order(world.simulation) == order(recorded.sim)
    again = list(world.trace.rows("reservations"))
    assert [(row["place"], row["client"]) for row in again] == [(row["place"], row["client"]) for row in kept]
    for name in ("since", "until"):
        assert max(abs(a[name] - b[name]) for a, b in zip(again, kept, strict=True)) < 100
    real = Trace(recorded.sim.trace, recorded.setup).utilization("total", bins=1)["reserved_fraction"][0]
    assert report.of_world(world).reserved == pytest.approx(real, rel=0.1)


def test_the_command_shows_what_policies_keep_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record does not say when gangs started, so it has no such figure if its policy kept devices."""

    def reserved(policy: Callable[[], Policy], *asked: str) -> list[str]:
        log = str(played(monkeypatch, policy).save(tmp_path / f"{policy.__name__}.log"))
        its = ["--recorded-policy", EASY] if policy is EasyBackfill else []
        assert main(["whatif", log, *its, *(word for each in asked for word in ("--policy", each))]) == 0
        line = [each for each in capsys.readouterr().out.splitlines() if each.startswith("devices reserved")]
        return line[0].split()[2:] if line else []

    same, fifo = reserved(EasyBackfill, "fifo")
    assert (float(same.rstrip("%")) > 0, fifo) == (True, "0.0%")
    assert reserved(Fifo, "stride") == []
    record, again, easy = reserved(Fifo, EASY)
    assert (record, again, easy) == ("0.0%", "0.0%", same), "the calls come at the same times, whatever went before"


def test_the_trace_of_a_replay_has_what_was_reserved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = played(monkeypatch, EasyBackfill)
    log, trace = str(recorded.save(tmp_path / "run.log")), str(tmp_path / "trace")
    assert main(["replay", log, "--policy", EASY, "--save", trace]) == 0
    assert "the same commands, to the byte" in capsys.readouterr().out
    found = Trace.load(tmp_path / "trace")
    assert list(found.core.rows("reservations")) == list(recorded.sim.trace.rows("reservations"))
    assert set(found.reservations()["client"]) == {"wide"}
