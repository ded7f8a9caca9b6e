"""What came of a file's tests, judged: which should have passed, which failures are expected and why, what is left.

A test counts if it passes on local devices. It is *unexpected* if it then does not pass through the door (a skip is not
a pass), and no entry of `expected_failures.toml` names it. An entry is *idle* if all tests that it names pass.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import msgspec

from .files import Outcome

EXPECTED = Path(__file__).parent / "expected_failures.toml"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """tests: patterns of names, "array_test.py::JaxArrayTest::test_x*". jax: only these versions' tests; else all.
    sometimes: also passes, for a reason that is said, so it is never idle."""

    reason: str
    tests: tuple[str, ...]
    jax: str = ""
    sometimes: bool = False


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entries of one cause. why: what no server can do, or what has not been done."""

    why: str
    entries: tuple[Entry, ...] = msgspec.field(name="entry")


class Judged(NamedTuple):
    """counts: tests that pass locally. expected: with the name of their group. others: tests that do not pass locally
    either. idle: patterns of which every test passes."""

    file: str
    counts: int
    passed: int
    expected: Mapping[str, str]
    unexpected: Sequence[Outcome]
    others: int
    idle: Sequence[str]


def entries(path: Path = EXPECTED) -> dict[str, Group]:
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), dict[str, Group])


def patterns_of(groups: Mapping[str, Group], version: str) -> list[tuple[str, str, bool]]:
    """(pattern, group, whether it can be idle) of all entries for this version of JAX."""
    return [
        (pattern, name, not entry.sometimes)
        for name, group in groups.items()
        for entry in group.entries
        if version.startswith(entry.jax)
        for pattern in entry.tests
    ]


def judge(
    file: str, through: Iterable[Outcome], local: Iterable[Outcome], patterns: Sequence[tuple[str, str, bool]],
    *, complete: bool = True,
) -> Judged:  # fmt: skip
    """through: all tests. local: those which did not pass through the door. complete: all tests of the file were
    run, so a pattern with a wildcard can be judged."""
    here = {each.test for each in local if each.kind == "passed"}
    passed, expected, unexpected, others = 0, dict[str, str](), list[Outcome](), 0
    named: Counter[str] = Counter()
    failing: Counter[str] = Counter()
    for each in through:
        name = f"{file}::{each.test}"
        found = [(pattern, group) for pattern, group, _ in patterns if fnmatchcase(name, pattern)]
        named.update(pattern for pattern, _ in found)
        if each.kind == "passed":
            passed += 1
        elif each.test not in here:
            others += 1
            named.subtract(pattern for pattern, _ in found)  # it says nothing of the pattern
        elif found:
            failing.update(pattern for pattern, _ in found)
            expected[each.test] = found[0][1]
        else:
            unexpected.append(each)
    idle = [
        pattern
        for pattern, _, can in patterns
        if can and named[pattern] > 0 and not failing[pattern] and (complete or "*" not in pattern)
    ]
    counts = passed + len(expected) + len(unexpected)
    return Judged(file, counts, passed, expected, unexpected, others, idle)


def report(all_of_them: Sequence[Judged], groups: Mapping[str, Group]) -> list[str]:
    """Lines: a table by file, the failures by reason, and what was not expected."""
    said = [f"{'':<28}{'count':>7}{'passed':>8}{'':>9}{'expected':>10}{'unexpected':>12}"]
    said += [
        line(each.file, each.counts, each.passed, len(each.expected), len(each.unexpected))
        for each in sorted(all_of_them)
    ]
    sums = (
        sum(each.counts for each in all_of_them),
        sum(each.passed for each in all_of_them),
        sum(len(each.expected) for each in all_of_them),
        sum(len(each.unexpected) for each in all_of_them),
    )
    said.append(line("together", *sums))
    others = sum(each.others for each in all_of_them)
    said.append(f"({others} more do not run or do not pass on local devices either)")
    reasons = Counter(group for each in all_of_them for group in each.expected.values())
    said += [f"expected, {count:4}  {name}: {groups[name].why}" for name, count in reasons.most_common()]
    for each in all_of_them:
        said += [f"unexpected: {each.file}::{one.test}: {one.kind}: {brief(one.text)}" for one in each.unexpected]
        said += [f"idle: {pattern}: these tests pass; take it from the list" for pattern in each.idle]
    return said


def line(name: str, counts: int, passed: int, expected: int, unexpected: int) -> str:
    share = f"{passed / counts:.1%}" if counts else ""
    return f"{name:<28}{counts:>7}{passed:>8}{share:>9}{expected:>10}{unexpected:>12}"


def brief(text: str) -> str:
    """The line of a traceback that says what was wrong."""
    lines = [each.strip() for each in text.splitlines() if each.strip()]
    errors = [each for each in lines if each.startswith("E ") or "Error" in each]
    return (errors or lines or ["no text"])[-1][:240]
