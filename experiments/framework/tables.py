"""Tidy tables: one row a configuration, with options, predictions, the paper's value and the error as columns.

They are written as Parquet for programs and CSV for people. The same rows give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

LAST = ("paper", "error")


def tidy(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A frame with columns in the order of first appearance, `paper` and `error` last. None means missing."""
    import pandas as pd

    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [name for name in names if name not in LAST] + [name for name in LAST if name in names]
    frame = pd.DataFrame({name: [row.get(name) for row in rows] for name in names})
    for name in LAST:
        if name in frame:
            frame[name] = frame[name].astype("float64")
    return frame


def error(predicted: float, paper: float | None) -> float | None:
    """The relative error: +0.1 is ten per cent more than the paper."""
    return None if paper is None else predicted / paper - 1


def split(rows: Sequence[Mapping[str, Any]], extra: Sequence[str]) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """(the tidy frame, long frames from the lists that `measure` returned, with the point's number in each row)."""
    plain = [{name: value for name, value in row.items() if name not in extra} for row in rows]
    long = {
        name: tidy([{"row": at, **each} for at, row in enumerate(rows) for each in row.get(name, ())]) for name in extra
    }
    return tidy(plain), long


def write(frame: pd.DataFrame, stem: Path) -> list[Path]:
    """Write `stem.parquet` and `stem.csv`."""
    parquet, csv = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    frame.to_parquet(parquet, index=False, compression="zstd")
    frame.to_csv(csv, index=False, lineterminator="\n")
    return [parquet, csv]


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table for reports, with numbers to four digits and dashes for missing values."""
    shown = list(frame.columns)
    head = ["| " + " | ".join(shown) + " |", "|" + "---|" * len(shown)]
    rows = frame.itertuples(index=False)
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
