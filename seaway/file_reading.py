"""Reads files that may be a stranger's: what is no plain file is not opened, and what is too large is not read.

Errors are ValueErrors that say what is wrong; the caller names the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.plain_files import opener

if TYPE_CHECKING:
    import pandas as pd

MOST = 1 << 34  # bytes of a file
# Bytes that a table may take in memory, and for each byte of its file. A column of equal numbers packs to nothing.
ROOM, ROOM_TIMES = 64 << 20, 400


def plain_bytes(path: Path, most: int) -> bytes:
    """All of the file. A pipe would be waited for, perhaps for ever, and a device has no end."""
    try:
        with open(path, "rb", opener=opener) as file:
            if (size := os.fstat(file.fileno()).st_size) > most:
                raise ValueError(f"it has {size:,} bytes, more than {most:,}")
            return file.read()
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from None


def parquet_table(data: bytes) -> Any:
    """The table of a Parquet file, as pyarrow has it."""
    return _parquet(data, lambda table: table)


def parquet_frame(data: bytes) -> pd.DataFrame:
    """Its columns as they are: what a file says of how pandas had them may be wrong."""
    found: pd.DataFrame = _parquet(data, lambda table: table.to_pandas(ignore_metadata=True))
    return found


def _parquet(data: bytes, made: Callable[[Any], Any]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return made(_table(pq.ParquetFile(pa.BufferReader(data)), len(data)))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"it is no Parquet file, or is damaged: {str(error).partition(chr(10))[0]}") from None


def _table(file: Any, size: int) -> Any:
    about = file.metadata
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    packed = sum(
        group.column(number).total_uncompressed_size for group in groups for number in range(group.num_columns)
    )
    takes = max(8 * about.num_rows * about.num_columns, packed)
    if takes > ROOM + ROOM_TIMES * size:
        raise ValueError(f"its {about.num_rows:,} rows would take {takes:,} bytes, and it has {size:,}")
    return file.read(use_threads=False)
