"""Runs a program in another process, with its output to compare; and the programs of examples/door/."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple

from backend.admin.children import environment

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "door"
PROGRAMS = ("flax_mesh.py", "scan_transformer.py", "orbax_restore.py", "data_pipeline.py")
DEVICES = 8
MPMD_CLIENT = Path(__file__).parent / "mpmd" / "mpmd_client.py"
MPMD_RAN = [  # three steps of each of its programs
    "two_stages 18.4677 True True", "two_stages 9.4191 True True", "two_stages 5.4167 True True", "two_stages 6 6",
    "pipeline 5.8996 True True", "pipeline 5.7533 True True", "pipeline 5.6262 True True", "pipeline 14 14",
]  # fmt: skip
LONGEST = 300.0  # seconds


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def python(*words: str, env: Mapping[str, str], stdin: IO[str] | None = None, folder: Path = ROOT) -> Ended:
    own = {"TF_CPP_MIN_LOG_LEVEL": "3"} | dict(env)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *words], cwd=folder, env=environment(own),
        stdin=stdin or subprocess.DEVNULL, capture_output=True, text=True, timeout=LONGEST, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


def output(ended: Ended) -> str:
    assert ended.code == 0, f"{ended.out}\n{ended.err[-4000:]}"
    return ended.out


def typed(env: Mapping[str, str], folder: Path) -> tuple[str, list[str]]:
    """What a person sees who types examples/door/interactive.py into a session: the output, and the errors."""
    with (EXAMPLES / "interactive.py").open() as lines:
        ended = python("-i", "-q", env=env, stdin=lines, folder=folder)
    return output(ended), re.findall(r"^\w*Error: .*", ended.err, re.MULTILINE)
