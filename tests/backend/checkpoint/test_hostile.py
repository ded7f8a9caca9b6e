"""A law of checkpoints that strangers made: reading one gives what was saved, or one error that names the file.

Either way it takes no more memory than what was asked for needs, and nothing is created, changed or followed out of the
folder. `verify` says the same as a restore.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import tracemalloc
import zlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from backend.checkpoint import folders, leftovers, metadata, zarrs
from backend.checkpoint.documents import CheckpointError
from tests.laws import examples

from .saved import contents, read, save

MOST_MEMORY = 8 << 20  # bytes; of a checkpoint of 400, whatever it says of itself
HUGE = [2**31, 2**62, 2**63, 2**64, 10**30, -1, 0, 1, 3]
VALUES = st.one_of(
    st.sampled_from(HUGE), st.none(), st.booleans(), st.floats(allow_nan=True), st.text(max_size=8),
    st.sampled_from(
        ["../x", "/etc/passwd", "x/../../y", "a\0b", "\x1b[31m", "int4", "object", "NaN", "zstd", "big", "99" * 40]
    ),
    st.lists(st.sampled_from(HUGE), max_size=4), st.lists(st.text(max_size=4), max_size=3),
    st.sampled_from([{}, [], {"name": "zstd", "configuration": {}}, [[]] * 100, "x" * 5000]),
)  # fmt: skip
TEXTS = [
    b"", b"null", b"[]", b"{}", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"NaN", b"1e999", b"9" * 10_000,
    b'{"zarr_format":3',
    b'{"zarr_format":3,"node_type":"group","attributes":' + b'{"seaway":' * 5000,
    b'{"zarr_format":3,"node_type":"array","fill_value":' + b"[" * 50_000,
]  # fmt: skip
LITTLE: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
CODECS: list[list[dict[str, Any]]] = [
    [LITTLE, {"name": "zstd", "configuration": {"level": 1}}],
    [{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 9}}],
    [{"name": "transpose", "configuration": {"order": [1, 0]}}, LITTLE],
    [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1, 1], "codecs": [{"name": "bytes"}]}}],
    [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "crc32c"}],
    [LITTLE, {"name": "crc32c"}, {"name": "crc32c"}],
    [{"name": "os.system", "configuration": {"command": "touch hacked"}}],
]
BOMB = zlib.compress(bytes(1 << 24), 9)


@lru_cache
def templates() -> Path:
    """Of two saves."""
    folder = Path(tempfile.mkdtemp(prefix="hostile"))
    save(folder / "whole", 1, seed=1)
    save(folder / "whole", 2, seed=2)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _removed() -> Iterator[None]:
    yield
    shutil.rmtree(templates())


def places(told: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a document."""
    inner = told.items() if isinstance(told, dict) else enumerate(told) if isinstance(told, list) else ()
    return [at, *[path for key, value in inner for path in places(value, (*at, key))]]


def document(draw: Any, path: Path, group: bool) -> None:
    """Another value at one place of a document, or a key gone, or one more; the digest may be right in spite of it."""
    told = json.loads(path.read_bytes())
    *way, last = draw(st.sampled_from(places(told)[1:]))
    where = told
    for key in way:
        where = where[key]
    action = draw(st.sampled_from(["set", "set", "set", "delete", "add"]))
    if action == "delete":
        del where[last]
    elif action == "add" and isinstance(where, dict):
        where[draw(st.sampled_from(["x", "../x", "codecs", "sum", "/", "\0"]))] = draw(VALUES)
    else:
        where[last] = draw(VALUES)
    if group and draw(st.booleans()):
        try:
            step = msgspec.convert(told["attributes"]["seaway"], metadata.SavedStep)
            told["attributes"]["seaway"]["sum"] = metadata._digest(replace(step, sum=""))
        except (msgspec.MsgspecError, LookupError, TypeError, ValueError):
            pass
    path.write_text(json.dumps(told))


CHANGES = ("flip", "cut", "more", "noise", "text", "bomb", "sparse")
PUT_IN_ITS_PLACE = ("nothing", "another", "link", "link out", "fifo", "folder")


