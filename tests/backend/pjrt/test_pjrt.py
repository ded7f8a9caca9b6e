"""Eight real devices in one process. The tests are in the files of `CASES`, which run in a child process: JAX fixes the
number of its devices when it starts, and in this process it may have started already.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PATIENCE = 600  # seconds, on a busy machine
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "NPROC": "32",
    "TPU_SKIP_MDS_QUERY": "1",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_cpu_collective_timeout_seconds=20",
}
CASES = ("pjrt_cases", "pjrt_disk", "pjrt_troubles", "pjrt_views", "stablehlo_cases", "pjrt_checkpoints")


def test_all_cases_pass_in_a_child_process() -> None:
    files = [str(Path(__file__).with_name(f"{cases}.py")) for cases in CASES]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
    ran = subprocess.run(
        words, cwd=ROOT, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout


def test_each_file_of_cases_is_among_those_that_run() -> None:
    here = Path(__file__).parent
    with_tests = {path.stem for path in here.glob("*.py") if "\ndef test_" in path.read_text(encoding="utf-8")}
    assert {name for name in with_tests if not name.startswith("test_")} == set(CASES)
