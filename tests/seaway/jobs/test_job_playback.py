"""Jobs that are played: when they begin and end, what cuts, losses and other sizes cost them, and who fails alone."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seaway as sw
from examples.policies.tiresias import Tiresias
from seaway.workload import Job, JobReport, Jobs
from tests.laws import examples

S = 1_000_000_000
TIRESIAS = Tiresias(quantum=8 * 50 * S)  # 50 s on eight devices


def played(*jobs: Job, hosts: int = 1, policy: Any = "in_turn", **options: Any) -> JobReport:
    """On hosts of eight devices that take no time."""
    with sw.simulate("B", hosts=hosts, profile="ideal", policy=policy, **options) as s:
        report = Jobs(jobs).play()
    assert not s.simulation.controller.left()["runs"]
    return report


def seconds(report: JobReport, *columns: str) -> Any:
    """Rounded, as messages take a nanosecond each."""
    return report.frame()[list(columns)].astype(float).round(3).to_numpy().tolist()


def programs(report: JobReport, job: int = 0) -> list[tuple[str, float, int]]:
    """The gangs of a job: (program, seconds, devices), of those that ran at all."""
    gangs = report.gangs[report.gangs["job"] == job]
    rows = zip(gangs["program"], gangs["duration_us"] / 1e6, gangs["devices"], strict=True)
    return [(str(name), round(time, 3), devices) for name, time, devices in rows if time > 0]


# --- as long as nothing comes between ---------------------------------------------------------------------------


def test_a_job_has_its_devices_to_the_end_of_its_steps_and_the_next_one_has_them_then() -> None:
    report = played(
        Job(at="1s", devices=8, step="2s", steps=30),
        Job(at="2s", devices=4, step="1s", steps=10),
        Job(at="3s", devices=4, step="1s", steps=20),
    )
    assert seconds(report, "started_s", "ended_s", "waited_s", "jct_s", "served_s") == [
        [1, 61, 0, 60, 60], [61, 71, 59, 69, 10], [61, 81, 58, 78, 20]
    ]  # fmt: skip


def test_the_steps_of_a_job_are_one_event_and_its_checkpoints_part_them() -> None:
    assert programs(played(Job(at=0, devices=8, step="1s", steps=100_000))) == [("job", 100_000, 8)]
    report = played(Job(at=0, step="1s", steps=50, checkpoint=20, checkpoint_time="3s"))
    assert [time for _, time, _ in programs(report)] == [20, 3, 20, 3, 10]
    assert seconds(report, "jct_s", "lost_s") == [[56, 0]]


def test_jobs_that_arrive_at_once_have_rows_in_the_order_in_which_they_were_given() -> None:
    jobs = [Job(at=0, user=user, name=name, step="1s") for user, name in (("a", "x"), ("b", "y"), ("a", "z"))]
    assert played(*jobs).frame()["name"].tolist() == ["x", "y", "z"]


def test_a_job_runs_on_the_kinds_of_device_that_it_names_in_the_time_that_it_takes_there() -> None:
    job = Job(at=0, devices=4, step={"tpu-v3": "3s", "h100": "1s"}, steps=10)
    assert seconds(played(job), "jct_s", "slowdown") == [[30, 3]]
    report = played(Job(at=0, step={"h100": "1s"}), Job(at=0, kind="tpu-v3", step="1s"))
    assert report.frame()["ok"].tolist() == [False, True]


def test_users_have_the_weights_given_and_a_weight_of_nobody_is_refused() -> None:
    jobs = Jobs([Job(at=0, user=user, step="1s") for user in ("ann", "bob")])
    with sw.simulate("B", hosts=1) as s:
        jobs.play(weights={"ann": 3})
        with pytest.raises(ValueError, match="no job is 'cat''s; there are ann, bob"):
            jobs.play(weights={"cat": 2})
    assert s.trace.clients().set_index("client")["weight"].to_dict() == {"ann": 3, "bob": 1}


def test_playing_repeats_to_the_nanosecond_and_does_so_twice_in_a_session() -> None:
    jobs = sw.workload.poisson_jobs(60, "1h", seed=2, users=["ann", "bob"], devices={1: 1, 8: 1})

    def frame() -> pd.DataFrame:
        with sw.simulate("B", hosts=2, profile="seaway", policy="first_fit"):
            jobs.play()
            return jobs.play().frame()

    assert frame().equals(frame())
    assert frame()["ok"].all()


# --- cut --------------------------------------------------------------------------------------------------------


def test_a_job_whose_devices_are_taken_goes_on_later_and_ends_after_exactly_its_steps() -> None:
    """By turns: 50 s at the lowest level of service, then ten times as much."""
    report = played(
        Job(at=0, user="long", devices=8, step="10s", steps=100),
        Job(at="100s", user="short", devices=8, step="10s", steps=10),
        policy=TIRESIAS,
    )
    assert seconds(report, "started_s", "ended_s", "served_s", "lost_s", "cuts") == [
        [0, 1100, 1000, 0, 2], [100, 600, 100, 0, 1]
    ]  # fmt: skip
    assert [time for _, time, _ in programs(report)] == [100, 400, 500]


def test_a_cut_job_ends_the_step_under_way_and_what_it_takes_to_begin_again_is_lost() -> None:
    report = played(
        Job(at=0, user="long", devices=8, step="30s", steps=10, restart="7s"),
        Job(at="100s", user="short", devices=8, step="10s", steps=5),
        policy=TIRESIAS,
    )
    assert seconds(report, "started_s", "ended_s", "served_s", "lost_s", "cuts") == [
        [0, 357, 307, 7, 1], [120, 170, 50, 0, 0]
    ]  # fmt: skip
    assert programs(report) == [("job", 120, 8), ("job restarts", 7, 8), ("job", 180, 8)]


@pytest.mark.parametrize("checkpoint", [0, 3, 10])
def test_however_often_jobs_are_cut_each_does_its_steps_once(checkpoint: int) -> None:
    jobs = [
        Job(at=f"{30 * number}s", user=f"u{number % 3}", devices=8, step="7s", steps=20 + number, checkpoint=checkpoint)
        for number in range(8)
    ]
    report = played(*jobs, policy=TIRESIAS)
    frame = report.frame()
    assert frame["ok"].all()
    assert frame["cuts"].sum() > 5
    assert seconds(report, "served_s", "lost_s") == [[job.lasts() / S, 0] for job in jobs]


# --- lost -------------------------------------------------------------------------------------------------------

CRASH = [sw.fault("350s", "crash_host", 0)]


def test_a_job_whose_host_is_lost_goes_on_elsewhere_from_its_last_checkpoint() -> None:
    job = Job(at=0, devices=8, step="10s", steps=60, checkpoint=20, checkpoint_time="1s", restart="5s")
    report = played(job, Job(at=0, user="other", devices=8, step="10s", steps=50), hosts=3, faults=CRASH)
    frame = report.frame()
    assert frame["losses"].tolist() == [1, 0]  # though two gangs had been called
    gangs = programs(report)
    lost = gangs[2][1]  # from the checkpoint at 201 s until the controller knew of the loss
    assert gangs == [
        ("job", 200, 8), ("job saves", 1, 8), ("job", lost, 8), ("job restarts", 5, 8),
        ("job", 200, 8), ("job saves", 1, 8), ("job", 200, 8),
    ]  # fmt: skip
    assert 149 <= lost < 165
    assert frame["lost_s"].tolist() == pytest.approx([lost + 5, 0])
    assert frame["served_s"][0] == pytest.approx(602 + lost + 5)


def test_without_checkpoints_it_begins_anew() -> None:
    report = played(Job(at=0, devices=8, step="10s", steps=60), hosts=2, faults=CRASH)
    assert [time for _, time, _ in programs(report)][1:] == [600]
    assert 350 <= report.frame()["lost_s"][0] < 365


def test_steps_whose_checkpoint_was_not_over_are_made_again() -> None:
    job = Job(at=0, devices=8, step="10s", steps=60, checkpoint=30, checkpoint_time="100s")
    report = played(job, hosts=2, faults=CRASH)  # in the checkpoint
    assert [(name, time) for name, time, _ in programs(report) if time in (100, 300)] == [
        ("job", 300), ("job", 300), ("job saves", 100), ("job", 300)
    ]  # fmt: skip
    assert 350 <= report.frame()["lost_s"][0] < 365


def test_a_job_waits_until_a_lost_host_comes_back() -> None:
    away = [*CRASH, sw.fault("4000s", "return_host", 0)]
    report = played(Job(at=0, devices=8, step="10s", steps=60, checkpoint=20), faults=away)
    row = report.frame().iloc[0]
    assert (row["ok"], row["losses"]) == (True, 1)
    assert 4000 + 400 <= row["ended_s"] < 4000 + 415


def test_a_job_that_can_never_fit_fails_alone_with_its_cause() -> None:
    report = played(
        Job(at=0, user="ann", devices=99, step="1s"),
        Job(at=0, user="ann", devices=64, sizes=(32,), step="1s"),
        Job(at=0, user="ann", kind="h100", step="1s"),
        Job(at="1s", user="ann", devices=8, step="1s"),
        Job(at="1s", user="bob", devices=8, step="1s"),
    )
    frame = report.frame()
    assert frame["ok"].tolist() == [False, False, False, True, True]
    assert frame["losses"].sum() == 0
    assert frame["started_s"].isna().tolist() == [True, True, True, False, False]
    for cause, asks in zip(frame["cause"], ("99 devices", "32 devices", "h100"), strict=False):
        assert asks in cause


def test_a_job_whose_code_fails_is_not_tried_again() -> None:
    fails = sw.fault("5s", "fail_gang", 0, name="job")
    report = played(Job(at=0, step="10s", steps=3), Job(at=0, name="well", step="10s"), faults=[fails])
    frame = report.frame()
    assert frame["ok"].tolist() == [False, True]
    assert "[user]" in frame["cause"][0]


@given(st.randoms(use_true_random=False))
@examples(15)
def test_whatever_is_taken_and_lost_each_job_does_its_steps_once(rng: Random) -> None:
    """Besides what was lost: random jobs, hosts that crash and come back, and a policy that takes devices."""
    jobs = [
        Job(
            at=f"{rng.randrange(2000)}s", user=f"u{number % 3}", devices=rng.choice((1, 4, 8, 16)),
            sizes=rng.choice(((), (), (8,), (4, 8, 16))), steps=rng.randint(1, 60), step=f"{rng.randint(1, 20)}s",
            checkpoint=rng.choice((0, 5, 20)), checkpoint_time=rng.choice(("0s", "3s")),
            restart=rng.choice(("0s", "7s")),
        )
        for number in range(10)
    ]  # fmt: skip
    crashes = sorted(rng.sample(range(100, 4000, 200), 3))
    faults = [
        sw.fault(f"{at + after}s", what, number % 2)
        for number, at in enumerate(crashes)
        for after, what in ((0, "crash_host"), (90, "return_host"))
    ]
    report = played(*jobs, hosts=2, policy=TIRESIAS, faults=faults)
    assert report.frame()["ok"].all()
    gangs = report.gangs[report.gangs["counts"] & (report.gangs["program"] == "job")]
    made = gangs.groupby("job")["device_us"].sum().div(1e6).to_dict()
    assert made == pytest.approx(
        {number: job.steps * job.step_time()[""] * job.devices / S for number, job in enumerate(Jobs(jobs))}, abs=0.01
    )


# --- several sizes ----------------------------------------------------------------------------------------------


def test_a_job_of_several_sizes_grows_into_free_devices_and_shrinks_for_others() -> None:
    report = played(
        Job(at=0, devices=8, sizes=(16,), step="10s", steps=100),
        Job(at="100s", user="other", devices=8, step="10s", steps=10),
        hosts=2,
    )
    assert programs(report) == [("job", 100, 16), ("job", 110, 8), ("job", 345, 16)]  # 20 + 11 + 69 steps
    assert seconds(report, "ended_s", "resizes", "cuts", "lost_s") == [[555, 2, 0, 0], [200, 0, 0, 0]]


def test_a_job_of_several_sizes_waits_for_the_smallest_of_them() -> None:
    report = played(
        Job(at=0, user="first", devices=8, step="10s", steps=10), Job(at="10s", devices=8, sizes=(4,), step="10s")
    )
    assert seconds(report, "started_s", "waited_s") == [[0, 0], [100, 90]]


def test_a_job_of_several_sizes_that_is_cut_or_loses_its_host_goes_on_and_counts_it() -> None:
    cut = played(
        Job(at=0, devices=8, sizes=(16,), step="10s", steps=100, restart="3s"),
        Job(at="100s", user="other", devices=16, step="10s", steps=20),
        hosts=2,
        policy=TIRESIAS,
    )
    assert seconds(cut, "served_s", "lost_s", "cuts")[0] == [506, 6, 2]
    lost = played(
        Job(at=0, devices=8, sizes=(16,), step="10s", steps=100, checkpoint=40, checkpoint_time="1s", restart="5s"),
        hosts=2,
        faults=CRASH,
    )
    row = lost.frame().iloc[0]
    assert (row["ok"], row["losses"], row["resizes"]) == (True, 1, 1)
    assert [name for name, _, _ in programs(lost)].count("job saves") == 2
    made = sum(time * devices for (name, time, devices) in programs(lost) if name == "job")
    assert made / 80 == pytest.approx(100 + (row["lost_s"] - 5) / 5, abs=0.1)  # on both hosts a step takes 5 s


# --- for real ---------------------------------------------------------------------------------------------------


def test_jobs_are_played_on_timed_devices() -> None:
    jobs = sw.workload.Jobs(
        [
            Job(at=0, user="ann", devices=8, step="50ms", steps=8),
            Job(at="50ms", user="bob", devices=4, step="20ms", steps=5, checkpoint=2, checkpoint_time="10ms"),
            Job(at="60ms", user="bob", devices=2, sizes=(4,), step="20ms", steps=5),
        ]
    )
    with sw.local(hosts=2, devices_per_host=4, platform="timed", policy="in_turn"):
        frame = jobs.play().frame()
    assert frame["ok"].all(), frame["cause"].tolist()
    assert (frame["served_s"] > [0.39, 0.11, 0.045]).all()
    assert (frame["started_s"][1:] > frame["ended_s"][0] - 0.1).all()  # they waited for the first one's devices
    assert np.isfinite(frame["waited_s"]).all()
    assert frame["lost_s"].sum() == 0