def changed(draw: Any, path: Path, how: str) -> None:
    """A file with other bytes in it."""
    raw = path.read_bytes()
    if how == "flip" and raw:
        at = draw(st.integers(0, 8 * len(raw) - 1))
        path.write_bytes(raw[: at // 8] + bytes([raw[at // 8] ^ 1 << at % 8]) + raw[at // 8 + 1 :])
    elif how == "cut":
        path.write_bytes(raw[: draw(st.integers(0, len(raw)))])
    elif how == "more":
        path.write_bytes(raw + draw(st.binary(min_size=1, max_size=99)))
    elif how == "noise":
        path.write_bytes(draw(st.binary(max_size=200)))
    elif how == "text":
        path.write_bytes(draw(st.sampled_from(TEXTS)))
    elif how == "bomb":
        path.write_bytes(BOMB)
    elif how == "sparse":
        os.truncate(path, draw(st.sampled_from([1 << 20, 1 << 30, 1 << 40])))


def replaced(path: Path, how: str, other: Path, outside: Path) -> None:
    """Something else in the place of a file."""
    shutil.copy(path, outside / "copy")
    path.unlink()
    if how == "another":
        shutil.copy(other, path)
    elif how in ("link", "link out"):
        path.symlink_to(other if how == "link" else outside / "copy")
    elif how == "fifo":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()


def codecs(draw: Any, path: Path) -> None:
    """A document that promises other files than ours, and a bomb that would fit it."""
    told = json.loads(path.read_bytes())
    told["codecs"] = draw(st.sampled_from(CODECS))
    path.write_text(json.dumps(told))
    for chunk in (path.parent / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(BOMB)


def tree_of(folder: Path) -> dict[str, Any]:
    """All names below the folder, and when each was changed."""
    return {str(path): path.lstat().st_mtime_ns for path in folder.rglob("*")}


@examples(100)
@given(st.data())
def test_a_hostile_checkpoint_is_what_was_saved_or_one_error_that_names_the_file(data: Any) -> None:
    draw = data.draw
    whole, folder = templates() / "whole", templates() / "hostile"
    step, outside = folder / "run" / "2", folder / "outside"
    shutil.rmtree(folder, ignore_errors=True)
    outside.mkdir(parents=True)
    shutil.copytree(whole / "2", step)
    documents = sorted(step.rglob("zarr.json"))
    path = draw(st.sampled_from(sorted(path for path in step.rglob("*") if path.is_file())))
    how = draw(st.sampled_from(["value", "value", "value", "codecs", "links", *CHANGES, *PUT_IN_ITS_PLACE]))
    if how == "value":
        path = draw(st.sampled_from(documents))
        document(draw, path, group=path.parent == step)
    elif how in CHANGES:
        changed(draw, path, how)
    elif how in PUT_IN_ITS_PLACE:
        others = (found for found in whole.rglob("*") if found.is_file())
        replaced(path, how, draw(st.sampled_from(sorted(others))), outside)
    elif how == "codecs":
        codecs(draw, draw(st.sampled_from(sorted(step.glob("*/zarr.json")))))
    else:  # a whole array lies elsewhere
        shutil.rmtree(step / "x")
        (step / "x").symlink_to(whole / "2" / "x")
    judge(step, before=tree_of(folder), folder=folder)


def judge(step: Path, *, before: dict[str, Any], folder: Path) -> None:
    wanted = [each.tobytes() for each in contents(2)]
    damaged: list[tuple[str, str]] = []
    tracemalloc.start()
    try:
        found, error = read(step), ""
    except CheckpointError as wrong:
        found, error = [], str(wrong)
    try:
        zarrs.verify(step, lambda *each: damaged.append(each))
    except CheckpointError as wrong:
        damaged.append((str(wrong), ""))
    folders.latest(step.parent)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_MEMORY
    assert tree_of(folder) == before
    if error:
        assert error.startswith(f"checkpoint {step}: ")
        assert len(error) < 1000
        assert error.isprintable()
        assert damaged or "array" in error  # it is another checkpoint, and whole
    else:
        assert found == wanted
        assert not damaged or all(name.startswith("none") for name, _ in damaged)


@examples(50)
@given(st.lists(st.text(st.characters(exclude_characters="/.\0"), min_size=1, max_size=12), max_size=8))
def test_names_in_a_folder_of_checkpoints_do_no_harm(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = set()
        for name in [*names, "3.partial-", "1.replaced-0123456789abcdef", "4.old-x", "9" * 100]:
            try:
                (root / name).mkdir()
                made.add(name)
            except (OSError, UnicodeError):  # there is one, or no file system can have it
                continue
        assert folders.steps(root) == []
        leftovers.tidy(root, 0.0)
        assert {path.name for path in root.iterdir()} >= made - {"1.replaced-0123456789abcdef"}
