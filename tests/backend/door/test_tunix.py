"""Tunix trains through the door, its own code from its wheel: what it learns, and what a host's end costs it.

`examples/door/tunix_grpo.py` says how Tunix is installed. On devices of its own, a guard that it sets stops Tunix; so
there the guard is taken away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from experiments.bench.frame.door_server import local, on_cluster, opened

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


def rest_of(found: JaxProgram) -> tuple[dict[int, float], str]:
    """The losses of its steps, and the digest of the weights that both have in the end."""
    lines = []
    while line := found.line(PATIENCE):
        lines.append(line)
    assert found.process.wait(60) == 0, found.errors()
    assert "the rollout has the actor's weights: True" in lines
    losses = {int(step[1]): float(step[2]) for step in map(STEP.fullmatch, lines) if step}
    return losses, lines[-1]


def trained(env: Mapping[str, str], code: str = EXAMPLE) -> tuple[dict[int, float], str]:
    with program(code, env, "3") as found:
        return rest_of(found)


@pytest.fixture(scope="module")
def wanted() -> tuple[dict[int, float], str]:
    """On devices of its own."""
    losses, weights = trained(local(DEVICES), UNGUARDED + EXAMPLE)
    assert list(losses) == [1, 2, 3]
    assert losses[3] < losses[1]
    return losses, weights


def test_it_learns_the_same_through_the_door(wanted: tuple[dict[int, float], str]) -> None:
    with opened(DEVICES) as door:
        assert trained(door.env) == wanted


def test_on_a_cluster_it_goes_on_from_its_checkpoint_after_a_host_was_killed(
    wanted: tuple[dict[int, float], str], tmp_path: Path
) -> None:
    with on_cluster(controller=["--lease", "3"]) as (cluster, door):
        with program(EXAMPLE, door.env, "3", str(tmp_path / "saved")) as found:
            assert found.line(PATIENCE) == "from step 0"
            for _ in range(3):
                assert found.line(PATIENCE) == "rollout 16"
            cluster.agents[1].process.kill()
            cluster.agents[1].process.wait()
            assert found.line(PATIENCE) == ""
            assert found.process.wait(60) != 0
            assert "DATA_LOSS: [host-lost] host 1 of island 'i0' was lost" in found.errors()
        cluster.again(1)
        with program(EXAMPLE, door.env, "3", str(tmp_path / "saved")) as found:
            first = int(found.line(PATIENCE).removeprefix("from step "))
            losses, _ = rest_of(found)
        assert 0 < first < 3
        assert losses == {step: pytest.approx(loss, abs=1e-5) for step, loss in wanted[0].items() if step > first}
        await_nothing_held(cluster)
