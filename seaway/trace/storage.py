"""Saves and loads traces: a folder of Parquet files, one a table, and a small `trace.json` that describes them.

    run/trace.json  clients.parquet  runs.parquet  gangs.parquet  transfers.parquet  memory.parquet
        reservations.parquet  arrivals.parquet  places.parquet  words.parquet
        hosts.parquet (of a real run whose hosts were asked)  works.parquet (of a simulation)
        jobs.parquet (if jobs were played)

Columns are core's own integers, so nothing is lost and any tool can read them. All files are written aside and then
renamed, `trace.json` last; so a folder without it is not a complete trace, and a save that fails leaves the older trace
as it was. A trace that is replaced while it is read is read again.
"""

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from math import prod
from operator import mod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from core.model import spans
from core.record import NAMES, Lists, TracedPlace
from core.record import trace as core_trace

from ..errors import NotATrace
from ..file_reading import MOST, parquet_table, plain_bytes
from ..machines import TraceIsland, TraceMachines
from .hosts import HostRows
from .played_jobs import FAR, PlayedJob, PlayedJobs, Time
from .step_works import NOTHING, GangWorks, StepWork

FORMAT, VERSION = "seaway-trace", 1
HEAD, EXTRA = "trace.json", ("hosts.parquet", "works.parquet", "jobs.parquet")
ASIDE = ".new"  # a folder in the trace's, for files that are not complete
TRIES, PAUSE = 10, 0.02  # how often a trace is read that others replace meanwhile, and seconds between
Column = npt.NDArray[np.integer]
MOST_DEVICES = 1 << 22  # of all islands: numbers of devices become arrays
NONE, REPLACED = (0, 0), (0, 1)  # which save wrote a trace: there is none; it is being replaced
Loaded = tuple[core_trace.Trace, TraceMachines | None, int, HostRows | None, GangWorks, list[PlayedJobs]]
# VERSION covers the packing of arrivals too (core.record.tables.Lists): if that changes, so must VERSION.


