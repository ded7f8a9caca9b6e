"""Checkpoints without processes: files and their arithmetic, names, folders; and in simulated sessions."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

import seaway as sw
from backend.checkpoint import chunks, documents, folders, zarrs
from backend.checkpoint.documents import ArrayEntry, CheckpointError, Document, Request
from backend.contents.shard_io import box_of, numpy_dtype
from core.model.place import line
from core.model.plan import Layout
from core.model.program import Sharding
from core.model.resharding import Shards
from seaway.api.checkpoints import graphs
from seaway.api.checkpoints.graphs import names_of
from sim.simulation import Fault
from tests.seaway.small_sessions import small

P: Any = PartitionSpec
checkpoint = sw.checkpoint
REQUEST = Request("", 0, "0" * 16)
shape_of: Any = jax.ShapeDtypeStruct


# --- any sharding into any other ----------------------------------------------------------------------------------


@st.composite
def lying(draw: Any, shape: tuple[int, ...], dtype: str) -> Layout:
    """Layouts on up to eight devices: a mesh of up to three axes, each of which splits a dimension or none."""
    mesh = draw(st.sampled_from([(1,), (2,), (8,), (2, 2), (4, 2), (2, 2, 2)]))
    dims: list[list[int]] = [[] for _ in shape]
    for axis in draw(st.permutations(range(len(mesh)))):
        fits = [
            number for number, size in enumerate(shape)
            if size % prod(mesh[each] for each in (*dims[number], axis)) == 0
        ]  # fmt: skip
        where = draw(st.sampled_from([None, *fits]))
        if where is not None:
            dims[where].append(axis)
    split = Sharding(tuple(map(tuple, dims)) if any(dims) else ())
    return Layout(shape, dtype, line(0, 0, prod(mesh)), mesh, split)


@st.composite
def pairs(draw: Any) -> tuple[Layout, Layout]:
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 4, 6, 8]), max_size=3)))
    dtype = draw(st.sampled_from(["float32", "bfloat16", "key<fry>", "bool", "complex64"]))
    return draw(lying(shape, dtype)), draw(lying(shape, dtype))


def contents(layout: Layout) -> Any:
    kind = numpy_dtype(layout.dtype)
    raw = np.random.default_rng(1).integers(0, 2 if layout.dtype == "bool" else 100, prod(layout.shape) * kind.itemsize)
    return raw.astype(np.uint8).view(kind).reshape(layout.shape)


def entry_of(layout: Layout) -> ArrayEntry:
    dims = layout.sharding.dims
    chunk = chunks.chunk_of(layout.shape, layout.dtype, dims, layout.mesh)
    return ArrayEntry("x", layout.dtype, layout.shape, dims, chunk)


def write(folder: Path, layout: Layout, array: Any, hosts: list[list[int]]) -> Counter[Any]:
    """Write as so many hosts. Returns how often each part of the array was written."""
    entry, shards, seen = entry_of(layout), Shards(layout), Counter[Any]()
    for devices in hosts:
        pieces = []
        for shard, inside, whole in chunks.ours(layout, entry.chunk, 3, devices):
            pieces.append((0, whole, array[box_of(shards, shard)][inside]))
            seen[tuple((part.start, part.stop) for part in whole)] += 1
        zarrs.write(folder, [entry], pieces, first=0 in devices)
    return seen


@settings(max_examples=60, deadline=None)
@given(pairs(), st.integers(1, 4), st.sampled_from([16, 64, 1 << 20]))
def test_any_sharding_is_restored_as_any_other(
    ends: tuple[Layout, Layout], devices_per_host: int, largest: int
) -> None:
    source, target = ends
    array, folder = contents(source), Path(tempfile.mkdtemp())
    devices = list(range(source.place.size))
    hosts = [devices[at : at + devices_per_host] for at in range(0, len(devices), devices_per_host)]
    with mock.patch.object(chunks, "LARGEST", largest), mock.patch.object(chunks, "SMALLEST", largest // 4):
        seen = write(folder, source, array, hosts)
        assert set(seen.values()) <= {1}  # each file by one host
        zarrs.finish(folder, REQUEST, [entry_of(source)])
    shards = Shards(target)
    wanted = {shards.shard_of(device) for device in range(target.place.size)}
    (found,) = zarrs.read(folder, [(entry_of(target), {index: box_of(shards, index)[:-1] for index in wanted})])
    for index, part in found.items():
        assert part.tobytes() == array[box_of(shards, index)].tobytes()
    shutil.rmtree(folder)


def test_replicated_data_is_written_once_and_shared_among_all_holders() -> None:
    layout = Layout((4096, 4096), "float32", line(0, 0, 8), (8,), Sharding())
    chunk = chunks.chunk_of(layout.shape, layout.dtype, (), layout.mesh)
    nbytes = [
        sum(
            prod(part.stop - part.start for part in whole) * 4
            for _, _, whole in chunks.ours(layout, chunk, 0, [device])
        )
        for device in range(8)
    ]
    assert nbytes == [8 << 20] * 8


def test_files_are_neither_too_large_nor_too_small() -> None:
    for shape in ((8192, 65536), (32003, 8192), (3, 1 << 26), (1 << 28,), (7, 11)):
        chunk = chunks.chunk_of(shape, "float32", (), (4,))
        assert all(size % part == 0 for size, part in zip(shape, chunk, strict=True))
        assert min(prod(shape) * 4, chunks.SMALLEST // 16) <= prod(chunk) * 4 <= 2 * chunks.LARGEST


def test_a_checkpoint_is_complete_only_with_all_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zarrs, "SEEN", 0.0)
    layout = Layout((8,), "float32", line(0, 0, 4), (4,), Sharding(((0,),)))
    write(tmp_path, layout, contents(layout), [[0], [1], [3]])  # the host of device 2 has died
    with pytest.raises(CheckpointError, match=r"x/c/2 is missing, though all hosts have written"):
        zarrs.finish(tmp_path, REQUEST, [entry_of(layout)])
    assert not (tmp_path / "zarr.json").exists()
    write(tmp_path, layout, contents(layout), [[2]])
    zarrs.finish(tmp_path, REQUEST, [entry_of(layout)])
    (tmp_path / "x" / "c" / "1").write_bytes(b"short")
    with pytest.raises(CheckpointError, match="x/c/1 has 5 bytes, and should have 12, though all hosts"):
        zarrs.finish(tmp_path, REQUEST, [entry_of(layout)])


# --- names, folders, documents ------------------------------------------------------------------------------------


def test_leaves_are_named_by_their_paths() -> None:
    tree = [{"layer.0": {"w": 1, "β/..": 2, "": 3}}, 4]
    _, treedef = jax.tree_util.tree_flatten(tree)
    assert names_of(treedef) == ("0.layer%2E0.%00", "0.layer%2E0.w", "0.layer%2E0.%CE%B2%2F%2E%2E", "1")
    assert names_of(jax.tree_util.tree_structure(0)) == ("value",)
    assert all(documents.NAME.fullmatch(name) for name in names_of(treedef))
    with pytest.raises(ValueError, match="has 300 characters"):
        names_of(jax.tree_util.tree_structure({"x" * 300: 1}))


def test_a_folder_lies_below_the_configured_one(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "fine").symlink_to(root / "real")
    assert folders.below(root, "run/a") == root / "run" / "a"
    assert folders.below(root, str(root / "run")) == root / "run"
    assert folders.below(root, "fine/a") == root / "real" / "a"
    for asked in ("link", "link/a", "/", str(outside), "../outside", "a/../../outside", "", "a\0b", "/etc"):
        with pytest.raises(CheckpointError):
            folders.below(root, asked)
    with pytest.raises(CheckpointError, match="--checkpoints DIR"):
        folders.below(None, "run")


@given(st.binary(max_size=64))
def test_random_documents_and_requests_are_refused_with_a_message(noise: bytes) -> None:
    blob = documents.MAGIC + noise
    try:
        assert documents.decode(blob).kind in ("save", "commit", "read", "load", "latest")
    except CheckpointError:
        pass
    try:
        documents.request_of(np.frombuffer(noise + bytes(64), np.uint8))
    except CheckpointError:
        pass


@pytest.mark.parametrize(
    "entry",
    [
        ArrayEntry("../x", "float32", (4,), (), (4,)), ArrayEntry("a/b", "float32", (4,), (), (4,)),
        ArrayEntry(".", "float32", (4,), (), (4,)), ArrayEntry("x", "object", (4,), (), (4,)),
        ArrayEntry("x", "float32", (-4,), (), (4,)), ArrayEntry("x", "float32", (4,), (), (3,)),
        ArrayEntry("x", "float32", (4,), (), (0,)), ArrayEntry("x", "float32", (4,), ((7,),), (4,)),
        ArrayEntry("x", "float32", (4,), (), ()),
    ],
)  # fmt: skip
def test_hostile_entries_are_refused(entry: ArrayEntry) -> None:
    with pytest.raises(CheckpointError):
        documents.decode(documents.encode(Document("save", (4,), (entry,))))


@pytest.mark.parametrize(
    "request_", [Request("x", -1), Request("x", 2**40), Request("x", 0, "../../up"), Request("x", keep=-1)]
)
def test_hostile_requests_are_refused(request_: Request) -> None:
    with pytest.raises(CheckpointError):
        documents.request_of(documents.as_array(request_))


# --- simulated sessions -------------------------------------------------------------------------------------------

square = sw.slice(mesh={"rows": 2, "columns": 2}, name="square")
other = sw.slice(devices=4, name="other")
doubled = sw.jit(lambda x: x * 2, devices=square, in_shardings=P("rows"), out_shardings=P("rows"), donate_argnums=0)
TABLE = np.arange(32, dtype=np.float32).reshape(8, 4)


def state() -> Any:
    x = sw.put(TABLE, devices=square, sharding=P("rows", "columns"))
    key = sw.jit(lambda n: jax.random.key(n), devices=other)(7)
    half = sw.jit(lambda y: y.astype("bfloat16"), devices=other)(x)
    return {"x": x, "more": [key, half], "n": 3}


def test_a_simulation_that_computes_writes_files_and_reads_them(tmp_path: Path) -> None:
    with small(islands=2, values="compute"):
        assert checkpoint.latest(tmp_path) is None
        saved = checkpoint.save(tmp_path, state(), step=12)
        assert int(saved) == 12
        assert checkpoint.latest(tmp_path) == 12
    with small(hosts=4, values="compute"):
        like = jax.eval_shape(lambda: {"x": TABLE, "more": [jax.random.key(0), np.zeros((8, 4), "bfloat16")], "n": 0})
        found = checkpoint.restore(tmp_path, like, devices=sw.slice(devices=8), sharding=P())
        np.testing.assert_array_equal(np.asarray(found["x"]), TABLE)
        np.testing.assert_array_equal(np.asarray(found["more"][1]).astype(np.float32), TABLE)
        draw = sw.jit(lambda key: jax.random.normal(key, (3,)), devices=4)
        np.testing.assert_array_equal(np.asarray(draw(found["more"][0])), jax.random.normal(jax.random.key(7), (3,)))
        assert int(found["n"]) == 3


def test_a_simulation_without_contents_prices_a_save_and_knows_what_it_saved(tmp_path: Path) -> None:
    with small(islands=2) as session:
        x = sw.put(shape_of((4096, 4096), np.float32), devices=square, sharding=P("rows", "columns"))
        begun = sw.block_until_ready(x).ready_at
        saved = checkpoint.save(tmp_path, x, step=4)
        wanted = 4096 * 4096 * 4 // 4 * 1_000_000_000 // graphs.BANDWIDTH
        assert wanted < saved.ready_at - begun < wanted * 1.1
        assert checkpoint.latest(tmp_path) == 4
        like = shape_of((4096, 4096), np.float32)
        again = checkpoint.restore(tmp_path, like, devices=other)
        assert again.sharding.spec == P()
        with pytest.raises(sw.errors.NoContents):
            np.asarray(again)
        whole = 4096 * 4096 * 4 * 1_000_000_000 // graphs.BANDWIDTH  # each device reads all of it
        assert again.ready_at - saved.ready_at > whole
        costs = session.costs().set_index("computation")
        assert set(costs.source[["checkpoint.save", "checkpoint.read"]]) == {"assumed"}
        assert session.trace.summary()
    assert not list(tmp_path.iterdir())


def test_the_price_of_a_save_can_be_stated(tmp_path: Path) -> None:
    with small(costs={"checkpoint.save": "2s"}):
        x = sw.block_until_ready(sw.put(TABLE, devices=square))
        assert checkpoint.save(tmp_path, x).ready_at - x.ready_at > 2_000_000_000


def test_one_program_can_save_several_steps(tmp_path: Path) -> None:
    with small(values="compute", sizes=64) as session:  # `sizes` are of the user's own irregular computations
        x = sw.put(TABLE, devices=square, sharding=P("rows"))
        for step in range(3):
            checkpoint.save(tmp_path, {"x": x}, step=step)
            x = doubled(x)
        sw.block_until_ready(x)
        assert list(session.trace.runs()["program"]).count("checkpoint.save") == 3
        assert list(session.costs()["computation"]).count("checkpoint.save") == 1
        for step in range(3):
            found = checkpoint.restore(tmp_path, {"x": x}, step=step)
            np.testing.assert_array_equal(np.asarray(found["x"]), TABLE * 2**step)


def test_old_steps_are_deleted_when_a_new_one_is_complete(tmp_path: Path) -> None:
    with small(values="compute"):
        x = sw.put(TABLE, devices=square)
        for step in (0, 5, 7, 30):
            int(checkpoint.save(tmp_path, x, step=step, keep=2))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["30", "7"]
        int(checkpoint.save(tmp_path, x, step=3, keep=2))  # the requested step stays
        assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "30"]
        with pytest.raises(ValueError, match=r"save\(keep=0\): how many steps stay"):
            checkpoint.save(tmp_path, x, step=31, keep=0)


def test_a_damaged_or_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with small(values="compute"):
        x = sw.put(TABLE, devices=square, sharding=P("rows"))
        for step in range(2):
            checkpoint.save(tmp_path, {"x": x}, step=step).block_until_ready()
        (tmp_path / "0" / "x" / "c" / "1" / "0").unlink()
        raw = bytearray((tmp_path / "1" / "x" / "c" / "0" / "0").read_bytes())
        raw[17] ^= 4
        (tmp_path / "1" / "x" / "c" / "0" / "0").write_bytes(raw)
        for step, said in ((0, "file x/c/1/0 is missing; restore"), (1, "file x/c/0/0 is damaged: its checksum")):
            with pytest.raises(sw.errors.RunError, match=said) as error:
                sw.get(checkpoint.restore(tmp_path, {"x": x}, step=step))
            assert str(tmp_path / str(step)) in str(error.value)


def test_a_failed_save_is_raised_by_the_next_call_or_by_the_end_of_the_session(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = pytest.raises(sw.errors.RunError, match=f"{tmp_path}/file is no folder")
    with refused, small(values="compute"):
        checkpoint.save(tmp_path / "file", sw.put(TABLE, devices=square))
    with small(values="compute"):
        x = sw.put(TABLE, devices=square)
        for call in (
            lambda: checkpoint.save(tmp_path / "run", x),
            lambda: checkpoint.restore(tmp_path / "run", x),
            lambda: checkpoint.latest(tmp_path / "run"),
        ):
            checkpoint.save(tmp_path / "file", x)
            sw.sleep("1s")
            with refused:
                call()
        assert checkpoint.latest(tmp_path / "run") is None  # each is raised once
        saved = checkpoint.save(tmp_path / "file", x)
        with refused:
            int(saved)


def test_a_save_that_is_lost_with_its_host_is_logged_and_raised_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crash = Fault(20_000_000, "crash_host", 1)
    session = small(faults=[crash]).open()
    x = sw.put(shape_of((4096, 4096), np.float32), devices=square, sharding=P("rows", "columns"))
    checkpoint.save(tmp_path, x)
    with pytest.raises(sw.errors.RunError) as error:
        session.close()
    assert error.value.code == "host-lost"
    assert error.value.__notes__ == ["This is the error of an earlier 'checkpoint.save': nobody had waited for it."]
    assert "'checkpoint.save' has failed: [host-lost]" in caplog.text


def test_mistakes_are_reported_where_they_are_made(tmp_path: Path) -> None:
    with pytest.raises(sw.errors.NoSession, match=r"sw\.checkpoint\.save"):
        checkpoint.save(tmp_path, {})
    with small(values="compute"):
        x = sw.put(TABLE, devices=square)
        with pytest.raises(ValueError, match="no array of the tree lies on devices"):
            checkpoint.save(tmp_path, {"x": TABLE})
        with pytest.raises(ValueError, match=r"save\(step=-1\): a whole number"):
            checkpoint.save(tmp_path, x, step=-1)
        with pytest.raises(FileNotFoundError, match="no step is complete in"):
            checkpoint.restore(tmp_path, x)
        with pytest.raises(ValueError, match="lies on no slice; say where"):
            checkpoint.restore(tmp_path, TABLE, step=0)
        with pytest.raises(sw.errors.RunError, match="there is no step 3; no step is complete there"):
            np.asarray(checkpoint.restore(tmp_path, x, step=3))
        checkpoint.save(tmp_path, {"x": x}).block_until_ready()
        with pytest.raises(sw.errors.RunError, match=r"it has no array 'y'; it has x"):
            sw.get(checkpoint.restore(tmp_path, {"y": x}))
        with pytest.raises(sw.errors.RunError, match="step 0 exists already"):
            int(checkpoint.save(tmp_path, {"x": x}))
        assert int(checkpoint.save(tmp_path, {"x": x}, overwrite=True)) == 0

        @sw.program
        def inside(y: Any) -> Any:
            checkpoint.save(tmp_path, y)
            return y

        with pytest.raises(sw.errors.NotNow, match=r"sw\.checkpoint\.save inside @sw\.program 'inside'"):
            inside(x)


def test_without_its_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "google_crc32c", None)
    with small(values="compute"):
        x = sw.put(TABLE, devices=square)
        with pytest.raises(sw.errors.RunError, match=r"pip install 'seaway\[checkpoint\]'"):
            int(checkpoint.save(tmp_path, x))
