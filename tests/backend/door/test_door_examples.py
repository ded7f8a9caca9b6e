"""Programs of examples/door/ run unmodified on local devices and through the door, and print the same to the last
digit. Nothing in them is ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.bench.frame import processes
from experiments.bench.frame.door_server import Door, opened

from .program_runs import DEVICES, EXAMPLES, PROGRAMS, output, python, typed

# each takes a quarter of a minute
FULL = dict.fromkeys(("flax_mesh.py", "scan_transformer.py"), pytest.mark.full)
LOSS = re.compile(r"loss ([\d.e-]+)")


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with opened(DEVICES) as found:
        yield found


@pytest.mark.parametrize("name", [pytest.param(name, marks=FULL.get(name, ())) for name in PROGRAMS])
def test_a_program_prints_the_same_through_the_door(name: str, door: Door, tmp_path: Path) -> None:
    path = str(EXAMPLES / name)
    here = output(python(path, env=processes.environment(DEVICES), folder=tmp_path))
    losses = [float(loss) for loss in LOSS.findall(here)]
    assert len(losses) >= 10
    assert losses[-1] < losses[0]
    assert output(python(path, env=door.env, folder=tmp_path)) == here


def test_a_session_at_a_terminal_shows_the_same_through_the_door(door: Door, tmp_path: Path) -> None:
    here = typed(processes.environment(DEVICES), tmp_path)
    assert typed(door.env, tmp_path) == here
    text, errors = here
    assert text.startswith(f"{DEVICES}\n")
    assert "Array([28., 29., 30., 31., 32., 33., 34., 35.], dtype=float32)" in text
    assert [error.partition(":")[0] for error in errors] == ["TypeError", "RuntimeError"]
    assert "deleted" in errors[1]  # and the session goes on
    assert "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]" in text


def test_each_example_is_tested_and_knows_nothing_of_seaway() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.suffix} == {*PROGRAMS, "interactive.py", "tunix_grpo.py"}
    assert not [path.name for path in EXAMPLES.glob("*.py") if "seaway" in path.read_text().lower()]
