"""Whatever is not as it was saved is an error that names the file. Other readers of zarr understand the files."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore

from backend.checkpoint import Box, files, folders, zarrs
from backend.checkpoint.documents import ArrayEntry, CheckpointError, Request
from core.model import Index

from .saved import ENTRIES, contents, read, save


def flipped(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def linked(path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to(other)


DAMAGES: dict[str, Callable[[Path, Path], Any]] = {
    "is missing": lambda path, older: path.unlink(),
    "its checksum is wrong": lambda path, older: flipped(path),
    "has 51 bytes, and should have 52": lambda path, older: path.write_bytes(path.read_bytes()[:-1]),
    "another part": lambda path, older: shutil.copy(path.with_name("0"), path),
    "of another save": lambda path, older: shutil.copy(older, path),
    "behind a link": linked,
}


@pytest.mark.parametrize("said", DAMAGES)
def test_a_chunk_that_is_not_as_it_was_saved_is_named(tmp_path: Path, said: str) -> None:
    older, step = save(tmp_path, 1, seed=1), save(tmp_path, 2, seed=2)
    DAMAGES[said](step / "x/c/1/1", older / "x/c/1/1")
    with pytest.raises(CheckpointError, match=said) as error:
        read(step)
    assert str(error.value).startswith(f"checkpoint {step}: file x/c/1/1 ")
    assert str(error.value).endswith(files.FIX)
    found: list[tuple[str, str]] = []
    zarrs.verify(step, lambda *each: found.append(each))
    assert [name for name, _ in found] == ["x/c/1/1"]
    assert read(older) == [each.tobytes() for each in contents(1)]


def test_what_needs_nothing_of_a_damaged_chunk_is_read(tmp_path: Path) -> None:
    step = save(tmp_path, 1, seed=1)
    flipped(step / "x/c/1/1")
    entry = ENTRIES[0]
    boxes: dict[Index, Box] = {(0,): (slice(0, 8), slice(0, 3))}
    (shards,) = zarrs.read(step, [(entry, boxes)])
    np.testing.assert_array_equal(shards[0,], contents(1)[0][:, :3])


@pytest.mark.parametrize("name", ["zarr.json", "x/zarr.json", "layer.key/zarr.json", "none/zarr.json"])
def test_documents_that_are_damaged_or_missing_are_named(tmp_path: Path, name: str) -> None:
    step = save(tmp_path, 1, seed=1)
    text = (step / name).read_bytes()
    for wrong in (text[:-9], b"", text.replace(b"3", b"4", 1), text.replace(b"shape", b"shbpe", 1)):
        (step / name).write_bytes(wrong)
        with pytest.raises(CheckpointError, match=f"file {name} "):
            read(step)
    (step / name).unlink()
    with pytest.raises(CheckpointError, match=f"file {name} is missing"):
        read(step)


def test_a_newer_format_is_refused_by_its_number(tmp_path: Path) -> None:
    step = save(tmp_path, 1, seed=1)
    told = json.loads((step / "zarr.json").read_bytes())
    told["attributes"]["seaway"] |= {"format": 7, "unheard": "of"}
    (step / "zarr.json").write_text(json.dumps(told))
    with pytest.raises(CheckpointError, match="format 7 is unknown to this version; a newer Seaway"):
        read(step)


def test_tensorstore_reads_our_files_and_notices_damage(tmp_path: Path) -> None:
    step = save(tmp_path, 1, seed=1)
    for entry, array in zip(ENTRIES, contents(1), strict=True):
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(step / entry.name)}}
        assert tensorstore.open(spec).result().read().result().tobytes() == array.tobytes()
    flipped(step / "x/c/1/1")
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(step / "x")}}
    with pytest.raises(ValueError, match="Digest mismatch"):
        tensorstore.open(spec).result().read().result()


def test_we_read_what_tensorstore_writes(tmp_path: Path) -> None:
    """With chunks that do not divide the array, too."""
    array = np.arange(70, dtype=np.int16).reshape(10, 7)
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": str(tmp_path / "x")},
        "metadata": {
            "shape": [10, 7],
            "data_type": "int16",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 3]}},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        },
    }
    tensorstore.open(spec, create=True).result().write(array).result()
    entry = ArrayEntry("x", "int16", (10, 7), (), (4, 3))
    zarrs.finish(tmp_path, Request(str(tmp_path), 1), [entry])
    boxes: dict[Index, Box] = {(0,): (slice(3, 10), slice(2, 7)), (1,): (slice(0, 1), slice(0, 7))}
    (found,) = zarrs.read(tmp_path, [(entry, boxes)])
    for index, box in boxes.items():
        np.testing.assert_array_equal(found[index], array[box])


def test_all_of_a_step_is_on_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file, and each folder after its last name; the renaming itself, too."""
    synced: dict[str, int] = {}
    fsync, rename = os.fsync, Path.rename

    def noted(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        synced[path] = os.fstat(handle).st_mtime_ns
        fsync(handle)

    def renamed(path: Path, target: Path) -> Path:
        for each in [path, *path.rglob("*")]:
            assert synced[str(each)] == each.stat().st_mtime_ns
        synced.clear()
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(Path, "rename", renamed)
    save(tmp_path / "run", 1, seed=1)
    assert list(synced) == [str(tmp_path / "run")]


def test_only_numbers_that_are_steps_are_steps(tmp_path: Path) -> None:
    step = save(tmp_path, 1, seed=1)
    for name in ("007", "99999999999999", "\u0663", "2x", "9" * 200):
        shutil.copytree(step, tmp_path / name)
    assert folders.steps(tmp_path) == [1]
