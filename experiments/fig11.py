"""Figure 11: one client with small computations cannot fill the island, several can, with traces of some cores.

The programs are those of figure 8: on set-up B every client calls chains of 0.33 ms computations and waits for each
call's answer, like the paper's client. With one client, devices are idle between calls. Other clients' programs fill
these gaps, gang by gang, up to about all of the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .framework import Option, Point, Values, error, grid
from .framework.figures import draw_rows
from .micro import common
from .micro.clients import rate
from .micro.tenants import AHEAD, NODES, WINDOW, busy, steady, tenants, timelines

if TYPE_CHECKING:
    import pandas as pd

NAME = "fig11"
TITLE = "One client leaves gaps, several fill them"
OPTIONS = (
    Option("clients", (1, 4, 8, 16), "clients at once, each with a program of its own", least=1),
    Option("compute_ms", 0.33, "milliseconds of a computation on all cores", least=0),
    Option("hosts", 16, "hosts of the island", least=1),
    Option("cluster", "B", "set-up: B has 8 cores a host"),
    NODES, AHEAD,
    Option("gangs", 600, "gangs in all, of which a third is not counted", least=3),
    Option("shown_ms", 60.0, "milliseconds of the trace in the figure", least=0.001),
    WINDOW, common.POLICY, common.PROFILE, common.FIDELITY, common.SEED,
)  # fmt: skip
EXTRA = ("trace",)
SIZE = (9.0, 4.6)
FULL = 1.0  # the paper: several clients reach about all of the time


def points(options: dict[str, Values]) -> list[Point]:
    return grid(options)


def measure(point: Point) -> dict[str, Any]:
    setup = common.island(point["cluster"], point["hosts"])
    sim, _ = tenants(
        setup, point, [round(point["compute_ms"] * 1e6)] * point["clients"],
        max(point["gangs"], 3 * point["clients"] * point["nodes"]),
    )  # fmt: skip
    counted = steady(sim)
    found = busy(sim, counted)
    paper = FULL if point["clients"] >= 4 and point["compute_ms"] == 0.33 else None
    return {
        "cores": setup.cluster.devices, "busy": found, "computations_per_s": rate(sim),
        "trace": timelines(sim, counted[0], point["shown_ms"]),
        "paper": paper, "error": error(found, paper),
    }  # fmt: skip


def draw(frame: pd.DataFrame, axes: Any, trace: pd.DataFrame) -> None:
    labels = [
        f"{row['clients']} client{'s' * (row['clients'] > 1)}\n{row['busy']:.0%} busy" for _, row in frame.iterrows()
    ]
    draw_rows(axes, trace, labels)
    axes.set_xlabel("ms, of four of the island's cores in each configuration")


def findings(frame: pd.DataFrame) -> str:
    parts = [f"{row['clients']}: {row['busy']:.1%}" for _, row in frame.iterrows()]
    return (
        f"- Devices busy, by clients: {', '.join(parts)} (computations of {frame['compute_ms'].iloc[0]:g} ms, "
        f"{frame['nodes'].iloc[0]} in a call; the paper: one cannot fill the island, several reach about 100 %)."
    )
