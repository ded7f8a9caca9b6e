"""A trace on disk is exactly the same when it is loaded, and a folder that is no trace gives a clear error."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from core.record.trace import Trace as CoreTrace
from seaway.errors import NotATrace
from seaway.trace import Trace, storage

from . import traces


def same(one: CoreTrace, other: CoreTrace) -> bool:
    return one.columns() == other.columns() and one.places == other.places and one.strings.words == other.strings.words


def test_a_saved_trace_is_loaded_unchanged_to_the_bit(tmp_path: Path) -> None:
    core, cluster = traces.pipeline()
    Trace(core, cluster).save(tmp_path / "run")
    again = Trace.load(tmp_path / "run")
    assert same(core, again.core)
    assert again.machines.describe() == Trace(core, cluster).machines.describe()
    for table in ("gangs", "runs", "clients", "transfers", "memory", "utilization", "intervals"):
        pd.testing.assert_frame_equal(getattr(again, table)(), getattr(Trace(core, cluster), table)())


def test_an_empty_trace_can_be_saved(tmp_path: Path) -> None:
    Trace(CoreTrace()).save(tmp_path / "none")
    assert same(Trace.load(tmp_path / "none").core, CoreTrace())


def test_a_loaded_trace_can_be_continued(tmp_path: Path) -> None:
    core = traces.shared(gangs=3)
    core.gang(50, -1, "open", 0, 0, entered=7)
    again = Trace.load(Trace(core).save(tmp_path / "run")).core
    for each in (core, again):
        each.update(50, started=9, ended=10)
    assert same(core, again)


def test_saving_again_replaces_the_files_and_the_same_trace_gives_the_same_files(tmp_path: Path) -> None:
    Trace(traces.shared(gangs=9)).save(tmp_path / "run")
    for folder in ("run", "other"):
        Trace(traces.shared(gangs=3)).save(tmp_path / folder)
    assert len(Trace.load(tmp_path / "run").gangs()) == 3
    files = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert "gangs.parquet" in files
    for name in files:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "other" / name).read_bytes(), name


def test_any_tool_reads_the_tables(tmp_path: Path) -> None:
    core = traces.shared(gangs=40)
    Trace(core).save(tmp_path / "run")
    table = pq.read_table(tmp_path / "run" / "gangs.parquet")
    assert table.column("ended").to_pylist() == [row["ended"] for row in core.rows("gangs")]
    assert pq.ParquetFile(tmp_path / "run" / "gangs.parquet").metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_folder_that_is_no_trace_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    for path in (tmp_path, tmp_path / "thesis.txt"):
        with pytest.raises(FileExistsError, match="is no trace"):
            Trace(traces.shared(gangs=2)).save(path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def earlier(run: Path) -> dict[str, Any]:
    """The trace's head as earlier versions wrote it: without sums."""
    head: dict[str, Any] = json.loads((run / "trace.json").read_text())
    return {key: found for key, found in head.items() if key not in ("sum", "sums")}


def test_a_flipped_bit_is_noticed_in_any_file_of_a_trace(tmp_path: Path) -> None:
    run = Trace(traces.shared(gangs=9)).save(tmp_path / "run")
    for path in sorted(run.iterdir()):
        data = path.read_bytes()
        at = len(data) // 2 if path.suffix == ".parquet" else data.index(b'"since": 0') + 9
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(NotATrace, match=rf"{run} is damaged: {path.name} is not as it was written"):
            Trace.load(run)
        path.write_bytes(data)
    assert len(Trace.load(run).gangs()) == 9


def test_a_trace_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no trace at"):
        Trace.load(tmp_path / "nothing")
    with pytest.raises(NotATrace, match=r"trace.json is missing or unreadable"):
        Trace.load(tmp_path)
    run = Trace(traces.shared(gangs=2)).save(tmp_path / "run")
    head = earlier(run)

    def with_head(**changes: object) -> None:
        (run / "trace.json").write_text(json.dumps({**head, **changes}))

    with_head(format="chrome")
    with pytest.raises(NotATrace, match="of format 'chrome'"):
        Trace.load(run)
    with_head(version=99)
    with pytest.raises(NotATrace, match="version 99, and this seaway reads version 1"):
        Trace.load(run)
    with_head(rows={**head["rows"], "gangs": 5})
    with pytest.raises(NotATrace, match=r"gangs.parquet has 2 rows, where trace.json counts 5"):
        Trace.load(run)
    with_head()
    (run / "runs.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(NotATrace, match=r"not whole: runs.parquet"):
        Trace.load(run)
    (run / "runs.parquet").unlink()
    with pytest.raises(NotATrace, match=r"not whole: runs.parquet"):
        Trace.load(run)


@pytest.mark.parametrize(
    ("torus", "block"), [([2, 4], [2, 4]), ([2, 8], [2]), ([-2, -8], [2, 4]), ([2, 8], [8, 1]), ([16], [8, 1])]
)
def test_an_island_that_is_no_torus_of_the_sizes_it_says_is_refused(
    tmp_path: Path, torus: list[int], block: list[int]
) -> None:
    island = {"index": 0, "name": "i", "hosts": 2, "devices_per_host": 8, "base_host": 0, "base_device": 0}
    run = Trace(CoreTrace(), None).save(tmp_path / "run")
    head = earlier(run)
    for sizes, fits in (({"torus": [2, 8], "block": [2, 4]}, True), ({"torus": torus, "block": block}, False)):
        (run / "trace.json").write_text(json.dumps({**head, "islands": [{**island, **sizes}]}))
        if fits:
            assert Trace.load(run).machines.islands[0].torus == (2, 8)
        else:
            with pytest.raises(NotATrace, match="its island 'i' is no torus of these sizes"):
                Trace.load(run)


def test_a_save_that_fails_leaves_the_older_trace_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Trace(traces.shared(gangs=9)).save(tmp_path / "run")
    files = sorted(run.iterdir())

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("seaway.trace.storage.pq.write_table", full)
    with pytest.raises(OSError, match="no space"):
        Trace(traces.shared(gangs=3)).save(run)
    assert len(Trace.load(run).gangs()) == 9
    assert sorted(run.iterdir()) == files
    with pytest.raises(OSError, match="no space"):
        Trace(traces.shared(gangs=3)).save(tmp_path / "fresh")
    with pytest.raises(NotATrace):
        Trace.load(tmp_path / "fresh")


def test_what_a_killed_process_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "run" / ".new").mkdir(parents=True)
    (tmp_path / "run" / ".new" / "gangs.parquet").touch()
    run = Trace(traces.shared(gangs=9)).save(tmp_path / "run")
    assert len(Trace.load(run).gangs()) == 9
    assert not (run / ".new").exists()


@pytest.mark.parametrize("at", range(8))
def test_a_trace_that_is_replaced_while_it_is_read_is_the_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Somebody saves it again before the file number `at` is read."""
    older, newer = (Trace(traces.shared(gangs=count)) for count in (3, 300))
    run, read, files = older.save(tmp_path / "run"), storage._read, list[str]()

    def reads(folder: Path, name: str, *about: Any) -> Any:
        if len(files) == at:
            newer.save(run)
        files.append(name)
        return read(folder, name, *about)

    monkeypatch.setattr(storage, "_read", reads)
    assert same(Trace.load(run).core, newer.core)
    assert len(files) > 8  # it was read again
