"""Runs a program in another process, with its output to compare."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple

from backend.admin.children import environment

ROOT = Path(__file__).parents[3]
DEVICES = 8
LONGEST = 300.0  # seconds


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def python(*words: str, env: Mapping[str, str], stdin: IO[str] | None = None, folder: Path = ROOT) -> Ended:
    own = {"TF_CPP_MIN_LOG_LEVEL": "3"} | dict(env)
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment(own), stdin=stdin or subprocess.DEVNULL,
        capture_output=True, text=True, timeout=LONGEST, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)
