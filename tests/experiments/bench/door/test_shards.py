"""What arrays of shards ask a cluster for: calls are counted between two marks, and each operation is a row."""

from __future__ import annotations

from collections import Counter

import pytest

from core.model import Computation, Node, Program, SliceSpec, Value
from core.protocol import Get, Put, Register, Release, Submit, View
from experiments.bench.door import shards

ROOT = SliceSpec("devices", 8)
VALUE = Value((8,), "float32", 0)


def registered(number: int, name: str) -> Register:
    node = Node(name, 0, 0, (), (), (VALUE,))
    return Register(number, Program(name, (ROOT,), (Computation(name, name, 1),), (), (node,), ()))


def run(program: int) -> Submit:
    return Submit(1, program, (), ())


CALLS = [
    registered(1, "step"), registered(2, "mark"), Put(1, VALUE, ROOT), run(2), run(1), run(2), Get(1, 1), run(2),
    View(2, VALUE, ROOT, ((1, 0),)), Release((1,)), Get(2, 2), Get(3, 2), run(2), run(2), run(2),
]  # fmt: skip


def test_an_operation_is_what_stands_between_two_marks() -> None:
    assert shards.operations_in(iter(CALLS)) == [
        Counter(runs=1),
        Counter(views=1, gets=2),
        Counter(),
    ]


def test_each_operation_is_a_row_with_what_it_asks_for_and_its_median_after_the_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = [("a step", "2 KiB", took) for took in (90.0, 1.0, 3.0, 2.0)]
    shards.show(said, [Counter(runs=1, puts=1), *[Counter(runs=1)] * 3])
    _, row = capsys.readouterr().out.splitlines()
    assert row.split() == ["a", "step", "2", "KiB", "2.0", "1", "runs"]


def test_a_log_that_lacks_an_operation_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="1 operations were made, but the controller's log has 0"):
        shards.show([("a step", "2 KiB", 1.0)], [])


@pytest.mark.full
def test_arrays_of_shards_move_no_contents(capsys: pytest.CaptureFixture[str]) -> None:
    shards.main(["--times", "1"])
    rows = {(line[:30].strip(), line[56:].strip()) for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows == {
        ("a step, to compare", "1 runs"), ("an array is made of eight", "1 views"), ("each shard is read", "1 gets"),
        ("each shard is computed with", "8 runs, 8 views"),
    }  # fmt: skip
