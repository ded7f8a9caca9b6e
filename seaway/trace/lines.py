"""Charts with lines, of one trace: shares of device time over time, fairness, and latencies.

Neighbours: `fairness` has the numbers; `trace` calls this; `charts` has the pictures with areas and bars.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import style, times
from .charts import text_color
from .keys import keyed
from .times import Ints

if TYPE_CHECKING:
    from .fairness import Whose
    from .trace import Trace

MARKED = (0.5, 0.99)  # levels of latencies that are drawn
FAIRNESS = {"jain": ("Jain's index", style.BLUE), "max_min": ("worst share over best", style.ORANGE)}


def shares(trace: Trace, edges: Ints, axes: Axes | None) -> Figure:
    """A line for each client, with a thin level line for the share that the client asked for."""
    table = trace.shares(times.as_bins(edges))
    clients = table.drop_duplicates("client").set_index("client")
    colors = _colors(trace, "client")
    with style.applied():
        beside = axes is None  # in a figure of our own there is room right of the axes
        figure, axes = style.drawn_on(axes, 2.6)
        scale = style.time_axis(axes, *edges[[0, -1]])
        for name, mine in table.groupby("client", sort=False, observed=True):
            axes.plot(_middles(mine, scale), mine["got_share"].to_numpy(), color=colors[str(name)])
        labels = []
        for name, asked, weight in zip(clients.index, clients["asked_share"], clients["weight"], strict=True):
            axes.axhline(asked, color=style.pale(colors[name], 0.5), linewidth=0.8, zorder=1)
            labels.append((asked, f"{style.short(name)}  ({weight:.0f})", text_color(colors[name])))
        peak = np.nanmax([0.05, *clients["asked_share"], *table["got_share"]])
        style.percent(axes, top=min(1.02, 1.1 * float(peak)))
        axes.set_ylabel("share of device time\n(level: asked)")
        rows = 0
        if not beside:
            named = zip(clients.index, labels, strict=True)
            rows = style.rows_of_key(axes, [(text, colors[name]) for name, (_, text, _) in named])
        elif len(labels) <= len(style.COLORS):
            style.label_ends(axes, labels, edges[-1] / scale, gap=0.09)
        style.title_above(axes, f"Shares in {times.text(int(edges[-1] - edges[0]))}", rows)
    return figure


def fairness(trace: Trace, edges: Ints, axes: Axes | None) -> Figure:
    """Jain's index and the max-min ratio. 100 % is fair."""
    table = trace.fairness(times.as_bins(edges))
    with style.applied():
        figure, axes = style.drawn_on(axes, 2.3)
        scale = style.time_axis(axes, *edges[[0, -1]])
        for column, (_, color) in FAIRNESS.items():
            axes.plot(_middles(table, scale), table[column].to_numpy(), color=color)
        style.percent(axes, top=1.02)
        axes.grid(axis="y")
        axes.set_ylabel("fairness")
        low, high = (times.text(each) for each in edges[[0, -1]].tolist())
        rows = style.rows_of_key(axes, FAIRNESS.values())
        style.title_above(axes, f"Fairness among competing clients, {low} to {high}", rows)
    return figure


def latencies(trace: Trace, table: pd.DataFrame, by: Whose, axes: Axes | None) -> Figure:
    """A curve for each client or program. Time is logarithmic if latencies differ by more than a factor of ten."""
    names = list(dict.fromkeys(map(str, table[by])))
    colors = _colors(trace, by)
    shortest, longest = (1_000 * float(each) if len(table) else 1.0 for each in table["latency_us"].agg(["min", "max"]))
    unit, scale = times.unit(longest)
    with style.applied():
        figure, axes = style.drawn_on(axes, 2.5, 4.6)
        for name, mine in table.groupby(by, sort=False, observed=True):
            latency = np.append(0, mine["latency_us"].to_numpy() * 1_000 / scale)
            fraction = np.append(0, mine["fraction"].to_numpy())
            axes.step(latency, fraction, where="post", color=colors[str(name)])
        if longest > 10 * shortest > 0:
            axes.set_xscale("log")
            axes.set_xlim(left=shortest / scale / 1.2)
        else:
            axes.set_xlim(left=0)
        for level in MARKED:
            axes.axhline(level, color=style.FAINT, linewidth=0.8, zorder=0)
        style.percent(axes, top=1.02, ticks=(0, 0.25, *MARKED))
        axes.set_xlabel(f"latency of a run ({unit})")
        axes.set_ylabel(f"of a {by}'s runs")
        rows = style.rows_of_key(axes, [(name, colors[name]) for name in names])
        style.title_above(axes, f"Latency of {len(table):,} runs", rows)
    return figure


def _colors(trace: Trace, by: Whose) -> dict[str, str]:
    keys = keyed(trace.facts(), by)
    return dict(zip(keys.names, keys.colors, strict=True))


def _middles(table: pd.DataFrame, scale: int) -> Any:
    return (table["time_us"] + table["bin_us"] / 2).to_numpy() * 1_000 / scale
