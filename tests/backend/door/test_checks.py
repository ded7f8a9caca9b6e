"""A JAX program may do through the door what it may do on devices of its own: `checks`, as a child of the test."""

from __future__ import annotations

import pytest

from experiments.bench.frame import processes
from experiments.bench.frame.door_server import opened

from .program_runs import DEVICES, Ended, python

CHECKS = "tests.backend.door.checks"


def passed(ended: Ended) -> int:
    assert ended.code == 0, f"{ended.out}\n{ended.err[-4000:]}"
    return ended.out.count(": ok (")


def test_all_checks_pass_through_the_door() -> None:
    with opened(DEVICES) as door:
        assert passed(python("-m", CHECKS, env=door.env)) >= 28


@pytest.mark.full
def test_all_checks_pass_with_two_devices() -> None:
    with opened(2) as door:
        assert passed(python("-m", CHECKS, env=door.env)) >= 28


@pytest.mark.full
def test_all_checks_pass_on_local_devices() -> None:
    """So a failure through the door is the door's."""
    assert passed(python("-m", CHECKS, env=processes.environment(DEVICES))) >= 28
