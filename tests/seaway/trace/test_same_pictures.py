"""One program on real devices and in simulation: every table and every picture is made of either trace by the same
line, has the same columns of the same types, and shows something."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from matplotlib.figure import Figure

import seaway as sw
from core.record.trace import Trace as CoreTrace
from seaway.trace import Trace, style
from seaway.trace.busy import BYS

from . import traces

WEIGHTS = {"ann": 1, "bob": 2, "cat": 4}
ALL = sw.slice(mesh={"d": 4}, name="all")
SPLIT = ALL.sharding("d")


def part(name: str, fn: Callable[[Any], Any]) -> Any:
    return sw.jit(fn, devices=ALL, in_shardings=SPLIT, out_shardings=SPLIT, cost="2ms", name=name)


grow, bound = part("grow", lambda x: x + 1.0), part("bound", lambda x: x / jnp.abs(x).max())


@sw.program
def step(x: Any) -> Any:
    return bound(grow(x))


def user(runs: int) -> None:
    x = step(sw.put(np.ones((8, 8), np.float32), devices=ALL, sharding=SPLIT)).block_until_ready()
    ahead = deque[Any]()
    for _ in range(runs):
        x = step(x)
        ahead.append(x)
        if len(ahead) > 2:
            ahead.popleft().block_until_ready()
    x.block_until_ready()


def everybody() -> None:
    for task in [sw.spawn(user, 5 * weight, name=name, weight=weight) for name, weight in WEIGHTS.items()]:
        task.result()


SHAPE: Any = {"hosts": 2, "devices_per_host": 2, "policy": "stride"}
SESSIONS: dict[str, Callable[[], sw.Session]] = {
    "real": lambda: sw.local(**SHAPE),
    "simulated": lambda: sw.simulate(
        {"island": [{"hosts": 2, "devices_per_host": 2}]}, policy="stride", progress=False
    ),
}


@cache
def run(where: str) -> Trace:
    """Run the program. The same functions are used in each session, once."""
    with SESSIONS[where]() as session:
        everybody()
        found: Trace = session.trace  # while the hosts can be asked for their times
    return found


@pytest.fixture(params=SESSIONS, name="trace")
def _trace(request: pytest.FixtureRequest) -> Trace:
    return run(request.param)


# --- completeness -----------------------------------------------------------------------------------------

FRAMES: dict[str, Callable[[Any], pd.DataFrame]] = {
    "gangs": lambda t: t.gangs(),
    "hosts": lambda t: t.hosts(),
    "steps": lambda t: t.steps(),
    "runs": lambda t: t.runs(),
    "clients": lambda t: t.clients(),
    "shares": lambda t: t.shares(bins=4),
    "fairness": lambda t: t.fairness(bins=4),
    "latency_cdf": lambda t: t.latency_cdf(),
    "transfers": lambda t: t.transfers(),
    "memory": lambda t: t.memory(),
    "intervals": lambda t: t.intervals(),
} | {f"utilization by {by}": lambda t, by=by: t.utilization(by, bins=5) for by in BYS}
OF_ONE: dict[str, Callable[[Trace], pd.DataFrame]] = {
    "gangs in a window": lambda t: t.gangs(window=t.contended),
    "runs in a window": lambda t: t.runs(window=("0ms", t.span[1])),
    "clients in a window": lambda t: t.clients(window=t.contended),
    "intervals of a sample": lambda t: t.intervals(sample=2),
    "reservations": lambda t: t.reservations(),
    "utilization of a device": lambda t: t.utilization("device", devices=[1]),
}
PICTURES: dict[str, Callable[[Any], Figure]] = {
    "plot": lambda t: t.plot(),
    "plot by step": lambda t: t.plot(color="step", rows=2),
    "plot_utilization": lambda t: t.plot_utilization(),
    "plot_utilization of hosts": lambda t: t.plot_utilization("host"),
    "plot_utilization of all": lambda t: t.plot_utilization("total", bins=20),
    "plot_shares": lambda t: t.plot_shares(),
    "plot_shares over time": lambda t: t.plot_shares(bins=5),
    "plot_fairness": lambda t: t.plot_fairness(bins=5),
    "plot_latency_cdf": lambda t: t.plot_latency_cdf(),
}
OTHERS = {  # `live`: tests/seaway/dashboard; `jobs`: tests/seaway/jobs; `otel`: tests/seaway/telemetry
    "chakra", "of_simulation", "perfetto", "live", "save", "load", "summary", "sample", "machines", "origin", "since",
    "span", "contended", "facts", "jobs",
}  # fmt: skip
NO_ROWS = {"reservations"}  # no policy of these runs keeps devices free


def names(calls: dict[str, Any]) -> set[str]:
    return {call.split()[0] for call in calls}


def test_every_table_and_picture_is_tested_here() -> None:
    public = {name for name in vars(Trace) if not name.startswith("_")}
    assert public - names(FRAMES) - names(OF_ONE) - names(PICTURES) == OTHERS
    text = (Path(__file__).parents[3] / "docs" / "traces.md").read_text(encoding="utf-8")
    assert [
        name for name in public - {"facts", "machines", "of_simulation", "span", "sample"} if name not in text
    ] == []


# --- tables -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FRAMES | OF_ONE)
def test_a_table_has_the_same_columns_from_any_kind_of_trace(name: str, trace: Trace) -> None:
    made, like = ((FRAMES | OF_ONE)[name](each) for each in (trace, run("simulated")))
    assert len(made) or name in NO_ROWS, "there are rows"
    assert types(made) == types(like)


def types(frame: pd.DataFrame) -> dict[str, str]:
    """Types of columns, in their order. The set of categories depends on the contents."""
    return {str(name): str(dtype) for name, dtype in frame.dtypes.items()}


def test_an_empty_table_has_the_same_columns_too() -> None:
    """So tables of several traces can be joined, even if some of them have no rows."""
    empty = Trace(CoreTrace())
    for name in ("gangs", "hosts", "runs", "clients", "transfers", "memory", "intervals", "shares", "steps"):
        mine, like = FRAMES[name](empty), FRAMES[name](run("simulated"))
        assert not len(mine)
        assert types(mine) == types(like), name


def test_both_traces_have_the_same_runs(trace: Trace) -> None:
    """Times and places differ. What was requested, and that all of it was done, does not."""
    clients = trace.clients().set_index("client")
    assert clients["weight"].to_dict() == WEIGHTS
    assert clients["runs"].to_dict() == {name: 1 + 5 * weight for name, weight in WEIGHTS.items()}
    assert clients["gangs"].to_dict() == {name: 2 * runs for name, runs in clients["runs"].items()}
    steps = trace.steps()
    assert sorted(steps["step"]) == ["bound", "grow"]
    assert (steps["devices"] == 4).all()
    assert set(trace.transfers()["step"]) == {"put"}
    assert trace.memory()["resident_bytes_per_device"].max() >= 64
    assert sorted(trace.intervals()["device"].unique()) == [0, 1, 2, 3]
    shares = trace.shares(bins=1)
    assert shares["got_share"].sum() == pytest.approx(1)
    assert shares["device_us"].sum() == pytest.approx(trace.clients(window=trace.contended)["device_us"].sum())


def test_times_count_from_the_beginning(trace: Trace) -> None:
    """A machine's clock may be at several weeks, and a user should not have to subtract that."""
    clients, runs, gangs = trace.clients(), trace.runs(), trace.gangs()
    assert 0 <= clients["opened_us"].min() < 1_000
    assert (runs["submitted_us"].min() >= clients["opened_us"].min()).all()
    assert trace.since == 0
    assert gangs["ended_us"].max() == pytest.approx(trace.span[1] / 1_000)
    whole = ("0ms", f"{trace.span[1] // 1_000_000 + 1}ms")
    assert len(trace.gangs(window=whole)) == len(gangs)
    hosts = trace.hosts()
    assert (hosts["ended_us"] <= trace.span[1] / 1_000 + hosts["bound_us"]).all()


