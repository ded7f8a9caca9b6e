"""Charts of one trace: utilisation over time, and each client's share of device time, asked and got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from . import style, times
from .busy import By, busy_by_code, chosen, reserved_on
from .facts import Facts
from .keys import Keys, keyed
from .times import Floats, Ints, Window

if TYPE_CHECKING:
    import pandas as pd

    from .times import Time
    from .trace import Trace

MOST_ROWS = 32  # more islands or hosts than this are drawn as percentiles


def bins_for(gangs: int) -> int:
    """How many bins show a device with this many gangs.

    A bin must be a small part of a gang, or hold many gangs. In between, the picture would show an interference pattern
    of bins and gangs.
    """
    return 240 if gangs <= 80 else min(240, max(40, gangs // 20))


def bands(axes: Axes, facts: Facts, keys: Keys, edges: Ints, whole: bool = False) -> list[float]:
    """Draw stacked bands: the part of all devices that each name had. Return the height of each band at the right end.

    `whole`: let the axis reach 100 % even if little is busy.
    """
    part = _spent(facts, keys, edges) / (np.diff(edges) * max(len(facts.devices), 1))
    scale = style.time_axis(axes, *edges[[0, -1]])
    base = np.zeros(len(edges) - 1)
    middles = [0.0] * len(keys.names)
    for code in sorted(range(len(middles)), key=lambda each: keys.colors[each] == style.OTHER):  # others on top
        top = base + part[code]
        if part[code].any():
            style.fill_bins(axes, edges / scale, base, top, color=keys.colors[code])
        middles[code] = _height(base, top)
        base = top
    axes.set_facecolor(style.EMPTY)
    peak = float(base.max(initial=0))
    style.percent(axes, top=1.0 if peak > 0.5 or whole or not peak else 1.25 * peak)
    return middles


def _height(base: Floats, top: Floats) -> float:
    """The middle of a band, at the right end."""
    tail = max(1, len(base) // 20)
    return float((base[-tail:] + top[-tail:]).mean() / 2)


def _spent(facts: Facts, keys: Keys, edges: Ints) -> Floats:
    """[name, bin]: device time."""
    found = np.zeros((len(keys.names), len(edges) - 1))
    for pick in chosen(facts, None):
        found += busy_by_code(facts, pick, edges, keys.codes, len(keys.names))
    return found


def utilization(trace: Trace, by: By, bins: int | Time | None, window: Window, axes: Axes | None) -> Figure:
    facts = trace.facts()
    span = times.window_of(window, facts.span)
    if bins is None:
        seen = (facts.start < span[1]) & (facts.end > span[0])
        bins = bins_for(max((int(seen[group.rows].sum()) for group in facts.groups), default=0))
    edges = times.edges_of(bins, span)
    title = f"{len(facts.devices):,} devices, {times.text(span[1] - span[0])}: {facts.shares_text(*span)}"
    with style.applied():
        if by in ("client", "program", "step"):
            beside = axes is None  # in a figure of our own there is room right of the axes
            figure, axes = style.drawn_on(axes, 2.3)
            rows = _stacked(axes, facts, by, edges, beside)
            axes.set_ylabel("of all devices")
            style.title_above(axes, title, rows)
        else:
            frame = trace.utilization(by, times.as_bins(edges))
            names = list(dict.fromkeys(frame[by])) if by != "total" else [""]
            many = len(names) > MOST_ROWS
            high = 2.5 if many else 1.1 + (0.34 if len(names) <= 8 else 0.22) * max(len(names), 3)
            figure, axes = style.drawn_on(axes, high)
            scale = style.time_axis(axes, *edges[[0, -1]])
            at, every = edges / scale, f"all {len(names):,} {by}s"
            rows = _spread(axes, frame, at, every) if many else _ridges(axes, frame, at, names, by)
            style.title_above(axes, title, rows)
    return figure


def _stacked(axes: Axes, facts: Facts, by: By, edges: Ints, beside: bool) -> int:
    """Draw the bands, with names and shares beside them, or in a legend above where others' axes may be beside. Returns
    the rows of the legend."""
    keys = keyed(facts, by)  # type: ignore[arg-type]
    middles = bands(axes, facts, keys, edges, whole=not beside)  # so that it compares with what others draw there
    kept = _reserved_band(axes, facts, edges)
    spent = _spent(facts, keys, edges[[0, -1]])[:, 0]
    share = spent / max(float(spent.sum()), 1.0)
    own = [code for code, color in enumerate(keys.colors) if color != style.OTHER and spent[code]]
    labels = [(middles[c], f"{keys.names[c]}  {share[c]:.1%}", text_color(keys.colors[c])) for c in own]
    grey = [code for code, color in enumerate(keys.colors) if color == style.OTHER and spent[code]]
    if grey:
        height = float(np.mean([middles[code] for code in grey]))
        labels.append((height, f"{len(grey)} others  {share[grey].sum():.1%}", style.QUIET))
    _, scale = times.unit(int(edges[-1] - edges[0]))
    if kept:
        labels.append((kept, "reserved", style.QUIET))
    if beside:
        style.label_ends(axes, labels, edges[-1] / scale, gap=0.1)
        return 0
    entries = [(f"{keys.names[c]}  {share[c]:.1%}", keys.colors[c]) for c in own]
    return style.rows_of_key(axes, entries + [(labels[-1][1], style.OTHER)] * bool(grey))


def _reserved_band(axes: Axes, facts: Facts, edges: Ints) -> float:
    """Draw what was reserved above what was busy. Return its height at the right end, or in the middle; 0: none."""
    if not len(facts.reservations["place"]):
        return 0.0
    base = _spent(facts, Keys([""], np.zeros(len(facts.start), dtype=np.int64), [""]), edges)[0]
    kept = sum(reserved_on(facts, pick, edges)[0] for pick in chosen(facts, None))
    available = np.diff(edges) * max(len(facts.devices), 1)
    base, top = base / available, (base + kept) / available
    _, scale = times.unit(int(edges[-1] - edges[0]))
    style.fill_bins(axes, edges / scale, base, top, **style.RESERVED)
    style.percent(axes, top=max(axes.get_ylim()[1], min(1.0, 1.1 * float(top.max(initial=0)))))
    return _height(base, top)


def text_color(color: str) -> str:
    """The colour for text about this colour: yellow and orange are darkened to be legible on white."""
    return "#8A7F00" if color == style.YELLOW else "#B07900" if color == style.ORANGE else color


def _ridges(axes: Axes, frame: pd.DataFrame, at: Floats, names: list[object], by: str) -> int:
    """Draw a row for each name: the busy part, and above it the parts that waited. `at`: edges of bins, on the axis.
    Returns the rows of the legend."""
    parts = ("busy_fraction", "skew_fraction", "input_wait_fraction", "reserved_fraction", "lost_fraction")
    looks: tuple[dict[str, Any], ...] = (
        {"facecolor": style.BLUE},
        style.waits(),
        {"facecolor": style.pale(style.OTHER, 0.45)},
        style.RESERVED,
        style.LOST,
    )
    high = 0.84
    known = frame["skew_fraction"].notna().any()
    for row, name in enumerate(names):
        mine = frame if by == "total" else frame[frame[by] == name]
        base = np.full(len(at) - 1, row + high / 2)
        style.fill_bins(axes, at, base, base - high, color=style.EMPTY)
        for part, look in zip(parts, looks, strict=True):
            values = mine[part].fillna(0).to_numpy()
            top = base - high * values
            if values.any():
                style.fill_bins(axes, at, base, top, **look)
            base = top
    told = ["all devices"] if by == "total" else [f"host {name}" if by == "host" else str(name) for name in names]
    if len(names) == 1:  # it has room for a scale
        parts_shown = (0, 0.25, 0.5, 0.75, 1)
        axes.set_yticks([high / 2 - high * part for part in parts_shown], [f"{part:.0%}" for part in parts_shown])
        axes.set_ylim(high / 2, -high / 2)
        axes.set_ylabel(told[0])
    else:
        step = _apart(axes, len(names))
        axes.set_yticks(range(0, len(names), step), told[::step])
        axes.set_ylim(len(names) - 0.45, -0.55)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    waits = [style.waiting()] if known and frame["skew_fraction"].max() > 0 else []
    if known and frame["input_wait_fraction"].max() > 0:
        waits.append(Patch(facecolor=style.pale(style.OTHER, 0.45), label="waits for inputs"))
    if frame["reserved_fraction"].max() > 0:
        waits.append(Patch(**style.RESERVED, label="reserved"))
    if frame["lost_fraction"].max() > 0:
        waits.append(Patch(**style.LOST, label="lost"))
    return style.rows_of_key(axes, [("busy", style.BLUE)], [*waits, Patch(facecolor=style.EMPTY, label="idle")])


def _apart(axes: Axes, rows: int) -> int:
    """Every how many rows may have a label, in axes of this height, without touching the next label."""
    figure = style.figure_of(axes)
    high = 72 * figure.get_figheight() * axes.get_position().height
    # Between several axes, the layout, which comes later, takes room for titles, legends and labels.
    high *= 0.45 if len(figure.axes) > 1 else 1.0
    return max(1, -(-rows * style.LABEL_POINTS // max(1, int(high))))


def _spread(axes: Axes, frame: pd.DataFrame, at: Floats, every: str) -> int:
    """Draw many rows as one: the median, and the ranges around it. Returns the rows of the legend."""
    table = frame["busy_fraction"].to_numpy().reshape(len(at) - 1, -1)
    low, low_mid, median, high_mid, high = np.percentile(table, (0, 25, 50, 75, 100), axis=1)
    shades = [to_hex(style.pale(style.BLUE, part)).upper() for part in (0.22, 0.5)]
    style.fill_bins(axes, at, low, high, color=shades[0])
    style.fill_bins(axes, at, low_mid, high_mid, color=shades[1])
    axes.step(at, np.append(median, median[-1]), where="post", color=style.BLUE, linewidth=1.2)
    style.percent(axes, top=1.03, ticks=(0, 0.25, 0.5, 0.75, 1))
    axes.grid(axis="y")
    axes.set_ylabel("busy")
    return style.rows_of_key(axes, [("median", style.BLUE), ("middle half", shades[1]), (every, shades[0])])


def shares(trace: Trace, window: Window, axes: Axes | None) -> Figure:
    """Draw a bar for the share each client got, with a line across it for the share it asked for."""
    span = trace.contended if window is None else times.window_of(window, trace.span)
    table = trace.clients(span)
    count = len(table)
    colors = keyed(trace.facts(), "client").colors[:count]
    with style.applied():
        figure, axes = style.drawn_on(axes, 0.95 + 0.27 * max(count, 2), 4.6)
        rows = np.arange(count)
        got, asked = table["got_share"].to_numpy(), table["asked_share"].to_numpy()
        axes.barh(rows, got, height=0.62, color=colors)
        axes.vlines(asked, rows - 0.42, rows + 0.42, color=style.INK, linewidth=1.8, zorder=3)
        for row, (mine, wanted) in enumerate(zip(got.tolist(), asked.tolist(), strict=True)):
            axes.annotate(
                f"{mine:.1%}", (max(mine, wanted), row), xytext=(5, 0), textcoords="offset points", va="center",
                fontsize=8, annotation_clip=False,
            )  # fmt: skip
        labels = [f"{name}  ({weight})" for name, weight in zip(table["client"], table["weight"], strict=True)]
        axes.set_yticks(rows, labels)
        axes.set_ylim(count - 0.4, -0.6)
        style.percent(axes, "x", top=max(0.05, 1.16 * float(max(got.max(initial=0), asked.max(initial=0)))))
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("share of device time: bar got, line asked")
        axes.set_ylabel("client (weight)")
        part = " of " + times.text(trace.span[1] - trace.span[0]) if span != trace.span else ""
        axes.set_title(f"Shares in {times.text(span[1] - span[0])}{part}")
    return figure
