"""The report of a what-if: the record, a simulation under its own settings, and one for each change, side by side.

The record is only the controller's trace, which does not say when gangs started. So its device time is the number of
executions times the measured time of each, which are also the simulated costs; and what its policy kept free, if it did
so, is not divided into busy and reserved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from core.record import LOST

from ...trace import Trace, times
from .call_durations import ComputationTime, Which, executions
from .workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from .whatif_runs import WhatifResult

RECORD = "recorded"
NONE = float("nan")


class ClientReport(NamedTuple):
    name: str
    weight: int
    runs: int
    failed: int
    p50_us: float
    p99_us: float
    share: float  # of device time, while all clients had work


class Column(NamedTuple):
    """The figures of the record or of one simulation. Times are in nanoseconds."""

    title: str
    makespan: int  # from the first run that was submitted to the last that ended
    utilization: float  # busy part of all devices' time in the makespan
    reserved: float  # the part in which a policy kept them free; NaN if it is not known
    clients: tuple[ClientReport, ...]


def of_record(recorded: Workload, took: dict[Which, ComputationTime]) -> Column:
    spent = sum(took[which].nanoseconds * which[1] * count for which, count in executions(recorded).items())
    kept = [client for client in recorded.trace.reservations.column("client") if client != LOST]
    reserved = NONE if kept else 0.0
    return _column(RECORD, Trace(recorded.trace, recorded.cluster), recorded.cluster.devices, spent, reserved)


def of_world(world: WhatifResult) -> Column:
    return _column(world.settings.title, Trace(world.trace, world.setup), world.setup.cluster.devices)


def _column(title: str, trace: Trace, devices: int, spent: int | None = None, reserved: float | None = None) -> Column:
    """`spent` and `reserved`: where the trace does not say when gangs started."""
    runs = trace.core.columns()["runs"]
    low = min(runs["submitted"])
    high = max([*runs["ended"], low + 1])
    if spent is None:
        spent = int(trace.facts().spent().sum())
    if reserved is None:
        reserved = float(trace.utilization("total", window=times.span_of(low, high))["reserved_fraction"].iloc[0])
    return Column(title, high - low, spent / (devices * (high - low)), reserved, tuple(_clients(trace)))


def _clients(trace: Trace) -> Iterator[ClientReport]:
    ran = max(trace.core.columns()["gangs"]["ended"], default=-1) >= 0
    shares = trace.clients(window=trace.contended)["got_share"] if ran else None
    for row, found in enumerate(trace.clients().to_dict("records")):
        yield ClientReport(
            str(found["client"]), int(found["weight"]), int(found["runs"]), int(found["failed_runs"]),
            float(found["latency_p50_us"]), float(found["latency_p99_us"]),
            NONE if shares is None else float(shares.iloc[row]),
        )  # fmt: skip


# --- as text --------------------------------------------------------------------------------------------------------


Figure = tuple[str, str]  # (client or "", what)


def figures(column: Column) -> dict[Figure, float]:
    """The times of a column, in nanoseconds; those that are not known are left out."""
    found: dict[Figure, float] = {("", "makespan"): column.makespan}
    for client in column.clients:
        found[client.name, "p50 latency"] = client.p50_us * 1_000
        found[client.name, "p99 latency"] = client.p99_us * 1_000
    return {name: value for name, value in found.items() if value > 0}


def errors(record: Column, same: Column) -> dict[Figure, float]:
    """The model's errors under the record's own settings, as signed fractions of the record."""
    was, is_now = figures(record), figures(same)
    return {name: is_now[name] / was[name] - 1 for name in was if name in is_now}


def doubts(record: Column, same: Sequence[Column]) -> dict[Figure, float]:
    """The largest of these errors in several simulations of the record: no smaller change is one."""
    found: dict[Figure, float] = {}
    for each in same:
        for name, error in errors(record, each).items():
            found[name] = max(found.get(name, 0.0), abs(error))
    return found


def lines(columns: Sequence[Column], doubt: Mapping[Figure, float]) -> Iterator[str]:
    """A table with one row a figure and one column a world: the record, its own settings, and changed ones. In brackets
    is the model's own error, or else the change that is foretold, if it is larger than that error (`doubt`)."""
    record = columns[0]
    rows = [["", *(column.title for column in columns)]]
    rows.append(["makespan", *_times(columns, ("", "makespan"), doubt)])
    rows.append(["devices busy", *(f"{c.utilization:.1%}" for c in columns)])
    if any(c.reserved for c in columns):
        rows.append(["devices reserved", *("" if np.isnan(c.reserved) else f"{c.reserved:.1%}" for c in columns)])
    for at, client in enumerate(record.clients):
        mine = [column.clients[at] for column in columns]
        rows.append([f"client {client.name}", *(f"weight {c.weight}" for c in mine)])
        rows.append(["  runs", *(f"{c.runs}" + (f" ({c.failed} failed)" if c.failed else "") for c in mine)])
        latencies = ("p50 latency", "p99 latency")
        rows += [[f"  {what}", *_times(columns, (client.name, what), doubt)] for what in latencies]
        rows.append(["  share", *("" if np.isnan(c.share) else f"{c.share:.1%}" for c in mine)])
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns) + 1)]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()


