"""Each client's share of device time over time, beside the share it asked for: as a frame and as a chart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import style, times
from .busy import busy_by_code, chosen, coded
from .charts import _figure, text_color
from .facts import Facts, texts
from .times import Ints

if TYPE_CHECKING:
    from .trace import Trace

Look = Mapping[str, Any]


def frame(facts: Facts, edges: Ints) -> pd.DataFrame:
    """One row a bin and client."""
    count = len(facts.client_names)
    _, codes = coded(facts, "client")  # gangs without a client have the code after the last client's
    spent = np.zeros((count, len(edges) - 1))
    for pick in chosen(facts, None):
        spent += busy_by_code(facts, pick, edges, codes, count + 1)[:count]
    whole = spent.sum(axis=0)
    weights = facts.clients["weight"].astype(np.int64)
    bins = len(edges) - 1
    return pd.DataFrame(
        {
            "time_us": np.repeat(times.micros(edges[:-1]), count),
            "bin_us": np.repeat(np.diff(edges) / 1_000, count),
            "client": texts(np.tile(np.array(facts.client_names, dtype=object), bins)),
            "weight": np.tile(weights, bins),
            "asked_share": np.tile(weights / max(int(weights.sum()), 1), bins),
            "got_share": np.divide(spent, whole, out=np.full_like(spent, np.nan), where=whole > 0).T.ravel(),
            "device_us": spent.T.ravel() / 1_000,
        }
    )


def shares(trace: Trace, edges: Ints, axes: Axes | None) -> Figure:
    """Draw a line for each client, with a thin level line for the share it asked for."""
    from .timeline import keyed

    table = trace.shares(edges.tolist())
    keys = keyed(trace.facts(), "client")
    colors = dict(zip(keys.names, keys.colors, strict=True))
    with style.applied():
        beside = axes is None  # in a figure of our own there is room right of the axes
        figure, axes = _figure(axes, 2.6)
        lines(axes, table, colors, {})
        rows = furnish(axes, table, colors, edges, beside)
        style.title_above(axes, f"Shares in {times.text(int(edges[-1] - edges[0]))}", rows)
    return figure


def lines(axes: Axes, table: pd.DataFrame, colors: Mapping[str, str], look: Look) -> None:
    """Draw the shares got, at the middles of bins. `look`: matplotlib's options of a line."""
    _, scale = times.unit(_length(table))
    for name, mine in table.groupby("client", sort=False, observed=True):
        middle = (mine["time_us"] + mine["bin_us"] / 2).to_numpy() * 1_000 / scale
        axes.plot(middle, mine["got_share"].to_numpy(), color=colors[str(name)], **look)


def furnish(
    axes: Axes, table: pd.DataFrame, colors: Mapping[str, str], edges: Ints, beside: bool = True
) -> int:
    """Draw the shares asked for, the clients' names (beside the axes, or above them), and the axes. Returns the rows of
    the legend above."""
    unit, scale = times.unit(_length(table))
    asked = table.drop_duplicates("client").set_index("client")[["asked_share", "weight"]]
    labels = []
    for name, (share, weight) in zip(asked.index, asked.to_numpy().tolist(), strict=True):
        color = colors[str(name)]
        axes.axhline(share, color=style.pale(color, 0.5), linewidth=0.8, zorder=1)
        labels.append((share, f"{style.short(str(name))}  ({weight:.0f})", text_color(color)))
    peak = float(np.nanmax([*table["got_share"], *asked["asked_share"], 0.05]))
    style.percent(axes, top=min(1.02, 1.1 * peak))
    axes.set_xlim(edges[0] / scale, edges[-1] / scale)
    axes.set_xlabel(f"time ({unit})")
    axes.set_ylabel("share of device time\n(level: asked)")
    if not beside:
        named = zip(asked.index, labels, strict=True)
        return style.rows_of_key(axes, [(text, colors[str(name)]) for name, (_, text, _) in named])
    if len(labels) <= len(style.COLORS):
        style.label_ends(axes, labels, edges[-1] / scale, gap=0.09)
    return 0


def _length(table: pd.DataFrame) -> int:
    ends = table["time_us"] + table["bin_us"]
    return round(1_000 * float(ends.max() - table["time_us"].min())) if len(table) else 1
