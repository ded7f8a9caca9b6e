"""Jobs as values: what they need, cut in steps, scaled, saved and loaded, and drawn from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seaway as sw
from seaway.units import Nanoseconds
from seaway.workload import Job, Jobs

S = 1_000_000_000
times = st.integers(1, 10**15).map(Nanoseconds)
kinds = st.sampled_from(["", "tpu-v3", "h100"])

some_jobs = st.lists(
    st.builds(
        Job,
        at=times,
        user=st.text("abc1.", min_size=1, max_size=3),
        name=st.sampled_from(["job", "NA", "1e3", "a,b", '"']),
        devices=st.integers(1, 5000),
        step=times | st.dictionaries(kinds, times, min_size=1),
        steps=st.integers(1, 10**6),
        kind=kinds,
        sizes=st.lists(st.integers(1, 64), max_size=3).map(tuple),
        scaling=st.floats(0, 1),
        checkpoint=st.integers(0, 100),
        checkpoint_time=times,
        restart=times,
        deadline=times,
    ),
    max_size=8,
).map(Jobs)


# --- what a job needs -------------------------------------------------------------------------------------------


def test_a_job_lasts_as_long_as_its_steps_and_the_checkpoints_between_them() -> None:
    assert Job(at=0, step="2s", steps=10).lasts() == 20 * S
    assert Job(at=0, step="2s", steps=10, checkpoint=4, checkpoint_time="1s").lasts() == 22 * S
    assert Job(at=0, step="2s", steps=8, checkpoint=4, checkpoint_time="1s").lasts() == 17 * S  # none at its end


def test_a_step_takes_the_time_of_its_kind_of_device() -> None:
    job = Job(at=0, step={"tpu-v3": "4s", "tpu-v4": "1s"}, steps=10)
    assert (job.lasts("tpu-v3"), job.lasts("tpu-v4"), job.lasts()) == (40 * S, 10 * S, 10 * S)


def test_a_step_on_more_devices_is_faster_by_the_part_that_scales() -> None:
    job = Job(at=0, step="8s", devices=4, scaling=0.5)
    assert [job.step_time(devices)[""] for devices in (2, 4, 8, 16)] == [12 * S, 8 * S, 6 * S, 5 * S]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"step": "0s"}, "how long is a step"),
        ({"devices": 0}, "devices and steps are at least 1"),
        ({"steps": 0}, "devices and steps are at least 1"),
        ({"sizes": (4, 0)}, "devices and steps are at least 1"),
        ({"scaling": 1.5}, "scaling is from 0 to 1"),
        ({"user": ""}, "a job has a user and a name"),
        ({"step": 5}, "step of a job"),
        ({"at": "5"}, "at of a job.* has no unit"),
        ({"step": {"tpu-v4": "soon"}}, "step on 'tpu-v4'"),
    ],
)
def test_a_job_that_cannot_be_is_refused_by_what_is_wrong(fields: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, sw.errors.Impossible), match=says):
        Job(**{"at": 0, "step": "1s", **fields})


# --- changed ----------------------------------------------------------------------------------------------------


def test_jobs_are_scaled_in_time_in_devices_and_in_their_arrivals() -> None:
    job = Job(at="10s", devices=8, sizes=(4, 8), step="60s", checkpoint_time="2s", restart="4s", deadline="1h")
    (small,) = Jobs([job]).scaled(time=0.5, devices=0.25)
    assert small == Job(
        at="5s", devices=2, sizes=(1, 2), step="30s", checkpoint_time="1s", restart="2s", deadline="30min"
    )
    assert [each.at for each in Jobs([job]).scaled(arrivals=0.5)] == [5 * S]
    assert [each.devices for each in Jobs([job]).scaled(devices=0.01)] == [1]
    with pytest.raises(ValueError, match="numbers above 0"):
        Jobs([job]).scaled(devices=0)


@given(some_jobs, st.integers(10**6, 10**12))
def test_jobs_in_steps_take_the_same_time_in_steps_of_at_most_this(jobs: Jobs, most: int) -> None:
    for job, cut in zip(jobs, jobs.in_steps(Nanoseconds(most)), strict=True):
        parts = cut.steps // job.steps
        for kind, time in cut.step_time().items():
            assert time <= most
            assert abs(time * parts - job.step_time()[kind]) <= parts  # a nanosecond a step


def test_users_come_in_the_order_of_their_first_job_and_jobs_in_that_of_arrival() -> None:
    jobs = Jobs([Job(at=f"{at}s", step="1s", user=user) for at, user in ((3, "ann"), (1, "bob"), (2, "ann"))])
    assert jobs.clients == ["bob", "ann"]
    assert [each.at // S for each in jobs] == [1, 2, 3]
    assert repr(jobs) == "<3 jobs of 2 clients in 3 s>"


# --- files ------------------------------------------------------------------------------------------------------


@given(some_jobs, st.sampled_from([".csv", ".parquet"]))
def test_what_is_saved_is_loaded_exactly(tmp_path_factory: pytest.TempPathFactory, jobs: Jobs, kind: str) -> None:
    file = jobs.save(tmp_path_factory.mktemp("jobs") / f"jobs{kind}")
    assert Jobs.load(file) == jobs


def test_a_file_needs_only_arrivals_and_steps_with_the_unit_in_the_columns_name(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("at_s,step_ms,user,sizes\n1.5,20,ann,4 8\n2,30,,\n")
    assert list(Jobs.load(file)) == [
        Job(at="1500ms", step="20ms", user="ann", sizes=(4, 8)), Job(at="2s", step="30ms")
    ]  # fmt: skip
    file.write_text("at_s,step_s@tpu-v3,step_ms@tpu-v4\n1,2,500\n2,,700\n")
    assert [job.step_time() for job in Jobs.load(file)] == [
        {"tpu-v3": 2 * S, "tpu-v4": S // 2}, {"tpu-v4": 7 * S // 10}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("step_s\n1\n", "no column says when each arrives; name it at_s"),
        ("at_s\n1\n", "no column says how long a step is; name it step_s, or with ms, us or ns"),
        ("at_s,step\n1,1\n", r"no column 'step' is known \(did you mean 'steps'\?\)"),
        ("at_s,step_s,restart_s@h100\n1,1,1\n", "no column 'restart_s@h100' is known"),
        ("at_s,step_s,step_ms\n1,1,1\n", "columns step_s and step_ms say the same"),
        ("at_s,step_s\n1,1\n2,\n", "row 2: .*how long is a step"),
        ("at_s,step_s,devices\n1,1,1.5\n", "row 1: devices is '1.5'; a whole number"),
        ("at_s,step_s,sizes\n1,1,4 x\n", "row 1: sizes is 'x'; a whole number"),
        ("at_s,step_s,scaling\n1,1,2\n", "row 1: .*scaling is from 0 to 1"),
    ],
)
def test_a_file_that_cannot_be_read_says_which_column_or_row_and_why(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=says) as caught:
        Jobs.load(file)
    assert str(file) in str(caught.value)


# --- drawn ------------------------------------------------------------------------------------------------------


def test_the_same_seed_draws_the_same_jobs_and_another_seed_draws_others() -> None:
    def drawn(seed: int) -> Jobs:
        return sw.workload.poisson_jobs(30, "24h", seed=seed, users=["ann", "bob"], devices={1: 1, 8: 1})

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_drawn_jobs_have_the_asked_rate_an_hour_shares_and_durations() -> None:
    jobs = sw.workload.poisson_jobs(
        600, "20h", seed=3, users={"ann": 3, "bob": 1}, devices={1: 1, 8: 3}, duration="10min", step="100ms"
    )
    count = len(jobs)
    assert abs(count - 12_000) < 5 * 12_000**0.5  # five standard deviations
    for share in (sum(job.user == "ann" for job in jobs), sum(job.devices == 8 for job in jobs)):
        assert abs(share - 0.75 * count) < 5 * (count * 0.75 * 0.25) ** 0.5
    lasts = np.array([job.lasts() for job in jobs]) / S
    assert lasts.mean() == pytest.approx(600, rel=0.05)
    assert lasts.std() == pytest.approx(600, rel=0.05)  # exponential
    assert len({job.name for job in jobs}) == count


def test_a_range_of_durations_has_each_order_of_magnitude_as_often() -> None:
    jobs = sw.workload.poisson_jobs(600, "20h", seed=3, duration=("1min", "100min"))
    lasts = np.array([job.lasts() for job in jobs]) / S
    assert 59 < lasts.min() < lasts.max() < 6_001
    assert np.mean(lasts < 600) == pytest.approx(0.5, abs=5 * 0.5 / len(jobs) ** 0.5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rate": 0}, "an hour, more than 0"),
        ({"rate": float("inf")}, "an hour, more than 0"),
        ({"devices": {}}, "devices"),
        ({"devices": 0}, "devices and steps are at least 1"),
        ({"duration": ("1s", "2s", "3s")}, "one or two"),
        ({"duration": "0s"}, "times above 0"),
        ({"users": ()}, "a name, several, or a dict of shares"),
    ],
)
def test_jobs_that_cannot_be_drawn_say_what_is_wrong(options: Any, says: str) -> None:
    with pytest.raises((ValueError, sw.errors.Impossible), match=says):
        sw.workload.poisson_jobs(**{"rate": 60, "time": "1h", **options})
