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
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.record import TracedPlace
from core.record import trace as core_trace

from ..errors import NotATrace
from ..file_reading import MOST, parquet_table, plain_bytes
from ..machines import TraceIsland, TraceMachines
from .hosts import HostRows
from .saved_checks import FAR, Senseless, check

FORMAT, VERSION = "seaway-trace", 1
HEAD, TOLD = "trace.json", "hosts.parquet"
ASIDE = ".new"  # a folder in the trace's, for files that are not complete
TRIES, PAUSE = 10, 0.02  # how often a trace is read that others replace meanwhile, and seconds between
Time = Annotated[int, msgspec.Meta(gt=-FAR, lt=FAR)]
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
    sign(folder)


def sign(folder: Path) -> None:
    """Write the sums of all files of the trace, and of what the head itself says, into its head."""
    head = json.loads((folder / HEAD).read_text(encoding="utf-8"))
    head["sums"] = {path.name: _sum(path.read_bytes()) for path in sorted(folder.glob("*.parquet"))}
    head["sum"] = _sum_of(head)
    (folder / HEAD).write_text(json.dumps(head, indent=1) + "\n", encoding="utf-8")


def _sum(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _sum_of(head: dict[str, Any]) -> str:
    return _sum(json.dumps({key: head[key] for key in sorted(head) if key != "sum"}).encode())


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


class _HeadFormat(msgspec.Struct):
    """What any version says."""

    format: Any = None
    version: Any = None


class _Head(msgspec.Struct):
    """`sums`: of the other files, by name; `sum`: of the rest of the head. Earlier traces have neither."""

    rows: dict[str, int]
    islands: list[TraceIsland] | None = None
    since: Time = 0
    origin: Time = 0
    hosts: bool = False
    sums: dict[str, str] = {}
    sum: str = ""


class _PlaceRow(msgspec.Struct):
    key: int
    island: int
    devices: tuple[tuple[int, int], ...]
    devices_per_host: int
    first: int


def _load(folder: Path) -> Loaded:
    head = _head(folder)
    trace = core_trace.Trace()
    wanted = {
        name: {c: data.typecode for c, data in table.columns().items()}
        for name, table in trace.tables.items()
    }
    columns: dict[str, dict[str, Any]] = {}
    for name, codes in wanted.items():
        if name in core_trace.LATER and name not in head.rows:
            columns[name] = {column: np.empty(0, code) for column, code in codes.items()}
            continue  # an earlier seaway saved it
        table = _read(folder, name, head, set(codes))
        if table.num_rows != head.rows.get(name):
            raise NotATrace(
                f"{folder}: {name}.parquet has {table.num_rows} rows, where {HEAD} counts {head.rows.get(name)}"
            )
        columns[name] = {
            column: _numbers(folder, name, table, column, code) for column, code in codes.items()
        }
    table = _read(folder, "words", head, {"word"})
    try:
        words = table.column("word").to_pylist()
    except UnicodeDecodeError as error:
        raise NotATrace(f"{folder} is damaged: words.parquet: {error}") from None
    places = _places(folder, _read(folder, "places", head, set(TracedPlace.__struct_fields__) | {"key"}))
    try:
        check(columns, words, places, head.islands)
    except Senseless as error:
        raise NotATrace(f"{folder} is damaged: {error}") from None
    known = None if head.islands is None else TraceMachines(head.islands, known=True)
    found = core_trace.Trace.restored(
        words, places, {name: _bytes(each) for name, each in columns.items()}, head.since
    )
    return found, known, head.origin, _told(folder, head) if head.hosts else None


def _bytes(columns: dict[str, Any]) -> dict[str, bytes]:
    return {name: column.tobytes() for name, column in columns.items()}


def _told(folder: Path, head: _Head) -> HostRows:
    table = _read(folder, "hosts", head, set(HostRows._fields))
    return HostRows(*(_numbers(folder, "hosts", table, name, "q") for name in HostRows._fields))


def _head(folder: Path) -> _Head:
    if not folder.exists():
        raise FileNotFoundError(f"no trace at {folder}")
    try:
        data = plain_bytes(folder / HEAD, MOST)
        kind = msgspec.json.decode(data, type=_HeadFormat)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        raise NotATrace(
            f"{folder} is not a complete trace: its {HEAD} is missing or unreadable; "
            f"Trace.load takes the folder that trace.save made"
        ) from None
    if kind.format != FORMAT:
        raise NotATrace(f"{folder} is of format {kind.format!r}, not {FORMAT!r}")
    if kind.version != VERSION:
        raise NotATrace(
            f"{folder} is of version {kind.version}, and this seaway reads version {VERSION}: use the one that saved it"
        )
    try:
        head, said = msgspec.json.decode(data, type=_Head), json.loads(data)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise NotATrace(f"{folder} is damaged: {HEAD}: {error}") from None
    if head.sum and head.sum != _sum_of(said):
        raise NotATrace(f"{folder} is damaged: {HEAD} is not as it was written")
    return head


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


def _places(folder: Path, table: Any) -> dict[int, TracedPlace]:
    try:
        rows = msgspec.convert(table.to_pylist(), list[_PlaceRow])
    except (msgspec.ValidationError, pa.ArrowException, UnicodeDecodeError) as error:
        raise NotATrace(f"{folder} is damaged: places.parquet: {error}") from None
    return {row.key: TracedPlace(row.island, row.devices, row.devices_per_host, row.first) for row in rows}


def _write(folder: Path, name: str, columns: dict[str, Any]) -> None:
    # Levels above 9 cost time and save little; dictionaries help where a column has few values, and Parquet sees that.
    pq.write_table(pa.table(columns), folder / f"{name}.parquet", compression="zstd", compression_level=9)


def _read(folder: Path, name: str, head: _Head, columns: set[str]) -> Any:
    path = folder / f"{name}.parquet"
    try:
        data = plain_bytes(path, MOST)
        if head.sums and head.sums.get(path.name) != _sum(data):
            raise NotATrace(f"{folder} is damaged: {path.name} is not as it was written")
        table = parquet_table(data)
    except NotATrace:
        raise
    except ValueError as error:
        raise NotATrace(f"{folder} is not whole: {path.name}: {error}") from None
    if missing := sorted(columns - set(table.column_names)):
        raise NotATrace(f"{folder} is not whole: {path.name} has no column {missing[0]!r}")
    return table


def _numbers(folder: Path, name: str, table: Any, column: str, code: str) -> Any:
    if table.column(column).null_count:
        raise NotATrace(f"{folder} is damaged: {name}.parquet, column {column!r}: numbers are missing")
    try:
        return table.column(column).cast(pa.from_numpy_dtype(np.dtype(code))).to_numpy()
    except (pa.ArrowException, KeyError) as error:
        raise NotATrace(f"{folder} is damaged: {name}.parquet, column {column!r}: {error}") from None
