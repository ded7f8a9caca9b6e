"""Policies of jobs from papers: each against what its paper says, or against a simulation that is not ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import seaway as sw
from examples import multiplex
from examples.policies.gavel import MaxMin, parts_of
from examples.policies.pollux import MarginalGain
from examples.policies.themis import Themis
from examples.policies.tiresias import Tiresias
from experiments.bench.simulator import pools
from seaway.policies import ClusterView
from seaway.workload import Job, JobReport, Jobs

S = 1_000_000_000
MIX = sw.workload.poisson_jobs(
    60, "3h", seed=4, users=["ann", "bob", "cat"], devices={1: 3, 4: 3, 8: 3, 32: 1}, duration=("1min", "2h"),
    step="10s",
)  # fmt: skip


def played(jobs: Jobs, policy: Any, hosts: int = 8, **options: Any) -> JobReport:
    config: Any = {"preempt_keep": 0}
    with sw.simulate("B", hosts=hosts, devices_per_host=8, policy=policy, profile="ideal", config=config, **options):
        return jobs.play()


def test_tiresias_ends_jobs_as_a_pool_does_in_which_the_least_service_goes_first() -> None:
    """Jobs that come within some nanoseconds of each other here come at once there, and then another may be chosen: so
    not all are equal, and their mean is."""
    quantum = 600 * 8 * S
    frame = played(MIX, Tiresias(quantum)).frame()
    alike = [pools.PoolJob(job.at, job.devices, job.lasts()) for job in MIX]
    wanted = pools.least_attained(alike, 64, quantum, 10, 10 * S)
    differs = frame["ended_s"] - np.array([wanted[job] / S for job in alike])
    assert (differs.abs() < 1e-4).mean() > 0.6
    assert abs(differs.mean()) < 5e-3 * frame["jct_s"].mean()
    assert frame["cuts"].sum() > 100
    assert frame["lost_s"].max() < 1e-6, "what was cut was not lost"


def test_short_jobs_wait_least_where_service_counts() -> None:
    short = MIX[:].frame()["steps"] < 30  # less than 5 minutes
    las, turn = (played(MIX, policy).frame()["waited_s"][short].mean() for policy in (Tiresias(600 * 8 * S), "in_turn"))
    assert las < turn / 20


def test_themis_keeps_the_job_that_is_worst_off_near_its_part() -> None:
    """One user asks for twenty jobs, another one a moment later for one. In turn, the second waits for all of them."""
    jobs = Jobs([*[Job(at=f"{at}s", user="ann", devices=32, step="1min", steps=30) for at in range(1, 21)],
                 Job(at="30s", user="bob", devices=32, step="1min", steps=30)])  # fmt: skip
    rho = {}
    for name, policy in (("themis", Themis()), ("in turn", "in_turn")):
        frame = played(jobs, policy).frame()
        rho[name] = frame[frame["user"] == "bob"]["rho"].max()
    assert rho["themis"] < 3.0 < 9.0 < rho["in turn"]


class Uses:
    """What `parts_of` looks at."""

    def __init__(self, kinds: dict[str, int]) -> None:
        self.islands = [type("Here", (), {"kind": kind, "island": type("I", (), {"devices": devices})()})()
                        for kind, devices in kinds.items()]  # fmt: skip


def test_gavel_gives_each_job_the_kind_that_suits_it_so_that_the_worst_off_is_best_off() -> None:
    """Two jobs, two kinds of one device each. One is ten times as fast on the new kind, one as fast on both. Equal
    parts of both would make the first 5.5 times as fast as on the old kind; the optimum gives it all of the new one."""
    uses: Any = [sw.policies.SliceUse(1, "a", 1, True, 1, 0, expected={"old": 100, "new": 10}, number=0),
                 sw.policies.SliceUse(2, "b", 1, True, 1, 0, expected={"old": 50, "new": 50}, number=1)]  # fmt: skip
    parts = parts_of(uses, Uses({"old": 1, "new": 1}))  # type: ignore[arg-type]
    normed = [parts[0, "old"] * 1 / 5.5 + parts[0, "new"] * 10 / 5.5, parts[1, "old"] + parts[1, "new"]]
    assert min(normed) == pytest.approx(1.0)
    alike: Any = [
        sw.policies.SliceUse(n, "s", 1, True, 1, 0, expected={"old": 30, "new": 10}, number=n) for n in (0, 1)
    ]
    parts = parts_of(alike, Uses({"old": 1, "new": 1}))  # type: ignore[arg-type]
    assert [parts[n, "new"] for n in (0, 1)] == pytest.approx([0.5, 0.5]), "and equals get equal parts"


def test_gavel_gives_equals_equal_time_on_the_fast_kind(tmp_path: Any) -> None:
    file = tmp_path / "two.toml"
    file.write_text('[[island]]\nname = "i0"\nkind = "tpu-v3"\nhosts = 1\ndevices_per_host = 8\n'
                    '[[island]]\nname = "i1"\nkind = "tpu-v4"\nhosts = 1\ndevices_per_host = 8\n')  # fmt: skip
    jobs = Jobs([Job(at=f"{at}s", user=f"u{at}", name=f"j{at}", devices=8, steps=600,
                     step={"tpu-v3": "30s", "tpu-v4": "10s"}) for at in (1, 2)])  # fmt: skip
    config: Any = {"preempt_keep": 0}
    with sw.simulate(file, policy=MaxMin(round_time=360 * S), profile="ideal", config=config):
        frame = jobs.play().frame()
    # each makes a step in 15 s on average: 9,000 s for 600
    assert frame["ended_s"].to_numpy() == pytest.approx([9_000, 9_000], rel=0.2)


def test_devices_go_where_they_speed_up_most_and_come_back_when_a_job_ends() -> None:
    """Two alike have 32 devices each; when the short one has ended, the other one has all 64."""
    jobs = Jobs([
        Job(at="1s", name="long", devices=8, sizes=(16, 32, 64), step="80s", steps=100),
        Job(at="2s", name="short", user="bob", devices=8, sizes=(16, 32, 64), step="80s", steps=20),
    ])  # fmt: skip
    report = played(jobs, MarginalGain())
    sizes = report.gangs.groupby("program")["devices"].agg(["min", "max", "last"])
    assert sizes.loc["short", "last"] == 32
    assert sizes.loc["long", "last"] == 64
    ended = report.frame().set_index("name")["ended_s"]
    assert ended["short"] == pytest.approx(20 * 80 * 8 / 32, rel=0.2)
    assert ended["long"] < 100 * 80 * 8 / 32


@pytest.mark.parametrize(("rollout", "train"), [(10, 10), (10, 8), (20, 5)])
def test_two_jobs_by_phase_take_as_long_as_their_longer_phases(rollout: int, train: int) -> None:
    phases = [(f"{rollout}s", f"{train}s")] * 2
    seconds, idle, _ = multiplex.played(phases, shared=True)
    wanted = max(rollout + train, 2 * max(rollout, train))
    assert seconds == pytest.approx(wanted, rel=0.05)
    assert idle == pytest.approx(1 - (rollout + train) / wanted, abs=0.05)


def test_a_placement_sees_which_slices_have_room_at_one_time() -> None:
    seen: list[list[str]] = []

    class Seeing(sw.policies.InTurn):
        def decide(self, cluster: ClusterView) -> None:
            super().decide(cluster)
            both = [*cluster.waiting, *cluster.running]
            there = cluster.together(both)
            seen.append([use.client_name for use in both if use.number in there])

    played(
        Jobs([Job(at="1s", user="ann", devices=40, step="10s"), Job(at="2s", user="bob", devices=64, step="1s")]),
        Seeing,
    )
    assert ["bob"] in seen, "the one that waits, if the other one leaves"
