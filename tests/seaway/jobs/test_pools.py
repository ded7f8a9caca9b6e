"""Jobs on Seaway's scheduler, and the same jobs in a pool that knows nothing of Seaway: equal to the nanosecond."""

from __future__ import annotations

from itertools import pairwise

import pytest

import seaway as sw
from examples.policies.job_backfill import Conservative, Easy
from experiments.bench.simulator import pools
from seaway.workload import Jobs

S = 1_000_000_000
MIX = sw.workload.poisson_jobs(
    60, "3h", seed=4, users=["ann", "bob", "cat"], devices={1: 3, 4: 3, 8: 3, 32: 1}, duration=("1min", "2h")
)


def played(jobs: Jobs, policy: object, hosts: int = 8) -> list[tuple[float, float]]:
    """When each had its devices, and when it was over, in the order of arrival."""
    with sw.simulate("B", hosts=hosts, devices_per_host=8, policy=policy, profile="ideal"):  # type: ignore[arg-type]
        report = jobs.play()
    frame = report.frame()
    assert frame["ok"].all()
    return list(zip(frame["started_s"], frame["ended_s"], strict=True))


def expected(jobs: Jobs, discipline: pools.Discipline, devices: int = 64) -> list[tuple[float, float]]:
    alike = [pools.PoolJob(job.at, job.devices, job.lasts()) for job in jobs]
    found = pools.pool(alike, devices, discipline)
    return [(found[job][0] / S, found[job][1] / S) for job in alike]


@pytest.mark.parametrize(
    ("policy", "discipline"),
    [
        ("in_turn", pools.in_turn),
        ("first_fit", pools.first_fit),
        (Easy, pools.easy),
        (Conservative, pools.conservative),
    ],
    ids=["in turn", "first fit", "easy", "conservative"],
)
def test_jobs_begin_and_end_as_in_a_pool_of_devices_that_are_all_alike(
    policy: object, discipline: pools.Discipline
) -> None:
    assert all(one.at < other.at for one, other in pairwise(MIX))
    for found, wanted in zip(played(MIX, policy), expected(MIX, discipline), strict=True):
        assert found == pytest.approx(wanted, abs=1e-6)
