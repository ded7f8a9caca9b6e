"""Checkpoints on real devices. The tests are in `pjrt_checkpoints`, and run in a child process with eight devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .test_pjrt import ENVIRONMENT, PATIENCE, ROOT


def test_all_cases_pass_in_a_child_process() -> None:
    file = Path(__file__).with_name("pjrt_checkpoints.py")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(file)]
    ran = subprocess.run(
        words, cwd=ROOT, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
