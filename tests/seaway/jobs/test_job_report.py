"""What a report says of jobs, by hand-made cases; and its pictures."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas.testing import assert_frame_equal

import seaway as sw
from seaway.trace import storage, style
from seaway.workload import Job, JobReport, Jobs

# On eight devices: ann's job has them all for 100 s, and bob's two have half of them each, then.
JOBS = Jobs(
    [
        Job(at=0, user="ann", devices=8, step="1s", steps=100, deadline="100s"),
        Job(at="10s", user="bob", devices=4, step="1s", steps=10, deadline="1min"),
        Job(at="20s", user="bob", devices=4, step="1s", steps=30, deadline="2min"),
        Job(at="20s", user="cat", devices=9, step="1s", steps=30),
    ]
)


EIGHT = {"name": "mine", "island": [{"hosts": 1, "devices_per_host": 8, "kind": "h100"}]}


def played(jobs: Jobs = JOBS, cluster: Any = EIGHT, **options: Any) -> JobReport:
    with sw.simulate(cluster, profile="ideal", policy="in_turn", **options):
        return jobs.play()


def rounded(values: Any) -> list[Any]:
    return [each if isinstance(each, str) else round(float(each), 6) for each in values]


def test_the_frame_says_of_each_job_when_it_waited_had_devices_and_was_over() -> None:
    frame = played().frame()
    assert frame["user"].tolist() == ["ann", "bob", "bob", "cat"]
    good = frame[frame["ok"]]
    assert rounded(good["arrived_s"]) == [0, 10, 20]
    assert rounded(good["waited_s"]) == [0, 90, 80]
    assert rounded(good["jct_s"]) == [100, 100, 110]
    assert rounded(good["slowdown"]) == rounded([1, 10, 110 / 30])
    assert rounded(good["rho"]) == rounded([100 / (100 * 3), 100 / (10 * 1.5), 110 / (30 * 1.5)])  # a third for each
    assert good["late"].tolist() == [True, True, False]  # ann's by the nanosecond that the call takes
    assert "9 devices" in frame["cause"][3]


def test_the_summary_is_of_all_jobs_or_of_each_user_or_size() -> None:
    report = played()
    whole = report.summary().iloc[0]
    assert (whole["count"], whole["failed"], whole["late"]) == (4, 1, 2)
    assert rounded(whole[["jct_mean_s", "waited_mean_s", "makespan_s"]]) == rounded([310 / 3, 170 / 3, 130])
    assert rounded(whole[["busy", "goodput"]]) == rounded([(800 + 40 + 120) / (8 * 130)] * 2)
    users = report.summary(by="user").set_index("user")
    assert users["count"].to_dict() == {"ann": 1, "bob": 2, "cat": 1}
    assert rounded(users["jct_p50_s"])[:2] == [100, 105]
    assert users["busy"].sum() == pytest.approx(whole["busy"])
    assert report.summary(by="devices")["devices"].tolist() == [8, 4, 9]
    with pytest.raises(ValueError, match="'', 'user' or 'devices'"):
        report.summary(by="name")
    assert repr(report) == "<report of 4 jobs, 1 failed>"


def test_what_was_lost_is_busy_and_no_goodput() -> None:
    crash = [sw.fault("50s", "crash_host", 0)]
    report = played(Jobs([Job(at=0, devices=8, step="1s", steps=100)]), hosts=2, faults=crash)
    row = report.summary().iloc[0]
    assert row["losses"] == 1
    assert row["lost_s"] >= 50
    assert row["busy"] - row["goodput"] == pytest.approx(row["lost_s"] / (2 * row["makespan_s"]), rel=1e-6)
    assert row["goodput"] == pytest.approx(100 / (2 * row["makespan_s"]), rel=1e-6)


def test_jobs_of_other_clients_in_the_session_are_not_in_the_report() -> None:
    step = sw.synthetic("step", devices=8, duration="5s")
    with sw.simulate("B", hosts=1, profile="ideal") as s:
        step(np.float32(0)).block_until_ready()
        s.release(step.slice)  # jobs have their devices alone
        first = JOBS[:1].play()
        second = JOBS[:1].play()
        assert len(s.trace.gangs()) == 3
    for report in (first, second):
        assert rounded(report.frame()["served_s"]) == [100]
        assert rounded(report.summary()["busy"]) == [1]


def test_the_trace_has_the_same_table_and_keeps_it_in_its_files(tmp_path: Path) -> None:
    crash = [sw.fault("50s", "crash_host", 0)]
    with sw.simulate(EIGHT, profile="ideal", policy="in_turn", hosts=2, devices_per_host=4, faults=crash) as s:
        assert s.trace.jobs().empty
        first, second = JOBS.play(), JOBS[1:].play()
    table = s.trace.jobs()
    assert table["losses"].sum() >= 1
    assert_frame_equal(table, pd.concat([first.frame(), second.frame()], ignore_index=True))
    again = sw.trace.Trace.load(s.trace.save(tmp_path / "run"))
    assert_frame_equal(again.jobs(), table)
    assert JobReport(again.played[1], again).summary().equals(second.summary())


@pytest.mark.parametrize(
    ("column", "value"), [("calls", None), ("needs", 0), ("user", b"x"), ("number", 7), ("begin", None), ("counts", [])]
)
def test_a_damaged_table_of_jobs_is_an_error_that_names_it(tmp_path: Path, column: str, value: Any) -> None:
    with sw.simulate(EIGHT, profile="ideal", policy="in_turn") as s:
        JOBS[:1].play()
    folder = s.trace.save(tmp_path / "run")
    table = pd.read_parquet(folder / "jobs.parquet")
    table[column] = pd.Series([value], dtype=object if value is None else None)
    table.to_parquet(folder / "jobs.parquet")
    storage.sign(folder)
    with pytest.raises(sw.errors.NotATrace, match=r"run is damaged: jobs\.parquet: "):
        sw.trace.Trace.load(folder)


def test_a_trace_without_jobs_replaces_one_with_jobs(tmp_path: Path) -> None:
    for jobs in (JOBS[:1], Jobs([])):
        with sw.simulate(EIGHT, profile="ideal", policy="in_turn") as s:
            jobs.play()
        s.trace.save(tmp_path / "run")
    assert sw.trace.Trace.load(tmp_path / "run").jobs().empty


# --- pictures ---------------------------------------------------------------------------------------------------


def shown(figure: Figure) -> Any:
    """The picture's pixels."""
    return image.imread(BytesIO(style.png(figure)))


