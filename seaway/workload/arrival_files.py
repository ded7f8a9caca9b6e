"""`load`: arrivals from a CSV or Parquet file with a row for each.

    at_s,client,name,devices,duration_s
    0.5,ann,small,8,2.5

`at_...` says when; the unit is in the column's name (ns, us, ms or s). All other columns may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import nearest
from ..file_reading import MOST, parquet_frame, plain_bytes
from ..units import TIMES
from .open_loop import Arrival, Arrivals

if TYPE_CHECKING:
    import pandas as pd

UNITS = ("ns", "us", "ms", "s")
PLAIN = ("client", "name", "devices")
COLUMNS = (*PLAIN, *(f"{what}_{unit}" for what in ("at", "duration") for unit in UNITS))
LARGEST = 1 << 53  # of any number
WORDS = {"client": "load", "name": "request"}


def load(path: str | Path) -> Arrivals:
    """Read arrivals from a CSV or Parquet file, by its ending.

    Columns: `at_s` (or `at_ms`, `at_us`, `at_ns`), and if they are there `client`, `name`, `devices` and `duration_s`
    (or with another unit). Their times count from 0.

        >>> _ = sw.workload.poisson(100, "1s", seed=1).save("arrivals.csv")
        >>> sw.workload.load("arrivals.csv") == sw.workload.poisson(100, "1s", seed=1)
        True
    """
    file = Path(path)
    table = _table(file)
    for column in table.columns:
        if column not in COLUMNS:
            close = nearest(str(column), COLUMNS)
            raise ValueError(f"{file}: no column {column!r} is known{close}; there are {', '.join(COLUMNS)}")
    at = _one_of(table, "at", file)
    lasts = _one_of(table, "duration", file)
    if at is None:
        raise ValueError(f"{file}: no column says when each arrives; name it at_s, at_ms, at_us or at_ns")
    rows: Any = table.astype(object).to_dict("records")
    return Arrivals([_arrival(row, at, lasts, file, number) for number, row in enumerate(rows, 1)])


def save(arrivals: Arrivals, file: Path) -> Path:
    import pandas as pd

    rows = [msgspec.structs.asdict(each) for each in arrivals]
    table = pd.DataFrame(rows, columns=list(Arrival.__struct_fields__))
    table = table.rename(columns={"at": "at_ns", "duration": "duration_ns"})
    _check_ending(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".csv":
        table.to_csv(file, index=False)
    else:
        table.to_parquet(file, index=False)
    return file


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
        raise ValueError(f"{file}: a file of arrivals ends with .csv or .parquet")


def _one_of(table: pd.DataFrame, what: str, file: Path) -> str | None:
    found = [name for name in table.columns if name in COLUMNS and name.startswith(f"{what}_")]
    if len(found) > 1:
        raise ValueError(f"{file}: columns {' and '.join(found)} say the same; leave one of them out")
    return found[0] if found else None


def _arrival(row: Mapping[str, Any], at: str, lasts: str | None, file: Path, number: int) -> Arrival:
    where = f"{file}, row {number}"
    client, name = (str(row.get(key, "")).strip() or other for key, other in WORDS.items())
    duration = 0 if lasts is None else _nanoseconds(row[lasts], lasts, where)
    devices = int(_number(row.get("devices", 0), "devices", where))
    return Arrival(_nanoseconds(row[at], at, where), client, name, devices, duration)


def _nanoseconds(value: Any, column: str, where: str) -> int:
    return round(_number(value, column, where) * TIMES[column.rpartition("_")[2]])


def _number(value: Any, column: str, where: str) -> Decimal:
    """A missing number of devices or duration is 0."""
    text = str(value).strip()
    if text in ("", "nan", "None", "<NA>") and not column.startswith("at_"):
        return Decimal(0)
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal("nan")
    if not found.is_finite() or not 0 <= found < LARGEST or (column == "devices" and found != int(found)):
        wanted = "a whole number" if column == "devices" else "a number"
        raise ValueError(f"{where}: {column} is {value!r:.60}; {wanted}, not negative, less than {LARGEST:,}")
    return found
