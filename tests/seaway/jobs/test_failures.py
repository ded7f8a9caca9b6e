"""Failures as data: what is drawn has the rates that were asked, and what jobs lose by it follows the closed form."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import numpy as np
import pytest

import seaway as sw
from seaway.workload import Job, Jobs, failures, failures_of, stragglers

S = 1_000_000_000


def test_hosts_fail_at_the_asked_rate_and_come_back_after_the_repair() -> None:
    faults = failures(200, "1000h", mtbf="100h", repair="1h", seed=3)
    crashes = [each for each in faults if each.what == "crash_host"]
    wanted = 200 * 1000 / 101
    assert abs(len(crashes) - wanted) < 5 * sqrt(wanted)
    for host in range(200):
        mine = [(each.what, each.at) for each in faults if each.whom == host]
        assert [what for what, _ in mine] == ["crash_host", "return_host"] * (len(mine) // 2)
        assert all(back - lost == 3600 * S for (_, lost), (_, back) in zip(mine[::2], mine[1::2], strict=True))
    assert failures(200, "1000h", mtbf="100h", repair="1h", seed=3) == faults
    assert failures(200, "1000h", mtbf="100h", repair="1h", seed=4) != faults


def test_hosts_that_share_something_fail_together() -> None:
    faults = failures(16, "500h", mtbf="50h", seed=1, together=4)
    times: dict[int, list[int]] = {}
    for each in faults:
        if each.what == "crash_host":
            times.setdefault(each.at, []).append(int(each.whom))
    assert times
    assert all(sorted(hosts) == list(range(4 * (hosts[0] // 4), 4 * (hosts[0] // 4) + 4)) for hosts in times.values())


def test_a_log_is_read_and_outages_of_a_host_that_overlap_are_one(tmp_path: Path) -> None:
    file = tmp_path / "outages.csv"
    file.write_text("at_s,host,repaired_s\n10,3,20\n15,3,40\n5,1,\n")
    assert [(each.at // S, each.what, each.whom) for each in failures_of(file)] == [
        (5, "crash_host", 1), (10, "crash_host", 3), (40, "return_host", 3),
    ]  # fmt: skip
    file.write_text("at_s\n10\n")
    with pytest.raises(ValueError, match="no column says which host fails"):
        failures_of(file)


def test_slow_hosts_are_slow_for_the_asked_part_of_the_time() -> None:
    faults = stragglers(100, "1000h", every="9h", lasts="1h", seed=2)
    assert sum(each.duration or 0 for each in faults) / (100 * 1000 * 3600 * S) == pytest.approx(0.1, rel=0.1)


SAVES, MTBF, HOSTS = 30, 6_000, 8  # seconds of a checkpoint, and between failures of all hosts together
DALY = sqrt(2 * SAVES * MTBF)  # seconds between checkpoints: 600


def lost(factor: float, steps: int) -> float:
    """Seconds that a job of these steps takes beyond them, if it makes a checkpoint each `factor` * DALY."""
    faults = failures(HOSTS, f"{steps // 180}h", mtbf=f"{HOSTS * MTBF}s", repair="1s", seed=5)
    job = Job(at="1s", devices=2 * HOSTS, step="10s", steps=steps, checkpoint=round(DALY * factor / 10),
              checkpoint_time=f"{SAVES}s", restart="1s")  # fmt: skip
    with sw.simulate("B", hosts=HOSTS, devices_per_host=2, profile="ideal", policy="in_turn", faults=faults):
        frame = Jobs([job]).play().frame()
    return float(frame["jct_s"].iloc[0]) - 10 * steps


def test_a_job_loses_least_if_it_makes_checkpoints_as_young_and_daly_say() -> None:
    often, daly, seldom = (lost(factor, 10_000) for factor in (0.2, 1.0, 5.0))
    assert daly < 0.7 * min(often, seldom)


@pytest.mark.full
def test_a_sweep_finds_the_interval_of_young_and_daly() -> None:
    """What is lost at their interval is within 5 % of what is lost at the best one. (The bottom is flat: intervals that
    are half as long again lose as little.)"""
    factors = [0.4, 0.6, 0.8, 1.0, 1.25, 1.6, 2.5]
    found = np.polyfit(np.log(factors), [lost(factor, 60_000) for factor in factors], 4)
    ends = np.log(np.linspace(0.5, 2.0, 301))
    best = float(np.exp(ends[np.argmin(np.polyval(found, ends))]))
    assert lost(1.0, 60_000) < 1.05 * lost(best, 60_000)


def test_jobs_go_on_alike_whether_hosts_are_simulated_together_or_one_by_one() -> None:
    """Hosts that go and come again split an island's simulation and join it again, while gangs run and wait."""
    faults = failures(8, "40h", mtbf="20h", repair="30min", seed=9)
    jobs = Jobs(
        Job(at=f"{at + 1}s", name=f"job{at}", user="ann" if at % 2 else "bob", devices=2 + 2 * (at % 3), step="10s",
            steps=2_000 + 500 * at, checkpoint=60, checkpoint_time="1min", restart="1min") for at in range(8)
    )  # fmt: skip
    frames = []
    for fidelity in ("exact", "cohort"):
        with sw.simulate("B", hosts=8, devices_per_host=2, policy="in_turn", faults=faults, fidelity=fidelity):
            frames.append(jobs.play().frame())
    assert frames[0]["ok"].all()
    assert frames[0]["losses"].sum() > 3
    assert frames[0].equals(frames[1])
