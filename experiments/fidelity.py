"""Makes a table of every number printed in the paper: our prediction, its error, and whether anything was fitted to it.

`python -m experiments fidelity` runs the needed part of each experiment. `python -m experiments all` makes the same
table from its results. Numbers come from rows with a value in `paper` (or `paper_gb`, with `error_gb`), and from an
experiment's `printed_numbers`, if they follow from several rows, such as the crossing of two lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .framework import tables

if TYPE_CHECKING:
    import pandas as pd

    from .framework.running import Result

NAME = "fidelity"
NEEDED: dict[str, dict[str, object]] = {
    "fig5": {"system": ("pathways", "jax"), "hosts": (32, 64, 96, 128, 256, 512)},
    "fig6": {"hosts": (16, 512), "curve": 0},
    "fig11": {"clients": (1, 8)},
    "table1": {"parts": False},
    "table2": {"parts": False},
    "fig10": {"parts": False},
    "fig12": {"parts": False},
}
PAPER = "paper"
ASSUMED = ("table1",)  # its absolute numbers need assumptions; that two systems are equal does not
# Numbers of 1 that no fault of the model could have moved by much: they show that nothing is broken, and count apart.
SURE = {
    "fig11": "devices that always have work are always busy",
    "table1": "both systems run the same computations, which take a hundred times what hosts take",
}
COLUMNS = ("experiment", "what", "paper", "predicted", "error", "fitted")
FITTED, RESTS, CANNOT, PREDICTED = "fitted", "rests on assumptions", "could not be wrong", "predicted"
WORDS = ("cluster", "hosts", "model", "schedule", "cores", "islands", "stages", "microbatches", "clients", "system")


def numbers(name: str, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The paper's numbers that this experiment's rows predict."""
    from .framework.catalogue import load

    found = [each for _, row in frame.iterrows() for each in _of_row(name, row)]
    told = getattr(load(name), "printed_numbers", None)
    return found + [{"experiment": name, **each} for each in (told(frame) if told is not None else ())]


def _of_row(name: str, row: pd.Series[Any]) -> Iterator[dict[str, Any]]:
    for column in row.index:
        kind = str(column).removeprefix(PAPER)
        if not str(column).startswith(PAPER) or f"error{kind}" not in row.index or not _known(row[column]):
            continue
        said, wrong = float(row[column]), float(row[f"error{kind}"])
        yield {
            "experiment": name, "what": _what(row) + kind.replace("_", ", in "), "paper": said,
            "predicted": said * (1 + wrong), "error": wrong, "fitted": _fitted(name, row),
        }  # fmt: skip


def _what(row: pd.Series[Any]) -> str:
    return ", ".join(f"{word} {row[word]}" for word in WORDS if word in row.index and _known(row[word]))


def _fitted(name: str, row: pd.Series[Any]) -> bool:
    """Whether something was fitted to the number: to figure 6's for profile `paper`, else if the row says so."""
    if name == "fig6":
        return bool(row["profile"] == PAPER)
    return bool(row["fitted"]) if "fitted" in row.index else False


def _known(value: object) -> bool:
    import pandas as pd

    return value is not None and not bool(pd.isna(value))  # type: ignore[call-overload]


def table(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row a printed number, in the order of the experiments."""
    rows = [row for name, frame in frames.items() for row in numbers(name, frame)]
    if not rows:
        return tables.tidy(rows)
    found = tables.tidy(rows)[list(COLUMNS)]
    return found.drop_duplicates(["experiment", "what", "paper"]).reset_index(drop=True)


def kind(row: Any) -> str:
    """What a number says about the model."""
    if row.fitted:
        return FITTED
    if row.experiment in ASSUMED and row.what.startswith("model"):
        return RESTS
    return CANNOT if row.experiment in SURE and row.paper == 1 else PREDICTED


def text(found: pd.DataFrame) -> str:
    kinds = [kind(row) for row in found.itertuples()]
    shown = found.assign(fitted=kinds).rename(columns={"fitted": "kind"})
    errors = found["error"][[each == PREDICTED for each in kinds]].abs().dropna()
    lines = ["# fidelity: every printed number of the Pathways paper", "", tables.markdown(shown), ""]
    if len(errors):
        lines.append(
            f"{len(errors)} of {len(found)} numbers are predicted: nothing was fitted to them, and they could have "
            f"come out otherwise. Their median error is {errors.median():.1%}, the largest {errors.max():.1%}."
        )
    if CANNOT in kinds:
        why = "; ".join(f"{name}: {SURE[name]}" for name in SURE if name in set(found["experiment"]))
        lines.append(f"{kinds.count(CANNOT)} could not be wrong, and count apart ({why}).")
    if RESTS in kinds:
        lines.append(f"{kinds.count(RESTS)} rest on what the paper does not print.")
    lines.append("What the paper says in words (who is ahead, where) each experiment's findings compare.")
    return "\n".join(lines) + "\n"


def write(found: pd.DataFrame, out: Path) -> list[Path]:
    out.mkdir(parents=True, exist_ok=True)
    files = tables.write(found, out / NAME)
    report = out / f"{NAME}.md"
    report.write_text(text(found), encoding="utf-8")
    return [*files, report]


def of(results: Sequence[Result], out: Path) -> tuple[str, list[Path]]:
    """(the table of these results as text, the files written)."""
    found = table({result.name: result.frame for result in results if len(result.frame)})
    if not len(found):
        return "", []
    return text(found), write(found, out)


def run(jobs: int | None = None, progress: bool = True) -> pd.DataFrame:
    """Run the needed part of each experiment, and return the table."""
    from seaway.tools import sweeping

    from .framework import catalogue
    from .framework import run as run_one

    frames = {}
    jobs = jobs or sweeping.cores()
    with sweeping.processes(jobs) if jobs > 1 else nullcontext() as pool:
        for name in filter(catalogue.names().__contains__, NEEDED):
            frames[name] = run_one(name, NEEDED[name], executor=pool, jobs=jobs, progress=progress).frame
    return table(frames)
