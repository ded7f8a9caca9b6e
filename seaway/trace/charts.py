"""Charts of one trace: utilisation over time, and each client's share of device time, asked and got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from . import style, times
from .busy import By, busy_by_code, chosen, reserved_on
from .facts import Facts
from .times import Ints, Window

if TYPE_CHECKING:
    import pandas as pd

    from .times import Time
    from .trace import Trace

MOST_ROWS = 32  # more islands or hosts than this are drawn as percentiles


def _figure(axes: Axes | None, height: float, width: float = 7.0) -> tuple[Figure, Axes]:
    if axes is None:
        figure: Figure = style.Picture(width, height)
        return figure, figure.subplots()
    owner = axes.get_figure(root=True)
    assert owner is not None
    return owner, axes


def bins_for(gangs: int) -> int:
    """How many bins show a device with this many gangs.

    A bin must be a small part of a gang, or hold many gangs. In between, the picture would show an interference pattern
    of bins and gangs.
    """
    return 240 if gangs <= 80 else min(240, max(40, gangs // 20))


def bands(
    axes: Axes,
    facts: Facts,
    names: list[str],
    codes: Ints,
    colors: list[str],
    edges: Ints,
    whole: bool = False,
) -> list[float]:
    """Draw stacked bands: the part of all devices that each name had. Return the height of each band at the right end.

    `whole`: let the axis reach 100 % even if little is busy.
    """
    total = np.zeros((len(names), len(edges) - 1))
    for pick in chosen(facts, None):
        total += busy_by_code(facts, pick, edges, codes, len(names))
    part = total / (np.diff(edges) * max(len(facts.devices), 1))
    unit, scale = times.unit(int(edges[-1] - edges[0]))
    base = np.zeros(len(edges) - 1)
    middles = [0.0] * len(names)
    for code in sorted(range(len(names)), key=lambda each: colors[each] == style.OTHER):  # others on top
        color, top = colors[code], base + part[code]
        if part[code].any():
            axes.fill_between(
                edges / scale,
                np.append(base, base[-1]),
                np.append(top, top[-1]),
                step="post",
                color=color,
                linewidth=0,
            )
        tail = max(1, len(base) // 20)
        middles[code] = float((base[-tail:] + top[-tail:]).mean() / 2)
        base = top
    axes.set_facecolor(style.EMPTY)
    axes.set_xlim(edges[0] / scale, edges[-1] / scale)
    axes.set_xlabel(f"time ({unit})")
    peak = float(base.max(initial=0))
    style.percent(axes, top=1.0 if peak > 0.5 or whole or not peak else 1.25 * peak)
    return middles


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
            figure, axes = _figure(axes, 2.3)
            rows = _stacked(axes, facts, by, edges, beside)
            axes.set_ylabel("of all devices")
            style.title_above(axes, title, rows)
        else:
            frame = trace.utilization(by, edges.tolist())
            names = list(dict.fromkeys(frame[by])) if by != "total" else [""]
            many = len(names) > MOST_ROWS
            figure, axes = _figure(
                axes, 2.5 if many else 1.1 + (0.34 if len(names) <= 8 else 0.22) * max(len(names), 3)
            )
            _spread(axes, frame, edges, f"all {len(names):,} {by}s") if many else _ridges(
                axes, frame, edges, names, by
            )
            axes.set_title(title, pad=22)
        unit, scale = times.unit(int(edges[-1] - edges[0]))
        axes.set_xlim(edges[0] / scale, edges[-1] / scale)
        axes.set_xlabel(f"time ({unit})")
    return figure


def _stacked(axes: Axes, facts: Facts, by: By, edges: Ints, beside: bool) -> int:
    """Draw the bands, with names and shares beside them, or in a legend above where others' axes may be beside. Returns
    the rows of the legend."""
    from .timeline import keyed

    keys = keyed(facts, by)  # type: ignore[arg-type]
    middles = bands(axes, facts, keys.names, keys.codes, keys.colors, edges)
    kept = _reserved_band(axes, facts, edges)
    spent = np.zeros(len(keys.names))
    for pick in chosen(facts, None):
        spent += busy_by_code(facts, pick, edges[[0, -1]], keys.codes, len(keys.names))[:, 0]
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
    base, kept = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for pick in chosen(facts, None):
        base += busy_by_code(facts, pick, edges, np.zeros(len(facts.start), dtype=np.int64), 1)[0]
        kept += reserved_on(facts, pick, edges)[0]
    available = np.diff(edges) * max(len(facts.devices), 1)
    base, top = base / available, (base + kept) / available
    _, scale = times.unit(int(edges[-1] - edges[0]))
    axes.fill_between(
        edges / scale, np.append(base, base[-1]), np.append(top, top[-1]), step="post", **style.RESERVED
    )
    style.percent(axes, top=max(axes.get_ylim()[1], min(1.0, 1.1 * float(top.max(initial=0)))))
    tail = max(1, len(base) // 20)
    return float((base[-tail:] + top[-tail:]).mean() / 2)


def text_color(color: str) -> str:
    """The colour for text about this colour: yellow and orange are darkened to be legible on white."""
    return "#8A7F00" if color == style.YELLOW else "#B07900" if color == style.ORANGE else color


def _ridges(axes: Axes, frame: pd.DataFrame, edges: Ints, names: list[object], by: str) -> None:
    """Draw a row for each name: the busy part, and above it the parts that waited."""
    _, scale = times.unit(int(edges[-1] - edges[0]))
    parts = ("busy_fraction", "skew_fraction", "input_wait_fraction", "reserved_fraction")
    looks: tuple[dict[str, Any], ...] = (
        {"facecolor": style.BLUE},
        {
            "facecolor": style.pale(style.OTHER, 0.16),
            "edgecolor": style.pale(style.OTHER, 0.9),
            "hatch": "//////",
        },
        {"facecolor": style.pale(style.OTHER, 0.45)},
        style.RESERVED,
    )
    high = 0.84
    known = frame["skew_fraction"].notna().any()
    for row, name in enumerate(names):
        mine = frame if by == "total" else frame[frame[by] == name]
        base = np.full(len(edges), row + high / 2)
        axes.fill_between(edges / scale, base, base - high, color=style.EMPTY, linewidth=0)
        for part, look in zip(parts, looks, strict=True):
            values = mine[part].fillna(0).to_numpy()
            top = base - high * np.append(values, values[-1])
            if values.any():
                axes.fill_between(edges / scale, base, top, step="post", **{"linewidth": 0, **look})
            base = top
    told = ["all"] if by == "total" else [f"host {name}" if by == "host" else str(name) for name in names]
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
    style.key(axes, [("busy", style.BLUE)], [*waits, Patch(facecolor=style.EMPTY, label="idle")])


def _apart(axes: Axes, rows: int) -> int:
    """Every how many rows may have a label, in axes of this height, without touching the next label."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    high = 72 * figure.get_figheight() * axes.get_position().height
    if (
        len(figure.axes) > 1
    ):  # the layout, which comes later, takes room for titles, legends and labels between them
        high *= 0.45
    return max(1, -(-rows * style.LABEL_POINTS // max(1, int(high))))


def _spread(axes: Axes, frame: pd.DataFrame, edges: Ints, every: str) -> None:
    """Draw many rows as one: the median, and the ranges around it."""
    _, scale = times.unit(int(edges[-1] - edges[0]))
    table = frame["busy_fraction"].to_numpy().reshape(len(edges) - 1, -1)
    table = np.concatenate([table, table[-1:]])
    low, low_mid, median, high_mid, high = np.percentile(table, (0, 25, 50, 75, 100), axis=1)
    for bottom, top, part in ((low, high, 0.22), (low_mid, high_mid, 0.5)):
        axes.fill_between(
            edges / scale, bottom, top, step="post", color=style.pale(style.BLUE, part), linewidth=0
        )
    axes.step(edges / scale, median, where="post", color=style.BLUE, linewidth=1.2)
    style.percent(axes, top=1.03, ticks=(0, 0.25, 0.5, 0.75, 1))
    axes.grid(axis="y")
    axes.set_ylabel("busy")
    entries = [
        ("median", style.BLUE),
        ("middle half", _hex(style.BLUE, 0.5)),
        (every, _hex(style.BLUE, 0.22)),
    ]
    style.key(axes, entries)


def _hex(color: str, part: float) -> str:
    return "#" + "".join(f"{round(255 * each):02X}" for each in style.pale(color, part))


def shares(trace: Trace, window: Window, axes: Axes | None) -> Figure:
    """Draw a bar for the share each client got, with a line across it for the share it asked for."""
    from .timeline import keyed

    span = trace.contended if window is None else times.window_of(window, trace.span)
    table = trace.clients(span)
    count = len(table)
    colors = keyed(trace.facts(), "client").colors[:count]
    with style.applied():
        figure, axes = _figure(axes, 0.95 + 0.27 * max(count, 2), 4.6)
        rows = np.arange(count)
        got, asked = table["got_share"].to_numpy(), table["asked_share"].to_numpy()
        axes.barh(rows, got, height=0.62, color=colors)
        axes.vlines(asked, rows - 0.42, rows + 0.42, color=style.INK, linewidth=1.8, zorder=3)
        for row, (mine, wanted) in enumerate(zip(got.tolist(), asked.tolist(), strict=True)):
            axes.annotate(
                f"{mine:.1%}", (max(mine, wanted), row), xytext=(5, 0), textcoords="offset points", va="center",
                fontsize=8, annotation_clip=False,
            )  # fmt: skip
        labels = [
            f"{name}  ({weight})" for name, weight in zip(table["client"], table["weight"], strict=True)
        ]
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
