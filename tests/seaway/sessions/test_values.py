"""Simulated values: by default there are none, and reading them is one error; they can be computed here, or made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import seaway as sw
from tests.seaway.small_sessions import small

two = sw.slice(devices=2)
VECTOR = np.array([1.0, 2.0], np.float32)


def papers_example() -> Any:
    """The paper's example."""

    def devices(n: int) -> sw.Slice:
        return sw.slice(devices=n)

    a = sw.jit(lambda x: x * 2.0, devices=devices(2))
    b = sw.jit(lambda x: x + 1.0, devices=devices(2))
    c = sw.jit(lambda x: x / 2.0, devices=devices(2))

    @sw.program
    def f(v: Any) -> Any:
        x = a(v)
        y = b(x)
        z = a(c(x))
        return y, z

    return f


@pytest.mark.parametrize("read", [np.asarray, float, bool, int, lambda x: x > 0, lambda x: x[0], list])
def test_a_read_waits_and_then_its_error_names_the_choices(read: Callable[[Any], Any]) -> None:
    step = sw.synthetic("step", devices=two, duration="330us")
    with small() as s:
        x = step(np.ones(1, np.float32))
        with pytest.raises(sw.errors.NoContents) as caught:
            read(x)
        assert s.driver.now() == x.ready_at
        assert "values='compute'" in str(caught.value)
        assert "values={" in str(caught.value)
        assert "the result of 'step'" in str(caught.value)


def test_contents_do_not_change_the_times() -> None:
    def times(values: Any) -> list[int]:
        with small(values=values) as s:
            y, z = papers_example()(VECTOR)
            return [y.ready_at, z.ready_at, len(s.trace.core)]

    assert times("compute") == times("shapes")


def test_an_exception_of_a_computation_is_raised_where_its_result_is_read() -> None:
    f = sw.jit(lambda x: (x, 9), devices=two, irregular=True, max_shape=(2,), name="f")
    with small(values="compute"):
        x = f(np.zeros(16, np.float32))
        with pytest.raises(sw.errors.RunError, match=r"made 9 rows, and max_shape bounds them at 2.*program 'f'"):
            np.asarray(x)


# --- stand-ins ----------------------------------------------------------------------------------------------


def test_stand_ins_are_found_by_the_name_of_a_program_or_of_its_result() -> None:
    loss = sw.jit(lambda x: {"loss": x.sum(), "grads": x}, devices=two, name="train")
    with small(values={"train.loss": 0.5}):
        made = loss(VECTOR)
        assert float(made["loss"]) == 0.5
        with pytest.raises(sw.errors.NoContents, match="`values` has nothing for result 'grads' of 'train'"):
            np.asarray(made["grads"])


def test_a_stand_in_may_depend_on_the_run() -> None:
    step = sw.synthetic("step", devices=two, duration="1us")
    with small(values={"step": lambda n: 10.0 - n}):
        assert [float(step(np.float32(0))) for _ in range(3)] == [10.0, 9.0, 8.0]
    with small(values={"step": [3.0, 2.0]}):
        assert [float(step(np.float32(0))) for _ in range(2)] == [3.0, 2.0]
        with pytest.raises(sw.errors.RunError, match="has 2 entries, and this is run 2"):
            float(step(np.float32(0)))


def test_a_stand_in_gets_the_shape_of_its_array() -> None:
    step = sw.synthetic("step", devices=two, duration="1us")
    with small(values={"step": 1}):
        assert np.asarray(step(VECTOR)).tolist() == [1.0, 1.0]
    with (
        small(values={"step": [[1.0, 2.0, 3.0]]}),
        pytest.raises(sw.errors.RunError, match=r"does not fit float32\[2\]"),
    ):
        np.asarray(step(VECTOR))


def test_when_a_stand_in_is_missing_the_unused_ones_are_named() -> None:
    step = sw.synthetic("step", devices=two, duration="1us")
    with (
        small(values={"stpe": 1}),
        pytest.raises(sw.errors.NoContents, match=r"'stpe' is not the name .*did you mean 'step'"),
    ):
        float(step(np.float32(0)))


def test_invalid_values_options_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'compute'"):
        small(values="computed")
