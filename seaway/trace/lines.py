"""Charts with lines, of one trace or of several: shares of device time, fairness, latencies, how busy devices were.

Several traces are an `Overlay`, which has moved them to one axis of time. Then each trace has a style of line, which a
legend above the chart names. Neighbours: `fairness` and `busy` have the numbers; `overlay` and `trace` call this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from core.record import STARTED

from . import style, times
from .busy import By
from .charts import text_color
from .keys import keyed
from .overlay import Overlay
from .times import Ints

if TYPE_CHECKING:
    from .fairness import Whose
    from .trace import Trace

LINES = ("-", (0, (4, 1.6)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)))  # of the traces of an overlay
WIDTHS = (1.8, 1.5, 1.7, 1.3)
QUARTERS = (0, 0.25, 0.5, 0.75, 1)
MARKED = (0.5, 0.99)  # levels of latencies that are drawn
MOST_PANELS = 12
STAR = "*"
FAIRNESS = {"jain": ("Jain's index", style.BLUE), "max_min": ("worst share over best", style.ORANGE)}


def _traces(of: Trace | Overlay) -> Mapping[str, Trace]:
    return of.traces if isinstance(of, Overlay) else {"": of}


def _colors(of: Trace | Overlay, by: Whose, names: Sequence[str]) -> Mapping[str, str]:
    if isinstance(of, Overlay):
        return style.colors(names)
    keys = keyed(of.facts(), by)
    return dict(zip(keys.names, keys.colors, strict=True))


def _look(of: Trace | Overlay, at: int) -> dict[str, Any]:
    if not isinstance(of, Overlay):
        return {}
    return {"linestyle": LINES[at % len(LINES)], "linewidth": WIDTHS[at % len(WIDTHS)]}


def _middles(table: pd.DataFrame, scale: int) -> Any:
    return (table["time_us"] + table["bin_us"] / 2).to_numpy() * 1_000 / scale


# --- charts -------------------------------------------------------------------------------------------------


def shares(of: Trace | Overlay, edges: Ints, axes: Axes | None) -> Figure:
    """A line for each client and trace, with a thin level line for the share that the client asked for."""
    tables = [trace.shares(times.as_bins(edges)) for trace in _traces(of).values()]
    clients = pd.concat(tables).drop_duplicates("client").set_index("client")
    colors, several = _colors(of, "client", list(clients.index)), isinstance(of, Overlay)
    with style.applied():
        beside = axes is None or several  # in a figure of our own there is room right of the axes
        figure, axes = style.drawn_on(axes, 3.0 if several else 2.6)
        scale = style.time_axis(axes, *edges[[0, -1]])
        for at, table in enumerate(tables):
            for name, mine in table.groupby("client", sort=False, observed=True):
                got = mine["got_share"].to_numpy()
                axes.plot(_middles(mine, scale), got, color=colors[str(name)], **_look(of, at))
        labels = []
        for name, asked, weight in zip(clients.index, clients["asked_share"], clients["weight"], strict=True):
            axes.axhline(asked, color=style.pale(colors[name], 0.5), linewidth=0.8, zorder=1)
            labels.append((asked, f"{style.short(name)}  ({weight:.0f})", text_color(colors[name])))
        peak = np.nanmax([0.05, *clients["asked_share"], *pd.concat(tables)["got_share"]])
        style.percent(axes, top=min(1.02, 1.1 * float(peak)))
        axes.set_ylabel("share of device time\n(level: asked)")
        rows = 0
        if not beside:
            named = zip(clients.index, labels, strict=True)
            rows = style.rows_of_key(axes, [(text, colors[name]) for name, (_, text, _) in named])
        elif len(labels) <= len(style.COLORS):
            style.label_ends(axes, labels, edges[-1] / scale, gap=0.09)
        if isinstance(of, Overlay):
            style.title_above(axes, f"Shares of device time{_during(of, edges)}", 1)
            _tell_apart(of, axes, [style.INK] * len(tables), edges)
        else:
            style.title_above(axes, f"Shares in {times.text(int(edges[-1] - edges[0]))}", rows)
    return figure


def fairness(of: Trace | Overlay, edges: Ints, axes: Axes | None) -> Figure:
    """Jain's index of each trace; of a single one, the max-min ratio too. 100 % is fair."""
    several = isinstance(of, Overlay)
    with style.applied():
        figure, axes = style.drawn_on(axes, 2.5 if several else 2.3)
        scale = style.time_axis(axes, *edges[[0, -1]])
        colors = list(style.colors(list(_traces(of))).values())
        for at, trace in enumerate(_traces(of).values()):
            table = trace.fairness(times.as_bins(edges))
            for column, (_, color) in {"jain": ("", colors[at])}.items() if several else FAIRNESS.items():
                axes.plot(_middles(table, scale), table[column].to_numpy(), color=color, **_look(of, at))
        style.percent(axes, top=1.02)
        axes.grid(axis="y")
        axes.set_ylabel("Jain's index" if several else "fairness")
        if isinstance(of, Overlay):
            _tell_apart(of, axes, colors, edges)
        rows = 1 if several else style.rows_of_key(axes, FAIRNESS.values())
        style.title_above(axes, f"Fairness among competing clients{_during(of, edges)}", rows)
    return figure


