"""Compares `seaway whatif` with real runs: records a session, predicts other settings from it, and then runs them.

`python -m experiments.bench whatif [--platform timed cpu] [--calibration FILE ...] [--records N] [--calls N]`. Three
clients of weights 1, 2 and 4 share two hosts under stride. Each prediction is printed beside the measurement, and
beside the size of the change: one with a smaller error than the change says more than the record does.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from core.model import Impossible
from core.schedule.policy import named
from seaway.tools.whatif import call_durations, settings, whatif_runs, workload
from seaway.trace import Trace
from sim.hardware import setups

from ..frame import options
from ..frame.options import Table
from .cases import PLATFORMS, Platform, Work
from .freezing import CALIBRATED, calibrations
from .programs import content, repeated
from .table import distribution, shown

if TYPE_CHECKING:
    from core.model import Cluster
    from sim.hardware import Setup

WEIGHTS = {"ann": 1, "bob": 2, "cat": 4}
AHEAD = 4  # calls that each client has under way
CALLS = 15  # calls of the client with weight 1; others make more by weight: under stride all end together
RECORDS = 3
LASTS = "4ms"  # a gang; on CPU devices PRODUCTS products take about that long
PRODUCTS = 4
PRODUCT = Work("matmul", 512)
WARM = "warming up"  # a client that is not counted: during its call hosts connect and compile
TIME = 1e-6  # seconds of a trace's unit
Values = dict[str, float]  # by quantity: seconds
Tried = list[Values]  # by question


class Question(NamedTuple):
    """Changes to the recorded session's settings."""

    title: str
    policy: str = "stride"
    dispatch: str = ""
    window: int = 0


RECORDED = Question("same settings")
QUESTIONS = (
    RECORDED,
    Question("fifo", policy="fifo"),
    Question("round_robin", policy="round_robin"),
    Question("sequential dispatch", dispatch="sequential"),
    Question("a window of 1 gang", window=1),
)


class Row(NamedTuple):
    """One quantity under one of the settings, medians over the records. error: predicted / measured - 1, for each
    record and the runs after it. spread: the largest deviation from the median error. foretold, change: the predicted
    and the measured change from the recorded settings, as a fraction."""

    platform: Platform
    question: str
    quantity: str
    predicted: float
    measured: float
    error: float
    spread: float
    foretold: float
    change: float


# --- a session, recorded -----------------------------------------------------------------------------------------


def really(platform: Platform, asked: Question, calls: int, path: Path) -> Values:
    """Run the program for real under these settings, and leave the log at `path`."""
    import seaway as sw

    given: dict[str, Any] = {"dispatch": asked.dispatch} if asked.dispatch else {}
    if asked.window:
        given["config"] = {"window": asked.window}
    with sw.local(hosts=CALIBRATED, platform=platform, policy=asked.policy, record=path, **given) as session:
        call, make = _program(platform)
        with session.client(WARM):
            call(make()).block_until_ready()
        start = threading.Barrier(len(WEIGHTS))
        for name, weight in WEIGHTS.items():
            session.spawn(_paced, start, call, make, calls * weight, name=name, weight=weight)
    recorded = workload.read(path)
    return _values(recorded.trace, recorded.cluster)


def _program(platform: Platform) -> tuple[Callable[[Any], Any], Callable[[], Any]]:
    """(a program of two gangs on all devices, a function that makes its argument)."""
    import seaway as sw

    home = sw.slice(devices=CALIBRATED)
    if platform == "timed":
        part: Any = sw.synthetic("part", devices=home, duration=LASTS)
        first: Callable[[], Any] = partial(np.float32, 0)
    else:
        part = sw.pmap(repeated(PRODUCT, PRODUCTS), devices=home, cost=LASTS, name="part")
        first = partial(sw.put, content(PRODUCT, CALIBRATED), devices=home)

    def both_parts(x: Any) -> Any:
        return part(part(x))

    return sw.program(both_parts), first


def _paced(start: threading.Barrier, call: Callable[[Any], Any], make: Callable[[], Any], number: int) -> None:
    """Make the calls of one client, once all clients are ready."""
    ahead, first = deque[Any](), make()
    start.wait()
    for _ in range(number):
        ahead.append(call(first))
        if len(ahead) >= AHEAD:
            ahead.popleft().block_until_ready()


def _values(core: Any, where: Cluster | Setup) -> Values:
    """The makespan and median latencies of the counted clients."""
    runs = Trace(core, where).runs()
    runs = runs[runs["client"].astype(str).isin(list(WEIGHTS))]
    found = {"makespan": TIME * float(runs["ended_us"].max() - runs["submitted_us"].min())}
    for name in WEIGHTS:
        latency = runs["latency_us"][runs["client"].astype(str) == name]
        found |= {f"latency p50 {name}": TIME * float(latency.median())}
    return found


# --- foretold from the log --------------------------------------------------------------------------------------


