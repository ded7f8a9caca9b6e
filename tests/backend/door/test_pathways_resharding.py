"""pathwaysutils' resharding, its own code from its wheel: each device has its part, and nothing is left over."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from experiments.bench.frame.door_server import on_cluster, opened

from .jax_programs import await_nothing_held, program
from .program_runs import DEVICES

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        find_spec("pathwaysutils") is None, reason="pathwaysutils is not installed: pip install 'seaway[elastic]'"
    ),
]
PROGRAM = (Path(__file__).parent / "pathways_resharding.py").read_text()


def test_on_local_devices_all_pairs_of_shardings() -> None:
    with opened(DEVICES) as door, program(PROGRAM, door.env, "1") as found:
        assert [found.until(each) for each in ("pairs", "trees", "axes")] == ["pairs 441", "trees 5", "axes 4"]
        assert found.process.wait(60) == 0


def test_on_a_cluster_of_two_hosts_every_fifth_pair() -> None:
    with on_cluster() as (cluster, door):
        with program(PROGRAM, door.env, "5") as found:
            assert [found.until(each) for each in ("pairs", "trees", "axes")] == ["pairs 89", "trees 5", "axes 4"]
            assert found.process.wait(60) == 0
        await_nothing_held(cluster)