def curves(axes: Axes) -> list[list[float]]:
    """The times of its curves' steps."""
    return [rounded(np.asarray(line.get_xdata())[1:]) for line in axes.lines if len(np.asarray(line.get_xdata())) != 2
            or line.get_drawstyle() == "steps-post"]  # fmt: skip


def test_the_picture_shows_how_long_jobs_of_each_user_took_and_waited_and_what_was_in_use() -> None:
    figure = played().plot()
    over, waited, used = figure.axes
    assert curves(over) == [[100], [100, 110]]
    assert curves(waited) == [[0], [80, 90]]
    legend = over.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["ann", "bob", "cat"]
    assert used.get_ylabel() == "of 8 devices"
    assert used.get_xlim() == pytest.approx((0, 130), abs=1e-6)
    assert np.ptp(shown(figure)) > 0.8


def test_the_gantt_chart_has_a_row_a_job_where_it_waits_and_runs() -> None:
    figure = played(JOBS[:3]).plot_gantt()
    bars: dict[bool, list[Any]] = {True: [], False: []}  # by whether they are pale
    for number, part in enumerate(figure.axes[0].collections):
        for path in part.get_paths():
            x, y = np.asarray(path.vertices)[:4].T
            bars[number % 2 == 0].append((round(y.mean()), *rounded([x.min(), x.max()])))
    assert bars[True] == [(0, 0, 100), (1, 10, 110), (2, 20, 130)]
    assert bars[False] == [(0, 0, 100), (1, 100, 110), (2, 100, 130)]
    assert np.ptp(shown(figure)) > 0.8
    assert np.ptp(shown(played(Jobs([])).plot_gantt())) > 0.8


def test_the_gantt_chart_shows_when_devices_were_taken_and_groups_jobs_by_user() -> None:
    jobs = Jobs([Job(at=f"{at}s", user="ab"[at % 2], devices=8, step="1s", steps=5) for at in range(4)])
    rows = [np.asarray(path.vertices)[:4, 1].mean() for part in played(jobs).plot_gantt().axes[0].collections[::2]
            for path in part.get_paths()]  # fmt: skip
    assert rounded(rows) == [0, 1, 2, 3]
    crash = [sw.fault("50s", "crash_host", 0)]
    lost = played(Jobs([Job(at=0, devices=4, step="1s", steps=100)]), hosts=2, devices_per_host=4, faults=crash)
    assert len(lost.plot_gantt().axes[0].collections[1].get_paths()) == 2, "it begins anew elsewhere"


def test_long_workloads_are_drawn_in_hours() -> None:
    figure = played(Jobs([Job(at=0, step="1min", steps=600)])).plot()
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "completion time (h)", "waiting for devices (ns)", "time (h)"
    ]  # fmt: skip


def test_users_beyond_the_colours_are_drawn_together() -> None:
    jobs = Jobs([Job(at=f"{at}s", user=f"u{at}", step="1s", steps=20 - at) for at in range(9)])
    legend = played(jobs).plot().axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()][-1] == "2 others"


@pytest.mark.parametrize(
    ("torus", "block", "shape"),
    [([4, 4], [2, 4], (4, 4)), ([16], [8], (1, 16)), ([2, 2, 4], [1, 2, 4], (2, 9)), ([8, 1, 2], [4, 1, 2], (3, 11))],
    ids=["2x4", "line", "planes", "many planes"],
)
def test_a_torus_is_drawn_with_each_device_at_its_place(torus: list[int], block: list[int], shape: Any) -> None:
    cluster = {
        "name": "mine",
        "island": [{"hosts": 2, "devices_per_host": 8, "kind": "v3", "torus": torus, "block": block}],
    }
    jobs = Jobs([Job(at=0, devices=8, step="1s", steps=10), Job(at=0, user="b", devices=16, step="1s", steps=10)])
    report = played(jobs, cluster)
    figure = report.plot_torus()
    cells = np.asarray(figure.axes[0].images[0].get_array()).astype(float)
    assert cells.shape == shape
    assert sorted(rounded(cells[~np.isnan(cells)])) == [0.5] * 8 + [1.0] * 8
    if torus == [4, 4]:
        assert (cells[:2] > cells[2:]).all()  # the first host is the upper half
    assert np.ptp(shown(figure)) > 0.8


def test_a_cluster_without_a_torus_has_no_such_picture_and_the_error_says_what_makes_one() -> None:
    with pytest.raises(ValueError, match=r"no island is a torus; a cluster file says so by `torus`"):
        played().plot_torus()
    assert np.ptp(shown(played(Jobs([])).plot())) > 0.8  # axes
