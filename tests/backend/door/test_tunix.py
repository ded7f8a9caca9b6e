"""Tunix trains through the door, its own code from its wheel: what it learns, and what a host's end costs it.

`examples/door/tunix_grpo.py` says how Tunix is installed. On devices of its own, a guard that it sets stops Tunix; so
there the guard is taken away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from experiments.bench.frame import processes
from experiments.bench.frame.door_server import on_cluster, opened

from .jax_programs import JaxProgram, await_nothing_held, program
from .program_runs import DEVICES, EXAMPLES

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        find_spec("tunix") is None or find_spec("pathwaysutils") is None,
        reason="Tunix is not installed: examples/door/tunix_grpo.py says how",
    ),
]
EXAMPLE = (EXAMPLES / "tunix_grpo.py").read_text()
UNGUARDED = """import contextlib, jax
for way in ("device_to_host", "host_to_device"):
    setattr(jax, f"transfer_guard_{way}", lambda *_: contextlib.nullcontext())
"""
STEP = re.compile(r"step (\d+)  loss (\S+)")
PATIENCE = 600.0  # seconds: it compiles for minutes


def rest_of(found: JaxProgram) -> tuple[dict[int, float], float]:
    """The losses of its steps, and the sum of squares of the weights that both have in the end."""
    lines = []
    while line := found.line(PATIENCE):
        lines.append(line)
    assert found.process.wait(60) == 0, found.errors()
    assert "the rollout has the actor's weights: True" in lines
    losses = {int(step[1]): float(step[2]) for step in map(STEP.fullmatch, lines) if step}
    return losses, float(lines[-1].removeprefix("their sum of squares: "))


def trained(env: Mapping[str, str], code: str = EXAMPLE) -> tuple[dict[int, float], float]:
    with program(code, env, "3") as found:
        return rest_of(found)


def is_close(wanted: tuple[dict[int, float], float], first: int = 0) -> tuple[Any, Any]:
    """What it learns from this step on, but for the last digits: sums are made in another order."""
    losses = {step: pytest.approx(loss, abs=1e-5) for step, loss in wanted[0].items() if step > first}
    return losses, pytest.approx(wanted[1], rel=1e-5)


@pytest.fixture(scope="module")
def wanted() -> tuple[dict[int, float], float]:
    """On devices of its own."""
    found = trained(processes.environment(DEVICES), UNGUARDED + EXAMPLE)
    assert list(found[0]) == [1, 2, 3]
    assert found[0][3] < found[0][1]
    return found


def test_it_learns_the_same_through_the_door(wanted: tuple[dict[int, float], float]) -> None:
    with opened(DEVICES) as door:
        assert trained(door.env) == is_close(wanted)


def test_on_a_cluster_it_goes_on_from_its_checkpoint_after_a_host_was_killed(
    wanted: tuple[dict[int, float], float], tmp_path: Path
) -> None:
    with on_cluster(controller=["--lease", "3"]) as (cluster, door):
        with program(EXAMPLE, door.env, "3", str(tmp_path / "saved")) as found:
            assert found.line(PATIENCE) == "from step 0"
            for _ in range(3):
                assert found.line(PATIENCE) == "rollout 16"
            cluster.agents[1].process.kill()
            cluster.agents[1].process.wait()
            cluster.again(1)  # until then, what needs no lost array waits
            assert found.line(PATIENCE) == ""
            assert found.process.wait(60) != 0
            # DATA_LOSS where it reads; a view that it makes meanwhile is refused, for its slice waits for the host
            assert re.search(r"hosts? 1 of island 'i0' (was lost|\(lost\))", found.errors())
        with program(EXAMPLE, door.env, "3", str(tmp_path / "saved")) as found:
            first = int(found.line(PATIENCE).removeprefix("from step "))
            assert rest_of(found) == is_close(wanted, first)
        assert 0 < first < 3
        await_nothing_held(cluster)
