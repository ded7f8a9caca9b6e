"""Table 1: T5 training throughput is the same under multi-controller JAX and under a single controller.

T5-Base and T5-Large run on 32 cores, T5-3B and T5-11B on 512. A whole training step is one computation, priced by the
TPU compiler. Steps are called one after the other: by every host's own Python (JAX), or by one client through one
controller (Pathways), where the next call is made before the last step ends. The claim is that both are equal, row by
row. The absolute values cannot be derived, since the paper prints neither batch, lengths nor layout (its rows imply 16
to 51 % of peak). Ours are shown beside them, but rest on assumptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sim.baselines import BaselineWork, run

from .framework import Option, Point, Values, error, grid
from .framework.figures import BLUE, RED, note, printed
from .framework.options import profile_of
from .pricing import book, jobs
from .pricing.shapes import MODELS
from .training import rows, setups

if TYPE_CHECKING:
    import pandas as pd

NAME = "table1"
TITLE = "T5 training: a single controller against multi-controller JAX"
CORES = {"T5-Base": 32, "T5-Large": 32, "T5-3B": 512, "T5-11B": 512}
OPTIONS = (
    Option("model", tuple(CORES), "which T5", choices=tuple(CORES)),
    Option("system", ("jax", "pathways"), "the system that dispatches", choices=("jax", "pathways")),
    Option("cores", 0, "TPU v3 cores; 0: the paper's number", least=0),
    Option("batch", 0, "sequences a step; 0: four a core", least=0),
    Option("length", 512, "tokens of an input, which the paper does not print", least=16),
    Option("targets", 0, "tokens of a target; 0: a quarter of the input's", least=0),
    Option("split", 0, "cores to a matrix; 0: one if everything fits on it, else the torus's shorter side", least=0),
    rows.EFFICIENCY, rows.IN_PARTS, rows.STEPS, rows.PROFILE, rows.SEED,
)  # fmt: skip
SIZE = (8.0, 4.2)
PAPER = {"T5-Base": 618e3, "T5-Large": 90.4e3, "T5-3B": 282.8e3, "T5-11B": 84.8e3}  # of both systems


def points(options: dict[str, Values]) -> list[Point]:
    found = []
    for point in grid(options):
        model = MODELS[point["model"]]
        cores = point["cores"] or CORES[point["model"]]
        usual = {"cores": cores, "batch": 4 * cores, "targets": point["length"] // 4}
        usual["split"] = jobs.model_axis(model, cores)
        found.append(point | {key: point[key] or value for key, value in usual.items()})
    return found


def measure(point: Point) -> dict[str, Any]:
    job = jobs.t5_step(
        point["model"], point["cores"], point["batch"], point["length"], point["targets"], point["split"]
    )
    tokens = point["batch"] * (point["length"] + point["targets"])
    row = {"parameters": MODELS[point["model"]].parameters, "sequence_length": point["length"]}
    ours = point["system"] == "pathways"
    row |= rows.partitioned(point, job, tokens).row if ours else _jax(point, job, tokens)
    printed_value = PAPER[point["model"]] if point["cores"] == CORES[point["model"]] else None
    return row | {"paper": printed_value, "error": error(row["tokens_per_s"], printed_value)}


def _jax(point: Point, job: jobs.Job, tokens: int) -> dict[str, Any]:
    """The row of JAX, where every host calls the step by itself."""
    setup, cost = setups.cluster(point["cores"]), book.cost(job)
    efficiency = rows.efficiency(point["efficiency"], point["length"])
    kernel = rows.on_slice(cost.scaled(1 / efficiency).kernel, setup, job.split)
    found = run("jax", setup, BaselineWork(kernel), profile_of(point["profile"]), calls=max(6, point["steps"]))
    return {
        "tokens_per_s": found.per_second * tokens, "step_s": 1 / found.per_second, "efficiency": round(efficiency, 6),
    }  # fmt: skip


def draw(frame: pd.DataFrame, axes: Any) -> None:
    known = rows.listed(frame.drop_duplicates(["model", "system"]))
    models = list(dict.fromkeys(row.model for row in known))
    for number, (system, color, title) in enumerate((("jax", RED, "JAX"), ("pathways", BLUE, "Pathways"))):
        mine = [row for row in known if row.system == system]
        at = [models.index(row.model) + 0.19 * (2 * number - 1) for row in mine]
        axes.bar(at, [row.tokens_per_s / 1e3 for row in mine], 0.36, color=color, label=title)
    firsts = {row.model: row for row in reversed(known)}
    for place, model in enumerate(models):
        if rows.known(firsts[model].paper):
            paper = firsts[model].paper / 1e3
            printed(
                axes, place + 0.46, paper, f"{paper:g}k", dx=-4, dy=8,
                label="" if place else "paper, not to be compared with bars:\nits batch and lengths are not printed",
            )  # fmt: skip
        height = max(row.tokens_per_s for row in known if row.model == model) / 1e3
        note(axes, place, height, f"{height:,.4g}k", dx=0, dy=3, center=True)
    axes.set_xticks(range(len(models)), [f"{model}\n{firsts[model].cores} cores" for model in models])
    axes.margins(y=0.12)
    axes.set_xlim(-0.6, len(models) - 0.3)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("thousand tokens a second")
    axes.legend(loc="upper left")


def pairs(frame: pd.DataFrame) -> list[tuple[Any, Any]]:
    """Pairs of JAX's and Pathways' row, by configuration."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows.listed(frame):
        same = (row.model, row.cores, row.batch, row.length, row.targets, row.split, row.efficiency, row.profile)
        found.setdefault(same, {})[row.system] = row
    return [(both["jax"], both["pathways"]) for both in found.values() if len(both) == 2]


def printed_numbers(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The paper prints the same number for both systems, in every row."""
    return [
        {
            "what": f"{two.model}, cores {two.cores}: Pathways / JAX", "paper": 1.0,
            "predicted": two.tokens_per_s / one.tokens_per_s, "error": two.tokens_per_s / one.tokens_per_s - 1,
            "fitted": False,
        }
        for one, two in pairs(frame)
    ]  # fmt: skip


def findings(frame: pd.DataFrame) -> str:
    lines = [rows.SOURCE]
    for jax, ours in pairs(frame):
        ratio = ours.tokens_per_s / jax.tokens_per_s
        lines.append(
            f"- {jax.model} on {jax.cores} cores, {jax.length} tokens: Pathways / JAX = {ratio:.4f}; the paper 1 "
            f"({ratio - 1:+.2%})."
        )
        if rows.known(jax.paper):
            lines[-1] += (
                f" Absolute, not to be compared: {jax.tokens_per_s / 1e3:.1f}k; the paper {jax.paper / 1e3:g}k."
            )
    lines.append(
        "- Absolute values rest on what the paper does not print: we take four sequences a core, targets of a quarter "
        "of the input's length, both counted, and the chip's efficiency as fitted on Table 2. T5-Base's published "
        "shape has 248M parameters, not 270M."
    )
    return "\n".join(lines)
