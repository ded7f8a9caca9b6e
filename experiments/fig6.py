"""Figure 6: the smallest computation that hides the single controller.

Pathways and multi-controller JAX call a computation one by one (-O). If it is long, the devices are busy in both. If it
is short, Pathways waits for its controller, which exchanges messages with every host. In the paper, Pathways keeps up
with JAX from 2.3 ms at 16 hosts and 128 cores (set-up B), and from 35 ms at 512 hosts and 2048 cores (A). Profile
`paper` is fitted to these two numbers, for its costs a host and a call, and with one call ahead: one runs while the
next is dispatched. The paper does not say how many there were, and the fit depends on it, as `--ahead 0,1,2,4` shows.
Other numbers of hosts, the other set-up at the same hosts, and other profiles are predictions.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from .framework import Option, Point, Values, error, grid
from .framework.figures import BLUE, GREEN, MARKERS, RED, doublings, line, log_y, printed
from .micro import common
from .micro.programs import simple

if TYPE_CHECKING:
    import pandas as pd

NAME = "fig6"
TITLE = "The smallest computation that hides the single controller"
OPTIONS = (
    Option("cluster", ("B", "A"), "set-ups: A has 4 cores a host and up to 512, B has 8 and up to 64"),
    Option("hosts", (4, 16, 64, 128, 256, 512), "hosts of the island", least=1),
    Option("keep_up", 0.995, "part of JAX's rate that counts as hidden", least=0.01),
    Option("curve", 7, "points of the curves", least=0),
    Option("ahead", 1, "calls that Pathways' client does not wait for: 1 runs while the next is dispatched", least=0),
    common.WINDOW, common.POLICY, common.PROFILE, common.FIDELITY, common.SEED,
)  # fmt: skip
PANELS, SIZE = (1, 2), (11.0, 4.8)
EXTRA = ("curves",)
MOST = {"B": 64, "A": 512}  # hosts that the paper's set-ups have
PAPER = {("B", 16): 2.3, ("A", 512): 35.0}  # milliseconds
CALLS = 18
CLOSE = 0.002  # relative accuracy at which the search ends


def points(options: dict[str, Values]) -> list[Point]:
    return [point for point in grid(options) if point["hosts"] <= MOST.get(point["cluster"], point["hosts"])]


def measure(point: Point) -> dict[str, Any]:
    setup = common.island(point["cluster"], point["hosts"])

    def rates(compute: int) -> tuple[float, float]:
        kernel = simple(compute)
        ours = common.pathways(setup, point, kernel, "opbyop", 1, ahead=point["ahead"], calls=CALLS)
        return ours, common.other("jax", setup, kernel, "opbyop", 1, point["profile"], 60)

    smallest = _smallest(rates, point["keep_up"])
    paper = PAPER.get((point["cluster"], point["hosts"]))
    curves = []
    for compute in np.geomspace(smallest / 30, smallest * 4, point["curve"]):
        ours, jax = rates(int(compute))
        curves.append({"compute_ms": compute / 1e6, "computations_per_s": ours, "jax_per_s": jax})
    return {
        "cores": setup.cluster.devices, "smallest_ms": smallest / 1e6, "curves": curves,
        "paper": paper, "error": error(smallest / 1e6, paper),
    }  # fmt: skip


def _smallest(rates: Any, keep_up: float) -> float:
    """The smallest computation with which Pathways keeps up, by bisection."""

    def hides(compute: float) -> bool:
        ours, jax = rates(int(compute))
        return bool(ours >= keep_up * jax)

    low = high = float(1e9 / rates(0)[0])
    while not hides(high):
        low, high = high, 1.4 * high
    while high / low > 1 + CLOSE:
        middle = sqrt(low * high)
        low, high = (low, middle) if hides(middle) else (middle, high)
    return high


def draw(frame: pd.DataFrame, axes: Any, curves: pd.DataFrame) -> None:
    _draw_curves(frame, axes[0], curves)
    for number, (cluster, mine) in enumerate(frame.groupby("cluster", sort=False)):
        mine = mine.drop_duplicates("hosts").sort_values("hosts")
        devices_per_host = mine["cores"].iloc[0] // mine["hosts"].iloc[0]
        wide = {"linewidth": 5.0, "markersize": 9.0, "alpha": 0.5} if not number else {}  # they lie on each other
        line(
            axes[1], mine["hosts"], mine["smallest_ms"], f"set-up {cluster}, {devices_per_host} cores a host", number,
            color=(BLUE, GREEN)[number % 2], **wide,
        )  # fmt: skip
        for _, row in mine[mine["paper"].notna()].iterrows():
            printed(axes[1], row["hosts"], row["paper"], f"paper: {row['paper']:g} ms", dx=-10, dy=4)
    doublings(axes[1], frame["hosts"])
    axes[1].set_xlabel("hosts")
    axes[1].set_ylabel("smallest computation, ms")
    axes[1].set_title("the smallest that hides the controller")
    axes[1].legend(loc="upper left")


def _draw_curves(frame: pd.DataFrame, axes: Any, curves: pd.DataFrame) -> None:
    """Rates against computation time, for the configurations that the paper prints, or else the first and last."""
    shown = frame[frame["paper"].notna()]
    if not len(shown):
        shown = frame.iloc[[0, -1]]
    for number, (at, row) in enumerate(shown.drop_duplicates(["cluster", "hosts"]).iterrows()):
        mine = curves[curves["row"] == at] if len(curves) else curves
        if not len(mine):
            continue
        name, colour = f"{row['hosts']} hosts, {row['cores']:,} cores", (BLUE, GREEN)[number % 2]
        axes.plot(mine["compute_ms"], mine["jax_per_s"], color=RED, linestyle="--", linewidth=1.2,
                  label="JAX" if not number else None)  # fmt: skip
        axes.plot(mine["compute_ms"], mine["computations_per_s"], color=colour, marker=MARKERS[number],
                  markeredgecolor="white", label=f"Pathways, {name}")  # fmt: skip
        axes.axvline(row["smallest_ms"], color=colour, linewidth=0.9, linestyle=":")
        axes.annotate(f"{row['smallest_ms']:.3g} ms", (row["smallest_ms"], 1.0), (3, -2), va="top", fontsize=8,
                      xycoords=("data", "axes fraction"), textcoords="offset points")  # fmt: skip
    axes.set_xscale("log")
    log_y(axes)
    axes.xaxis.set_major_formatter(axes.yaxis.get_major_formatter())
    axes.set_xlabel("computation, ms")
    axes.set_ylabel("computations a second")
    axes.set_title("where Pathways meets JAX")
    if axes.lines:
        axes.legend(loc="lower left")


def findings(frame: pd.DataFrame) -> str:
    lines = []
    for _, row in frame.iterrows():
        where = f"{row['hosts']} hosts of {row['cluster']} ({row['cores']:,} cores, profile {row['profile']})"
        text = f"- {where}: {row['smallest_ms']:.3g} ms hides the controller"
        if row["paper"] == row["paper"]:
            fitted = ", one of the numbers that `paper` is fitted to" if row["profile"] == "paper" else ""
            text += f"; the paper: {row['paper']:g} ms ({row['error']:+.1%}{fitted})"
        lines.append(text + ".")
    return "\n".join(lines)
