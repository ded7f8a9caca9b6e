"""Eight devices of one host, and its disk: what has no room in host memory goes there, and nothing wrong comes back."""

from __future__ import annotations

import fcntl
import re
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import IO

import numpy as np
import pytest

from backend.pjrt import disk
from backend.pjrt.disk import LostOnDisk, SpillFolder
from backend.scratch_folder import OWNER
from core.model import Index
from core.protocol import effects as e

from .pjrt_rig import Rig, value
from .pjrt_stage import ARRAY, DEVICES, ROWS, layout


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(DEVICES, spill=tmp_path / "spilled")
    yield rig
    rig.close()
    assert not list((tmp_path / "spilled").glob("*"))  # an orderly end leaves nothing


PREFIX = "seaway-spilled-"


def owned(folder: Path) -> IO[str]:
    """A folder of a process that lives for as long as this file is open."""
    folder.mkdir(parents=True)
    mark = (folder / OWNER).open("w")
    fcntl.flock(mark, fcntl.LOCK_EX)
    return mark


def spilled(rig: Rig, buffer: int, seq: int) -> list[Path]:
    """Send it to disk. Returns the files that it has there."""
    before = set(rig.devices._disk.below.glob("*/*"))
    rig.devices.spill(e.SpillBuffer(seq, buffer, (), to_disk=True))
    assert rig.wait(e.Copied, seq=seq) == e.Copied(seq)
    new = set(rig.devices._disk.below.glob("*/*")) - before
    return [each for each in sorted(new) if not each.name.startswith(".")]


def test_a_buffer_goes_to_disk_and_comes_back_and_its_files_go_when_it_does(rig: Rig) -> None:
    x = rig.literal(layout(ROWS), ARRAY)
    rig.settle()
    before = rig.usage()
    files = spilled(rig, x, 910)
    out = rig.usage()
    assert (out["spilled_bytes"], out["disk_bytes"]) == (before["spilled_bytes"], ARRAY.nbytes)
    assert sum(each.stat().st_size for each in files) == ARRAY.nbytes + 4 * len(files)  # each with its checksum
    assert not rig.devices.at_hand(x)  # another thread reads it for other hosts
    np.testing.assert_array_equal(rig.array(x, layout(ROWS)), ARRAY)
    rig.devices.restore(e.RestoreBuffer(911, x, (), from_disk=True))
    assert rig.wait(e.Copied, seq=911) == e.Copied(911)
    assert rig.usage() == before
    np.testing.assert_array_equal(rig.array(x, layout(ROWS)), ARRAY)
    rig.devices._copying.ask(lambda: None)
    assert not any(map(Path.exists, files))


def test_a_disk_that_cannot_be_written_to_leaves_a_buffer_in_memory_and_says_why(rig: Rig) -> None:
    x = rig.literal(layout(ROWS), ARRAY)
    rig.devices._disk.below.write_text("a file where the folder should be")
    rig.devices.spill(e.SpillBuffer(914, x, (), to_disk=True))
    said = rig.wait(e.Copied, seq=914)
    assert said.blame is None
    assert re.search(r"cannot write arrays to its disk \(.*: File exists\).*restart its agent", said.no_disk)
    assert rig.usage()["spilled_bytes"] == ARRAY.nbytes
    rig.devices.restore(e.RestoreBuffer(915, x, (), from_disk=True))
    assert rig.wait(e.Copied, seq=915) == e.Copied(915)
    np.testing.assert_array_equal(rig.array(x, layout(ROWS)), ARRAY)
    rig.devices._disk.below.unlink()


def test_contents_that_were_damaged_on_disk_are_lost_and_no_wrong_number_comes_back(rig: Rig) -> None:
    x = rig.literal(layout(ROWS), ARRAY)
    damaged = spilled(rig, x, 916)[3]
    contents = bytearray(damaged.read_bytes())
    contents[3] ^= 1
    damaged.write_bytes(contents)
    rig.devices.restore(e.RestoreBuffer(917, x, (), from_disk=True))
    blame = rig.wait(e.Copied, seq=917).blame
    assert blame is not None
    assert blame.code == "lost"
    assert f"{damaged} is damaged: its checksum is wrong" in blame.cause
    with pytest.raises(LostOnDisk):
        rig.array(x, layout(ROWS))
    rig.devices.free(x, 1)


