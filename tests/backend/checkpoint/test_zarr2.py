"""Arrays as zarr v2: what hosts have written is read as it was, or one error names the file; tensorstore reads it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from backend.checkpoint import CheckpointError, chunks, documents, zarr2
from backend.checkpoint.documents import ArrayEntry
from backend.contents.shard_io import numpy_dtype
from core.model import ITEM_BYTES, Layout, Sharding, line
from tests.laws import examples

from .test_damage import flipped, linked

NONCE = "0123456789abcdef"
X = ArrayEntry("x", "float32", (8, 6), ((0,), (1,)), (2, 3))  # on a mesh of (4, 2)
MESH = (4, 2)


def whole(entry: ArrayEntry) -> tuple[slice, ...]:
    return tuple(slice(0, size) for size in entry.shape)


def values(entry: ArrayEntry, seed: int = 1) -> np.ndarray[Any, Any]:
    count = int(np.prod(entry.shape))
    return (np.random.default_rng(seed).integers(0, 2, count) + 0).astype(numpy_dtype(entry.dtype)).reshape(entry.shape)


def pieces(entry: ArrayEntry, array: np.ndarray[Any, Any], devices: range) -> list[Any]:
    """What these devices of eight write."""
    layout = Layout(entry.shape, entry.dtype, line(0, 0, 8), MESH, Sharding(entry.split))
    return [(0, where, array[where]) for _, _, where in chunks.ours(layout, entry.chunk, 0, devices)]


def save(
    folder: Path, entry: ArrayEntry = X, seed: int = 1, nonce: str = NONCE, hosts: int = 2
) -> np.ndarray[Any, Any]:
    array = values(entry, seed)
    for host in reversed(range(hosts)):
        mine = range(host * 8 // hosts, (host + 1) * 8 // hosts)
        zarr2.write(folder, nonce, [entry], pieces(entry, array, mine), host=mine[0])
    zarr2.seal(folder, nonce, [entry])
    return array


def read(folder: Path, entry: ArrayEntry = X) -> np.ndarray[Any, Any]:
    return zarr2.read(folder, [(entry, {(): whole(entry)})])[0][()]


REFUSED = (
    "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "int1", "int2",
    "key<fry>", "uint1", "uint2", "uint4",
)  # fmt: skip
SPLITS = st.sampled_from([((), ()), ((0,), (1,)), ((1,), (0,)), ((0, 1), ()), ((), (1, 0)), ((1,), ())])


@examples(30)
@given(SPLITS, st.sampled_from([1, 2, 4, 8]), st.data())
def test_any_box_of_what_any_hosts_wrote_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, split: Any, hosts: int, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("z")
    parts = [int(np.prod([MESH[axis] for axis in axes])) for axes in split]
    chunk = tuple(
        size // part // data.draw(st.sampled_from([1, 2])) for size, part in zip((16, 32), parts, strict=True)
    )
    entry = ArrayEntry("a/b c", "int16", (16, 32), split, chunk)
    array = save(folder, entry, hosts=hosts)
    box = tuple(slice(*sorted(data.draw(st.tuples(*[st.integers(0, size)] * 2)))) for size in entry.shape)
    assert (zarr2.read(folder, [(entry, {(): box})])[0][()] == array[box]).all()
    assert not list(folder.glob(".seaway-*"))


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
def test_another_reader_gets_the_same_elements_or_the_type_is_refused(tmp_path: Path, dtype: str) -> None:
    entry = replace(X, dtype=dtype)
    if dtype in REFUSED:
        with pytest.raises(CheckpointError, match=f"arrays of {dtype} have no files in zarr v2"):
            save(tmp_path, entry)
        return
    wrote = save(tmp_path, entry)
    kept = {"driver": "file", "path": str(tmp_path / "x")}
    found = tensorstore.open({"driver": "zarr", "kvstore": kept}).result()
    assert found.dtype.name == dtype
    assert found.read().result().tobytes() == wrote.tobytes() == read(tmp_path, entry).tobytes()


def test_a_single_number_and_an_array_without_elements(tmp_path: Path) -> None:
    for entry in (ArrayEntry("n", "float32", (), (), ()), ArrayEntry("none", "int8", (0, 3), (), (1, 3))):
        save(tmp_path, entry)
        assert read(tmp_path, entry).shape == entry.shape


def test_what_another_tool_wrote_is_read_if_it_is_not_compressed(tmp_path: Path) -> None:
    for name, compressor in (("plain", None), ("small", {"id": "zstd", "level": 1})):
        metadata = {"shape": [8, 6], "chunks": [2, 3], "dtype": "<f4", "compressor": compressor}
        kept = {"driver": "file", "path": str(tmp_path / name)}
        made = tensorstore.open({"driver": "zarr", "kvstore": kept, "metadata": metadata, "create": True}).result()
        made.write(values(X) + 1).result()
    assert (read(tmp_path, replace(X, name="plain")) == values(X) + 1).all()
    with pytest.raises(CheckpointError, match=r"compressed.*restore it without ENABLE_PATHWAYS_PERSISTENCE"):
        read(tmp_path, replace(X, name="small"))
    with pytest.raises(CheckpointError, match=f"plain2/.zarray is missing; {zarr2.FIX}"):
        read(tmp_path, replace(X, name="plain2"))
    (tmp_path / "manifest.ocdbt").touch()
    with pytest.raises(CheckpointError, match=r"it was saved with use_ocdbt=True: restore it without"):
        read(tmp_path, replace(X, name="plain2"))
    with pytest.raises(CheckpointError, match=r"there is no such folder on this host: do all hosts see it\?"):
        read(tmp_path / "elsewhere")
    (tmp_path / "plain/1.1").unlink()
    with pytest.raises(CheckpointError, match=r"file plain/1.1 is missing"):
        read(tmp_path, replace(X, name="plain"))


# --- damage ---------------------------------------------------------------------------------------------------


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, Callable[[Path, Path], Any]] = {
    "is missing": lambda path, older: path.unlink(),
    "has 23 bytes, and should have 24": lambda path, older: path.write_bytes(path.read_bytes()[:-1]),
    "is not the one that was saved here": lambda path, older: flipped(path),
    "of another save": lambda path, older: shutil.copy(older, path),
    "behind a link": linked,
    "is no file": lambda path, older: piped(path),
}


@pytest.mark.parametrize("said", DAMAGES)
def test_a_chunk_that_is_not_as_it_was_saved_is_named(tmp_path: Path, said: str) -> None:
    older, now = tmp_path / "1", tmp_path / "2"
    for seed, folder in enumerate((older, now)):
        save(folder, seed=seed)
    DAMAGES[said](now / "x/3.1", older / "x/3.1")
    with pytest.raises(CheckpointError, match=said) as error:
        read(now)
    assert str(error.value).startswith(f"checkpoint {now}: file x/3.1 ")
    assert str(error.value).endswith(zarr2.FIX)


def test_a_save_that_did_not_end_is_not_read_whatever_was_there_before(tmp_path: Path) -> None:
    save(tmp_path)
    zarr2.write(tmp_path, "f" * 16, [X], pieces(X, values(X, 2), range(4)), host=0)
    with pytest.raises(CheckpointError, match=r"file x/.zarray is missing"):
        read(tmp_path)


def test_a_save_whose_folder_was_removed_does_not_write_into_the_next_one(tmp_path: Path) -> None:
    """As when a host is lost, and another one is still writing when the program saves again."""
    step, array = tmp_path / "1", values(X, 2)

    def slow() -> Any:
        first, *rest = pieces(X, array, range(8))
        yield first
        while not (step / "x").is_dir():
            time.sleep(0.01)
        shutil.rmtree(step)
        save(step, seed=3)
        yield from rest

    with pytest.raises(CheckpointError):
        zarr2.write(step, "f" * 16, [X], slow(), host=0)
    assert (read(step) == values(X, 3)).all()
    assert sorted(path.name for path in step.iterdir()) == ["x"]


def test_hosts_that_see_other_folders_are_found_when_it_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zarr2, "SEEN", 0.1)
    array = values(X)
    for host in (0, 4):
        zarr2.write(tmp_path / str(host), NONCE, [X], pieces(X, array, range(host, host + 4)), host=host)
    with pytest.raises(CheckpointError, match=r"4 of its 8 files are not there.* do all hosts see the same folder\?"):
        zarr2.seal(tmp_path / "0", NONCE, [X])


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (replace(X, dtype="int32"), "was saved as <f4[8, 6], but is requested as int32[8, 6]"),
        (replace(X, shape=(6, 8)), "was saved as <f4[8, 6], but is requested as float32[6, 8]"),
    ],
)
def test_another_type_than_was_saved_is_refused(tmp_path: Path, entry: ArrayEntry, said: str) -> None:
    save(tmp_path)
    with pytest.raises(CheckpointError) as error:
        read(tmp_path, entry)
    assert said in str(error.value)


# --- what a stranger may have put there ------------------------------------------------------------------------------

TEXTS = [b"", b"null", b"[]", b"{}", b"[" * 100_000, b"\xff", b"9" * 10_000, b'{"zarr_format":3}', b'{"seaway":1}']
SUMS: list[Any] = [7, {}, {"crc32c": 7}, {"crc32c": "zz"}, {"crc32c": "00000000"}, {"crc32c": None}]
CHANGES: list[dict[str, Any]] = [
    {"chunks": [2**40, 3]}, {"chunks": [0, 3]}, {"chunks": [2]}, {"chunks": [-1, -1]}, {"shape": [2**62, 2**62]},
    {"order": "F"}, {"dtype": ">f4"}, {"dtype": "|O"}, {"dtype": [["a", "<f4"]]}, {"filters": [{"id": "os.system"}]},
    {"compressor": {"id": "blosc"}}, {"dimension_separator": "/"}, {"zarr_format": 3},
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_document_that_makes_no_sense_is_one_error_that_names_it(tmp_path: Path, text: bytes) -> None:
    save(tmp_path)
    (tmp_path / "x/.zarray").write_bytes(text)
    with pytest.raises(CheckpointError, match=r"file x/.zarray "):
        read(tmp_path)


@pytest.mark.parametrize("change", [*CHANGES, *({"seaway": each} for each in SUMS)])
def test_a_document_that_says_something_else_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    save(tmp_path)
    path = tmp_path / "x/.zarray"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError):
        read(tmp_path)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/../b", "/a", "a//b", "a/", ".zarray", "a\0", "a\nb", "a" * 300, "a/0", "a/1.2/b"]
)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    document = documents.Document("export", (), (ArrayEntry(name, "int8", (), (), ()),))
    with pytest.raises(CheckpointError, match="cannot be the name of an array"):
        documents.decode(documents.encode(document))


def test_nothing_is_written_through_a_link_or_into_a_pipe(tmp_path: Path) -> None:
    for_others, there = tmp_path / "others", tmp_path / "there"
    for each in (for_others, there):
        each.mkdir()
    (there / "x").symlink_to(for_others)
    with pytest.raises(CheckpointError, match=r"checkpoint \S+: (Not a directory|Too many levels)"):
        save(there)
    (there / "x").unlink()
    (there / "x").mkdir()
    os.mkfifo(there / "x/0.0")
    with pytest.raises(CheckpointError, match=r"file x/0.0: "):
        save(there)
    assert not list(for_others.iterdir())
