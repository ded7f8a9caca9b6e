"""Runs one experiment: options go in; a table, a figure and a report come out, also as files.

NAME.parquet, NAME.csv     one tidy row a configuration
NAME.png, NAME.svg         the figure
NAME.md                    findings, the command that repeats them, and what is fitted or predicted
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seaway.tools.sweeping import gather

from . import catalogue, figures, tables
from .catalogue import EXPERIMENTS, Experiment
from .options import Values, command, describe, read_all

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Result:
    name: str
    frame: pd.DataFrame
    text: str = ""
    figure: Any = None
    extra: dict[str, pd.DataFrame] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stopped: bool = False


def run(
    name: str,
    asked: Mapping[str, object] | None = None,
    /,
    *,
    out: str | Path | None = None,
    executor: Executor | None = None,
    jobs: int | None = None,
    progress: bool = True,
    **more: object,
) -> Result:
    """Run an experiment: `run("fig5", hosts=[2, 8]).frame`. `out`: a folder for the files; None: write none."""
    experiment = catalogue.load(name)
    chosen = read_all(experiment.OPTIONS, {**(asked or {}), **more})
    points = catalogue.named(name, experiment.points(chosen))
    found = gather(points, catalogue.measured, executor, jobs=jobs, title=name if progress else "")
    wanted = tuple(getattr(experiment, "EXTRA", ()))
    rows = [{key: value for key, value in found.rows[at].items() if key != "experiment"} for at in sorted(found.rows)]
    frame, extra = tables.split(rows, wanted)
    failed = [f"{_short(points[at])}: {why}" for at, why in sorted(found.failed.items())]
    result = Result(name, frame, extra=extra, failed=failed, stopped=found.stopped)
    if rows:
        result.text = _report(experiment, chosen, result)
        result.figure = _drawn(experiment, result)
    elif failed:
        told = [f"# {name}: {EXPERIMENTS[name]}", "", "NOTHING could be measured.", ""]
        result.text = "\n".join([*told, *(f"failed: {why}" for why in failed)]) + "\n"
    if out is not None and rows:
        _write(result, Path(out))
    return result


def _drawn(experiment: Experiment, result: Result) -> Any:
    size = getattr(experiment, "SIZE", (7.0, 4.5))
    title: Any = getattr(experiment, "TITLE", f"{result.name}: {EXPERIMENTS[result.name]}")
    title = title(result.frame) if callable(title) else title
    draw: Any = experiment.draw
    with figures.styled():
        figure, axes = figures.new(getattr(experiment, "PANELS", (1, 1)), size, title)
        try:
            draw(result.frame, axes, **result.extra)
        except Exception as error:
            if not (result.failed or result.stopped):
                raise
            print(
                f"{result.name}: the incomplete results could not be drawn ({type(error).__name__}: {error})",
                file=sys.stderr,
            )
            return None
    return figure


def _report(experiment: Experiment, chosen: Mapping[str, Values], result: Result) -> str:
    """The text of the report: findings, the command, fitted values and failures."""
    lines = [f"# {result.name}: {EXPERIMENTS[result.name]}", ""]
    if result.failed or result.stopped:
        why = "stopped by hand" if result.stopped else f"{len(result.failed)} failed"
        lines += [f"INCOMPLETE: {len(result.frame)} configurations were measured; {why}.", ""]
    try:
        lines += [experiment.findings(result.frame).rstrip(), ""]
    except Exception as error:
        if not (result.failed or result.stopped):
            raise
        lines += [f"The incomplete results gave no findings ({type(error).__name__}: {error}).", ""]
    lines += [f"Again: `{command(result.name, experiment.OPTIONS, chosen)}`", ""]
    for profile in chosen.get("profile", ()):
        lines += [describe(str(profile)), ""]
    for why in result.failed:
        lines.append(f"failed: {why}")
    return "\n".join(lines).rstrip() + "\n"


def _write(result: Result, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    stem = out / result.name
    result.files += tables.write(result.frame, stem)
    for name, frame in result.extra.items():
        result.files += tables.write(frame, out / f"{result.name}-{name}")
    if result.figure is not None:
        result.files += figures.save(result.figure, stem)
    text = stem.with_suffix(".md")
    picture = f"\n![{result.name}]({result.name}.svg)\n" if result.figure is not None else ""
    text.write_text(result.text + picture, encoding="utf-8")
    result.files.append(text)


def _short(point: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in point.items() if name != "experiment")
