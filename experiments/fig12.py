"""Figure 12: data parallelism over two islands costs little, compared with one island of twice the devices.

It trains a decoder of 64B parameters on two islands of 512 cores, and one of 136B on two of 1024. Each island takes
half of the batch, runs forward and backward passes with its matrices split over the island, reduces gradients over ICI,
sends them to the other island over the data-centre network, applies its own and the received ones, and starts the next
step. The passes are cut into segments of layers (--segments), so that gradients are sent while others are computed. The
baseline is one island of twice the devices, with the whole batch and its matrices split over as many cores.

The paper prints the models' sizes and the bytes that cross, 457 GB and 1030 GB a step. Shapes, batch and sequence
length are our assumptions (see experiments/pricing/shapes.py). The bytes follow from them: a float32 gradient of every
parameter, each way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import table2
from .framework import Option, Point, Values, error, grid
from .framework.figures import BLACK, BLUE, ORANGE, note
from .pricing import jobs
from .pricing.shapes import MODELS
from .training import rows

if TYPE_CHECKING:
    import pandas as pd

NAME = "fig12"
TITLE = "Data parallelism over two islands, and one of twice the devices"
CORES = {"LM-64B": 1024, "LM-136B": 2048}  # in all
OPTIONS = (
    Option("model", tuple(CORES), "which decoder", choices=table2.DECODERS),
    Option("cores", 0, "TPU v3 cores in all; 0: the paper's number", least=0),
    Option("islands", (1, 2), "islands with equal parts of the cores", least=1),
    Option("split", 0, "cores to a matrix; 0: the shorter side of the smallest island's torus", least=0),
    Option("segments", 2, "segments of layers whose gradients are sent separately", least=1),
    Option("batch", 2048, "sequences a step in all", least=1),
    rows.LENGTH,
    rows.EFFICIENCY, rows.IN_PARTS, rows.STEPS, rows.PROFILE, rows.SEED,
)  # fmt: skip
SIZE = (8.2, 4.4)
PAPER_GB = {"LM-64B": 457.0, "LM-136B": 1030.0}  # that cross in a step


def points(options: dict[str, Values]) -> list[Point]:
    """All rows of a model have one split, the smallest island's, so that they compare like with like."""
    found, smallest = [], max(int(islands) for islands in options["islands"])
    for point in grid(options):
        cores = point["cores"] or CORES.get(point["model"], 128)
        split = point["split"] or jobs.model_axis(MODELS[point["model"]], cores // smallest)
        found.append(point | {"cores": cores, "split": split})
    return found


def measure(point: Point) -> dict[str, Any]:
    model = point["model"]
    found = rows.exchanged(point).row
    paper = PAPER_GB.get(model) if (point["islands"], point["cores"]) == (2, CORES.get(model)) else None
    return {
        "system": "pathways", "parameters": MODELS[model].parameters, "sequence_length": point["length"], **found,
        "utilisation": rows.utilisation(model, point["length"], found["tokens_per_s"], point["cores"]),
        "paper_gb": paper, "error_gb": error(found["moved_gb"], paper), "paper": None, "error": None,
    }  # fmt: skip


def label(row: Any) -> str:
    each = f"{row.cores // row.islands:,} cores"
    where = f"{row.islands} islands of {each}" if row.islands > 1 else f"one island of {each}"
    return f"{row.model.removeprefix('LM-')}\n{where}"


def draw(frame: pd.DataFrame, axes: Any) -> None:
    known = rows.listed(frame)
    lines = {other.Index: one.tokens_per_s for one, other in pairs(frame)}  # where text must not stand
    for at, row in enumerate(known):
        axes.barh(at, row.tokens_per_s / 1e3, color=BLUE if row.islands == 1 else ORANGE, height=0.62)
        right = max(row.tokens_per_s, lines.get(row.Index, 0.0)) / 1e3
        note(axes, right, at, f"{row.tokens_per_s / 1e3:,.1f}k", dx=6, dy=-3)
    for number, (one, other) in enumerate(pairs(frame)):
        ends = [place for place, row in enumerate(known) if row.Index in (one.Index, other.Index)]
        axes.plot(
            [one.tokens_per_s / 1e3] * 2, [min(ends) - 0.45, max(ends) + 0.45], color=BLACK, linewidth=1.1,
            linestyle="--", label=None if number else "as fast as one island; the paper: close to it",
        )  # fmt: skip
        at = next(place for place, row in enumerate(known) if row.Index == other.Index)
        ratio = other.tokens_per_s / one.tokens_per_s
        said = f" (paper: {other.paper_gb:,.0f})" if rows.known(other.paper_gb) else ""
        note(axes, 0, at, f"{ratio:.1%} of one island; {other.moved_gb:,.0f} GB cross{said}", dx=6, dy=-3)
    axes.set_yticks(range(len(known)), [label(row) for row in known])
    axes.invert_yaxis()
    axes.margins(x=0.14)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("thousand tokens a second")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), borderpad=0.2)


def pairs(frame: pd.DataFrame) -> list[tuple[Any, Any]]:
    """One island, and the same devices as several."""
    return rows.one_and_several(frame, "segments", "split")


def findings(frame: pd.DataFrame) -> str:
    lines = [rows.SOURCE]
    for one, other in pairs(frame):
        ratio = other.tokens_per_s / one.tokens_per_s
        lines.append(
            f"- {one.model}: {other.tokens_per_s / 1e3:.1f}k tokens/s on {other.islands} islands of "
            f"{other.cores // other.islands} cores, {one.tokens_per_s / 1e3:.1f}k on one of {one.cores}: {ratio:.1%}; "
            f"the paper: close. {other.moved_gb:,.0f} GB cross in a step"
        )
        if rows.known(other.paper_gb):
            lines[-1] += f"; the paper {other.paper_gb:,.0f} ({other.error_gb:+.1%})"
        if hasattr(one, "compute_s"):
            lines[-1] += (
                f". Of {other.step_s:.1f} s: {rows.parts_in_words(other)}; of one island's {one.step_s:.1f} s: "
            )
            lines[-1] += rows.parts_in_words(one)
        lines[-1] += "."
    lines.append(
        "- Assumed: the shapes of both models, 2048 sequences a step, their length, gradients as float32, and the "
        "chip's efficiency as fitted on Table 2. Predicted: all else."
    )
    return "\n".join(lines)
