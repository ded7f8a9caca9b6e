"""A thousand arrays of one call are one record of the client, until one of them is told apart. No user can tell."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import pytest

import seaway as sw
from core.client import Limits
from core.model import Range, ranges
from core.protocol import Release, Submit
from seaway.sessions.arrays import Array
from seaway.specs import trees
from tests.seaway.sessions.test_port import LoopbackPort, session
from tests.seaway.small_sessions import small

ZERO = np.float32(0)
MANY = 100
two = sw.slice(devices=2, name="two")
many = sw.synthetic("many", devices=two, duration="1us", out=lambda x: [x] * MANY)
count = sw.jit(lambda x: [x + at for at in range(MANY)], devices=two, cost="1us", name="count")
step = sw.synthetic("step", devices=two, duration="1us")
eat = sw.synthetic("eat", devices=two, duration="1us", donate_argnums=0)


def released(port: LoopbackPort) -> list[Any]:
    return [name for call in port.calls if isinstance(call, Release) for name in call.buffers]


def last_args(port: LoopbackPort) -> Any:
    return [call.args for call in port.calls if isinstance(call, Submit)][-1]


def group_of(arrays: Iterable[Array]) -> Any:
    (group,) = {array._group for array in arrays}
    return group


def test_arrays_of_one_call_are_made_waited_for_and_passed_on_without_a_record_each() -> None:
    s, driver = session()
    with s:
        x = many(ZERO)
        y = step(x)
        assert last_args(driver.ports["main"]) == (Range(1, MANY),)
        sw.block_until_ready([x, y])
        assert all(array.is_ready() for array in x)
        assert group_of(x).own == group_of(y).own == {}
    assert group_of(x) is not group_of(y)


def test_arrays_may_be_passed_in_another_order_in_part_and_with_others() -> None:
    s, driver = session(Limits(pipe=64))
    with s:
        x, y = many(ZERO), many(ZERO)
        port = driver.ports["main"]
        step(x[::-1])
        assert last_args(port) == tuple(range(MANY, 0, -1))
        step(x[10:40])
        assert last_args(port) == (Range(11, 30),)
        step([*x[:20], ZERO, *y[:20]])
        assert last_args(port) == (Range(1, 20), ZERO.tobytes(), Range(MANY + 1, 20))


def test_a_call_that_looks_like_the_last_one_but_is_another_is_taken_for_what_it_is() -> None:
    """All results of one call, in order and in the same tree, are known by the call that made them."""
    s, driver = session(Limits(pipe=64))
    with s:
        x, wide = step(many(ZERO)), step([np.zeros(2, np.float32)] * MANY)
        x, port = step(x), driver.ports["main"]
        for look in (
            list(x), x[::-1], (*x,), {"a": x[: MANY // 2], "b": x[MANY // 2 :]}, [x[0], *x[:-1]], wide, x[:-1],
            [*x[:-1], ZERO], [*x[:-1], [x[-1]]], list(x),
        ):  # fmt: skip
            y = step(look)
            assert trees.flatten(y)[1] == trees.flatten(look)[1]
            leaves = jax.tree.leaves(look)
            assert [array.shape for array in jax.tree.leaves(y)] == [np.shape(leaf) for leaf in leaves]
            names = [leaf._name if isinstance(leaf, Array) else ZERO.tobytes() for leaf in leaves]
            assert ranges.each(last_args(port)) == names


def test_results_of_the_last_call_may_not_be_passed_on_by_another_client_or_when_they_are_gone() -> None:
    s, _ = session(Limits(pipe=64))
    with s:
        x = step(step(many(ZERO)))
        with s.client("other"), pytest.raises(sw.errors.NotNow, match="belongs to client 'main'"):
            step(x)
        eat(eat(step(x)))
        x[MANY // 2].delete()
        with pytest.raises(sw.errors.NotNow, match="was deleted"):
            step(x)


def test_an_array_that_is_dropped_alone_is_released_alone() -> None:
    s, driver = session()
    with s:
        x: Any = many(ZERO)  # a list
        del x[3]
        sw.block_until_ready(x)
        assert released(driver.ports["main"]) == [4]
        del x
    assert released(driver.ports["main"])[1:] == [1, 2, 3, Range(5, MANY - 4)]


def test_a_deleted_array_is_released_once_and_the_others_stay() -> None:
    s, driver = session()
    with s:
        x = many(ZERO)
        x[5].delete()
        x[5].delete()
        assert [array.is_deleted() for array in x[4:7]] == [False, True, False]
        x[4].block_until_ready()
        with pytest.raises(sw.errors.NotNow, match=r"result '5' of 'many'.*was deleted"):
            x[5].block_until_ready()
        with pytest.raises(sw.errors.NotNow, match=r"result '5' of 'many'.*was deleted"):
            step(x)
        del x
        gc.collect()
    assert released(driver.ports["main"]) == [6, Range(1, 5), Range(7, MANY - 6)]


def test_some_arrays_of_a_call_may_be_donated_and_the_others_used() -> None:
    with small(values="compute"):
        x = count(np.float32(3))
        eat(x[:50])
        assert [array.is_deleted() for array in x] == [True] * 50 + [False] * 50
        with pytest.raises(sw.errors.NotNow, match=r"result '7' of 'count'.*was donated to 'eat'"):
            np.asarray(x[7])
        assert float(x[50]) == 53
        sw.block_until_ready(step(x[50:]))


def test_one_array_that_is_read_keeps_its_contents_and_the_others_get_theirs() -> None:
    with small(values="compute"):
        x = count(np.float32(2))
        assert float(x[9]) == 11.0
        assert [float(value) for value in sw.get(x)] == [2.0 + at for at in range(MANY)]


def test_an_error_names_the_array_and_comes_from_the_run_that_all_of_them_share() -> None:
    s, driver = session()
    with s:
        x = many(ZERO)
        driver.ports["main"].refuse = "the disk is full"
        for wait in (lambda: sw.block_until_ready(x), x[1].block_until_ready):
            with pytest.raises(sw.errors.RunError, match="the disk is full"):
                wait()
        assert group_of(x).own == {}
        s.main.earlier.failed.clear()
