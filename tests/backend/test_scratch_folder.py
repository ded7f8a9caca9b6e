"""Folders of killed processes are removed by the next start, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backend.admin.children import ROOT
from backend.scratch_folder import OWNER, ScratchFolder

OWNING = """
from pathlib import Path
from backend.scratch_folder import ScratchFolder
folder = ScratchFolder("test")
(Path(folder.name) / "log").write_text("words")
print(folder.name, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory, for this process and its children."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


@contextmanager
def owner() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a folder, and the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNING], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_the_folder_of_a_killed_process_goes_with_the_next_start_and_those_of_living_ones_stay(place: Path) -> None:
    with owner() as (_, living), owner() as (killed, left):
        killed.kill()
        killed.wait()
        assert left.exists()
        with ScratchFolder() as mine:
            assert sorted(place.iterdir()) == sorted([living, Path(mine)])
            assert (living / "log").read_text() == "words"
    assert list(place.iterdir()) == [living]  # killed, too: the next start removes it


def test_a_process_that_ends_in_order_leaves_nothing(place: Path) -> None:
    with owner() as (process, folder):
        process.communicate("go\n")
        assert process.returncode == 0
    assert not folder.exists()


def test_folders_that_are_not_ours_stay(place: Path) -> None:
    """Somebody's own, one that is being made, and a link to another."""
    elsewhere = place / "elsewhere"
    for each in (place / "seaway-mine", place / "seaway-new", elsewhere):
        each.mkdir()
    (place / "seaway-new" / f"{OWNER}.new").touch()
    (elsewhere / OWNER).touch()
    (place / "seaway-link").symlink_to(elsewhere)
    before = sorted(place.iterdir())
    with ScratchFolder():
        pass
    assert sorted(place.iterdir()) == before
    assert (elsewhere / OWNER).exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_folders_of_other_users_stay(place: Path) -> None:
    theirs = place / "seaway-theirs"
    theirs.mkdir()
    (theirs / OWNER).touch()
    os.chown(theirs, 65534, 65534)
    with ScratchFolder():
        pass
    assert theirs.exists()
