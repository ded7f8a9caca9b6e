"""Runs the tests of one of JAX's files in processes of their own, through a door or on local devices.

A test that takes longer than `LONGEST` is ended with its process, and so is a process that dies: both are outcomes of
that test, and another process goes on with the rest. A door that has ended is replaced.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from backend.admin.children import environment
from experiments.bench.frame import processes
from experiments.bench.frame.door_server import Door, on_cluster, opened

DEVICES = 8
LONGEST = 120.0  # seconds for a test
START = 300.0  # seconds until a process has found its tests
LOOK = 0.1


class Outcome(NamedTuple):
    """kind: "passed", "failed", "skipped", "timeout" or "died". text: of the error, or why it was skipped."""

    test: str
    kind: str
    text: str = ""


class Unusable(Exception):
    """The tests of a file cannot even be found."""


def run(
    file: Path, *, through: bool, cluster: bool = False, every: int = 1, wanted: Sequence[str] = ()
) -> list[Outcome]:
    """Run a file's tests. through: through a door, not on local devices; cluster: to a cluster of two hosts. every: of
    k tests one. wanted: only these."""
    found: list[Outcome] = []
    left: Sequence[str] | None = wanted or None
    with ExitStack() as stack, tempfile.TemporaryDirectory() as place:
        door: Door | None = None
        while left is None or left:
            if through and (door is None or not door.child.alive):
                stack.close()
                if cluster:
                    door = stack.enter_context(on_cluster(2, DEVICES // 2)).door
                else:
                    door = stack.enter_context(opened(DEVICES))
            env = door.env if door else processes.environment(DEVICES)
            chosen = None
            for each in one_process(file, env, every, left or (), Path(place)):
                if isinstance(each, Outcome):
                    found.append(each)
                else:
                    chosen = each
            if not chosen:
                raise Unusable(f"{file.name}: {(Path(place) / 'said').read_text(errors='replace')[-2000:]}")
            ended = {each.test for each in found}
            before, left = left, [test for test in chosen if test not in ended]
            if before is not None and len(left) == len(before):
                raise Unusable(f"{file.name}: {left[0]} and {len(left) - 1} more are not run")
            if through and left and door is not None and door.child.alive:
                door.child.process.kill()  # the rest gets a new one, whatever was wrong with this
                door.child.process.wait()
    return found


def one_process(
    file: Path, env: dict[str, str], every: int, wanted: Sequence[str], place: Path
) -> Iterator[Outcome | list[str]]:
    """The names of the tests that are chosen, and then what comes of each, until the process ends."""
    out, names = place / "out", place / "wanted"
    out.write_text("")
    names.write_text("\n".join(wanted), encoding="utf-8")
    words = ["-m", "pytest", "-c", "/dev/null", "--rootdir", str(file.parent), "-p", "no:cacheprovider"]
    words += ["-p", "no:xdist", "-p", "tests.backend.door.jax_suite.plugin", "-q", "--tb=short", str(file)]
    own = {"DOOR_OUT": str(out), "DOOR_WANTED": str(names), "DOOR_EVERY": str(every)}
    own |= {"JAX_SKIP_SLOW_TESTS": "true", "JAX_NUM_GENERATED_CASES": "3", "TF_CPP_MIN_LOG_LEVEL": "3"}
    own |= {"PYTHONDONTWRITEBYTECODE": "1"}
    with (place / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=place, env=environment(env | own), stdout=said, stderr=said,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        yield from followed(process, out, place / "said")
    finally:
        process.kill()
        process.wait()


def followed(process: subprocess.Popen[bytes], out: Path, said: Path) -> Iterator[Outcome | list[str]]:
    under_way, since, chosen = "", time.monotonic(), False
    with out.open(encoding="utf-8") as lines:
        while True:
            over = process.poll() is not None
            for told in complete(lines):
                since = time.monotonic()
                if "chosen" in told:
                    chosen = True
                    yield list(told["chosen"])
                elif "began" in told:
                    under_way = told["began"]
                else:
                    under_way = ""
                    yield Outcome(told["ended"], told["outcome"], told["text"])
            if over:
                break
            if time.monotonic() - since > (LONGEST if chosen else START):
                if under_way:
                    yield Outcome(under_way, "timeout", f"more than {LONGEST:g} s")
                return
            time.sleep(LOOK)
    if under_way:
        tail = said.read_text(errors="replace")[-2000:]
        yield Outcome(under_way, "died", f"the process ended with {process.returncode}: {tail}")


def complete(lines: Any) -> Iterator[dict[str, Any]]:
    """The lines that have been written since."""
    while True:
        at = lines.tell()
        line = lines.readline()
        if not line.endswith("\n"):
            lines.seek(at)
            return
        yield json.loads(line)
