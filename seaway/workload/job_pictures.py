"""Pictures of jobs: after how long they were over, what was in use, when each waited and ran, and where on the torus.

Neighbours: `job_report` has the numbers; `seaway.trace.style` has the look of all figures. The functions that matter:
`jobs_picture`, `gantt_picture`, `torus_picture`.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from core.model import devices_by_cell

from ..machines import TraceIsland
from ..trace import busy, charts, keys, style, times
from ..wording import plural

if TYPE_CHECKING:
    import pandas as pd

    from .job_report import JobReport

BINS = 240
MOST_WIDE = 4  # planes of a torus that are drawn side by side


def jobs_picture(report: JobReport) -> Figure:
    table, users = report.frame(), keys.keyed(report.facts, "client")
    colors = _colors(table, users)
    with style.applied():
        figure = style.Picture("page", 4.6)
        parts = figure.subplot_mosaic([["over", "waited"], ["use", "use"]])
        good = table[table["ok"]]
        _distribution(parts["over"], good, "jct_s", "completion time", colors)
        _distribution(parts["waited"], good, "waited_s", "waiting for devices", colors)
        charts.bands(parts["use"], report.facts, users, _edges(report), whole=True)
        parts["use"].set_ylabel(f"of {report.devices:,} devices")
        parts["use"].set_title("In use")
        rows = _key(parts["over"], colors)
        for name, title in (("over", f"{len(table):,} jobs: when they were over"), ("waited", "How long they waited")):
            style.title_above(parts[name], title, rows)
    return figure


def _colors(table: pd.DataFrame, users: keys.Keys) -> dict[str, str]:
    """Those without a colour of their own come last."""
    found = [pair for pair in zip(users.names, users.colors, strict=True) if pair[0] in set(table["user"])]
    return dict(sorted(found, key=lambda pair: pair[1] == style.OTHER))


def _key(axes: Axes, colors: dict[str, str]) -> int:
    own = [(name, color) for name, color in colors.items() if color != style.OTHER]
    others = len(colors) - len(own)
    return style.rows_of_key(axes, own + [(plural(others, "other"), style.OTHER)] * bool(others))


def gantt_picture(report: JobReport) -> Figure:
    table, gangs = report.frame(), report.gangs
    colors = _colors(table, keys.keyed(report.facts, "client"))
    order = table.assign(rank=table["user"].map(list(colors).index)).sort_values(["rank", "arrived_s"]).index
    row = np.empty(len(table), dtype=np.int64)
    row[order] = np.arange(len(table))
    began = table["started_s"].fillna(table["ended_s"])
    after = (gangs["started_us"] - gangs.groupby("job")["started_us"].transform("min")) / 1e6
    left = gangs["job"].map(began) + after
    whole = 1e9 * max(float(table["ended_s"].max()), 1e-9) if len(table) else 1.0
    with style.applied():
        figure = style.Picture("page", min(1.2 + 0.13 * len(table), 5.5))
        axes = figure.subplots()
        scale = style.time_axis(axes, 0, round(whole)) / 1e9
        for user, color in colors.items():
            jobs, runs = table["user"] == user, gangs["client"] == user
            waits = row[jobs], table["arrived_s"][jobs] / scale, table["ended_s"][jobs] / scale
            axes.add_collection(_bars(*waits, facecolor=style.pale(color, 0.3)))
            ends = (left + gangs["duration_us"] / 1e6)[runs] / scale
            axes.add_collection(_bars(row[gangs["job"][runs]], left[runs] / scale, ends, facecolor=color))
        axes.set_ylim(max(1, len(table)) - 0.5, -0.5)
        axes.set_yticks([])
        axes.set_ylabel(f"{len(table):,} jobs")
        style.title_above(axes, "Jobs by user, in the order of arrival: pale while they wait", _key(axes, colors))
    return figure


def _bars(rows: times.Ints, left: pd.Series[float], right: pd.Series[float], **look: Any) -> PolyCollection:
    x, y = np.stack([left, left, right, right]), rows + np.array([[-0.42], [0.42], [0.42], [-0.42]])
    return PolyCollection(list(np.stack([x, y], axis=2).swapaxes(0, 1)), edgecolor="face", linewidth=0.3, **look)


def _edges(report: JobReport) -> times.Ints:
    """Bins from the first call to the last end, in the trace's time."""
    gangs = report.gangs
    low = int(gangs["called_us"].min() * 1_000) if len(gangs) else 0
    return times.edges_of(BINS, (low, max(low + 1, round(np.nanmax([0, *gangs["ended_us"]]) * 1_000))))


