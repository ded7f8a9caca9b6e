"""A real controller's log, of real hosts of timed devices: the model comes near it, and says by how much."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.policy import Stride
from seaway.whatif import durations, report, running, settings
from seaway.whatif.workload import read
from sim.profiles import profile
from tests.backend.cluster import chain, cluster
from tests.backend.test_control import TINY

RUNS, LENGTH, COST = 20, 3, 4_000_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    path = folder / "run.log"

    async def drive() -> None:
        async with cluster(folder, policy=Stride, record=path) as found:
            users = [found.user("ann"), found.user("bob")]
            last = []
            for user in users:
                program = user.call(lambda client, now: client.register(chain(LENGTH, 4, cost=COST), now))
                submitted = [user.submit(program, TINY.tobytes()) for _ in range(RUNS)]
                last.append(submitted[-1].run)
            for user, run in zip(users, last, strict=True):
                assert (await user.ended(run)).blame is None

    asyncio.run(drive())
    return path


def test_a_real_log_is_run_again_in_the_model(log: Path) -> None:
    """Devices take 4 ms, and a machine with other work to do more. All that is known of the record is its log."""
    found = read(log)
    assert sorted((person.name, person.runs) for person in found.people) == [("ann", RUNS), ("bob", RUNS)]
    took = durations.measured(found)
    (step,) = took.values()
    assert step.runs == 2 * RUNS * LENGTH
    assert step.samples > 0
    assert step.nanoseconds > 0.5 * COST
    record = report.of_record(found, took)
    same = report.of_world(running.run(found, settings.as_recorded(found, profile("seaway")), took))
    wrong = report.errors(record, same)
    print(f"the model's own error: {wrong}")
    assert -0.5 < wrong.makespan < 1.0, "by a factor of two at most, however loaded this machine is"
    assert [client.runs for client in same.clients] == [RUNS, RUNS]
    assert same.makespan > 2 * RUNS * LENGTH * step.nanoseconds
