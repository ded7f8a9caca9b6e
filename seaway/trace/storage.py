"""Saves and loads traces: a folder of Parquet files, one a table, and a small `trace.json` that describes them.

    run/trace.json  clients.parquet  runs.parquet  gangs.parquet  transfers.parquet  memory.parquet
        reservations.parquet  arrivals.parquet  places.parquet  words.parquet
        hosts.parquet (of a real run whose hosts were asked)

Columns are core's own integers, so nothing is lost and any tool can read them. All files are written aside and then
renamed, `trace.json` last; so a folder without it is not a complete trace, and a save that fails leaves the older trace
as it was. A trace that is replaced while it is read is read again.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.record import TracedPlace
from core.record import trace as core_trace

from ..errors import NotATrace
from ..machines import TraceIsland, TraceMachines
from .hosts import HostRows

FORMAT, VERSION = "seaway-trace", 1
HEAD, TOLD = "trace.json", "hosts.parquet"
ASIDE = ".new"  # a folder in the trace's, for files that are not complete
TRIES, PAUSE = 10, 0.02  # how often a trace is read that others replace meanwhile, and seconds between
NONE, REPLACED = (0, 0), (0, 1)  # which save wrote a trace: there is none; it is being replaced
Loaded = tuple[core_trace.Trace, TraceMachines | None, int, HostRows | None]
# VERSION covers the packing of arrivals too (core.record.tables.Lists): if that changes, so must VERSION.


def save(
    trace: core_trace.Trace,
    machines: TraceMachines | None,
    folder: Path,
    origin: int = 0,
    told: HostRows | None = None,
) -> Path:
    """Write the trace to a folder. An older trace there is replaced; a folder with anything else is refused."""
    if folder.exists() and (not folder.is_dir() or not _is_ours(folder)):
        raise FileExistsError(f"{folder} is there already and is no trace; choose another name, or remove it")
    aside = folder / ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        _write_all(trace, machines, aside, origin, told)
        _replace(folder, aside)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _is_ours(folder: Path) -> bool:
    """Whether it is empty, but for what an interrupted save may have left, or has a trace."""
    return (folder / HEAD).exists() or all(each.name == ASIDE for each in folder.iterdir())


def _replace(folder: Path, aside: Path) -> None:
    """The folder is not a trace while its files are renamed."""
    (folder / HEAD).unlink(missing_ok=True)
    (folder / TOLD).unlink(missing_ok=True)
    for path in sorted(aside.iterdir(), key=lambda each: each.name == HEAD):
        path.replace(folder / path.name)


def _write_all(
    trace: core_trace.Trace, machines: TraceMachines | None, folder: Path, origin: int, told: HostRows | None
) -> None:
    columns = trace.columns()
    for name, table in columns.items():
        arrays = {
            column: pa.array(np.frombuffer(data, dtype=data.typecode)) for column, data in table.items()
        }
        _write(folder, name, arrays)
    _write(folder, "words", {"word": pa.array(trace.strings.words, pa.string())})
    _write(folder, "places", _of_places(trace))
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


def load(folder: Path) -> Loaded:
    """(trace, machines if they were known, the recorder's clock at time 0, the hosts' rows)."""
    for _ in range(TRIES):
        before = _written(folder)
        try:
            found = _load(folder)
        except NotATrace:
            if before == _written(folder) != REPLACED:
                raise
        else:
            if before == _written(folder):
                return found
        time.sleep(PAUSE)
    raise NotATrace(
        f"{folder} is not a complete trace: its {HEAD} is missing, or others write it all the time"
    )


def _written(folder: Path) -> tuple[int, int]:
    """Which save wrote the trace."""
    try:
        about = (folder / HEAD).stat()
    except OSError:
        return REPLACED if (folder / "gangs.parquet").exists() else NONE
    return about.st_ino, about.st_mtime_ns


def _load(folder: Path) -> Loaded:
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