def test_what_a_process_that_was_killed_has_left_is_removed_and_what_a_living_one_has_is_not(rig: Rig) -> None:
    below = rig.devices._disk.below
    dead, living = (below / f"{PREFIX}{name}" for name in ("dead", "living"))
    x = rig.literal(layout(ROWS), ARRAY)
    with owned(living):
        owned(dead).close()
        for folder in (dead, living):
            (folder / "0").write_bytes(b"an array")
        spilled(rig, x, 918)
    assert not dead.exists()
    assert (living / "0").exists()
    shutil.rmtree(living)


def test_an_agent_that_starts_makes_room_on_the_disk_though_it_may_never_send_anything_there(tmp_path: Path) -> None:
    dead, living = (tmp_path / f"{PREFIX}{name}" for name in ("dead", "living"))
    owned(dead).close()
    with owned(living):
        rig = Rig(DEVICES, join=False, spill=tmp_path)
        rig.devices._copying.ask(lambda: None)
        rig.close()
    assert [*tmp_path.iterdir()] == [living]


def test_files_that_cannot_be_removed_do_not_end_the_host(rig: Rig) -> None:
    """As on a disk that has had an error, and can only be read since."""
    x = rig.literal(layout(ROWS), ARRAY)
    files = spilled(rig, x, 920)
    files[0].unlink()
    files[0].mkdir()
    rig.devices.free(x, 1)
    rig.settle()
    rig.devices._copying.ask(lambda: None)
    assert not [said for said in (*rig.seen, *rig.events.queue) if isinstance(said, BaseException)]
    assert [each for each in files if each.exists()] == files[:1], "the others are gone"


def test_agents_that_remove_the_same_leftovers_all_have_a_folder(tmp_path: Path) -> None:
    for number in range(300):
        owned(tmp_path / f"{PREFIX}{number}").close()
    shards: dict[Index, np.ndarray] = {(0,): np.arange(3)}
    folders = [SpillFolder(tmp_path, lambda work: work()) for _ in range(4)]
    begin = Barrier(len(folders))

    def write(folder: SpillFolder) -> list[int]:
        begin.wait()
        return list(folder.write(shards, "int64")[0,])

    with ThreadPoolExecutor(len(folders)) as pool:
        assert list(pool.map(write, folders)) == [[0, 1, 2]] * len(folders)
    for folder in folders:
        folder.close()
    assert not list(tmp_path.iterdir())


def test_a_machine_on_which_no_folder_can_be_written_to_has_a_host_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its root is read-only, say. Whether arrays are ever to go to disk is not known when it starts."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(disk, "USUAL", str(tmp_path / "none"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    folder = SpillFolder(None, lambda work: work())
    with pytest.raises(OSError, match=r"exists|directory"):
        folder.write({(0,): np.arange(3)}, "int64")


EVERY_KIND = {
    "no dimension": np.float32(2.5), "no element": np.zeros((0, 4), np.float32), "bfloat16": ARRAY.astype("bfloat16"),
    "bool": ARRAY > 3, "eight bytes": ARRAY.astype(np.int64), "key": np.uint64(7), "keys": ARRAY.astype(np.uint64),
}  # fmt: skip


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_arrays_of_every_kind_come_back_from_disk_as_they_were(rig: Rig, kind: str) -> None:
    array = np.asarray(EVERY_KIND[kind])
    dims = ("x", "y") if array.shape == ARRAY.shape else ()
    here = layout(value(array.shape, dims, "key<fry>" if "key" in kind else array.dtype.name))
    x = rig.received(here, array)
    rig.settle()
    spilled(rig, x, 922)
    np.testing.assert_array_equal(rig.array(x, here), array)
    rig.devices.restore(e.RestoreBuffer(923, x, (), from_disk=True))
    assert rig.wait(e.Copied, seq=923) == e.Copied(923)
    np.testing.assert_array_equal(rig.array(x, here), array)
    rig.devices.free(x, 1)
