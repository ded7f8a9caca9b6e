"""What dead saves have left is deleted by the next save, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from backend.checkpoint import folders, leftovers
from backend.checkpoint.documents import CheckpointError, Request

from .saved import contents, read, save

NONCE = "0123456789abcdef"
WRITER = """
import sys
from pathlib import Path
from backend.checkpoint import leftovers
mark = leftovers.begin(Path(sys.argv[1]))
print("begun", flush=True)
sys.stdin.read()
"""


def begun(folder: Path, step: int = 7) -> Path:
    return folder / f"{step}.partial-{NONCE}"


def tidy(folder: Path, later: float = 0.0) -> list[str]:
    """As another save does it that begins so much later. Returns what is left."""
    mark = leftovers.begin(folder / "900.partial-00000000000000aa")
    leftovers.tidy(folder, mark.now + later)
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("900."))


def test_a_save_is_left_alone_while_its_process_lives_and_is_deleted_when_it_was_killed(tmp_path: Path) -> None:
    partial = begun(tmp_path)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(partial)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        assert tidy(tmp_path) == [partial.name]
        assert tidy(tmp_path, later=10 * leftovers.DAY) == [partial.name]
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert tidy(tmp_path) == []


def test_the_saves_of_one_process_are_told_apart(tmp_path: Path) -> None:
    first, second = leftovers.begin(begun(tmp_path, 1)), leftovers.begin(begun(tmp_path, 2))
    del first
    assert tidy(tmp_path) == [begun(tmp_path, 2).name]
    del second
    assert tidy(tmp_path) == []


def test_a_save_of_several_hosts_lives_as_long_as_one_of_them_writes(tmp_path: Path) -> None:
    first, second = leftovers.begin(begun(tmp_path)), leftovers.begin(begun(tmp_path))
    del first
    assert tidy(tmp_path) == [begun(tmp_path).name]
    del second
    assert tidy(tmp_path) == []


def test_marks_of_other_machines_and_folders_without_marks_are_deleted_when_a_day_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as there:
        there.setattr(leftovers, "_machine", lambda: "elsewhere")
        leftovers.begin(begun(tmp_path, 1))
    begun(tmp_path, 2).mkdir()
    both = [begun(tmp_path, 1).name, begun(tmp_path, 2).name]
    assert tidy(tmp_path) == both
    assert tidy(tmp_path, leftovers.DAY / 2) == both
    assert tidy(tmp_path, leftovers.DAY + 60) == []


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    step, outside = save(tmp_path / "run", 3, seed=1), tmp_path / "outside"
    (tmp_path / "run" / f"4.old-{NONCE}").mkdir()
    names = [f"x.partial-{NONCE}", "5.partial-me", f"5.partial-{NONCE}.copy", "notes"]
    for name in names:
        (tmp_path / "run" / name).mkdir()
        os.utime(tmp_path / "run" / name, (0, 0))
    leftovers.begin(outside)
    begun(tmp_path / "run").symlink_to(outside)
    assert tidy(tmp_path / "run") == sorted([*names, "3", begun(tmp_path).name])
    assert len(list(outside.iterdir())) == 1
    assert read(step) == [each.tobytes() for each in contents(1)]


@pytest.mark.parametrize("complete", [True, False])
def test_a_step_whose_replacement_died_between_two_renames_is_there_again(tmp_path: Path, complete: bool) -> None:
    """It is the new one, if that is whole."""
    old, new = save(tmp_path, 7, seed=1), save(tmp_path, 8, seed=2)
    old.rename(tmp_path / f"7.replaced-{NONCE}")
    new.rename(begun(tmp_path))
    if not complete:
        (begun(tmp_path) / "zarr.json").unlink()
        os.utime(begun(tmp_path), (0, 0))
    assert tidy(tmp_path) == (["7"] if not complete else ["7", f"7.replaced-{NONCE}"])
    assert read(tmp_path / "7") == [each.tobytes() for each in contents(2 if complete else 1)]
    assert tidy(tmp_path) == ["7"]


def test_a_step_that_another_save_completes_between_two_renames_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 7, seed=1)
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        found = rename(path, target)
        if path.name == "7":
            leftovers.tidy(tmp_path, 0.0)
        return found

    monkeypatch.setattr(Path, "rename", renamed)
    assert read(save(tmp_path, 7, seed=2, overwrite=True)) == [each.tobytes() for each in contents(2)]
    assert os.listdir(tmp_path) == ["7"]


def test_a_complete_step_has_no_marks(tmp_path: Path) -> None:
    asked = Request(str(tmp_path), 4, f"{1:016x}")
    mark = leftovers.begin(folders.partial(tmp_path, asked))
    step = save(tmp_path, 4, seed=1)
    assert not [path.name for path in step.iterdir() if path.name.startswith(".")]
    del mark


def test_hosts_make_the_folder_of_a_save_at_the_same_time(tmp_path: Path) -> None:
    failed: list[BaseException] = []

    def begun(partial: Path, together: threading.Barrier) -> None:
        together.wait()
        try:
            leftovers.begin(partial)
        except CheckpointError as error:
            failed.append(error)

    for number in range(100):
        together = threading.Barrier(4)
        partial = tmp_path / f"{number}" / "13.partial-0123456789abcdef"
        hosts = [threading.Thread(target=begun, args=(partial, together)) for _ in range(4)]
        for host in hosts:
            host.start()
        for host in hosts:
            host.join()
    assert not failed
