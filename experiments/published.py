"""Published training throughput that nothing was fitted to, each row predicted as a user would.

A row of experiments/data/published.toml says how a model was trained, and how fast that was. One layer is a JAX program
over a mesh, priced by its roofline for the published chip; stages of such layers run in the simulator, micro-batch by
micro-batch, and gradients are reduced at the end. Nothing is fitted to any row. The columns after the error repeat the
prediction under other assumptions: computation 10 % faster and slower, no collective beside computation, and
collectives that take no time.
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from .framework import Option, Point, Values, error, tables
from .framework.figures import BLACK, BLUE
from .framework.options import BadOption, nearest, profile_of
from .pricing import book
from .pricing.rooflines import Plan
from .pricing.shapes import Decoder, flops_per_token
from .training import planned

if TYPE_CHECKING:
    import pandas as pd

NAME = "published"
OPTIONS = (
    Option("row", ("all",), "names of rows; all: every row"),
    Option("profile", "ideal", "host costs: ideal, seaway, paper, a TOML file"),
)
SIZE = (8.2, 7.0)
OF_PLAN, OF_MODEL = set(Plan.__struct_fields__), set(Decoder.__struct_fields__)
ASSUMPTIONS: dict[str, dict[str, Any]] = {
    "faster": {"computing": 0.9}, "slower": {"computing": 1.1}, "no_overlap": {"overlap": False}, "free": {"free": True},
}  # fmt: skip


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
    if not found["cannot"]:
        of, profile = plan(row), profile_of(point["profile"])
        seconds, usual = planned.step_seconds(of, profile), planned.work(of)
        base = 0.0
        if "against" in row:
            base = planned.step_seconds(plan(row | row["against"]), profile)
        found |= {"step_s": seconds, "predicted": told(row, of, seconds, base)}
        for name, how in ASSUMPTIONS.items():
            found[name] = told(row, of, seconds * planned.work(of, **how) / usual, base * how.get("computing", 1))
    return found | {"paper": row["published"], "error": error(found.get("predicted", float("nan")), row["published"])}


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
    columns = ["row", "in", "paper", "predicted", "error", *ASSUMPTIONS]
    done = frame[frame["error"].notna()]
    lines = [tables.markdown(done[columns].rename(columns={"paper": "published"})), ""] if len(done) else []
    if len(done):
        worst = done.loc[done["error"].abs().idxmax()]
        lines.append(
            f"- {len(done)} rows, and nothing was fitted to any: the median error is {done['error'].abs().median():.1%}, "
            f"the largest {worst['error']:+.1%} ({worst['row']})."
        )
        for name in ASSUMPTIONS:
            moved, wrong = (done[name] / done["predicted"] - 1).abs(), (done[name] / done["paper"] - 1).abs()
            lines.append(f"- {name}: moves predictions by {moved.median():.1%}; the median error would be {wrong.median():.1%}.")
    for row in frame[frame["error"].isna()].itertuples():
        lines.append(f"- {row.row} (published: {row.paper:g} {rows()[row.row]['in']}): cannot be predicted: {row.cannot}.")
    for source, assumed in dict(zip(frame["source"], frame["assumed"], strict=True)).items():
        lines.append(f"- {source}." + (f" Assumed: {assumed}." if assumed else ""))
    return "\n".join(lines)
