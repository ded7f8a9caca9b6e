"""Draws timelines: one row a device, one bar a gang, as in the paper's figures 9 and 11.

If there are thousands of devices, only some are drawn, and the axis says how many there are. Where gangs are too many
for bars to be told apart, a row shows bins instead, each divided among the names that used it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Patch

from . import style, times
from .busy import Chosen, busy_of_each_host, chosen, kept_times
from .charts import bands, bins_for
from .facts import Facts, spread
from .intervals import Expanded, expanded
from .keys import ColorBy, Keys, keyed
from .times import Bools, Floats, Ints, Window

if TYPE_CHECKING:
    from .trace import Trace

WHOLE = 160  # gangs of a device that can be told apart; a trace with more is shown in part
PART = 50  # gangs shown of such a trace ...
BAR = 140  # ... but no more than this many median gang lengths of time, for traces with long gaps ...
LEAST = 10  # ... and at least this many gangs
BARS = 420  # with more gangs in a given window, a row shows bins instead of bars
MOST_ROWS = 200
HALF = 0.41  # half a bar's height, as a part of a row's
WORTH_SAYING = 0.004  # part of the time from which a kind of wait appears in the legend


def draw(
    trace: Trace, window: Window, devices: Ints | None, rows: int, color: ColorBy, title: str | None,
    axes: Axes | None,
) -> Figure:  # fmt: skip
    facts = trace.facts()
    sample = spread(facts, rows) if devices is None else devices
    if len(sample) > MOST_ROWS:
        raise ValueError(f"{len(sample):,} rows cannot be told apart; leave out devices=, and {rows} are sampled")
    span = legible(facts) if window is None else times.window_of(window, facts.span)
    keys = keyed(facts, color)
    with style.applied():
        above = axes
        if axes is None:
            part = span[1] - span[0] < 0.8 * (facts.span[1] - facts.span[0])
            height = 1.0 + 0.17 * max(len(sample), 7)
            figure: Figure = style.Picture("page", height + (0.75 if part else 0))
            if part:
                above, axes = figure.subplots(2, 1, gridspec_kw={"height_ratios": [0.36, height - 1.0]})
                _strip(above, axes, facts, keys, span)
            else:
                above = axes = figure.subplots()
            figure.suptitle(title or _title(trace, span), x=0.008, ha="left", fontsize=9.5, fontweight="bold")
        elif title:
            axes.set_title(title, pad=22)
        seen, waits = _rows(axes, facts, keys, sample, span)
        _key(above or axes, keys, _shares(facts, keys, span), seen, waits)
    return style.figure_of(axes)


# --- what is shown ------------------------------------------------------------------------------------------


def legible(facts: Facts) -> tuple[int, int]:
    """The window to show: the whole trace; or, if it is long, the gangs in its middle, by its busiest devices."""
    group = max(facts.groups, key=lambda each: len(each.rows), default=None)
    if group is None or len(group.rows) <= WHOLE:
        return facts.span
    length = BAR * float(np.median(facts.end[group.rows] - facts.start[group.rows]))
    middle = group.rows[(len(group.rows) - PART) // 2 :][:PART]
    seen = max(LEAST, int((facts.start[middle] < facts.start[middle[0]] + length).sum()))
    return int(facts.start[middle[0]]), int(facts.end[middle[:seen]].max())


def _title(trace: Trace, span: tuple[int, int]) -> str:
    low, high = trace.span
    facts = trace.facts()
    whole = "" if span == (low, high) else f" of {times.text(high - low)}"
    shown = f"{times.text(span[1] - span[0])}{whole}"
    return f"{len(facts.devices):,} devices, {shown}: {facts.shares_text(*span)}"


def _shares(facts: Facts, keys: Keys, span: tuple[int, int]) -> Floats:
    """Each name's part of the devices' busy time in the window."""
    each = np.bincount(keys.codes, weights=facts.spent(*span), minlength=len(keys.names))
    return np.asarray(each / max(float(each.sum()), 1.0))


# --- how ----------------------------------------------------------------------------------------------------


def _rows(axes: Axes, facts: Facts, keys: Keys, sample: Ints, span: tuple[int, int]) -> tuple[set[int], Bools]:
    """Draw the rows. Returns the codes seen, and whether waits for peers, waits for inputs, and reserved devices are
    worth a legend entry."""
    unit, scale = times.unit(span[1] - span[0])
    place = {device: row for row, device in enumerate(sample.tolist())}
    seen: set[int] = set()
    waited = np.zeros(2)
    binned, kept = None, False
    for pick in chosen(facts, sample):
        rows = pick.group.rows
        which = np.flatnonzero((facts.start[rows] < span[1]) & (facts.end[rows] > span[0]))
        # The next gang starts later, but its devices may already wait for it.
        which = np.union1d(which, which[-1:] + 1)
        which = which[which < len(rows)]
        seen.update(np.unique(keys.codes[rows[which]]).tolist())
        kept |= _kept(axes, facts, pick, place, span, scale)
        if len(which) > BARS:
            binned = times.edges_of(bins_for(len(which)), span)
            _bins(axes, facts, keys, pick, place, binned, scale)
        else:
            waited += _bars(axes, keys, expanded(facts, pick, which), place, span, scale)
    _furnish(axes, facts, sample, span)
    if binned is not None:
        each = times.text(binned[1] - binned[0])
        axes.set_xlabel(f"time ({unit}); each step {each}, divided among its users")
    waits = waited / max(1, (span[1] - span[0]) * len(sample)) > WORTH_SAYING
    return seen, np.append(waits, kept)


def _bars(axes: Axes, keys: Keys, each: Expanded, place: dict[int, int], span: tuple[int, int], scale: int) -> Floats:
    """Draw bars and waits. Returns the device time of waits for peers and for inputs."""
    _, device, _, taken, last, start, end = each
    y = np.array([place[number] for number in device.tolist()], dtype=np.float64)
    codes = keys.codes[each.gang]
    wide = np.median(end - start) / (span[1] - span[0]) > 1 / 150 if len(start) else False
    known = (taken >= 0) & (last > taken)
    starved = (last >= 0) & (start > last)
    for code in np.unique(codes).tolist():
        color = keys.colors[code]
        mine = codes == code
        _boxes(
            axes, start[mine], end[mine], y[mine], span, scale, HALF,
            facecolor=color, edgecolor="white" if wide else color, linewidth=0.5 if wide else 0,
        )  # fmt: skip
        mine &= known
        _boxes(axes, taken[mine], last[mine], y[mine], span, scale, HALF * 0.86, **style.waits(color, 0.7))
    thin = {"facecolor": style.OTHER, "linewidth": 0.0}
    _boxes(axes, last[starved], start[starved], y[starved], span, scale, 0.04, **thin)
    lengths = _length(taken, last, known, span), _length(last, start, starved, span)
    return np.array(lengths, dtype=np.float64)


def _kept(axes: Axes, facts: Facts, pick: Chosen, place: dict[int, int], span: tuple[int, int], scale: int) -> bool:
    """Draw when these devices were reserved or lost, below their gangs. Whether they were reserved at all."""
    seen = False
    for lost, look in ((True, style.LOST), (False, style.RESERVED)):
        kept = kept_times(facts, pick.group, lost)
        low, high = np.repeat(kept.low, len(pick.devices)), np.repeat(kept.high, len(pick.devices))
        y = np.tile([float(place[number]) for number in pick.devices.tolist()], len(kept.low))
        _boxes(axes, low, high, y, span, scale, HALF, zorder=0.7, **look)
        seen = bool(((low < span[1]) & (high > span[0])).any())
    return seen


def _length(low: Ints, high: Ints, which: Bools, span: tuple[int, int]) -> int:
    """The intervals' total length within the window."""
    return int((np.minimum(high[which], span[1]) - np.maximum(low[which], span[0])).clip(0).sum())


