"""Figure 10: a pipeline over four islands runs as fast as on one, since its transfers hide behind computation.

It trains the 3B model of Table 2 in 16 stages of 8 cores, with 64 micro-batches. Either all stages are on one island of
128 cores and pass activations over ICI; or four stages are on each of four islands of 32 cores, and every fourth
boundary is the data-centre network. The program is the same; only its slices are placed differently. The lower part of
the figure shows one step on four islands, by stage.
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

from seaway.api import SCHEDULES

from . import table2
from .framework import Option, Point, Values
from .framework.figures import BLACK, BLUE, GREEN, ORANGE
from .training import rows
from .training.drive import Trained

if TYPE_CHECKING:
    import pandas as pd

NAME = "fig10"
TITLE = "A pipeline of 16 stages on one island and on four"
OPTIONS = (
    Option("model", "LM-3B", "which decoder", choices=table2.DECODERS),
    Option("cores", 128, "TPU v3 cores in all", least=8),
    Option("islands", (1, 4), "islands with equal parts of the cores, joined by the data-centre network", least=1),
    Option("stages", 16, "stages of the pipeline", least=2),
    Option("microbatches", 0, "micro-batches; 0: four a stage, or what fills the batch, by four a core", least=0),
    Option("batch", 0, "sequences a step; 0: four a micro-batch and core of a stage; SPMD: 16 a core", least=0),
    rows.LENGTH,
    Option("schedule", "gpipe", "the pipeline's schedule", choices=tuple(SCHEDULES)),
    rows.EFFICIENCY, rows.IN_PARTS, rows.STEPS, rows.PROFILE, rows.SEED,
)  # fmt: skip
PANELS = (2, 1)
SIZE = (8.6, 6.4)
EXTRA = ("intervals",)
LOOK = {"forward": BLUE, "backward": ORANGE, "update": GREEN}


def points(options: dict[str, Values]) -> list[Point]:
    return table2.points({**options, "split": (0,)})


def measure(point: Point) -> dict[str, Any]:
    row, trained = table2.measured({**point, "split": 1})
    return row | {"paper": None, "error": None, "intervals": intervals(trained)}


def intervals(trained: Trained) -> list[dict[str, Any]]:
    """Rows of the last step: each node's kind, slice and number (from its name), and its times in seconds."""
    since, until = trained.window
    gangs, words = trained.sim.trace.gangs, trained.sim.trace.strings.words
    columns = zip(*(gangs.column(name) for name in ("step", "started", "ended")), strict=True)
    found = []
    for step, started, ended in columns:
        if ended <= since or started >= until or started < 0:
            continue
        kind, at, *number = words[step].split()
        found.append({
            "kind": kind, "slice": int(at), "number": int(number[0]) if number else 0,
            "start_s": (started - since) / 1e9, "end_s": (ended - since) / 1e9,
        })  # fmt: skip
    return sorted(found, key=lambda row: (row["slice"], row["start_s"]))


def draw(frame: pd.DataFrame, axes: Any, intervals: pd.DataFrame) -> None:
    above, below = axes
    above.get_gridspec().set_height_ratios((1, 2.2))
    table2.draw(frame.assign(paper=[_printed(row) for row in rows.listed(frame)], fitted=False), above)
    above.set_yticks(range(len(frame)), [_where(row) for row in rows.listed(frame)])
    shown = frame.reset_index(drop=True)
    at = list(shown["islands"]).index(max(shown["islands"]))
    mine = intervals[intervals["row"] == at]
    _bars(below, mine)
    _islands(below, shown.loc[at], float(mine["end_s"].max()))
    below.set_xlabel(f"seconds of one step; what is white is a bubble, black lines are between the "
                     f"{max(shown['islands'])} islands")  # fmt: skip
    below.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _bars(axes: Any, mine: pd.DataFrame) -> None:
    for kind, color in LOOK.items():
        some = mine[mine["kind"] == kind]
        spans = some["end_s"] - some["start_s"]
        axes.barh(some["slice"], spans, left=some["start_s"], height=0.86, color=color, label=kind, linewidth=0)
    axes.set_ylabel("stage")
    axes.set_ylim(max(mine["slice"]) + 0.6, -0.6)
    axes.grid(visible=False)


def _printed(row: Any) -> float:
    """The paper prints one island's number, and says that four are as fast."""
    same = (row.model, row.batch, row.schedule) == ("LM-3B", 16 * row.cores, "gpipe")
    return table2.PAPER.get((row.cores, row.stages, row.microbatches), nan) if same else nan


def _where(row: Any) -> str:
    each = f"{row.cores // row.islands} cores"
    return f"{row.islands} islands of {each}" if row.islands > 1 else f"one island of {each}"


def _islands(axes: Any, row: Any, until: float) -> None:
    """Draw lines where the pipeline goes on to another island."""
    for island in range(1, row["islands"]):
        axes.axhline(island * row["stages"] / row["islands"] - 0.5, color=BLACK, linewidth=0.8)
    axes.set_xlim(0, until)


def pairs(frame: pd.DataFrame) -> list[tuple[Any, Any]]:
    """One island, and the same on several."""
    return rows.one_and_several(frame, "stages", "microbatches", "schedule")


def printed_numbers(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The paper's figure shows equal throughput."""
    found = []
    for one, other in pairs(frame):
        ratio = other.tokens_per_s / one.tokens_per_s
        what = f"S={one.stages}, M={one.microbatches}: {other.islands} islands / one, throughput"
        found.append({"what": what, "paper": 1.0, "predicted": ratio, "error": ratio - 1, "fitted": False})
    return found


def findings(frame: pd.DataFrame) -> str:
    first, *others = table2.findings(frame).splitlines()
    lines = [first]
    for one, other in pairs(frame):
        ratio = other.tokens_per_s / one.tokens_per_s
        lines.append(
            f"- S={one.stages}, M={one.microbatches}: {other.tokens_per_s / 1e3:.1f}k tokens/s on {other.islands} "
            f"islands, {one.tokens_per_s / 1e3:.1f}k on one: {ratio - 1:+.2%}; the paper: as fast."
        )
        if hasattr(one, "transfers_s"):
            lines[-1] += (
                f" Of a step of {one.step_s:.2f} s, what transfers add: {one.transfers_s * 1e3:.1f} ms on one island, "
                f"{other.transfers_s * 1e3:.1f} ms on {other.islands}."
            )
    return "\n".join([*lines, *others])