def latencies(of: Trace | Overlay, tables: Sequence[pd.DataFrame], by: Whose, axes: Axes | None) -> Figure:
    """A curve for each client or program. Time is logarithmic if latencies differ by more than a factor of ten."""
    whole = pd.concat(tables)
    names = list(dict.fromkeys(map(str, whole[by])))
    colors = _colors(of, by, names)
    shortest, longest = (1_000 * float(each) if len(whole) else 1.0 for each in whole["latency_us"].agg(["min", "max"]))
    unit, scale = times.unit(longest)
    with style.applied():
        figure, axes = style.drawn_on(axes, *((2.8, 7.0) if isinstance(of, Overlay) else (2.5, 4.6)))
        for at, table in enumerate(tables):
            for name, mine in table.groupby(by, sort=False, observed=True):
                latency = np.append(0, mine["latency_us"].to_numpy() * 1_000 / scale)
                fraction = np.append(0, mine["fraction"].to_numpy())
                axes.step(latency, fraction, where="post", color=colors[str(name)], **_look(of, at))
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
        if isinstance(of, Overlay):
            rows = 1
            _legend(of, axes, [style.INK] * len(tables))
            ends = [(1 - 0.1 * at, name, colors[name]) for at, name in enumerate(names)]
            style.label_ends(axes, ends, axes.get_xlim()[1])
        else:
            rows = style.rows_of_key(axes, [(name, colors[name]) for name in names])
        style.title_above(axes, f"Latency of {len(whole):,} runs", rows)
    return figure


def utilization(overlay: Overlay, by: By, edges: Ints, axes: Axes | None) -> Figure:
    """How busy devices were, a line a trace; unless `by` is "total", in a panel for each key."""
    tables = {name: trace.utilization(by, times.as_bins(edges)) for name, trace in overlay.traces.items()}
    colors = list(style.colors(list(tables)).values())
    keys: list[object] = [""]
    with style.applied():
        if by == "total":
            figure, axes = style.drawn_on(axes, 2.5)
            panels = [axes]
        else:
            if axes is not None:
                raise ValueError(f'by={by!r} has a panel each; axes= takes one picture, by="total"')
            keys = list(dict.fromkeys(key for table in tables.values() for key in table[by].tolist()))
            if len(keys) > MOST_PANELS:
                raise ValueError(f"{len(keys):,} {by}s, but at most {MOST_PANELS} panels; take another `by`")
            figure = style.Picture("page", height=0.8 + 1.25 * max(1, len(keys)))
            found = figure.subplots(max(1, len(keys)), 1, sharex=True, sharey=True, squeeze=False)
            panels = found[:, 0].tolist()
        for key, panel in zip(keys, panels, strict=False):
            scale = style.time_axis(panel, *edges[[0, -1]])
            for at, table in enumerate(tables.values()):
                busy = (table if by == "total" else table[table[by] == key])["busy_fraction"].to_numpy()
                if len(busy):
                    steps = np.append(busy, busy[-1])
                    panel.step(edges / scale, steps, where="post", color=colors[at], **_look(overlay, at))
            style.percent(panel, top=1.03, ticks=QUARTERS)
            panel.grid(axis="y")
            named = f"{by} {key}" if isinstance(key, int) else str(key)
            panel.set_ylabel(style.short(named, 16) if named else "of all devices")
            panel.set_xlabel("")
        style.time_axis(panels[-1], *edges[[0, -1]])
        style.title_above(panels[0], f"Busy devices{_during(overlay, edges)}", 1)
        _tell_apart(overlay, panels[-1], colors, edges, panels[0])
    return figure


# --- several traces -----------------------------------------------------------------------------------------


def _during(of: Trace | Overlay, edges: Ints) -> str:
    """The window of a picture, in the time that its axis counts."""
    zero, (low, high) = of.zero if isinstance(of, Overlay) else 0, edges[[0, -1]].tolist()
    all_of_it = isinstance(of, Overlay) and (low, high) == of.contended
    return f", {times.text(low - zero)} to {times.text(high - zero)}" + ", while all clients competed" * all_of_it


def _tell_apart(overlay: Overlay, axes: Axes, colors: Sequence[str], edges: Ints, top: Axes | None = None) -> None:
    """Name the traces in a legend above `top`, and let the axis of time count from time 0."""
    _legend(overlay, top or axes, colors)
    count_from_zero(overlay, axes, *edges[[0, -1]].tolist())


def _legend(overlay: Overlay, axes: Axes, colors: Sequence[str]) -> None:
    names = called(overlay).values()
    looks = [{"color": color, **_look(overlay, at)} for at, color in enumerate(colors)]
    handles = [Line2D([], [], label=name, **look) for name, look in zip(names, looks, strict=True)]
    axes.legend(handles=handles, ncols=len(handles), handlelength=2.6, **style.ABOVE)


def count_from_zero(overlay: Overlay, axes: Axes, low: int, high: int) -> None:
    """Label an axis of the moved traces' times so that it counts from time 0, and say what that is, and the star."""
    unit, scale = times.unit(high - low)
    zero = overlay.zero / scale
    first, last = low / scale - zero, high / scale - zero
    ticks = MaxNLocator(9, steps=[1, 2, 2.5, 5, 10]).tick_values(first, last)
    axes.xaxis.set_major_locator(FixedLocator([tick + zero for tick in ticks if first <= tick <= last]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(value - zero, 6):g}"))
    about = f"\n{STAR} starts of gangs are inferred, not measured: devices were busy at most this much"
    starred = any(name.endswith(STAR) for name in called(overlay).values())
    axes.set_xlabel(f"{overlay.of} ({unit}){about * starred}")


def called(overlay: Overlay) -> dict[str, str]:
    """Names for legends, with a star if the trace does not have the starts of gangs."""
    found = {}
    for name, trace in overlay.traces.items():
        facts = trace.facts()
        found[name] = name + STAR * bool((facts.flags[facts.end >= 0] & STARTED > 0).any())
    return found
