"""Saves and loads traces: a folder of Parquet files, one a table, and a small `trace.json` that describes them.

    run/trace.json  clients.parquet  runs.parquet  gangs.parquet  transfers.parquet  memory.parquet
        reservations.parquet  arrivals.parquet  places.parquet  words.parquet
        hosts.parquet (of a real run whose hosts were asked)

Columns are core's own integers, so nothing is lost and any tool can read them. `trace.json` is written last, so a
folder without it is not a complete trace.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.record import TracedPlace
from core.record import trace as core_trace

from ..errors import NotATrace
from .hosts import HostRows
from .machines import TraceIsland, TraceMachines

FORMAT, VERSION = "seaway-trace", 1
HEAD, TOLD = "trace.json", "hosts.parquet"
# VERSION covers the packing of arrivals too (core.record.tables.Lists): if that changes, so must VERSION.


def save(
    trace: core_trace.Trace,
    machines: TraceMachines | None,
    folder: Path,
    origin: int = 0,
    told: HostRows | None = None,
) -> Path:
    """Write the trace to a folder. An older trace there is replaced; a folder with anything else is refused."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / HEAD).exists())):
        raise FileExistsError(f"{folder} is there already and is no trace; choose another name, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / HEAD).unlink(missing_ok=True)  # the folder is not a trace until all is written
    columns = trace.columns()
    for name, table in columns.items():
        arrays = {
            column: pa.array(np.frombuffer(data, dtype=data.typecode)) for column, data in table.items()
        }
        _write(folder, name, arrays)
    _write(folder, "words", {"word": pa.array(trace.strings.words, pa.string())})
    _write(folder, "places", _of_places(trace))
    (folder / TOLD).unlink(missing_ok=True)
    if told is not None:
        _write(folder, "hosts", {name: pa.array(column) for name, column in told._asdict().items()})
    head = {
        "format": FORMAT,
        "version": VERSION,
        "rows": {name: len(table) for name, table in trace.tables.items()},
        "since": trace.since,
        "origin": origin,
        "hosts": told is not None,
        "islands": None if machines is None else [msgspec.structs.asdict(each) for each in machines.islands],
    }
    (folder / HEAD).write_text(json.dumps(head, indent=1) + "\n", encoding="utf-8")
    return folder


def load(folder: Path) -> tuple[core_trace.Trace, TraceMachines | None, int, HostRows | None]:
    """(trace, machines if they were known, the recorder's clock at time 0, the hosts' rows)."""
    head = _head(folder)
    trace = core_trace.Trace()
    wanted = {
        name: {c: data.typecode for c, data in table.columns().items()}
        for name, table in trace.tables.items()
    }
    columns: dict[str, dict[str, bytes]] = {}
    for name, codes in wanted.items():
        if name in core_trace.LATER and name not in head["rows"]:
            continue  # an earlier seaway saved it
        table = _read(folder, name, set(codes))
        if table.num_rows != head["rows"].get(name):
            raise NotATrace(
                f"{folder}: {name}.parquet has {table.num_rows} rows, where {HEAD} counts {head['rows'].get(name)}"
            )
        columns[name] = {
            column: table.column(column).to_numpy().astype(code, casting="safe").tobytes()
            for column, code in codes.items()
        }
    words = _read(folder, "words", {"word"}).column("word").to_pylist()
    places = {row.pop("key"): _place(row) for row in _read(folder, "places", set()).to_pylist()}
    islands = head["islands"]
    known = None if islands is None else TraceMachines([TraceIsland(**each) for each in islands], known=True)
    found = core_trace.Trace.restored(words, places, columns, int(head.get("since", 0)))
    return found, known, int(head.get("origin", 0)), _told(folder) if head.get("hosts") else None


def _told(folder: Path) -> HostRows:
    table = _read(folder, "hosts", set(HostRows._fields))
    return HostRows(*(table.column(name).to_numpy().astype(np.int64) for name in HostRows._fields))


def _head(folder: Path) -> dict[str, Any]:
    if not folder.exists():
        raise FileNotFoundError(f"no trace at {folder}")
    try:
        head = json.loads((folder / HEAD).read_text(encoding="utf-8"))
        if head["format"] != FORMAT:
            raise NotATrace(f"{folder} is of format {head['format']!r}, not {FORMAT!r}")
        version = head["version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, NotATrace):
            raise
        raise NotATrace(
            f"{folder} is not a complete trace: its {HEAD} is missing or unreadable; "
            f"Trace.load takes the folder that trace.save made"
        ) from None
    if version != VERSION:
        raise NotATrace(
            f"{folder} is of version {version}, and this seaway reads version {VERSION}: use the one that saved it"
        )
    found: dict[str, Any] = head
    return found


def _of_places(trace: core_trace.Trace) -> dict[str, Any]:
    items = sorted(trace.places.items())
    span = pa.list_(pa.list_(pa.int64(), 2))
    return {
        "key": pa.array([key for key, _ in items], pa.int64()),
        "island": pa.array([place.island for _, place in items], pa.int64()),
        "devices": pa.array([[list(pair) for pair in place.devices] for _, place in items], span),
        "devices_per_host": pa.array([place.devices_per_host for _, place in items], pa.int64()),
        "first": pa.array([place.first for _, place in items], pa.int64()),
    }


def _place(row: dict[str, Any]) -> TracedPlace:
    devices = tuple((low, high) for low, high in row["devices"])
    return TracedPlace(row["island"], devices, row["devices_per_host"], row["first"])


def _write(folder: Path, name: str, columns: dict[str, Any]) -> None:
    # Levels above 9 cost time and save little; dictionaries help where a column has few values, and Parquet sees that.
    pq.write_table(pa.table(columns), folder / f"{name}.parquet", compression="zstd", compression_level=9)


def _read(folder: Path, name: str, columns: set[str]) -> Any:
    path = folder / f"{name}.parquet"
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise NotATrace(f"{folder} is not whole: {path.name}: {error}") from None
    if missing := sorted(columns - set(table.column_names)):
        raise NotATrace(f"{folder} is not whole: {path.name} has no column {missing[0]!r}")
    return table
