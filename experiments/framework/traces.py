"""Draws figures that are traces: rows of a few devices for each configuration, coloured by client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seaway.trace import style

if TYPE_CHECKING:
    import pandas as pd

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
