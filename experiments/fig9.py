"""Figure 9: proportional share between four clients of weights 1:1:1:1 and 1:2:4:8, with traces of some cores.

On set-up B each client always has calls waiting, and the island's scheduler gives every client its share of the
devices' time, gang by gang. The paper shows the shares in traces without numbers; this experiment also measures their
errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .framework import Option, Point, Values, grid
from .framework.figures import draw_rows
from .micro import common
from .micro.tenants import busy, shares, steady, tenants, timelines, weights_of

if TYPE_CHECKING:
    import pandas as pd

NAME = "fig9"
TITLE = "Proportional share between four clients"
OPTIONS = (
    Option("weights", ("1:1:1:1", "1:2:4:8"), "the clients' weights"),
    Option("compute_ms", 0.33, "milliseconds of a computation on all cores", least=0),
    Option("policy", "stride", "scheduling policy: stride, fifo, priority, shortest, deadline, round_robin"),
    Option("hosts", 16, "hosts of the island", least=1),
    Option("cluster", "B", "set-up: B has 8 cores a host"),
    Option("nodes", 16, "nodes in a call", least=1),
    Option("fused", 4, "computations in a node, which are ordered as one", least=1),
    Option("ahead", 3, "calls that a client does not wait for, so that it always has some waiting", least=0),
    Option("window", 32, "gangs that the controller may order ahead of the devices", least=1),
    Option("gangs", 1500, "gangs in all, of which a third is not counted", least=3),
    Option("shown_ms", 25.0, "milliseconds of the trace in the figure", least=0.001),
    common.PROFILE, common.FIDELITY, common.SEED,
)  # fmt: skip
EXTRA = ("trace",)
SIZE = (9.0, 3.6)


def points(options: dict[str, Values]) -> list[Point]:
    for weights in options["weights"]:
        weights_of(str(weights))
    return grid(options)


def measure(point: Point) -> dict[str, Any]:
    setup, weights = common.island(point["cluster"], point["hosts"]), weights_of(point["weights"])
    compute = round(point["compute_ms"] * point["fused"] * 1e6)
    sim, loops = tenants(setup, point, [compute] * len(weights), point["gangs"], weights)
    counted = steady(sim)
    got = shares(sim, loops, counted)
    asked = {loop.name: loop.weight / sum(weights) for loop in loops}
    return {
        "clients": len(weights), "cores": setup.cluster.devices, "busy": busy(sim, counted),
        **{f"asked_{name}": share for name, share in asked.items()},
        **{f"got_{name}": share for name, share in got.items()},
        "worst_share_error": max(abs(got[name] - asked[name]) for name in asked),
        "trace": timelines(sim, counted[0], point["shown_ms"]),
    }  # fmt: skip


def draw(frame: pd.DataFrame, axes: Any, trace: pd.DataFrame) -> None:
    labels = []
    for _, row in frame.iterrows():
        got = ", ".join(f"{row[name]:.0%}" for name in row.index if name.startswith("got_") and row[name] == row[name])
        labels.append(f"{row['weights']}\n{got}")
    draw_rows(axes, trace, labels)
    axes.set_xlabel("ms, of four of the island's cores in each configuration; under the weights, what each client got")


def findings(frame: pd.DataFrame) -> str:
    lines = []
    for _, row in frame.iterrows():
        names = [name.removeprefix("got_") for name in row.index if name.startswith("got_") and row[name] == row[name]]
        parts = [f"{name} {row[f'got_{name}']:.1%} of {row[f'asked_{name}']:.1%}" for name in names]
        got = ", ".join(parts)
        lines.append(f"- {row['weights']} under {row['policy']}: got {got}; devices {row['busy']:.1%} busy.")
    return "\n".join(lines)
