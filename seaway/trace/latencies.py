"""Latency of runs as a distribution: one curve for each client or program, as a frame and as a chart.

Neighbours: `frames` has a row for each run. The functions that matter: `frame`, `draw`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import frames, style, times
from .charts import _figure
from .facts import Facts

if TYPE_CHECKING:
    from .trace import Trace

Whose = Literal["client", "program"]
MARKED = (0.5, 0.99)  # levels that the chart draws


def frame(facts: Facts, by: Whose, window: tuple[int, int] | None) -> pd.DataFrame:
    """One row a run that succeeded: its latency, and the fraction of its client's runs that took no longer."""
    runs = frames.runs(facts, None)
    runs = runs[runs["ok"]]
    if window is not None:
        over = runs["ended_us"] * 1_000
        runs = runs[(over >= window[0]) & (over < window[1])]
    table = runs[[by, "latency_us"]].sort_values([by, "latency_us"], kind="stable", ignore_index=True)
    groups = table.groupby(by, sort=False, observed=True)
    table["fraction"] = (groups.cumcount() + 1) / groups["latency_us"].transform("size")
    # the last of several runs with one latency has the fraction
    table["fraction"] = table.groupby([by, "latency_us"], sort=False, observed=True)["fraction"].transform(
        "max"
    )
    return table


def draw(trace: Trace, by: Whose, window: tuple[int, int] | None, axes: Axes | None) -> Figure:
    """A curve for each client or program. Time is logarithmic if latencies differ by more than a factor of ten."""
    from .timeline import keyed

    facts = trace.facts()
    table = frame(facts, by, window)
    keys = keyed(facts, by)
    colors = dict(zip(keys.names, keys.colors, strict=True))
    longest = float(table["latency_us"].max()) * 1_000 if len(table) else 1.0
    shortest = float(table["latency_us"].min()) * 1_000 if len(table) else 1.0
    unit, scale = times.unit(longest)
    with style.applied():
        figure, axes = _figure(axes, 2.5, 4.6)
        entries = []
        for name, mine in table.groupby(by, sort=False, observed=True):
            color = colors.get(str(name), style.OTHER)
            latency = np.append(0, mine["latency_us"].to_numpy() * 1_000 / scale)
            axes.step(latency, np.append(0, mine["fraction"].to_numpy()), where="post", color=color)
            entries.append((str(name), color))
        if longest > 10 * shortest > 0:
            axes.set_xscale("log")
            axes.set_xlim(left=shortest / scale / 1.2)
        else:
            axes.set_xlim(left=0)
        for level in MARKED:
            axes.axhline(level, color=style.FAINT, linewidth=0.8, zorder=0)
        rows = style.rows_of_key(axes, entries)
        style.percent(axes, top=1.02, ticks=(0, 0.25, *MARKED))
        axes.set_xlabel(f"latency of a run ({unit})")
        axes.set_ylabel(f"of a {by}'s runs")
        style.title_above(axes, f"Latency of {len(table):,} runs", rows)
    return figure
