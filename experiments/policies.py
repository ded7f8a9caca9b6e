"""Compares policies: their effect on utilisation, fairness, latency and makespan.

Clients of several kinds share one island: batch clients that always have calls waiting, and interactive ones that think
between calls, with small and large computations, short and long chains, weights, priorities and deadlines. Every batch
client has the same device time of work, and interactive ones go on until all batch clients are done. The policy decides
how fast each is. This goes beyond the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from core.schedule.policy import POLICIES

from .framework import Option, Point, Values, grid
from .framework.figures import beside, doublings, line
from .micro import common
from .micro.clients import Failed, Loop, Tally
from .micro.programs import chain, plain
from .micro.tenants import busy, names, shares

if TYPE_CHECKING:
    import pandas as pd

NAME = "policies"
TITLE = "Policies: utilisation, fairness and latency of mixed clients"
OPTIONS = (
    Option("policy", tuple(POLICIES), "scheduling policy"),
    Option("clients", (2, 8, 32), "clients of mixed kinds", least=2),
    Option("work_ms", 40.0, "milliseconds of device time of each batch client's work", least=1),
    Option("compute_ms", 0.8, "milliseconds of a computation, on average over the kinds", least=0.001),
    Option("hosts", 4, "hosts of the island", least=1),
    Option("cluster", "B", "set-up"),
    Option("window", 16, "gangs that the controller may order ahead of the devices", least=1),
    common.PROFILE, common.FIDELITY, common.SEED,
)  # fmt: skip
PANELS, SIZE = (2, 2), (9.6, 6.6)


@dataclass(frozen=True)
class Kind:
    """A kind of client. `size`: of its computations, as a multiple of the average."""

    size: float
    nodes: int
    ahead: int
    think: float  # milliseconds
    weight: int
    priority: int


KINDS = (
    Kind(1.0, 4, 3, 0.0, 1, 0),  # batch
    Kind(0.25, 1, 0, 2.0, 2, 2),  # interactive
    Kind(2.5, 2, 3, 0.0, 4, 0),  # batch, large
    Kind(0.25, 8, 1, 0.0, 1, 1),  # many small ones
)


def points(options: dict[str, Values]) -> list[Point]:
    from core.schedule.policy import named

    for policy in options["policy"]:
        named(str(policy))
    return grid(options)


def measure(point: Point) -> dict[str, Any]:
    setup = common.island(point["cluster"], point["hosts"])
    sim = common.simulated(setup, point)
    rng, tally = np.random.default_rng(point["seed"]), Tally()
    loops, ideal = [], []
    for at, name in enumerate(names(point["clients"])):
        kind = KINDS[at % len(KINDS)]
        compute = round(point["compute_ms"] * kind.size * 1e6)
        alone = compute * kind.nodes
        calls = 0 if kind.think else max(2, round(point["work_ms"] * 1e6 / alone))
        loops.append(
            Loop(
                sim, name, chain(setup, plain(compute), kind.nodes, name=f"program {at}"), ahead=kind.ahead,
                calls=calls, weight=kind.weight, priority=kind.priority, think=round(kind.think * 1e6),
                deadline=10 * alone, start=int(rng.integers(0, 2_000_000)), tally=None if kind.think else tally,
            )
        )  # fmt: skip
        ideal.append(alone)
    sim.run(until=lambda: tally.failed or tally.count >= sum(loop.calls for loop in loops))
    for loop in loops:
        if loop.failures:
            raise Failed(loop.failures[0])
    return _summary(sim, loops, ideal)


def _summary(sim: Any, loops: list[Loop], ideal: list[int]) -> dict[str, Any]:
    """The figures of a run: fairness while all clients are active, slowdowns of calls, utilisation and makespan."""
    begin = min(loop.ends[0][0] for loop in loops)
    batch = [
        loop for loop in loops if not loop.think
    ]  # only clients that always have calls waiting are entitled to a share
    over = max(loop.ends[-1][1] for loop in batch)
    first_out = min(loop.ends[-1][1] for loop in batch)
    together = (begin, max(first_out, begin + 1_000_000))
    got = shares(sim, batch, together)
    per_weight = np.array([got[loop.name] / loop.weight for loop in batch])
    slowdowns = np.concatenate([
        np.array([end - called for called, end in loop.ends]) / alone
        for loop, alone in zip(loops, ideal, strict=True)
    ])  # fmt: skip
    urgent = np.concatenate(
        [np.array([end - called for called, end in loop.ends]) for loop in loops if loop.think] or [np.zeros(1)]
    )
    return {
        "busy": busy(sim, (begin, over)),
        "fairness": float(per_weight.sum() ** 2 / (len(batch) * (per_weight**2).sum())),
        "slowdown_p50": float(np.percentile(slowdowns, 50)), "slowdown_p99": float(np.percentile(slowdowns, 99)),
        "interactive_p50_ms": float(np.percentile(urgent, 50)) / 1e6,
        "interactive_p99_ms": float(np.percentile(urgent, 99)) / 1e6,
        "makespan_ms": (over - begin) / 1e6,
    }  # fmt: skip


SHOWN = {
    "fairness": "fairness of batch clients by weight (Jain)", "busy": "devices busy",
    "interactive_p99_ms": "interactive call, 99th percentile, ms",
    "slowdown_p99": "any call over its device time, 99th percentile",
}  # fmt: skip


def draw(frame: pd.DataFrame, axes: Any) -> None:
    for panel, (column, label) in zip(axes.flat, SHOWN.items(), strict=True):
        for number, (policy, mine) in enumerate(frame.groupby("policy", sort=False)):
            mine = mine.drop_duplicates("clients").sort_values("clients")
            line(panel, mine["clients"], mine[column], str(policy), number)
        doublings(panel, frame["clients"], log="p99" in column)
        if "p99" not in column:
            panel.set_ylim(0, 1.05)
        panel.set_ylabel(label)
        panel.set_xlabel("clients")
    beside(axes.flat[1])


def findings(frame: pd.DataFrame) -> str:
    most = frame[frame["clients"] == frame["clients"].max()].drop_duplicates("policy")
    fairest = most.sort_values("fairness", ascending=False).iloc[0]
    quickest = most.sort_values("interactive_p99_ms").iloc[0]
    busiest = most.sort_values("makespan_ms").iloc[0]
    unfairest, slowest = most.sort_values("fairness").iloc[0], most["interactive_p99_ms"].max()
    return (
        f"With {most['clients'].iloc[0]} clients:\n"
        f"- fairest by weight: {fairest['policy']} ({fairest['fairness']:.3f} of 1); least: {unfairest['policy']} "
        f"({unfairest['fairness']:.3f});\n"
        f"- quickest for interactive clients: {quickest['policy']} (99th percentile "
        f"{quickest['interactive_p99_ms']:.3g} ms; the slowest: {slowest:.3g} ms);\n"
        f"- shortest makespan: {busiest['policy']} ({busiest['makespan_ms']:.4g} ms; the longest: "
        f"{most['makespan_ms'].max():.4g} ms), devices {busiest['busy']:.1%} busy."
    )
