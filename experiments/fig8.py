"""Figure 8, time-multiplexing: the throughput of many clients together.

On set-up B several clients submit different programs at once, each a chain of computations on all cores. The baseline
is multi-controller JAX, which has the machine to itself and dispatches one by one. The paper says: together the clients
reach at least JAX's throughput; switching between them costs nothing while their programs fit into memory; with tiny
computations they exceed JAX, whose hosts cannot dispatch faster from Python. It prints no value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .framework import Option, Point, Values, grid
from .framework.figures import FAR, QUIET, beside, doublings, line
from .micro import common
from .micro.clients import rate
from .micro.programs import plain
from .micro.tenants import AHEAD, NODES, WINDOW, busy, steady, tenants

if TYPE_CHECKING:
    import pandas as pd

NAME = "fig8"
TITLE = "Many clients on one island: computations a second of all together"
OPTIONS = (
    Option("compute_ms", (0.04, 0.33, 1.04, 2.4), "milliseconds of a computation on all cores", least=0),
    Option("clients", (1, 2, 4, 8, 16), "clients at once, each with a program of its own", least=1),
    Option("hosts", 16, "hosts of the island", least=1),
    Option("cluster", "B", "set-up: B has 8 cores a host"),
    NODES, AHEAD,
    Option("gangs", 600, "gangs in all, at least two calls of each client; a third is not counted", least=3),
    WINDOW, common.POLICY, common.PROFILE, common.FIDELITY, common.SEED,
)  # fmt: skip
SIZE = (7.6, 4.8)


def points(options: dict[str, Values]) -> list[Point]:
    return grid(options)


def measure(point: Point) -> dict[str, Any]:
    setup = common.island(point["cluster"], point["hosts"])
    compute, clients = round(point["compute_ms"] * 1e6), point["clients"]
    sim, _ = tenants(setup, point, [compute] * clients, max(point["gangs"], 2 * clients * point["nodes"]))
    ours = rate(sim)
    jax = common.other("jax", setup, plain(compute), "opbyop", 1, point["profile"], 90)
    return {
        "cores": setup.cluster.devices, "computations_per_s": ours, "jax_per_s": jax, "of_jax": ours / jax,
        "busy": busy(sim, steady(sim)),
    }  # fmt: skip


def draw(frame: pd.DataFrame, axes: Any) -> None:
    for number, (compute, mine) in enumerate(frame.groupby("compute_ms", sort=True)):
        mine = mine.drop_duplicates("clients").sort_values("clients")
        line(axes, mine["clients"], mine["computations_per_s"], f"Pathways, {compute:g} ms", number)
        axes.plot(mine["clients"], mine["jax_per_s"], color=FAR[number % len(FAR)], linestyle="--", linewidth=1.1)
    axes.plot([], [], color=QUIET, linestyle="--", linewidth=1.1, label="JAX, alone")
    doublings(axes, frame["clients"])
    first = frame.iloc[0]
    axes.set_xlabel(
        f"clients, each calling chains of {first['nodes']} on {first['hosts']} hosts ({first['cores']} cores)"
    )
    axes.set_ylabel("computations a second, all together")
    beside(axes)


def findings(frame: pd.DataFrame) -> str:
    lines = []
    for compute, mine in frame.groupby("compute_ms", sort=True):
        best, alone = mine.sort_values("of_jax").iloc[-1], mine.sort_values("clients").iloc[0]
        lines.append(
            f"- {compute:g} ms: {alone['clients']} client reaches {alone['of_jax']:.0%} of JAX's rate and keeps the "
            f"devices {alone['busy']:.0%} busy; {best['clients']} reach {best['of_jax']:.0%}, {best['busy']:.1%} busy."
        )
    most = frame[frame["clients"] == frame["clients"].max()]
    tiny, others = most[most["compute_ms"] == most["compute_ms"].min()], most["of_jax"].min()
    lines.append(
        f"- With {most['clients'].iloc[0]} clients the least is {others:.1%} of JAX's (the paper: at least as much); "
        f"with the smallest computations it is {tiny['of_jax'].iloc[0]:.0%} (the paper: more than JAX's)."
    )
    return "\n".join(lines)
