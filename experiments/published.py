"""Published training throughput that nothing was fitted to, each row predicted as a user would.

A row of experiments/data/published.toml says how a model was trained, and how fast that was. A stage's layers are a
JAX program over a mesh, priced by its roofline for the published chip. A pipeline of such stages runs in the simulator,
micro-batch by micro-batch, and then gradients are reduced. The columns after the error repeat the prediction under
other assumptions: computation 10 % faster and slower, no collective beside computation, collectives that take no time.
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from .framework import BadOption, Option, Point, Values, catalogue, error, tables
from .framework.figures import BLACK, BLUE
from .framework.options import nearest, profile_of, read_all
from .pricing import book
from .pricing.rooflines import Plan
from .pricing.shapes import Decoder, flops_per_token
from .training import planned
from .training.rows import listed

if TYPE_CHECKING:
    import pandas as pd

    from sim.hardware import Profile

NAME = "published"
OPTIONS = (
    Option("row", ("all",), "names of rows; all: every row"),
    Option("profile", "ideal", "host costs: ideal, seaway, paper, a TOML file"),
)
SIZE = (8.2, 7.0)
PLAIN = {"parts": False}  # an option of Pathways' tables
OF_PLAN, OF_MODEL = set(Plan.__struct_fields__), set(Decoder.__struct_fields__)
ASSUMPTIONS: dict[str, dict[str, Any]] = {
    "faster": {"computing": 0.9},
    "slower": {"computing": 1.1},
    "no_overlap": {"overlap": False},
    "free": {"free": True},
}


@cache
def rows() -> dict[str, dict[str, Any]]:
    """Every row with what its study shares, by name."""
    studies = tomllib.loads((book.DATA / "published.toml").read_text(encoding="utf-8"))["study"]
    found = [
        {"source": study["source"], "assumed": study.get("assumed", ""), "in": study["in"], **study["shared"], **row}
        for study in studies for row in study["row"]
    ]  # fmt: skip
    return {row["name"]: row for row in found}


def plan(row: dict[str, Any]) -> Plan:
    shape = {"d_ff": 4 * row["d_model"], "d_head": row["d_model"] // row["heads"]}
    model = Decoder(**shape | {key: row[key] for key in row if key in OF_MODEL})
    made = Plan(model=model, topology="", **{key: row[key] for key in row if key in OF_PLAN})
    return msgspec.structs.replace(made, topology=f"{row['chip']}-{made.devices}")


def points(options: dict[str, Values]) -> list[Point]:
    names = list(rows()) if options["row"] == ("all",) else [str(name) for name in options["row"]]
    for name in names:
        if name not in rows():
            raise BadOption(f"--row: no row {name!r}; {nearest(name, list(rows()))}")
    return [{"row": name, "profile": profile} for name in names for profile in options["profile"]]


def measure(point: Point) -> dict[str, Any]:
    row = rows()[point["row"]]
    found: dict[str, Any] = {
        "source": row["source"], "in": row["in"], "assumed": row["assumed"], "cannot": row.get("cannot", ""),
    }  # fmt: skip
    if "experiment" in row:
        table = catalogue.load(row["experiment"])
        found["predicted"] = table.measure(table.points(read_all(table.OPTIONS, row["options"] | PLAIN))[0])[
            "tokens_per_s"
        ]
    elif not found["cannot"]:
        profile = profile_of(point["profile"])
        run = _Run(plan(row), profile)
        base = _Run(plan(row | row["against"]), profile) if "against" in row else run
        for name, how in {"predicted": {}, **ASSUMPTIONS}.items():
            found[name] = told(row, run.plan, run.seconds(**how), base.seconds(**how))
    return found | {
        "published": row["published"],
        "error": error(found.get("predicted", float("nan")), row["published"]),
    }


class _Run:
    """A plan's step, simulated as it is; under other assumptions it takes as much longer as its busiest slice works."""

    def __init__(self, of: Plan, profile: Profile) -> None:
        self.plan, self.costs = of, planned.costs(of)
        self.usual = planned.step_seconds(of, self.costs, profile)

    def seconds(self, **how: Any) -> float:
        if not how:
            return self.usual
        return self.usual * planned.work(self.plan, self.costs, **how) / planned.work(self.plan, self.costs)


def told(row: dict[str, Any], of: Plan, seconds: float, base: float) -> float:
    """A step's time in the unit of its source. Errors are of rates or of times, as published."""
    model = flops_per_token(of.model, of.length)
    again = 2.0 * of.model.layers * (of.model.per_layer + 2 * of.length * of.model.heads * of.model.d_head)
    rate = of.tokens / seconds
    return {
        "seconds": seconds, "tokens/s": rate, "speedup": base / seconds,
        "model TFLOP/s": rate * model / of.devices / 1e12, "TFLOP/s": rate * (model + again) / of.devices / 1e12,
    }[row["in"]]  # fmt: skip


def draw(frame: pd.DataFrame, axes: Any) -> None:
    shown = frame[frame["error"].notna()].iloc[::-1]
    axes.barh(range(len(shown)), 100 * shown["error"], color=BLUE, height=0.6)
    axes.axvline(0, color=BLACK, linewidth=0.8)
    axes.set_yticks(range(len(shown)), list(shown["row"]))
    axes.set_xlabel("error of the prediction, %")
    axes.grid(visible=False, axis="y")


def findings(frame: pd.DataFrame) -> str:
    known = frame.reindex(columns=[*dict.fromkeys([*frame.columns, "predicted", *ASSUMPTIONS])])
    done = known[known["predicted"].notna()]
    columns = ["row", "in", "published", "predicted", "error", *ASSUMPTIONS]
    lines = [tables.markdown(done[columns]), ""] if len(done) else []
    alone = done[done["faster"].notna()]
    if len(alone):
        lines += _errors(alone)
    for row in listed(known[known["predicted"].isna()]):
        unit = rows()[row.row]["in"]
        lines.append(f"- {row.row} (published: {row.published:g} {unit}) cannot be predicted: {row.cannot}.")
    for source, assumed in dict(zip(known["source"], known["assumed"], strict=True)).items():
        lines.append(f"- {source}." + (f" Assumed: {assumed}." if assumed else ""))
    return "\n".join(lines)


def _errors(done: pd.DataFrame) -> list[str]:
    """How far predictions are off, under each assumption, and what one factor for each chip would leave."""
    worst = max(listed(done), key=lambda row: abs(row.error))
    median = done["error"].abs().median()
    lines = [f"- {len(done)} rows, nothing fitted: median error {median:.1%}, worst {worst.error:+.1%} ({worst.row})."]
    for name in ASSUMPTIONS:
        moved, wrong = (done[name] / done["predicted"] - 1).abs(), (done[name] / done["published"] - 1).abs()
        lines.append(
            f"- {name}: moves predictions by {moved.median():.1%}; the median error would be {wrong.median():.1%}."
        )
    times = (done["error"] + 1).where(done["in"] == "seconds", 1 / (done["error"] + 1))
    chips = done["row"].map(lambda name: rows()[name]["chip"])
    others = (times / times.groupby(chips).transform("first") - 1)[chips.duplicated()].abs()
    if len(others):
        lines.append(
            f"- Of the times: if one factor for each chip were fitted on its first row, the {len(others)} others would "
            f"be off by {others.median():.1%} in the median, {others.max():.1%} at most."
        )
    return lines