def _distribution(axes: Axes, table: pd.DataFrame, column: str, label: str, colors: dict[str, str]) -> None:
    """A curve for each user, or for all that have no colour of their own."""
    longest = 1e9 * float(table[column].max()) if len(table) else 0.0
    unit, scale = times.unit(longest)
    for color in dict.fromkeys(colors.values()):
        mine = table[table["user"].map(colors) == color][column].sort_values().to_numpy() * 1e9 / scale
        if len(mine):
            axes.step([0, *mine], np.arange(len(mine) + 1) / len(mine), where="post", color=color)
    axes.grid(axis="y")
    if longest > 20e9 * float(table[column].min()):  # linear near 0, so that those that did not wait are seen as well
        axes.set_xscale("symlog", linthresh=longest / scale / 1_000)
    axes.set_xlim(left=0)
    style.percent(axes, top=1.02, ticks=(0, 0.25, 0.5, 0.99))
    axes.set_xlabel(f"{label} ({unit})")
    axes.set_ylabel("of a user's jobs")


def torus_picture(report: JobReport) -> Figure:
    islands = [island for island in report.facts.machines.islands if island.torus]
    if not islands:
        raise ValueError("plot_torus: no island is a torus; a cluster file says so by `torus`, as in torus = [8, 8]")
    found = busy.utilization(report.facts, "device", _edges(report)[[0, -1]], None)
    share = np.zeros(report.facts.machines.devices[-1][1])
    share[found["device"].to_numpy()] = found["busy_fraction"].to_numpy()
    pictures = [_planes(share, island) for island in islands]
    shades = LinearSegmentedColormap.from_list("busy", [style.EMPTY, style.SKY, style.BLUE])
    with style.applied():
        figure = style.Picture("page", sum(0.8 + min(4.0, 6 * rows / columns) for rows, columns in
                                           (each.shape for each in pictures)))  # fmt: skip
        panels = figure.subplots(len(islands), squeeze=False)[:, 0]
        for axes, island, cells in zip(panels, islands, pictures, strict=True):
            axes.imshow(cells, cmap=shades, vmin=0, vmax=1, interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(False)
            planes = f", {island.torus[0]} planes" if len(island.torus) == 3 else ""
            axes.set_title(f"{island.name}: {'x'.join(map(str, island.torus))}{planes}, {np.nanmean(cells):.0%} busy")
        figure.colorbar(
            panels[0].images[0], ax=panels, format=PercentFormatter(1), label="of the time busy", shrink=0.8
        )
    return figure


def _planes(share: times.Floats, island: TraceIsland) -> times.Floats:
    """[row, column]: a torus of three axes as its planes, with a gap between them."""
    cells = share[island.base_device + np.array(devices_by_cell(island.torus, island.block))]
    rows, columns = (1, 1, *island.torus)[-2:]
    planes = cells.reshape(-1, rows, columns)
    wide = min(MOST_WIDE, len(planes))
    found = np.full((ceil(len(planes) / wide) * (rows + 1) - 1, wide * (columns + 1) - 1), np.nan)
    for number, plane in enumerate(planes):
        top, left = number // wide * (rows + 1), number % wide * (columns + 1)
        found[top : top + rows, left : left + columns] = plane
    return found
