"""Figure 5, dispatch overhead: how many computations a second can be called, by number of hosts.

The computation is an AllReduce of one scalar and a scalar add; each output is the next input. One by one (-O), a call
runs one computation. Chained (-C), a call runs a program of 128. Fused (-F), a call runs one node that contains 128.
Pathways is compared with multi-controller JAX, whose hosts dispatch by themselves over PCIe, and with TF1-like and
Ray-like single controllers. A client of Pathways waits for the answer to its call before the next one, like the
paper's. With -O that is the whole call; a long program is still running when its enqueue is answered. `--ahead` changes
how many calls may be unfinished.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, log
from typing import TYPE_CHECKING, Any

from sim.baselines import MODES

from .framework import Option, Point, Values, grid
from .framework.figures import BLUE, GREEN, ORANGE, QUIET, RED, beside, doublings
from .micro import common
from .micro.common import ALL_SYSTEMS, PATHWAYS
from .micro.programs import simple

if TYPE_CHECKING:
    import pandas as pd

NAME = "fig5"
TITLE = "Dispatch overhead: computations a second against hosts"
OPTIONS = (
    Option("system", ALL_SYSTEMS, "the system that dispatches", choices=ALL_SYSTEMS),
    Option("mode", MODES, "one computation a call, a chain of them, or as many in one node", choices=MODES),
    Option("hosts", (2, 8, 32, 64, 96, 128, 256, 512), "hosts of the island", least=1),
    Option("cluster", "A", "set-up: A has 4 cores a host"),
    common.NODES,
    Option("ahead", -1, "calls that Pathways' client does not wait for; -1: the paper's number", least=-1),
    Option("compute_ms", 0.0, "milliseconds of a computation, besides AllReduce and add", least=0),
    Option("hop_us", 0.0, "microseconds of ICI latency a hop; 0: from the chip's table", least=0),
    common.WINDOW, common.POLICY, common.PROFILE, common.FIDELITY, common.SEED,
)  # fmt: skip
SIZE = (8.0, 5.6)
AS_THE_PAPERS = {"opbyop": 0, "chained": 1, "fused": 1}
CALLS = {"opbyop": 24, "chained": 6, "fused": 24}
LEAST = {"C = JAX-O": 1.0, "F = JAX-F": 0.95}  # of JAX's rate: ahead of it, or equal to it
PAPER = {"C = JAX-O": 256, "F = JAX-F": 1000}  # cores up to which it is ahead, or equal


def points(options: dict[str, Values]) -> list[Point]:
    """All combinations, except that JAX has no chained programs, and that some options apply only to Pathways."""
    return [
        point for point in grid(options)
        if not (point["system"] == "jax" and point["mode"] == "chained")
        and (point["system"] == PATHWAYS or _first_of(point, options))
    ]  # fmt: skip


def _first_of(point: Point, options: dict[str, Values]) -> bool:
    return all(point[name] == options[name][0] for name in ("ahead", "window", "policy", "fidelity", "seed"))


def measure(point: Point) -> dict[str, Any]:
    setup = common.island(point["cluster"], point["hosts"], hop=round(point["hop_us"] * 1e3))
    mode, kernel = point["mode"], simple(round(point["compute_ms"] * 1e6))
    if point["system"] == PATHWAYS:
        ahead = AS_THE_PAPERS[mode] if point["ahead"] < 0 else point["ahead"]
        found = common.pathways(setup, point, kernel, mode, point["nodes"], ahead=ahead, calls=CALLS[mode] + 2 * ahead)
    else:
        calls = 60 if point["system"] == "jax" else CALLS[mode]
        found = common.other(point["system"], setup, kernel, mode, point["nodes"], point["profile"], calls)
    return {"cores": setup.cluster.devices, "computations_per_s": found}


def draw(frame: pd.DataFrame, axes: Any) -> None:
    colours = {"jax": RED, PATHWAYS: BLUE, "tf1": GREEN, "ray": ORANGE}
    names = {"jax": "JAX", PATHWAYS: "Pathways", "tf1": "TF1-like", "ray": "Ray-like"}
    looks = {"fused": ("-", "s"), "chained": ("--", "D"), "opbyop": (":", "o")}
    for system, colour in colours.items():
        for mode, (dash, marker) in looks.items():
            mine = _one(frame, system, mode)
            if len(mine):
                axes.plot(
                    mine["hosts"], mine["computations_per_s"], dash, color=colour, marker=marker,
                    markeredgecolor="white", markeredgewidth=0.6, label=f"{names[system]} -{mode[0].upper()}",
                )  # fmt: skip
    doublings(axes, frame["hosts"])
    _draw_crossings(frame, axes)
    axes.set_xlabel(f"hosts ({_per_host(frame):g} cores each)")
    axes.set_ylabel("computations a second")
    beside(axes)


def _draw_crossings(frame: pd.DataFrame, axes: Any) -> None:
    """Draw a line at each of the paper's crossings, with ours as text."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, 2.5 * high)  # room for the words
    says = {"C = JAX-O": "-C ahead of JAX -O", "F = JAX-F": "-F equals JAX -F"}
    found = crossings(frame)
    for name, (cores, ratio) in _against_jax(frame).items():
        at = PAPER[name] / _per_host(frame)
        none = "nowhere" if max(ratio) < LEAST[name] else f"no crossing to {max(cores):,}"
        here = f"to {found[name]:,.0f} cores" if name in found else none
        axes.axvline(at, color=QUIET, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1)
        text = f"{says[name]}\npaper: to {PAPER[name]:,} cores\nhere: {here}"
        axes.annotate(
            text, (at, 1.0), (-4, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
            fontsize=8, ha="right", va="top",
        )  # fmt: skip


def _per_host(frame: pd.DataFrame) -> float:
    return float((frame["cores"] / frame["hosts"]).iloc[0])


def _one(frame: pd.DataFrame, system: str, mode: str) -> pd.DataFrame:
    """The rows of one line; of several profiles or clients, the first."""
    mine = frame[(frame["system"] == system) & (frame["mode"] == mode)]
    return mine.drop_duplicates("hosts").sort_values("hosts")


def crossings(frame: pd.DataFrame) -> dict[str, float]:
    """Cores up to which Pathways is not behind JAX: chained against one by one, and fused against fused."""
    found = {}
    for name, (cores, ratio) in _against_jax(frame).items():
        last = crossing(cores, ratio, LEAST[name])
        if last is not None:
            found[name] = last
    return found


def _against_jax(frame: pd.DataFrame) -> dict[str, tuple[list[float], list[float]]]:
    """For each of the paper's crossings, cores and Pathways' rate over JAX's."""
    found = {}
    for name, (ours, theirs) in {"C = JAX-O": ("chained", "opbyop"), "F = JAX-F": ("fused", "fused")}.items():
        one, other = _one(frame, PATHWAYS, ours), _one(frame, "jax", theirs)
        both = one.merge(other, on="cores", suffixes=("", "_jax"))
        if len(both):
            ratio = both["computations_per_s"] / both["computations_per_s_jax"]
            found[name] = list(both["cores"]), list(ratio)
    return found


def crossing(x: Iterable[float], ratio: Iterable[float], least: float) -> float | None:
    """The largest x up to which the ratio is at least `least`, interpolated on logarithmic axes.

    None if the ratio is nowhere that large, or still is at the last point.
    """
    points = sorted(zip(x, ratio, strict=True))
    enough = [at for at, (_, value) in enumerate(points) if value >= least]
    if not enough or enough[-1] == len(points) - 1:
        return None
    (at, value), (after, then) = points[enough[-1] : enough[-1] + 2]
    share = (log(value) - log(least)) / (log(value) - log(then))
    return exp(log(at) + share * (log(after) - log(at)))


def below(x: Iterable[float], ratio: Iterable[float], least: float) -> list[tuple[float, float]]:
    """The points (x, ratio) under the level that lie before the last one that reaches it."""
    points = sorted(zip(x, ratio, strict=True))
    enough = [at for at, (_, value) in enumerate(points) if value >= least]
    return [point for point in points[: enough[-1]] if point[1] < least] if enough else []


def printed_numbers(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The paper's two crossings. Profile `paper`'s cost of a report is fitted to the first."""
    return [
        {
            "what": f"cores up to which {name}", "paper": float(PAPER[name]), "predicted": cores,
            "error": cores / PAPER[name] - 1, "fitted": name.startswith("C"),
        }
        for name, cores in crossings(frame).items()
    ]  # fmt: skip


def findings(frame: pd.DataFrame) -> str:
    lines = [*_crossed(frame), *_against(frame, "tf1"), *_against(frame, "ray"), *_far_ahead(frame)]
    return "\n".join(lines) or "Too few lines were asked for to compare any."


def _crossed(frame: pd.DataFrame) -> list[str]:
    """Compare the crossings with the paper's; say where there is none, and which smaller islands are an exception."""
    lines, found = [], crossings(frame)
    for name, (cores, ratio) in _against_jax(frame).items():
        verb = "faster than JAX -O" if name.startswith("C") else "as fast as JAX -F (within 5 %)"
        paper, last = f"; the paper says up to about {PAPER[name]:,}", max(cores)
        if name in found:
            text = f"is {verb} up to {found[name]:,.0f} cores{paper} ({found[name] / PAPER[name] - 1:+.0%})"
        elif max(ratio) < LEAST[name]:
            text = f"is nowhere {verb}, x{min(ratio):.2g} to x{max(ratio):.2g} of it{paper}"
        else:
            text = f"is {verb} at {last:,} cores, too: no crossing up to there{paper}"
        slow = below(cores, ratio, LEAST[name])
        few = ", ".join(f"x{value:.2f} at {at:,}" for at, value in slow)
        lines.append(f"- Pathways -{name[0]} {text}{f'. An exception: {few} cores' if few else ''}.")
    return lines


def _against(frame: pd.DataFrame, system: str) -> list[str]:
    """Compare with the paper: Pathways is faster than both other single controllers in every mode."""
    found = []
    for mode in MODES:
        ours, theirs = _one(frame, PATHWAYS, mode), _one(frame, system, mode)
        if len(ours) and len(theirs):
            both = ours.merge(theirs, on="hosts", suffixes=("", "_other"))
            ratio = both["computations_per_s"] / both["computations_per_s_other"]
            behind = both["hosts"][ratio < 1]
            where = f"; behind at {', '.join(map(str, behind))} hosts" if len(behind) else ""
            found.append(f"-{mode[0].upper()} x{ratio.min():.2g} to x{ratio.max():.2g}{where}")
    return [f"- Against the {system}-like controller: {'; '.join(found)}."] if found else []


def _far_ahead(frame: pd.DataFrame) -> list[str]:
    """Compare with the paper: JAX -O is far faster than any single controller's -O, and more so with more cores."""
    ours, theirs = _one(frame, PATHWAYS, "opbyop"), _one(frame, "jax", "opbyop")
    if not len(ours) or not len(theirs):
        return []
    both = ours.merge(theirs, on="hosts", suffixes=("", "_jax"))
    ratio = both["computations_per_s_jax"] / both["computations_per_s"]
    first, last = both["hosts"].iloc[0], both["hosts"].iloc[-1]
    return [
        f"- JAX -O is x{ratio.iloc[0]:,.0f} ahead of Pathways -O at {first} hosts, x{ratio.iloc[-1]:,.0f} at {last}."
    ]
