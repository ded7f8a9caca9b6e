"""Arrivals and jobs from a CSV or Parquet file with a row for each, and back.

    at_s,client,name,input,output
    0.5,ann,chat,812,64

A column has the name of a field. If that is a time, its unit comes behind it (ns, us, ms or s), and then, if it is only
for one kind of device, the kind: `step_ms@tpu-v4`. Columns that are not needed may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import nearest
from ..file_reading import MOST, parquet_frame, plain_bytes
from ..units import TIMES, Nanoseconds
from .open_loop import Arrival, Arrivals
from .timed_items import Timed

if TYPE_CHECKING:
    import pandas as pd

UNITS = ("ns", "us", "ms", "s")
LARGEST = 1 << 53  # of any number
EMPTY = ("", "nan", "None", "<NA>")
T = TypeVar("T", bound=Timed)


def load(path: str | Path) -> Arrivals:
    """Read arrivals from a CSV or Parquet file, by its ending.

    Columns: `at_s` (or `at_ms`, `at_us`, `at_ns`), and if they are there `client`, `name`, and the tokens `input` and
    `output` of a request. Their times count from 0.

        >>> _ = sw.workload.poisson(100, "1s", seed=1).save("arrivals.csv")
        >>> sw.workload.load("arrivals.csv") == sw.workload.poisson(100, "1s", seed=1)
        True
    """
    return Arrivals(load_items(Path(path), Arrival, ("at",)))


def frame_of(items: Sequence[Timed], kind: type[Timed]) -> pd.DataFrame:
    """Times in whole nanoseconds."""
    import pandas as pd

    times = _times(kind)
    rows = []
    for each in items:
        row: dict[str, Any] = {}
        for field, value in msgspec.structs.asdict(each).items():
            if isinstance(value, Mapping):
                row |= {f"{field}_ns{on and f'@{on}'}": time for on, time in value.items()}
            elif isinstance(value, tuple):
                row[field] = " ".join(map(str, value))
            else:
                row[f"{field}_ns" if field in times else field] = value
        rows.append(row)
    columns = [f"{field}_ns" if field in times else field for field in kind.__struct_fields__]
    extra = dict.fromkeys(column for row in rows for column in row if column not in columns)
    return pd.DataFrame(rows, columns=[*columns, *extra])


def save(table: pd.DataFrame, file: Path) -> Path:
    _check_ending(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".csv":
        table.to_csv(file, index=False)
    else:
        table.to_parquet(file, index=False)
    return file


def load_items(file: Path, kind: type[T], needs: Sequence[str]) -> list[T]:
    table = _table(file)
    columns = {str(column): _Column(str(column), kind, file) for column in table.columns}
    seen: dict[tuple[str, str], str] = {}
    for name, column in columns.items():
        other = seen.setdefault((column.field, column.on), name)
        if other != name:
            raise ValueError(f"{file}: columns {other} and {name} say the same; leave one of them out")
    for field in needs:
        if field not in {column.field for column in columns.values()}:
            unit = "_s, or with ms, us or ns" if field in _times(kind) else ""
            raise ValueError(f"{file}: no column says {_WORDS[field]}; name it {field}{unit}")
    rows: Any = table.astype(object).to_dict("records")
    return [_item(row, columns, kind, f"{file}, row {number}") for number, row in enumerate(rows, 1)]


_WORDS = {"at": "when each arrives", "step": "how long a step is", "host": "which host fails"}


class _Column:
    """Which field a column has, in which unit, and for which kind of device."""

    def __init__(self, name: str, kind: type[Timed], file: Path) -> None:
        plain, _, self.on = name.partition("@")
        field, _, unit = plain.rpartition("_")
        times, fields = _times(kind), kind.__struct_fields__
        if field in times and unit in UNITS and (not self.on or field == "step"):
            self.field, self.scale = field, TIMES[unit]
        elif plain in fields and plain not in times and not self.on:
            self.field, self.scale = plain, 0
        else:
            known = [f"{each}_{unit}" for each in times for unit in UNITS] + [f for f in fields if f not in times]
            raise ValueError(f"{file}: no column {name!r} is known{nearest(name, known)}; there are {', '.join(known)}")


def _times(kind: type[Timed]) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(kind, "times", ("at",))
    return found


def _item(row: Mapping[str, Any], columns: Mapping[str, _Column], kind: type[T], where: str) -> T:
    given: dict[str, Any] = {}
    usual = {each.name: each.default for each in msgspec.structs.fields(kind)}
    for name, column in columns.items():
        text, field = str(row[name]).strip(), column.field
        if text in EMPTY and field != "at":
            continue
        if column.scale:
            time = Nanoseconds(round(number_of(text, name, where) * column.scale))
            given[field] = {**given.get(field, {}), column.on: time} if field == "step" else time
        elif field == "sizes":
            given[field] = tuple(int(number_of(part, name, where, whole=True)) for part in text.split())
        elif isinstance(usual[field], float):
            given[field] = float(number_of(text, name, where))
        elif isinstance(usual[field], int):
            given[field] = int(number_of(text, name, where, whole=True))
        else:
            given[field] = text
    try:
        return kind(**given)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _table(file: Path) -> pd.DataFrame:
    import pandas as pd

    _check_ending(file)
    try:
        data = plain_bytes(file, MOST)
        if file.suffix == ".csv":
            # As texts, so that no time is rounded, and a client called 1 is not 1.0 or NA a missing one.
            return pd.read_csv(BytesIO(data), dtype=str, keep_default_na=False, skipinitialspace=True)
        return parquet_frame(data)
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {str(error).strip()}") from None


def _check_ending(file: Path) -> None:
    if file.suffix not in (".csv", ".parquet"):
        raise ValueError(f"{file}: a file of arrivals or jobs ends with .csv or .parquet")


def number_of(text: str, column: str, where: str, whole: bool = False) -> Decimal:
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal("nan")
    if not found.is_finite() or not 0 <= found < LARGEST or (whole and found != int(found)):
        wanted = "a whole number" if whole else "a number"
        raise ValueError(f"{where}: {column} is {text!r:.60}; {wanted}, not negative, less than {LARGEST:,}")
    return found
