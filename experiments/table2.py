"""Table 2: training a decoder-only language model of 3B parameters, as one computation and as pipelines.

The model has 62 layers of width 2048 and runs on 128 cores, with 2048 sequences a step. SPMD is one computation over
all cores, with each matrix split over a few of them and the batch over the others. Pipelines have S slices of 128/S
cores, each with its share of the layers (one less in the first and the last, which have the embedding and the softmax),
and M micro-batches with 4 sequences a core at a time. All forward passes come before all backward ones, and activations
and gradients move from slice to slice. The TPU compiler prices every computation for its own slice; collectives and
moves are priced by the links they use.

One number is fitted: the chip's efficiency against its compiler's estimate, on the row S=4, M=16. All else is
predicted. The paper does not print the sequence length: 1024 is assumed, and --length sweeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seaway.api import SCHEDULES

from .framework import Option, Point, Values, error, grid
from .framework.figures import BLUE, GREEN, ORANGE, PINK, SKY, beside, printed
from .pricing import book, jobs
from .pricing.shapes import MODELS
from .training import rows
from .training.drive import PARTS

if TYPE_CHECKING:
    import pandas as pd

NAME = "table2"
DECODERS = tuple(name for name in MODELS if name.startswith("LM-"))
OPTIONS = (
    Option("model", "LM-3B", "which decoder", choices=DECODERS),
    Option("cores", 128, "TPU v3 cores", least=8),
    Option("stages", (1, 4, 16), "stages of the pipeline; 1: SPMD", least=1),
    Option("microbatches", 0, "micro-batches; 0: four a stage, or what fills the batch, by four a core", least=0),
    Option("batch", 0, "sequences a step; 0: four a micro-batch and core of a stage; SPMD: 16 a core", least=0),
    rows.LENGTH,
    Option("schedule", "gpipe", "the pipeline's schedule", choices=tuple(SCHEDULES)),
    Option("split", 0, "SPMD: cores to a matrix; 0: so that the mesh has the torus's shape", least=0),
    Option("islands", 1, "islands over which the stages are spread", least=1),
    rows.EFFICIENCY, rows.IN_PARTS, rows.STEPS, rows.PROFILE, rows.SEED,
)  # fmt: skip
SIZE = (8.2, 4.2)


def TITLE(frame: pd.DataFrame) -> str:  # noqa: N802  (an attribute of experiments)
    cores = " and ".join(f"{each:,}" for each in sorted(set(frame["cores"])))
    return f"{', '.join(sorted(set(frame['model'])))} on {cores} cores: where a training step's time goes"


# tokens a second, by cores, stages and micro-batches
PAPER = {(128, 1, 0): 125.7e3, (128, 4, 16): 133.7e3, (128, 16, 64): 131.4e3, (512, 16, 64): 507.8e3}
COLORS = dict(zip(PARTS, (BLUE, ORANGE, SKY, GREEN, PINK), strict=True))


def points(options: dict[str, Values]) -> list[Point]:
    """All combinations, except that SPMD has no micro-batches, and that a pipeline splits no matrix."""
    found = []
    for point in grid(options):
        if point["stages"] == 1:
            first = (options["microbatches"][0], options["schedule"][0], options["islands"][0])
            if (point["microbatches"], point["schedule"], point["islands"]) != first:
                continue
            point |= {"schedule": "-", "islands": 1}
        else:
            if point["split"] != options["split"][0]:
                continue
            point |= {"split": 1}
        sizes = rows.sized(point["batch"], point["microbatches"], point["cores"], point["stages"])
        point |= dict(zip(("batch", "microbatches"), sizes, strict=True))
        found += [point] if point["split"] else [point | {"split": split} for split in _splits(point)]
    return found


def _splits(point: Point) -> list[int]:
    """The usual number of cores to a matrix, which decides the row; half and twice as many, where costs are known."""
    usual = jobs.model_axis(MODELS[point["model"]], point["cores"])
    others = [split for split in (usual // 2, 2 * usual) if split > 0 and point["cores"] % split == 0]
    costs = [jobs.step(point["model"], point["cores"], point["batch"], point["length"], split) for split in others]
    return [usual, *(split for split, job in zip(others, costs, strict=True) if book.is_committed(job))]


def measure(point: Point) -> dict[str, Any]:
    return measured(point).row


def measured(point: Point) -> rows.Measured:
    model = point["model"]
    row = {"system": "pathways", "parameters": MODELS[model].parameters, "sequence_length": point["length"]}
    if point["stages"] == 1:
        job = jobs.step(model, point["cores"], point["batch"], point["length"], point["split"])
        found = rows.partitioned(point, job, point["batch"] * point["length"])
    else:
        found = rows.pipelined(point)
    row |= found.row
    paper = _printed(point)
    row["utilisation"] = rows.utilisation(model, point["length"], row["tokens_per_s"], point["cores"])
    row["fitted"] = not point["efficiency"] and _seed(point)
    return rows.Measured(row | {"paper": paper, "error": error(row["tokens_per_s"], paper)}, found.trained)


def _printed(point: Point) -> float | None:
    same = (point["model"], point["batch"], point["islands"]) == ("LM-3B", 16 * point["cores"], 1)
    splits = (1, jobs.model_axis(MODELS["LM-3B"], point["cores"]))
    usual = point["split"] in splits and point["schedule"] in ("-", "gpipe")
    return PAPER.get((point["cores"], point["stages"], point["microbatches"])) if same and usual else None


def _seed(point: Point) -> bool:
    """Whether this is the row on which the efficiency was fitted."""
    known = {**rows.SEED_ROW, "islands": 1, "schedule": "gpipe"}
    return point["length"] in rows.fits() and all(point[key] == value for key, value in known.items())


def label(row: Any) -> str:
    if row.stages == 1:
        return f"SPMD, {row.split} cores a matrix"
    more = "" if row.schedule == "gpipe" else f", {row.schedule}"
    more += f", {row.islands} islands" if row.islands > 1 else ""
    return f"S={row.stages}, M={row.microbatches}{more}"


def draw(frame: pd.DataFrame, axes: Any) -> None:
    frame = frame.reset_index(drop=True)
    several = frame["length"].nunique() > 1
    for at, row in enumerate(rows.listed(frame)):
        left = 0.0
        parts = PARTS if hasattr(row, "compute_s") else ()
        for part in parts:
            wide = max(0.0, getattr(row, f"{part}_s"))
            axes.barh(at, wide, left=left, color=COLORS[part], height=0.62, label=part if at == 0 else None)
            left += wide
        if not parts:
            axes.barh(at, row.step_s, color=BLUE, height=0.62)
        told = f"{row.tokens_per_s / 1e3:.1f}k" + (" (fitted)" if row.fitted else "")
        axes.annotate(told, (row.step_s, at), (6, -3), textcoords="offset points", fontsize=8.5)
        if rows.known(row.paper):
            step = row.batch * row.length / row.paper
            mark = "" if at else "paper"
            printed(axes, step, at + 0.42, f"{row.paper / 1e3:.1f}k", dx=8, dy=-3, label=mark)
    names = [label(row) + (f", {row.length}" if several else "") for row in rows.listed(frame)]
    axes.set_yticks(range(len(frame)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.16 * float(frame["step_s"].max()))
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("seconds a step; beside the bars, tokens a second")
    beside(axes, handlelength=1.1)


def findings(frame: pd.DataFrame) -> str:
    lines = [rows.SOURCE, *rows.sparse(frame)]
    for row in rows.listed(frame):
        text = f"- {label(row)}, {row.length} tokens a sequence: {row.tokens_per_s / 1e3:.1f}k tokens/s"
        if rows.known(row.paper):
            text += f"; the paper {row.paper / 1e3:.1f}k ({row.error:+.1%}{', fitted on it' if row.fitted else ''})"
        if hasattr(row, "compute_s"):
            text += f". Of a step of {row.step_s:.2f} s: {rows.parts_in_words(row)}"
        lines.append(text + ".")
    lines.append(
        f"- Fitted: one efficiency of the chip ({', '.join(_efficiencies(frame))}), on the row S=4, M=16 at each "
        "sequence length. Predicted: all else. Assumed: the sequence length; a vocabulary of 32 k; that SPMD's mesh "
        "has the shape of the torus, which the paper does not say: rows with other meshes show what hangs on that "
        "(--split). A pipeline's stage is data-parallel inside, "
        "and reduces the gradients of each layer in every backward pass."
    )
    return "\n".join(lines)


def _efficiencies(frame: pd.DataFrame) -> list[str]:
    pairs = frame.drop_duplicates(["length", "efficiency"])
    return [f"{row.efficiency:.3f} at {row.length}" for row in rows.listed(pairs)]
