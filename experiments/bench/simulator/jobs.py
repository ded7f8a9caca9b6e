"""Job schedulers: results beside those of a pool that knows nothing of Seaway, and how many jobs fit into a minute.

    python -m experiments.bench jobs                 both tables; the second takes a quarter of an hour
    python -m experiments.bench jobs --days 7        a smaller second one

The first table plays the same jobs on Seaway's scheduler (profile `ideal`) and in `pools`. They are equal to some
nanoseconds a hand-over; where that decides a tie, another job goes first. The second one names its aims.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import seaway as sw
from examples.policies.job_backfill import Conservative, Easy
from examples.policies.tiresias import Tiresias
from seaway.workload import Job, JobReport, Jobs

from . import pools

S, DAY = 1_000_000_000, 24 * 3600
QUANTUM = 600 * 8 * S
POLICIES: dict[str, tuple[Any, Callable[[Sequence[pools.PoolJob]], dict[pools.PoolJob, int]]]] = {
    "in_turn": ("in_turn", lambda jobs: ends(jobs, pools.in_turn)),
    "first_fit": ("first_fit", lambda jobs: ends(jobs, pools.first_fit)),
    "EASY": (Easy, lambda jobs: ends(jobs, pools.easy)),
    "conservative": (Conservative, lambda jobs: ends(jobs, pools.conservative)),
    "Tiresias": (Tiresias(QUANTUM), lambda jobs: pools.least_attained(jobs, 256, QUANTUM, 10, 10 * S)),
}


def ends(jobs: Sequence[pools.PoolJob], discipline: pools.Discipline) -> dict[pools.PoolJob, int]:
    return {job: end for job, (_, end) in pools.pool(jobs, 256, discipline).items()}


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.bench jobs", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--jobs", type=int, default=400, help="of the first table, on 256 devices (default: 400)")
    parser.add_argument("--days", type=int, default=60, help="of the second table (default: 60)")
    given = parser.parse_args(words)
    beside_pools(given.jobs)
    scale(given.days)


def beside_pools(count: int) -> None:
    """Mean completion time of the same jobs, here and there."""
    jobs = sw.workload.poisson_jobs(count / 12, "12h", seed=1, users=["ann", "bob", "cat", "dan"],
                                    devices={8: 6, 32: 3, 128: 1}, duration=("1min", "4h"), step="10s")  # fmt: skip
    jobs = jobs.scaled(arrivals=load_of(jobs, 256) / 1.1)
    print(f"{len(jobs)} jobs on 256 devices: mean completion time, s")
    print("policy              seaway          pool   mean difference   jobs that end at the same time, to 1 us")
    for name, (policy, pool) in POLICIES.items():
        frame = played(jobs, policy, 32)[0].frame()
        alike = [pools.PoolJob(job.at, job.devices, job.lasts()) for job in jobs]
        found = pool(alike)
        wanted = [(found[job] - job.at) / S for job in alike]
        mean, other = frame["jct_s"].mean(), sum(wanted) / len(wanted)
        same = (abs(frame["jct_s"] - wanted) < 1e-6).mean()
        print(f"{name:14}{mean:12,.3f}  {other:12,.3f}   {mean / other - 1:15.4%}   {same:6.1%}")


def scale(days: int) -> None:
    """CPU seconds of many jobs; the aims are for 60 days."""
    print("\njobs       devices   days   CPU s   aim   ms a job   in use")
    for count, devices, aim in ((10_000, 4_096, 60), (100_000, 4_096, 900)):
        number, part = max(1, count * days // 60), days / 60
        jobs = sw.workload.poisson_jobs(
            number / days / 24, f"{days * 24}h", seed=1, users=[f"user{at}" for at in range(20)],
            devices={8: 60, 32: 30, 128: 8, 512: 2}, duration=("1min", "24h"), step="10s",
        )  # fmt: skip
        factor = 0.85 / load_of(jobs, devices)
        report, cpu = played(jobs.scaled(time=factor).scaled(arrivals=1 / factor), "in_turn", devices // 8)
        busy = report.summary()["busy"].iloc[0]
        row = f"{len(jobs):7,}   {devices:9,}  {days:5}  {cpu:6.1f}  {aim * part:4.0f}"
        print(f"{row}  {cpu / len(jobs) * 1e3:9.2f}  {busy:7.0%}")
    with_failures(max(1, days // 60))


def with_failures(days: int) -> None:
    """A host fails each hour, and is back ten minutes later; 25 islands of 1,000 devices."""
    hours, islands, hosts = 24 * days, 25, 125
    faults = [sw.fault(f"{hour * 60 + late}min", what, hour * 911 % (islands * hosts))
              for hour in range(1, hours) for late, what in ((0, "crash_host"), (10, "return_host"))]  # fmt: skip
    jobs = Jobs(
        Job(at=f"{at + 1}s", user=f"user{at % 20}", name=f"job{at}", devices=496, step="10s", steps=360 * hours - 720,
            checkpoint=180, checkpoint_time="5s", restart="30s") for at in range(2 * islands)
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pods.toml"
        file.write_text(f'[[island]]\nname = "pod"\ncount = {islands}\nkind = "tpu-v4"\nhosts = {hosts}\n'
                        "devices_per_host = 8\n")  # fmt: skip
        report, cpu = played(jobs, "in_turn", 0, cluster=file, faults=faults)
    row = report.summary().iloc[0]
    print(f"\na failure an hour at {islands * hosts * 8:,} devices for {hours} h: {cpu:.0f} CPU s (aim {300 * days}); "
          f"{row['losses']} jobs lost {row['lost_s']:,.0f} s, goodput {row['goodput']:.1%}")  # fmt: skip


def played(jobs: Jobs, policy: Any, hosts: int, cluster: Any = "B", **options: Any) -> tuple[JobReport, float]:
    """With the CPU seconds that it took."""
    sizes: Any = {"hosts": hosts, "devices_per_host": 8} if hosts else {}
    config: Any = {"preempt_keep": 0, "max_runs": 1 << 20, "max_programs": 1 << 20}
    begun = time.process_time()
    with sw.simulate(cluster, policy=policy, profile="ideal", config=config, **sizes, **options):
        report = jobs.play()
    return report, time.process_time() - begun


def load_of(jobs: Jobs, devices: int) -> float:
    """The part of the devices' time that they need, until the last arrives."""
    return sum(job.devices * job.lasts() for job in jobs) / (devices * jobs.span)
