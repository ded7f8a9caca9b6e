"""JAX's own tests pass through the door, but for the expected failures; how they are run and judged."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from .jax_suite import __main__ as program
from .jax_suite import files, outcomes
from .jax_suite.files import Outcome
from .jax_suite.outcomes import Entry, Group

# --- a part of JAX's own tests ----------------------------------------------------------------------------------------

NO_TESTS = pytest.mark.skip(reason="JAX_TESTS names no folder with JAX's own tests")
THERE: list[Any] = sorted(program.folder().glob("*_test.py")) if os.environ.get("JAX_TESTS") else []
EVERY = {"pmap_test.py": 8, "shard_map_test.py": 8, "lax_control_flow_test.py": 8}
OF_OTHERS = 4


@pytest.mark.parametrize("file", THERE or [pytest.param(Path(), marks=NO_TESTS)], ids=lambda path: path.name or "none")
def test_each_kth_of_jaxs_own_tests_passes_through_the_door(file: Path) -> None:
    judged = program.run(file, EVERY.get(file.name, OF_OTHERS))
    assert judged.counts > 1
    assert not judged.unexpected, "\n".join(outcomes.report([judged], outcomes.entries()))
    assert not judged.idle


# --- the list of expected failures ------------------------------------------------------------------------------------


def test_each_expected_failure_has_a_reason_and_names_tests_of_a_file() -> None:
    for group in outcomes.entries().values():
        assert len(group.why) > 20
        for entry in group.entries:
            assert entry.reason
            assert entry.tests
            assert entry.jax in ("", "0.10", "0.12")
            assert all(re.match(r"\w+_test\.py::", pattern) for pattern in entry.tests)


GROUPS = {
    "callbacks": Group(
        "no server can call the user's process", (Entry("pure_callback", ("a_test.py::T::test_call*",)),)
    ),
    "ours": Group("not done yet", (Entry("slow", ("a_test.py::T::test_odd",), jax="0.12"),)),
}


def judged(*through: Outcome, local: tuple[str, ...] = (), version: str = "0.12.0.1") -> outcomes.Judged:
    here = [Outcome(each.test, "passed" if each.test in local else "failed") for each in through]
    return outcomes.judge("a_test.py", through, here, outcomes.patterns_of(GROUPS, version))


def test_a_test_counts_if_it_passes_locally() -> None:
    found = judged(
        Outcome("T::test_x", "passed"), Outcome("T::test_y", "failed"), Outcome("T::test_z", "skipped"),
        Outcome("T::test_s", "skipped", "no devices"), local=("T::test_y", "T::test_s"),
    )  # fmt: skip
    assert (found.counts, found.passed, found.others) == (3, 1, 1)
    assert [each.test for each in found.unexpected] == ["T::test_y", "T::test_s"], "a skip is no pass"


def test_an_expected_failure_is_counted_with_its_reason() -> None:
    found = judged(Outcome("T::test_call_1", "failed"), Outcome("T::test_odd", "timeout"),
                   local=("T::test_call_1", "T::test_odd"))  # fmt: skip
    assert found.expected == {"T::test_call_1": "callbacks", "T::test_odd": "ours"}
    assert not found.unexpected
    assert not found.idle


def test_an_entry_of_another_version_expects_nothing() -> None:
    found = judged(Outcome("T::test_odd", "failed"), local=("T::test_odd",), version="0.10.2")
    assert [each.test for each in found.unexpected] == ["T::test_odd"]


def test_a_pattern_of_which_all_tests_pass_is_idle() -> None:
    passes = Outcome("T::test_call_1", "passed"), Outcome("T::test_call_2", "passed")
    assert judged(*passes).idle == ["a_test.py::T::test_call*"]
    one_fails = passes[0], Outcome("T::test_call_2", "failed")
    assert not judged(*one_fails, local=("T::test_call_2",)).idle
    part = outcomes.judge("a_test.py", passes, [], outcomes.patterns_of(GROUPS, "0.12"), complete=False)
    assert not part.idle  # others of its tests may fail


# --- how files are run ------------------------------------------------------------------------------------------------

TESTS = """
import os, time, unittest

class T(unittest.TestCase):
    def test_a(self): pass
    def test_b(self): self.fail("3 is odd")
    def test_c(self): self.skipTest("no devices")
    def test_d(self): os.abort()
    def test_e(self): time.sleep(60)
    def test_f(self):
        with self.subTest("inner"): self.fail("4 is odd")
    def test_g(self): assert os.environ["JAX_PLATFORMS"] == "cpu"
"""


@pytest.mark.full
def test_a_test_that_dies_or_hangs_is_an_outcome_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LONGEST", 3.0)
    file = tmp_path / "a_test.py"
    file.write_text(TESTS)
    found = files.run(file, through=False)
    assert {each.test[-1]: each.kind for each in found} == {
        "a": "passed", "b": "failed", "c": "skipped", "d": "died", "e": "timeout", "f": "failed", "g": "passed",
    }  # fmt: skip
    texts = {each.test[-1]: each.text for each in found}
    assert "3 is odd" in texts["b"]
    assert "no devices" in texts["c"]
    assert "-6" in texts["d"]
    assert "4 is odd" in texts["f"]
