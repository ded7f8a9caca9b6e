"""Helpers for figures, in the style of traces (`seaway.trace.style`): lines, axes, and values printed in the paper.

Every series has a colour and a marker of its own. A value printed in the paper is a hollow star with its number.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seaway.trace import style

if TYPE_CHECKING:
    import pandas as pd


TIGHT = 0.068  # part of the axis: labels nearer than this are moved apart
BLACK, BLUE, GREEN, ORANGE, PINK, RED, SKY = (
    style.BLACK, style.BLUE, style.GREEN, style.ORANGE, style.PINK, style.RED, style.SKY,
)  # fmt: skip
MARKERS, QUIET = style.MARKERS, style.QUIET
FAR = (BLUE, RED, GREEN, ORANGE, PINK, SKY, BLACK)  # like style.COLORS, but the first two differ more
styled = style.applied


def new(panels: tuple[int, int], size: tuple[float, float], title: str) -> tuple[Any, Any]:
    """(a figure without a window, its Axes or an array of them)."""
    figure = style.Picture(*size)
    axes = figure.subplots(*panels)
    figure.suptitle(title, x=0.008, ha="left", weight="bold", size=11)
    for each in figure.axes:
        each.grid(visible=True)
    return figure, axes


def save(figure: Any, stem: Path) -> list[Path]:
    return list(style.save(figure, stem))


def line(axes: Any, x: Iterable[Any], y: Iterable[Any], label: str, number: int, **more: Any) -> None:
    """Draw a series. Its number in the figure gives colour and marker."""
    look = {"color": FAR[number % len(FAR)], "marker": MARKERS[number % len(MARKERS)], **more}
    axes.plot(list(x), list(y), label=label, markeredgecolor="white", markeredgewidth=0.6, **look)


def printed(axes: Any, x: float, y: float, text: str, *, dx: int = 8, dy: int = 6, label: str = "") -> None:
    """Draw a value that the paper prints."""
    axes.plot([x], [y], marker="*", markersize=13, markerfacecolor="white", markeredgecolor=BLACK,
              markeredgewidth=1.2, linestyle="none", zorder=5, label=label or None)  # fmt: skip
    note(axes, x, y, text, dx=dx, dy=dy)


def beside(axes: Any, **more: Any) -> None:
    """Draw the legend right of the axes, with lines long enough to tell dashes apart."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), **{"handlelength": 2.6, **more})


def note(axes: Any, x: float, y: float, text: str, *, dx: int = 8, dy: int = 6, center: bool = False) -> None:
    """Write text beside or above a point."""
    side = "center" if center else "left" if dx >= 0 else "right"
    axes.annotate(text, (x, y), (dx, dy), textcoords="offset points", fontsize=8, ha=side, zorder=6, color=BLACK,
                  bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.85})  # fmt: skip


def doublings(axes: Any, values: Iterable[float]) -> None:
    """Make both axes logarithmic, with ticks of x at the measured values."""
    from matplotlib.ticker import NullLocator

    known = sorted(set(values))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    shown = _plain()
    labels = axes.set_xticks(known, [shown(value) for value in known]) and axes.get_xticklabels()
    for at, (one, after) in enumerate(pairwise(known)):
        if log2(after / one) < TIGHT * log2(known[-1] / known[0]):  # they would touch
            labels[at].set_ha("right")
            labels[at + 1].set_ha("left")
    log_y(axes)


def log_y(axes: Any) -> None:
    """Make y logarithmic, with plain numbers at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 2000 else (1.0,), numticks=30))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(_plain())


def _plain() -> Any:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:,.4g}" if value < 1000 else f"{value:,.0f}")


# --- figures that are traces ------------------------------------------------------------------------------------------

HEIGHT, GAP = 0.9, 0.8  # of a device's bar in its row; between configurations, in rows


def draw_rows(axes: Any, trace: pd.DataFrame, labels: list[str]) -> None:
    """Draw the bars. `trace`: one row a bar, with `row` (the configuration), `device`, `client`, `started_us`,
    `ended_us`."""
    clients = sorted(trace["client"].unique())
    colours = style.colors(clients)
    top, ticks = 0.0, []
    for number, label in enumerate(labels):
        mine = trace[trace["row"] == number]
        first, last = top, top
        for _, bars in mine.groupby("device", sort=True):
            last = top
            for client, its in bars.groupby("client", sort=True):
                spans = list(zip(its["started_us"] / 1e3, (its["ended_us"] - its["started_us"]) / 1e3, strict=True))
                axes.broken_barh(spans, (-top - HEIGHT / 2, HEIGHT), facecolors=colours[str(client)], edgecolor="white",
                                 linewidth=0.15)  # fmt: skip
            top += 1
        ticks.append((-(first + last) / 2, label))
        top += GAP
    axes.set_yticks([at for at, _ in ticks], [label for _, label in ticks])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(
        trace["started_us"].min() / 1e3 if len(trace) else 0, trace["ended_us"].max() / 1e3 if len(trace) else 1
    )
    axes.set_ylim(-top + GAP + 0.5 - 1, 0.6)
    style.key(axes, [(f"client {client}", colours[client]) for client in clients])
