"""Eight real devices in one process. The tests are in `pjrt_cases`, `pjrt_troubles`, `pjrt_views` and
`stablehlo_cases`; each file runs in a child process.

JAX fixes the number of its devices when it starts, and in this process it may have started already.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PATIENCE = 300
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "NPROC": "32",
    "TPU_SKIP_MDS_QUERY": "1",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_cpu_collective_timeout_seconds=20",
}


@pytest.mark.parametrize("cases", ["pjrt_cases", "pjrt_troubles", "pjrt_views", "stablehlo_cases"])
def test_all_cases_pass_in_a_child_process(cases: str) -> None:
    file = Path(__file__).with_name(f"{cases}.py")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(file)]
    ran = subprocess.run(
        words, cwd=ROOT, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