def _boxes(
    axes: Axes, low: Ints, high: Ints, y: Floats, span: tuple[int, int], scale: int, half: float, **look: object
) -> None:
    left, right = np.maximum(low, span[0]) / scale, np.minimum(high, span[1]) / scale
    seen = right > left
    left, right, y = left[seen], right[seen], y[seen]
    if not len(y):
        return
    low_y, high_y = y - half, y + half
    corners = np.stack([[left, left, right, right], [low_y, high_y, high_y, low_y]]).transpose(2, 1, 0)
    axes.add_collection(PolyCollection(list(corners), **look), autolim=False)  # type: ignore[arg-type]


def _bins(axes: Axes, facts: Facts, keys: Keys, pick: Chosen, place: dict[int, int], edges: Ints, scale: int) -> None:
    """Draw rows of bins, each divided among the names that used it."""
    spent = busy_of_each_host(facts, pick, edges, keys.codes, len(keys.names)) / np.diff(edges)
    rows = np.searchsorted(pick.hosts, pick.host_rows)
    for device, row in zip(pick.devices.tolist(), rows.tolist(), strict=True):
        base = np.full(len(edges) - 1, place[device] + HALF)
        for code in np.flatnonzero(spent[row].sum(axis=1)).tolist():
            top = base - 2 * HALF * spent[row][code]
            style.fill_bins(axes, edges / scale, base, top, color=keys.colors[code])
            base = top


