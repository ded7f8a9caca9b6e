"""The command of docs/gpus.md: its parts run on CPU devices, and without a GPU it measures nothing."""

import json
from pathlib import Path

import pytest

from experiments import gpu


def test_without_a_gpu_it_says_so_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "gpu.json"
    assert gpu.main(["--platform", "cuda", "--out", str(out)]) == 0
    assert capsys.readouterr().out == (
        "JAX finds no cuda devices on this machine: nothing was measured, and nothing was written\n"
    )
    assert not out.exists()


def test_the_table_is_made_from_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gpu.json"
    path.write_text(json.dumps({"machine": {"devices": "1 x H100"}, "real": {"JAX OpByOp": 10250.4}}))
    assert gpu.main(["--show", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| machine | devices | 1 x H100 |", "| real | JAX OpByOp | 10,250 |",
    ]  # fmt: skip


@pytest.mark.full
def test_the_parts_run_on_cpu_devices_and_an_agent_that_was_killed_serves_again(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    words = ["--platform", "cpu", "--rows", "64", "--seconds", "1", "--out", str(out)]
    assert gpu.main([*words, "--only", "products", "clients", "healing"]) == 0
    found = json.loads(out.read_text())
    assert found["products"]["Seaway, ms"] > 0 < found["products"]["JAX, ms"]
    assert sum(share for name, share in found["clients"].items() if "weight" in name) == pytest.approx(1, abs=0.01)
    assert found["healing"]["error"] == "[host-lost]"
    assert found["healing"]["runs again after, s"] > found["healing"]["told after, s"] > 0
