"""The computations of the example programs pass the TPU compiler, by the path that a host with TPUs takes.

Needs libtpu; nothing runs on a TPU. The results of these computations are checked elsewhere, on CPU devices.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seaway.costs.compiling import QUIET

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 400
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed"),
]
PAPER = """
import runpy, numpy as np
paper = runpy.run_path("examples/paper.py")

def call():
    for made in paper["f"](np.array([1.0, 2.0])):
        made.block_until_ready()
"""


def codes(program: Path, *calls: str) -> list[str]:
    words = [sys.executable, "-m", "tests.backend.pjrt.tpu_codes", str(program), *calls]
    ran = subprocess.run(
        words, cwd=ROOT, env=os.environ | QUIET, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


def test_the_papers_example_compiles(tmp_path: Path) -> None:
    program = tmp_path / "paper.py"
    program.write_text(PAPER)
    made = codes(program, "call")
    assert [line.partition(":")[0] for line in made] == ["a", "b", "c"]
    assert all(": 2 TPUs" in line for line in made)


def test_a_transformer_compiles_data_parallel_and_as_a_pipeline() -> None:
    made = codes(ROOT / "examples/transformer.py", "on_one_island", "on_two_islands")
    assert any(line.startswith("data_parallel: 4 TPUs, gives [0") for line in made), "donates its state"
    assert {line.partition(":")[0] for line in made} >= {"data_parallel", "update0", "update1"}
    assert any("2 TPUs" in line for line in made)
