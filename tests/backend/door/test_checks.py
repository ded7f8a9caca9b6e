"""A JAX program may do through the door what it may do on devices of its own: `checks`, as a child of the test."""

from __future__ import annotations

import pytest

from experiments.bench.frame.door_server import local, opened

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
    assert passed(python("-m", CHECKS, env=local(DEVICES))) >= 28


def test_a_check_that_fails_is_named_and_gives_status_1() -> None:
    code = "import sys; from tests.backend.door.checks import registry; registry.check(lambda: 1 / 0)"
    code += "; from tests.backend.door.checks.__main__ import main; sys.exit(main(['<lambda>', 'scalars']))"
    ended = python("-c", code, env=local(1))
    assert ended.code == 1
    assert ended.out.startswith("<lambda>: ZeroDivisionError: division by zero\nscalars: ok")
    assert ended.out.endswith("1 of 2 checks passed\n")


def test_an_unknown_check_is_refused_with_the_names_that_exist() -> None:
    ended = python("-m", CHECKS, "scalar", env=local(1))
    assert ended.code == 2
    assert ended.err.startswith("no check 'scalar'; there are: dtypes, ")
