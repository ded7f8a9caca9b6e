"""Tidy tables: one row a configuration, options and predictions as columns, the paper's value and the error beside.

Parquet for machines, CSV for eyes; the same rows are the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

LAST = ("paper", "error")


def tidy(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Columns in the order in which they first come; `paper` and `error` last. What is None is missing."""
    import pandas as pd

    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [name for name in names if name not in LAST] + [name for name in LAST if name in names]
    frame = pd.DataFrame({name: [row.get(name) for row in rows] for name in names})
    for name in LAST:
        if name in frame:
            frame[name] = frame[name].astype("float64")
    return frame


def error(predicted: float, paper: float | None) -> float | None:
    """Relative: +0.1 is ten per cent more than the paper."""
    return None if paper is None else predicted / paper - 1


def split(
    rows: Sequence[Mapping[str, Any]], extra: Sequence[str]
) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """The tidy frame, and the long ones: what `measure` gave as lists, each row with its point's number."""
    plain = [{name: value for name, value in row.items() if name not in extra} for row in rows]
    long = {
        name: tidy([{"row": at, **each} for at, row in enumerate(rows) for each in row.get(name, ())])
        for name in extra
    }
    return tidy(plain), long


def write(frame: pd.DataFrame, stem: Path) -> list[Path]:
    """`stem.parquet` and `stem.csv`."""
    parquet, csv = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    frame.to_parquet(parquet, index=False, compression="zstd")
    frame.to_csv(csv, index=False, lineterminator="\n")
    return [parquet, csv]


def markdown(frame: pd.DataFrame, columns: Sequence[str] = ()) -> str:
    """For reports: numbers to four figures, what is missing as a dash."""
    shown = list(columns) or list(frame.columns)
    head = ["| " + " | ".join(shown) + " |", "|" + "---|" * len(shown)]
    rows = frame[shown].itertuples(index=False)
    return "\n".join(head + ["| " + " | ".join(map(_cell, shown, row)) + " |" for row in rows])


def _cell(column: str, value: Any) -> str:
    import pandas as pd

    if pd.isna(value):
        return "-"
    if column == "error":
        return f"{value:+.1%}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