# --- pictures and files -----------------------------------------------------------------------------------


def drawn(figure: Figure) -> float:
    """The part of a picture that has a colour: lines and labels of axes have none."""
    pixels = image.imread(BytesIO(style.png(figure, dpi=60)), format="png")[:, :, :3]
    return float((np.ptp(pixels, axis=2) > 0.2).mean())


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_something_from_any_kind_of_trace(name: str, trace: Trace) -> None:
    figure = PICTURES[name](trace)
    assert drawn(figure) > 0.005
    unit = {"ns": 1, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
    for axes in figure.axes:
        label = axes.get_xlabel()
        if label.startswith("time ("):
            low, high = (each * unit[label[6:].split(")")[0]] for each in axes.get_xlim())
            assert -1_000 <= low < high <= trace.span[1] + 1_000


def test_files_can_be_made_of_either_trace(trace: Trace, tmp_path: Path) -> None:
    again = Trace.load(trace.save(tmp_path / "run"))
    for name, make in FRAMES.items():
        pd.testing.assert_frame_equal(make(again), make(trace), obj=name)
    events = json.loads(trace.perfetto(tmp_path / "run.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert {"step/grow", "step/bound"} <= {event["name"] for event in slices}
    assert 0 <= min(event["ts"] for event in slices) < 60_000_000
    assert trace.summary() == again.summary()
    assert "3 clients, 38 runs, 76 gangs on 4 devices" in repr(trace)


def test_an_empty_picture_has_no_colour() -> None:
    """So the tests above can fail."""
    core = CoreTrace()
    core.place(0, 0, ((0, 4),))
    for make in PICTURES.values():
        assert drawn(make(Trace(core))) < 0.005
    assert drawn(Trace(CoreTrace()).plot()) < 0.005, "without machines, too"


def test_the_lines_of_a_picture_are_the_numbers_of_its_table() -> None:
    trace = Trace(traces.shared(gangs=90))
    (axes,) = trace.plot_shares(bins=6).axes
    table = trace.shares(bins=6)
    wanted = [mine["got_share"].to_numpy() for _, mine in table.groupby("client", sort=False, observed=True)]
    drawn_lines = [np.asarray(line.get_ydata()) for line in axes.get_lines()]
    np.testing.assert_allclose([each for each in drawn_lines if len(each) == 6], wanted)
