"""Pictures of several traces at once, for `Overlay`, which has moved the traces to one axis of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from core.record import STARTED

from . import curves, style, timeline, times
from .busy import By
from .charts import _figure
from .times import Ints, Window

if TYPE_CHECKING:
    import pandas as pd

    from .overlay import Overlay
    from .timeline import ColorBy
    from .trace import Trace

LINES = ("-", (0, (4, 1.6)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)))
WIDTHS = (1.8, 1.5, 1.7, 1.3)
MOST_PANELS = 12
STAR = "*"


# --- timelines ----------------------------------------------------------------------------------------------


def timelines(overlay: Overlay, window: Window, rows: int, color: ColorBy) -> Figure:
    edges = overlay.edges(1, window, _legible(overlay))
    span = int(edges[0]), int(edges[-1])
    by = _first_that_differs(overlay) if color == "auto" else color
    names = _names(overlay, by)
    traces = list(zip(_called(overlay).values(), overlay.traces.values(), strict=True))
    heights = [min(rows, len(trace.facts().devices)) for _, trace in traces]
    with style.applied():
        figure = style.Picture("page", height=0.4 + sum(0.85 + 0.15 * max(each, 3) for each in heights))
        panels = figure.subplots(len(traces), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for (name, trace), axes in zip(traces, panels.tolist(), strict=True):
            sample = trace.sample(rows)
            timeline.draw(trace, span, sample, rows, by, _title(name, trace, span), axes, style.colors(names))
        for axes in panels[:-1].tolist():
            axes.set_xlabel("")
        _count_from(panels[-1], overlay.zero, span)
        _say(overlay, panels[-1])
    return figure


def _legible(overlay: Overlay) -> tuple[int, int]:
    """A window from time 0 on that is short enough for bars to be told apart."""
    longest = 1
    for trace in overlay.traces.values():
        low, high = timeline.legible(trace.facts())
        longest = max(longest, high - low)
    return overlay.zero, min(overlay.zero + longest, overlay.span[1])


def _first_that_differs(overlay: Overlay) -> ColorBy:
    for by in ("client", "program"):
        if len(_names(overlay, by)) > 1:
            return by
    return "step"


def _names(overlay: Overlay, by: ColorBy) -> list[str]:
    """Names with gangs in any trace, in order; if there are more than colours, those with most time come first."""
    spent: dict[str, int] = {}
    for trace in overlay.traces.values():
        facts = trace.facts()
        keys = timeline.keyed(facts, by)
        each = np.bincount(keys.codes, weights=facts.spent(), minlength=len(keys.names))
        for name, mine in zip(keys.names, each.tolist(), strict=True):
            spent[name] = spent.get(name, 0) + int(mine)
    names = [name for name in spent if spent[name]]
    if len(names) > timeline.MOST:
        names.sort(key=lambda name: -spent[name])
    return names


def _title(name: str, trace: Trace, span: tuple[int, int]) -> str:
    busy = float(trace.utilization("total", window=span)["busy_fraction"].iloc[0])
    return f"{name}: {busy:.1%} of {len(trace.facts().devices):,} devices busy"


# --- lines --------------------------------------------------------------------------------------------------


def utilization(overlay: Overlay, by: By, edges: Ints, axes: Axes | None) -> Figure:
    frames = {name: trace.utilization(by, edges.tolist()) for name, trace in overlay.traces.items()}
    with style.applied():
        if by == "total":
            figure, axes = _figure(axes, 2.5)
            _busy(axes, frames, edges)
            panels = [axes]
        else:
            if axes is not None:
                raise ValueError(f'by={by!r} has a panel each; axes= takes one picture, by="total"')
            keys = list(dict.fromkeys(key for frame in frames.values() for key in frame[by].tolist()))
            if len(keys) > MOST_PANELS:
                raise ValueError(f"{len(keys):,} {by}s, but at most {MOST_PANELS} panels; take another `by`")
            figure = style.Picture("page", height=0.8 + 1.25 * max(1, len(keys)))
            found = figure.subplots(max(1, len(keys)), 1, sharex=True, sharey=True, squeeze=False)
            panels = found[:, 0].tolist()
            for key, panel in zip(keys, panels, strict=False):
                _busy(panel, {name: frame[frame[by] == key] for name, frame in frames.items()}, edges)
                panel.set_ylabel(style.short(f"{by} {key}" if isinstance(key, int) else str(key), 16))
            for panel in panels[:-1]:
                panel.set_xlabel("")
        for panel in panels:
            panel.set_xlim(edges[0] / _scale(edges), edges[-1] / _scale(edges))
        panels[-1].set_xlabel(f"time ({times.unit(int(edges[-1] - edges[0]))[0]})")
        colors = style.colors(list(frames)).values()
        _legend(panels[0], overlay, [{"color": color, **_look(at)} for at, color in enumerate(colors)])
        _count_from(panels[-1], overlay.zero, (int(edges[0]), int(edges[-1])))
        _say(overlay, panels[-1])
    return figure


def _busy(axes: Axes, frames: dict[str, pd.DataFrame], edges: Ints) -> None:
    scale = _scale(edges)
    for at, (name, color) in enumerate(style.colors(list(frames)).items()):
        busy = frames[name]["busy_fraction"].to_numpy()
        if len(busy):
            axes.step(
                edges / scale, np.append(busy, busy[-1]), where="post", color=color, **_look(at)
            )  # fmt: skip
    style.percent(axes, top=1.03, ticks=(0, 0.25, 0.5, 0.75, 1))
    axes.grid(axis="y")
    axes.set_ylabel("of all devices")


def shares(overlay: Overlay, edges: Ints, axes: Axes | None) -> Figure:
    tables = {name: trace.shares(edges.tolist()) for name, trace in overlay.traces.items()}
    names = list(dict.fromkeys(name for table in tables.values() for name in table["client"]))
    colors = style.colors(names)
    with style.applied():
        figure, axes = _figure(axes, 3.0)
        for at, table in enumerate(tables.values()):
            curves.lines(axes, table, colors, _look(at))
        curves.furnish(axes, max(tables.values(), key=lambda table: table["client"].nunique()), colors, edges)
        peak = max((float(table["got_share"].max()) for table in tables.values()), default=0.0)
        style.percent(axes, top=min(1.02, 1.1 * (peak if math.isfinite(peak) and peak else 1.0)))
        _legend(axes, overlay, [{"color": style.INK, **_look(at)} for at in range(len(tables))])
        style.title_above(axes, f"Shares of device time{_during(overlay, edges)}", 1)
        _count_from(axes, overlay.zero, (int(edges[0]), int(edges[-1])))
        _say(overlay, axes)
    return figure


def fairness(overlay: Overlay, edges: Ints, axes: Axes | None) -> Figure:
    scale = _scale(edges)
    middles = (edges[:-1] + edges[1:]) / 2 / scale
    with style.applied():
        figure, axes = _figure(axes, 2.5)
        colors = list(style.colors(list(overlay.traces)).values())
        for at, trace in enumerate(overlay.traces.values()):
            jain = trace.fairness(edges.tolist())["jain"].to_numpy()
            axes.plot(middles, jain, color=colors[at], **_look(at))
        style.percent(axes, top=1.02)
        axes.grid(axis="y")
        axes.set_ylabel("Jain's index")
        axes.set_xlabel(f"time ({times.unit(int(edges[-1] - edges[0]))[0]})")
        axes.set_xlim(edges[0] / scale, edges[-1] / scale)
        _legend(axes, overlay, [{"color": color, **_look(at)} for at, color in enumerate(colors)])
        style.title_above(axes, f"Fairness among competing clients{_during(overlay, edges)}", 1)
        _count_from(axes, overlay.zero, (int(edges[0]), int(edges[-1])))
        _say(overlay, axes)
    return figure


def latencies(overlay: Overlay, table: pd.DataFrame, by: str, axes: Axes | None) -> Figure:
    names = list(dict.fromkeys(map(str, table[by])))
    colors = style.colors(names)
    with style.applied():
        figure, axes = _figure(axes, 2.8)
        unit, scale = times.unit(1_000 * float(table["latency_us"].max()) if len(table) else 1)
        for at, trace in enumerate(overlay.traces):
            for name in names:
                mine = table[(table["trace"] == trace) & (table[by] == name)]
                latency = mine["latency_us"].to_numpy() * 1_000 / scale
                axes.step(latency, mine["fraction"].to_numpy(), where="post", color=colors[name], **_look(at))
        axes.set_xlim(left=0)
        style.percent(axes, top=1.02, ticks=(0, 0.25, 0.5, 0.75, 1))
        axes.grid(axis="y")
        axes.set_ylabel(f"of a {by}'s runs")
        axes.set_xlabel(f"latency of a run ({unit})")
        _legend(axes, overlay, [{"color": style.INK, **_look(at)} for at in range(len(overlay.traces))])
        style.label_ends(
            axes, [(1 - 0.1 * at, name, colors[name]) for at, name in enumerate(names)], axes.get_xlim()[1]
        )
    return figure


def _during(overlay: Overlay, edges: Ints) -> str:
    """The window of a picture, in the time that its axis counts."""
    low, high = (times.text(int(edge) - overlay.zero) for edge in (edges[0], edges[-1]))
    return f", {low} to {high}" + ", while all clients competed" * (
        (edges[0], edges[-1]) == overlay.contended
    )


# --- axes ---------------------------------------------------------------------------------------------------


def _scale(edges: Ints) -> int:
    return times.unit(int(edges[-1] - edges[0]))[1]


def _look(at: int) -> dict[str, Any]:
    return {"linestyle": LINES[at % len(LINES)], "linewidth": WIDTHS[at % len(WIDTHS)]}


def _legend(axes: Axes, overlay: Overlay, looks: Sequence[dict[str, Any]]) -> None:
    handles = [
        Line2D([], [], label=name, **look)
        for name, look in zip(_called(overlay).values(), looks, strict=True)
    ]
    axes.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(handles), handlelength=2.6,
        borderaxespad=0.25, borderpad=0.2,
    )  # fmt: skip


def _count_from(axes: Axes, zero: int, span: tuple[int, int]) -> None:
    """Label an axis of the moved traces' times so that it counts from time 0."""
    _, scale = times.unit(span[1] - span[0])
    low, high = ((each - zero) / scale for each in span)
    ticks = [
        tick
        for tick in MaxNLocator(9, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        if low <= tick <= high
    ]
    axes.xaxis.set_major_locator(FixedLocator([tick + zero / scale for tick in ticks]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(value - zero / scale, 6):g}"))


def _say(overlay: Overlay, axes: Axes) -> None:
    """Say below the axis what time 0 is, and what the star means."""
    unit = axes.get_xlabel().removeprefix("time ")
    lines = [f"{overlay.of} {unit}"]
    if any(called.endswith(STAR) for called in _called(overlay).values()):
        lines.append(
            f"{STAR} starts of gangs are inferred, not measured: devices were busy at most this much"
        )
    axes.set_xlabel("\n".join(lines))


def _called(overlay: Overlay) -> dict[str, str]:
    """Names for legends, with a star if the trace does not have the starts of gangs."""
    found = {}
    for name, trace in overlay.traces.items():
        facts = trace.facts()
        worked_out = (facts.flags[facts.end >= 0] & STARTED > 0).any()
        found[name] = name + STAR * bool(worked_out)
    return found
