"""`seaway checkpoint verify`: what it prints, and its status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seaway.cli import main
from tests.backend.checkpoint.saved import save


def test_a_whole_checkpoint_is_one_line_a_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = save(tmp_path, 1, seed=1), save(tmp_path, 2, seed=2)
    assert main(["checkpoint", "verify", str(tmp_path)]) == 0
    one, two = capsys.readouterr().out.splitlines()
    assert one == f"{first}: 6 arrays, 244 bytes, all as saved"
    assert two == f"{second}: 6 arrays, 244 bytes, all as saved"
    assert main(["checkpoint", "verify", str(second)]) == 0
    assert capsys.readouterr().out == f"{two}\n"


def test_each_damaged_or_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = (save(tmp_path, step, seed=step) for step in (1, 2, 3))
    (first / "x/c/1/1").unlink()
    (first / "flags/c/0").write_bytes(bytes(10))
    (first / "half/zarr.json").unlink()
    (second / "zarr.json").write_text("{}")
    assert main(["checkpoint", "verify", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{first}/x/c/1/1 is missing",
        f"{first}/flags/c/0 is damaged: its checksum is wrong",
        f"{first}/half/zarr.json is missing",
        f"{first}: 3 files of 6 arrays, 180 bytes damaged or missing",
        f"{second}/zarr.json is not that of a Seaway checkpoint: Object missing required field `zarr_format`",
        f"{third}: 6 arrays, 244 bytes, all as saved",
    ]


def test_where_no_step_is_complete_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert main(["checkpoint", "verify", str(folder)]) == 1
        assert capsys.readouterr().err == f"seaway: no step of a checkpoint is complete in {folder}\n"
    (tmp_path / "file").write_text("")
    assert main(["checkpoint", "verify", str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err == f"seaway: checkpoint {tmp_path}/file: Not a directory\n"


def test_it_needs_no_jax(tmp_path: Path) -> None:
    save(tmp_path, 1, seed=1)
    program = (
        "import sys; from seaway.cli import main; main(sys.argv[1:]); "
        "print([name for name in ('jax', 'tensorstore', 'grpc') if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, "checkpoint", "verify", str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.splitlines()[1] == "[]"