def save(
    trace: core_trace.Trace, machines: TraceMachines | None, folder: Path, origin: int = 0,
    told: HostRows | None = None, works: GangWorks = NOTHING, played: Sequence[PlayedJobs] = (),
) -> Path:  # fmt: skip
    """Write the trace to a folder. An older trace there is replaced; a folder with anything else is refused."""
    if folder.exists() and (not folder.is_dir() or not _is_ours(folder)):
        raise FileExistsError(f"{folder} is there already and is no trace; choose another name, or remove it")
    aside = folder / ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        _write_all(trace, machines, aside, origin, told, works, played)
        for name in (HEAD, *EXTRA):  # the folder is not a trace while its files are renamed
            (folder / name).unlink(missing_ok=True)
        for path in sorted(aside.iterdir(), key=lambda each: each.name == HEAD):
            path.replace(folder / path.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _is_ours(folder: Path) -> bool:
    """Whether it is empty, but for what an interrupted save may have left, or has a trace."""
    return (folder / HEAD).exists() or all(each.name == ASIDE for each in folder.iterdir())


def _write_all(
    trace: core_trace.Trace, machines: TraceMachines | None, folder: Path, origin: int, told: HostRows | None,
    works: GangWorks, played: Sequence[PlayedJobs],
) -> None:  # fmt: skip
    for name, table in trace.columns().items():
        _write(folder, name, {each: pa.array(np.frombuffer(c, dtype=c.typecode)) for each, c in table.items()})
    _write(folder, "words", {"word": pa.array(trace.strings.words, pa.string())})
    _write(folder, "places", _of_places(trace))
    if told is not None:
        _write(folder, "hosts", {name: pa.array(column) for name, column in told._asdict().items()})
    if works.steps:
        _write(folder, "works", {"seq": pa.array(works.seqs), "work": pa.array(works.works)})
    if jobs := any(each.jobs for each in played):
        _write(folder, "jobs", _of_jobs(played))
    head = {
        "format": FORMAT,
        "version": VERSION,
        "rows": {name: len(table) for name, table in trace.tables.items()},
        "since": trace.since,
        "origin": origin,
        "hosts": told is not None,
        "works": msgspec.to_builtins(works.steps),
        "jobs": jobs,
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
    """(trace, machines if they were known, the recorder's clock at time 0, the hosts' rows, what gangs did)."""
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
    raise NotATrace(f"{folder} is not a complete trace: its {HEAD} is missing, or others write it all the time")


def _written(folder: Path) -> tuple[int, int]:
    """Which save wrote the trace."""
    try:
        about = (folder / HEAD).stat()
    except OSError:
        return REPLACED if (folder / "gangs.parquet").exists() else NONE
    return about.st_ino, about.st_mtime_ns


class Senseless(Exception):
    """What is wrong."""


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
    works: list[StepWork] = []
    jobs: bool = False
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
    columns: dict[str, dict[str, Any]] = {}
    for name, empty in core_trace.Trace().tables.items():
        codes = {column: data.typecode for column, data in empty.columns().items()}
        table = _read(folder, name, head, set(codes))
        if table.num_rows != head.rows.get(name):
            raise NotATrace(
                f"{folder}: {name}.parquet has {table.num_rows} rows, where {HEAD} counts {head.rows.get(name)}"
            )
        columns[name] = {each: _numbers(folder, name, table, each, code) for each, code in codes.items()}
    with _damage(folder, "words.parquet: "):
        words = _read(folder, "words", head, {"word"}).column("word").to_pylist()
    table = _read(folder, "places", head, set(TracedPlace.__struct_fields__) | {"key"})
    with _damage(folder, "places.parquet: "):
        rows = msgspec.convert(table.to_pylist(), list[_PlaceRow])
    places = {row.key: TracedPlace(row.island, row.devices, row.devices_per_host, row.first) for row in rows}
    with _damage(folder):
        check(columns, words, places, head.islands)
    known = None if head.islands is None else TraceMachines(head.islands, known=True)
    packed = {name: {each: column.tobytes() for each, column in table.items()} for name, table in columns.items()}
    found = core_trace.Trace.restored(words, places, packed, head.since)
    told = None
    if head.hosts:
        table = _read(folder, "hosts", head, set(HostRows._fields))
        told = HostRows(*(_numbers(folder, "hosts", table, name, "q") for name in HostRows._fields))
    return found, known, head.origin, told, _works(folder, head), _jobs(folder, head) if head.jobs else []


def _of_jobs(played: Sequence[PlayedJobs]) -> dict[str, Any]:
    """A job's calls are two lists: their numbers, and whether they count."""
    jobs = [(number, each.begin, job) for number, each in enumerate(played) for job in each.jobs]
    rows = [{"workload": number, "begin": begin, **msgspec.structs.asdict(job), "calls": list(job.calls),
             "counts": list(job.calls.values())} for number, begin, job in jobs]  # fmt: skip
    table = pa.Table.from_pylist(rows)
    return dict(zip(table.column_names, table.columns, strict=True))


def _jobs(folder: Path, head: _Head) -> list[PlayedJobs]:
    table = _read(folder, "jobs", head, {"workload", "begin", "counts", *PlayedJob.__struct_fields__})
    found: dict[int, PlayedJobs] = {}
    with _damage(folder, "jobs.parquet: "):
        for row in table.to_pylist():
            calls = msgspec.convert((row["calls"], row["counts"]), tuple[list[int], list[bool]])
            workload, begin = msgspec.convert((row["workload"], row["begin"]), tuple[int, Time])
            job = msgspec.convert({**row, "calls": dict(zip(*calls, strict=True))}, PlayedJob)
            found.setdefault(workload, PlayedJobs(begin, [])).jobs.append(job)
        if any([job.number for job in each.jobs] != [*range(len(each.jobs))] for each in found.values()):
            raise Senseless("its jobs are not numbered")
    return list(found.values())


def _works(folder: Path, head: _Head) -> GangWorks:
    if not head.works:
        return NOTHING
    table = _read(folder, "works", head, {"seq", "work"})
    seqs, works = (_numbers(folder, "works", table, name, "q") for name in ("seq", "work"))
    found = GangWorks(seqs, works, head.works)
    with _damage(folder):
        check_works(found)
    return found


@contextmanager
def _damage(folder: Path, where: str = "") -> Iterator[None]:
    try:
        yield
    except NotATrace:
        raise
    except (Senseless, pa.ArrowException, msgspec.MsgspecError, RecursionError, KeyError, ValueError) as error:
        raise NotATrace(f"{folder} is damaged: {where}{error}") from None


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
    with _damage(folder, f"{HEAD}: "):
        head, said = msgspec.json.decode(data, type=_Head), json.loads(data)
    if head.sum and head.sum != _sum_of(said):
        raise NotATrace(f"{folder} is damaged: {HEAD} is not as it was written")
    return head


def _of_places(trace: core_trace.Trace) -> dict[str, Any]:
    items = sorted(trace.places.items())
    spans = [[list(pair) for pair in place.devices] for _, place in items]
    devices = pa.array(spans, pa.list_(pa.list_(pa.int64(), 2)))
    numbers = {
        name: pa.array([getattr(place, name) for _, place in items], pa.int64())
        for name in ("island", "devices_per_host", "first")
    }
    key = pa.array([key for key, _ in items], pa.int64())
    return {"key": key, "island": numbers.pop("island"), "devices": devices, **numbers}


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
    with _damage(folder, f"{name}.parquet, column {column!r}: "):
        return table.column(column).cast(pa.from_numpy_dtype(np.dtype(code))).to_numpy()


# --- what columns must satisfy: it may be a stranger's file ----------------------------------------------


def check(
    tables: Mapping[str, Mapping[str, Column]],
    words: Sequence[object],
    places: Mapping[int, TracedPlace],
    islands: Sequence[TraceIsland] | None,
) -> None:
    """Raises Senseless if a column refers to what is not there, or a number cannot be."""
    if not all(isinstance(word, str) for word in words) or len(set(words)) != len(words):
        raise Senseless("its words are not texts that differ")
    for key, place in places.items():
        _check_place(key, place)
    if islands is not None:
        _check_islands(islands)
        everywhere = spans.normal((each.base_device, each.base_device + each.devices) for each in islands)
        if outside := [key for key, place in places.items() if spans.minus(place.devices, everywhere)]:
            raise Senseless(f"its place {outside[0]} is on no island")
    runs = len(tables["runs"]["run"])
    for table, columns in tables.items():
        for name, column in columns.items():
            most = len(words) if name in NAMES else runs if name == "run" and table != "runs" else FAR
            lowest = -1 if most < FAR else -FAR
            if len(column) and not (lowest <= int(column.min()) and int(column.max()) < most):
                raise Senseless(f"a number in column {name!r} of {table} is out of bounds")
    for name in ("hosts", "ends"):
        _check_lists(tables["arrivals"]["after"], tables["gangs"][name], name)


def check_works(works: GangWorks) -> None:
    if len(works.works) and not 0 <= int(works.works.min()) <= int(works.works.max()) < len(works.steps):
        raise Senseless("its works.parquet refers to work that is not there")
    for step in works.steps:
        levels = [pair for use in step.collectives for pair in use.collective.groups]
        grids = step.place.grids
        sizes = [step.duration, *(n for use in step.collectives for n in (use.takes, use.collective.nbytes))]
        fits = all(len(grid.shape) == len(grid.strides) and min(grid.shape, default=1) > 0 for grid in grids)
        counts = 0 < step.steps < FAR and 0 < step.place.size <= MOST_DEVICES
        if not fits or not counts or not all(0 <= size < FAR for size in sizes):
            raise Senseless("its works have a number that cannot be")
        if any(not 0 < each <= MOST_DEVICES for pair in levels for each in pair):
            raise Senseless("its works have groups that cannot be")


def _check_place(key: object, place: TracedPlace) -> None:
    numbers: tuple[object, ...] = (
        place.island,
        place.devices_per_host,
        place.first,
        *(each for pair in place.devices for each in pair),
    )
    known = isinstance(key, int) and -FAR < key < FAR
    if not known or not all(isinstance(each, int) and 0 <= each <= MOST_DEVICES for each in numbers):
        raise Senseless(f"its place {key!r:.20} has a number that cannot be")
    if not place.devices or place.devices_per_host < 1 or place.first > place.devices[0][0]:
        raise Senseless(f"its place {key!r} has no devices")
    if any(low >= high for low, high in place.devices) or spans.normal(place.devices) != place.devices:
        raise Senseless(f"its place {key!r} has devices twice")


def _check_islands(islands: Sequence[TraceIsland]) -> None:
    device = host = 0
    for island in sorted(islands, key=lambda each: each.base_device):
        if island.hosts < 1 or island.devices_per_host < 1 or island.base_device < device or island.base_host < host:
            raise Senseless(f"its island {island.name!r:.40} has a number that cannot be")
        torus, block = island.torus, island.block
        sizes = prod(torus), prod(block), len(block)
        fits = sizes == (island.devices, island.devices_per_host, len(torus)) and min(*torus, *block) > 0
        if torus and (not fits or any(map(mod, torus, block))):
            raise Senseless(f"its island {island.name!r:.40} is no torus of these sizes")
        device, host = island.base_device + island.devices, island.base_host + island.hosts
        if max(device, host) > MOST_DEVICES:
            raise Senseless(f"it has more than {MOST_DEVICES:,} devices")


def _check_lists(packed: Column, begins: Column, name: str) -> None:
    """Each list that is referred to lies in the column, with its head."""
    starts = np.unique(begins[begins >= 0]).astype(np.int64)
    if not len(starts):
        return
    head = Lists.HEAD.size
    if int(starts[-1]) + head > len(packed):
        raise Senseless(f"column {name!r} of gangs refers to a list that is not there")
    count = packed[starts[:, None] + np.arange(1, 5)].astype(np.int64) @ (1 << np.arange(0, 32, 8))
    form = packed[starts].astype(np.int64)
    width, steps = form & ~Lists.STEPS, (form & Lists.STEPS) > 0
    length = head + np.where(steps, Lists.OF_STEPS.size + width * (count - 1), width * count)
    if not np.isin(width, (1, 2, 3, 4, 8)).all() or (count < 1).any() or (starts + length > len(packed)).any():
        raise Senseless(f"column {name!r} of gangs refers to a list that is damaged")