def _times(columns: Sequence[Column], name: Figure, doubt: Mapping[Figure, float]) -> Iterator[str]:
    values = [figures(column).get(name) for column in columns]
    before = values[:1] + values[:1] + values[1:2] * (len(values) - 2)
    for at, (value, base) in enumerate(zip(values, before, strict=True)):
        if value is None:
            yield ""
        elif at == 0 or base is None:
            yield times.text(value)
        elif at > 1 and abs(value / base - 1) <= doubt.get(name, 0.0):
            yield f"{times.text(value)} (±{doubt[name]:.1%})"
        else:
            yield f"{times.text(value)} ({value / base - 1:+.1%})"


def notes(recorded: Workload, took: dict[Which, ComputationTime]) -> Iterator[str]:
    """Notes on the record that limit what the figures mean."""
    stated = [one for one in took.values() if not one.samples and one.runs]
    if stated:
        named = ", ".join(f"{one.name} on {one.devices}" for one in stated[:8])
        more = f", and {len(stated) - 8} more" if len(stated) > 8 else ""
        yield f"never seen back to back, so at their stated costs: {named}{more}"
    if recorded.compiling:
        took_each = times.text(recorded.compiling)
        yield f"hosts compiled in the record: {took_each} a code, and so does each code here, on every host at once"
    failed = sum(row["code"] >= 0 for row in recorded.trace.runs.rows())
    if failed:
        yield f"runs that failed in the record, and are run here all the same: {failed}"
    unended = sum(row["ended"] < 0 for row in recorded.trace.runs.rows())
    if unended:
        yield f"runs that had not ended when the record did, and are run to their ends here: {unended}"
    if recorded.lost_hosts:
        yield f"hosts were lost in the record, and are not here: {recorded.lost_hosts}"


# --- as tables ------------------------------------------------------------------------------------------------------


def frame(columns: Sequence[Column]) -> pd.DataFrame:
    """One row a world and client. A world's own figures are repeated in each of its rows."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for column in columns:
        world = {
            "world": column.title, "makespan_us": column.makespan / 1_000, "busy_fraction": column.utilization,
            "reserved_fraction": column.reserved,
        }  # fmt: skip
        rows += [
            world
            | {
                "client": client.name, "weight": client.weight, "runs": client.runs, "failed_runs": client.failed,
                "latency_p50_us": client.p50_us, "latency_p99_us": client.p99_us, "got_share": client.share,
            }
            for client in column.clients
        ]  # fmt: skip
    return pd.DataFrame(rows)


def save(columns: Sequence[Column], folder: Path) -> list[Path]:
    """Write `whatif.csv` and `.parquet`."""
    folder.mkdir(parents=True, exist_ok=True)
    table = frame(columns)
    csv, parquet = folder / "whatif.csv", folder / "whatif.parquet"
    table.to_csv(csv, index=False, lineterminator="\n")
    table.to_parquet(parquet, index=False)
    return [csv, parquet]