def _furnish(axes: Axes, facts: Facts, sample: Ints, span: tuple[int, int]) -> None:
    count, every = len(sample), len(facts.devices)
    scale = style.time_axis(axes, *span)
    axes.set_ylim(count - 0.45, -0.55)
    low, high, y = np.full(count, span[0]), np.full(count, span[1]), np.arange(count, dtype=np.float64)
    _boxes(axes, low, high, y, span, scale, HALF, facecolor=style.EMPTY, zorder=0.5)
    step = max(1, -(-count // 32))
    axes.set_yticks(range(0, count, step), [f"{device:,}" for device in sample[::step].tolist()], fontsize=7)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    between = "\n" if count < 15 else " "
    axes.set_ylabel("device" if count == every else f"device{between}({count} of {every:,}, evenly spread)")
    islands = facts.machines.island_rows(sample)
    for row in np.flatnonzero(np.diff(islands)).tolist():
        axes.axhline(row + 0.5, color=style.QUIET, linewidth=0.7)
    names = facts.machines.names()
    if len(names) > 1:
        for island in np.unique(islands).tolist():
            rows = np.flatnonzero(islands == island)
            axes.annotate(
                names[island], (1, float(rows.mean())), xycoords=("axes fraction", "data"), xytext=(6, 0),
                textcoords="offset points", rotation=-90, va="center", ha="left", fontsize=8, color=style.QUIET,
                annotation_clip=False,
            )  # fmt: skip


def _key(axes: Axes, keys: Keys, shares: Floats, seen: set[int], waits: Bools) -> None:
    own = [code for code in sorted(seen) if keys.colors[code] != style.OTHER]
    grey = [code for code in sorted(seen) if keys.colors[code] == style.OTHER]
    entries = [(f"{keys.names[code]} {shares[code]:.1%}", keys.colors[code]) for code in own]
    if grey:
        name = keys.names[grey[0]] if len(grey) == 1 else f"{len(grey)} others"
        entries.append((f"{name} {shares[grey].sum():.1%}", style.OTHER))
    extra = [style.waiting()] if waits[0] else []
    if waits[1]:
        extra.append(Patch(**{**style.RESERVED, "hatch": "--"}, label="waits for inputs"))
    if waits[2]:
        extra.append(Patch(**style.RESERVED, label="reserved"))
    style.key(axes, entries, extra, above=13 if axes.xaxis.get_ticks_position() == "top" else 0)


def _strip(axes: Axes, below: Axes, facts: Facts, keys: Keys, span: tuple[int, int]) -> None:
    """Draw the whole trace as a strip, with the window that is shown below marked in it."""
    rows = max((len(group.rows) for group in facts.groups), default=0)
    bands(axes, facts, keys, times.edges_of(bins_for(rows), facts.span), whole=True)
    _, scale = times.unit(facts.span[1] - facts.span[0])
    _, scale_below = times.unit(span[1] - span[0])
    axes.axvspan(span[0] / scale, span[1] / scale, facecolor="none", edgecolor=style.INK, linewidth=1.0, zorder=4)
    for at in span:
        line = ConnectionPatch(
            (at / scale, 0), (at / scale_below, -0.55), "data", "data", axesA=axes, axesB=below, color=style.QUIET,
            linewidth=0.6, zorder=0,
        )  # fmt: skip
        line.set_in_layout(False)
        style.figure_of(axes).add_artist(line)
    style.percent(axes, ticks=(0, 1))
    axes.xaxis.tick_top()
    axes.tick_params(axis="x", labelsize=7, pad=1, length=2)
    axes.set_xlabel("")
    axes.set_ylabel("busy")
