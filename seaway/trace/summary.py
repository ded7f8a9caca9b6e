"""`Trace.summary`: a trace in a few lines of text; and its steps, as a program's user looks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .times import text

if TYPE_CHECKING:
    from .trace import Trace

MOST = 16  # clients that are listed


def summary(trace: Trace) -> str:
    """One line for the whole trace, then one a client."""
    core = trace.core
    ran = len(core.gangs)
    if not ran:
        return f"Trace of no gangs on {trace.machines.describe()}"
    low, high = trace.span
    facts = trace.facts()
    intervals = int(facts.sizes[facts.end >= 0].sum())
    size = f"{core.nbytes / max(intervals, 1):.2f} bytes a device interval" if intervals else ""
    table = trace.clients()
    head = (
        f"Trace of {_many(len(core.clients), 'client')}, {_runs(len(core.runs), table)}, {_many(ran, 'gang')} on "
        f"{trace.machines.describe()}: {text(high - low)}, {facts.shares_text(low, high)}; {intervals:,} device "
        f"intervals in {_nbytes(core.nbytes)}, {size}"
    )
    competing = trace.contended
    names = f"  {'client':16}{'weight':>7}{'asked':>9}{'got':>9}{'runs':>9}{'failed':>8}"
    if core.since:
        since = f"it is complete from {text(trace.since)} on"
        head += f"; {since}; before, it has only what had not ended by then"
    lines = [head, f"{names}{'p50 latency':>14}{'p99':>12}"]
    for row in table.head(MOST).to_dict("records"):
        name = str(row["client"])[:15]
        p50, p99 = (_latency(row[f"latency_p{percent}_us"]) for percent in (50, 99))
        lines.append(
            f"  {name:16}{row['weight']:>7}{row['asked_share']:>9.1%}{row['got_share']:>9.1%}{row['runs']:>9,}"
            f"{row['failed_runs']:>8,}{p50:>14}{p99:>12}"
        )
    if len(table) > MOST:
        lines.append(f"  ... and {len(table) - MOST} more")
    if competing != (low, high):
        lines.append(f"  got: of the {text(competing[1] - competing[0])} in which all of them had work")
    return "\n".join(lines)


def step_table(trace: Trace) -> str:
    """One line a step, the longest first. What a client ran for the last time before its longest step began is one
    line, the start-up: JAX runs each operation outside of `jit` as a program of its own."""
    gangs = trace.gangs()
    gangs = gangs[gangs["ended_us"].notna()]
    if not len(gangs):
        return ""
    whose, number = gangs["client"], gangs.groupby(["program", "step"]).ngroup()
    mine = gangs.groupby([whose, number], observed=True)
    spent = mine["device_us"].transform("sum")
    longest = spent == spent.groupby(whose, observed=True).transform("max")
    begin = gangs["started_us"].where(longest).groupby(whose, observed=True).transform("min")
    early = mine["started_us"].transform("max") < begin
    if (programs := number[early].nunique()) > 1:
        number = number.where(~early, -1)
    rows = []
    for key, each in gangs.groupby(number):
        name = f"start-up, {programs:,} programs" if key == -1 else str(each["step"].iloc[0])[:31]
        mean, total = (text(micros * 1_000) for micros in (each["duration_us"].mean(), each["duration_us"].sum()))
        line = f"  {name:32}{len(each):>9,}{each['devices'].max():>9,}{mean:>12}{total:>12}"
        rows.append((-each["device_us"].sum(), line))
    lines = [f"  {'step':32}{'gangs':>9}{'devices':>9}{'mean':>12}{'together':>12}"]
    lines += [line for _, line in sorted(rows)[:MOST]]
    return "\n".join(lines + [f"  ... and {len(rows) - MOST} more"] * (len(rows) > MOST))


def _runs(count: int, clients: pd.DataFrame) -> str:
    """As the clients' rows count them: runs that succeeded, and apart from them those that failed, or go on."""
    ok, failed = int(clients["runs"].sum()), int(clients["failed_runs"].sum())
    others = [f"{failed:,} more failed"] * bool(failed)
    others += [f"{count - ok - failed:,} more under way"] * (count > ok + failed)
    return _many(ok, "run") + (f" ({', '.join(others)})" if others else "")


def _nbytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _latency(micros: float) -> str:
    return text(micros * 1_000) if np.isfinite(micros) else ""