def foretold(path: Path, known: Setup, questions: Sequence[Question]) -> list[Values]:
    recorded = workload.read(path)
    assert known.profile is not None
    took = call_durations.measured(recorded)
    same = settings.as_recorded(recorded, known.profile, known)
    found = []
    for asked in questions:
        config = recorded.config
        if asked.window:
            config = msgspec.structs.replace(config, window=asked.window)
        changed = same._replace(
            title=asked.title, make=partial(named, asked.policy), dispatch=asked.dispatch, config=config
        )
        world = whatif_runs.run(recorded, changed, took)
        found.append(_values(world.trace, world.setup))
    return found


def rows_of(platform: Platform, predicted: Sequence[Tried], measured: Sequence[Tried]) -> list[Row]:
    """Rows from predictions and measurements, by record and question. The first question is the recorded settings."""
    return [_row(platform, at, name, predicted, measured) for at in range(len(QUESTIONS)) for name in predicted[0][0]]


def _row(platform: Platform, at: int, name: str, predicted: Sequence[Tried], measured: Sequence[Tried]) -> Row:
    told, seen = ([each[at][name] for each in side] for side in (predicted, measured))
    told_before, seen_before = ([each[0][name] for each in side] for side in (predicted, measured))
    errors = ratios(told, seen)
    error = statistics.median(errors)
    return Row(
        platform, QUESTIONS[at].title, name, statistics.median(told), statistics.median(seen), error,
        max(abs(each - error) for each in errors),
        statistics.median(ratios(told, told_before)), statistics.median(ratios(seen, seen_before)),
    )  # fmt: skip


def ratios(these: Sequence[float], those: Sequence[float]) -> list[float]:
    return [this / that - 1 for this, that in zip(these, those, strict=True)]


def asked_about(platform: Platform, known: Setup, records: int, calls: int, folder: Path) -> list[Row]:
    """Record, predict, and only then measure; several times, since the machine's speed changes."""
    predicted, measured = [], []
    for turn in range(records):
        logs = [folder / f"{platform}-{turn}-{asked.title}.log" for asked in QUESTIONS]
        record = really(platform, RECORDED, calls, logs[0])
        predicted.append(foretold(logs[0], known, QUESTIONS))
        tried = zip(QUESTIONS[1:], logs[1:], strict=True)
        measured.append([record, *(really(platform, asked, calls, log) for asked, log in tried)])
    return rows_of(platform, predicted, measured)


# --- what is printed ---------------------------------------------------------------------------------------------

ROWS = Table("    <4", " <18", "predicted >14", "measured >14", "error >+9.1%", "records >9", "change foretold >+17.1%",
             "measured >+10.1%")  # fmt: skip


def line(row: Row) -> str:
    change = (row.foretold, row.change) if row.question != RECORDED.title else ()
    both = (shown(row.quantity, each) for each in (row.predicted, row.measured))
    return ROWS.line("", row.quantity, *both, row.error, f"+-{row.spread:.1%}", *change)


def shown_rows(platform: Platform, rows: Sequence[Row]) -> str:
    lines = [f"{platform} devices: recorded under stride, weights 1:2:4", ROWS.head()]
    last = ""
    for row in rows:
        if row.question != last:
            lines.append(row.question)
            last = row.question
        lines.append(line(row))
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    changed = [row for row in rows if row.question != RECORDED.title]
    kinds = (
        (RECORDED.title, [row.error for row in rows if row.question == RECORDED.title]),
        ("changed settings", [row.error for row in changed]),
        ("  had the record been the answer", [1 / (1 + row.change) - 1 for row in changed]),
    )
    table = Table("absolute error <34", "rows >6", "median >9.1%", "95 % >9.1%", "bias >+9.1%")
    lines = [table.head()]
    for title, errors in kinds:
        if whole := distribution(errors):
            lines.append(table.line(title, whole.rows, whole.median, whole.last, whole.bias))
    return "\n".join(lines)


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("whatif", __doc__)
    kinds = list(PLATFORMS)
    parser.add_argument("--platform", choices=kinds, nargs="+", default=kinds, help="kinds of devices (both)")
    given = f"clusters of {CALIBRATED} hosts that `seaway calibrate` wrote, one a platform (measured now)"
    parser.add_argument("--calibration", type=Path, nargs="+", default=[], metavar="FILE", help=given)
    parser.add_argument("--quick", action="store_true", help="calibrate quickly and less exactly")
    parser.number("--records", RECORDS, "recorded sessions, each followed by runs under all settings")
    parser.number("--calls", CALLS, "calls of the client with weight 1")
    chosen = parser.parse_args(arguments)
    platforms = tuple(each for each in PLATFORMS if each in chosen.platform)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            files = calibrations(platforms, chosen.calibration, folder, quick=chosen.quick, say=print)
        except (Impossible, NotImplementedError, OSError) as error:
            parser.error(str(error))
        for platform in platforms:
            known = setups.load(str(files[platform]))
            found = asked_about(platform, known, chosen.records, chosen.calls, folder)
            rows += found
            print(shown_rows(platform, found), flush=True)
    for platform in platforms:
        print(f"\n{platform} devices\n{summary([row for row in rows if row.platform == platform])}")
