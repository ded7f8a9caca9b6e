"""Devices that a policy reserves: the same in a simulation and on timed devices, in the log, its replay, and status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seaway as sw
from backend.server import eventlogs
from core.protocol.effects import Wakeup
from core.record.eventlog import replayed
from seaway.cli import main
from seaway.cli.status import table
from tests.seaway.small_sessions import small

MS = 1_000_000
ZERO = np.float32(0)
left = sw.slice(devices=2, name="left")
step = sw.synthetic("step", devices=left, duration="1ms")


class Pauses(sw.policies.Policy):
    """Each gang waits until 30 ms after it could have entered."""

    reserves = True

    def __init__(self, pause: int = 30 * MS) -> None:
        self.pause = pause

    def pick(self, ready: sw.policies.Ready, now: int) -> sw.policies.Ticket | sw.policies.Reserve:
        gang = ready.best()
        begin = gang.since + self.pause
        return gang if now >= begin else sw.policies.Reserve(gang, until=begin)


def calls() -> None:
    for _ in range(3):
        step(ZERO).block_until_ready()


def test_a_simulation_wakes_up_when_the_policy_said() -> None:
    with small(policy=Pauses) as s, s.client("ann"):
        calls()
    gangs = s.trace.gangs()
    assert ((gangs["entered_us"] - gangs["ready_us"]).round() == 30_000).all()
    kept = s.trace.reservations()
    assert kept["client"].tolist() == ["ann"] * 3
    assert (kept["duration_us"].round() == 30_000).all()
    table = s.trace.utilization(by="total")
    assert 0.2 < table["reserved_fraction"][0] < 1
    assert table[["busy_fraction", "skew_fraction", "input_wait_fraction", "reserved_fraction"]].sum().sum() <= 1


def test_timed_devices_wait_as_long_and_the_log_of_it_replays_to_the_byte_and_shows_what_was_reserved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "run.log"
    with sw.local(hosts=1, devices_per_host=2, platform="timed", policy=Pauses, record=log) as s:
        with s.client("ann"):
            calls()
        trace = s.trace
    kept = trace.reservations()
    assert kept["client"].tolist() == ["ann"] * 3
    assert (kept["duration_us"] >= 30_000).all()
    found = eventlogs.read(log)
    assert sum(isinstance(entry.event, Wakeup) for entry in found.entries) >= 3
    controller = eventlogs.machine_of(found.about, policy=Pauses)
    assert sum(1 for _ in replayed(found, controller)) == len(found.entries)
    wakeup = next(index for index, entry in enumerate(found.entries) if isinstance(entry.event, Wakeup))
    said = ""
    for stop in range(wakeup, 0, -1):
        capsys.readouterr()
        assert main(["replay", str(log), "--stop", str(stop), "--policy", f"{__name__}:Pauses"]) == 0
        said = capsys.readouterr().out
        if "reserved for" in said:
            break
    assert "devices 0-1 for step, step of client 'ann'" in said
    assert "the policy keeps devices 0-1 free" in said


def test_status_shows_what_is_reserved_and_for_whom() -> None:
    class Forever(sw.policies.Policy):
        reserves = True

        def pick(self, ready: Any, now: int) -> Any:
            return sw.policies.Reserve(ready.best())

    with small(policy=Forever, config={"max_reserved": "50ms"}) as s, s.client("ann"):
        result = step(ZERO)
        sw.sleep("20ms")
        (island,) = s.simulation.controller.snapshot().islands
        (kept,) = island.reserved
        assert (kept.client_name, kept.program, kept.devices) == ("ann", "step", ((0, 2),))
        result.block_until_ready()
    (_, told), *_ = [each for each in s.simulation.told if "kept devices" in each[1]]
    assert told.startswith("island 'i0': policy Forever kept devices 0-1 for too long: run ")


def test_the_table_of_status_has_a_line_for_reserved_devices() -> None:
    island = {
        "name": "b", "phase": "running", "epoch": 0, "hosts": [], "devices": 2, "under_way": 0, "late": [],
        "stalled": 0,
        "reserved": [{"devices": "0-1", "client": "ann", "program": "step", "node": "step", "seconds": 3.0}],
    }  # fmt: skip
    found = {
        "islands": [island], "stalled": [], "stalled_elsewhere": 0, "waits": [], "refused": [], "clients": [],
        "contents_through_controller": 0, "buffers": 0, "said": [],
    }  # fmt: skip
    assert "reserved for 3 s: devices 0-1 of island 'b' for program 'step', step of client 'ann'" in table(found)
