"""`sw.pipeline`: loss and gradients are those of the whole model, schedules are orders, mistakes are named."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import seaway as sw

WIDTH, BATCH = 8, 12
P: Any = PartitionSpec


def first(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w["a"] + w["b"])


def middle(w: Any, x: Any) -> Any:
    return x + jnp.sin(x @ w)


def last(w: Any, x: Any, y: Any) -> Any:
    return jnp.mean((x @ w - y) ** 2)


def parameters() -> list[Any]:
    rng = np.random.default_rng(3)

    def some(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32) / 3

    return [{"a": some(4, WIDTH), "b": some(WIDTH)}, some(WIDTH, WIDTH), some(WIDTH, 2)]


def batch() -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    return rng.normal(size=(BATCH, 4)).astype(np.float32), rng.normal(size=(BATCH, 2)).astype(np.float32)


def whole(ws: list[Any], x: Any, y: Any) -> Any:
    return last(ws[2], middle(ws[1], first(ws[0], x)), y)


def check(step: Any) -> None:
    x, y = batch()
    loss, gradients = step(parameters(), x, y)
    wanted, wanted_gradients = jax.value_and_grad(whole)(parameters(), x, y)
    np.testing.assert_allclose(np.asarray(loss), wanted, rtol=1e-5)
    found = jax.tree.map(np.asarray, gradients)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-6), found, wanted_gradients
    )


@pytest.mark.parametrize(("schedule", "microbatches"), [("gpipe", 3), ("1f1b", 3), ("1f1b", 6)])
def test_a_pipelined_step_equals_a_step_of_the_whole_model(schedule: str, microbatches: int) -> None:
    slices = [sw.slice(devices=2, name=f"s{number}") for number in range(3)]
    step = sw.pipeline(
        list(zip((first, middle, last), slices, strict=True)), schedule=schedule, microbatches=microbatches
    )
    with sw.simulate("C", values="compute"):
        check(step)


def test_stages_may_split_their_data_and_parameters() -> None:
    stages = [
        sw.stage(first, sw.slice(devices=2), data=P("x")),
        sw.stage(middle, sw.slice(devices=2), data=P("x"), parameters=P(None, "x")),
        sw.stage(last, sw.slice(devices=2), data=P("x")),
    ]
    step = sw.pipeline(stages, microbatches=3)
    with sw.simulate("C", values="compute"):
        check(step)


@pytest.mark.full
def test_real_devices_of_two_islands_give_the_same_result() -> None:
    islands = [sw.slice(devices=1, island=f"i{number}") for number in (0, 1, 1)]
    step = sw.pipeline(list(zip((first, middle, last), islands, strict=True)), microbatches=3)
    with sw.local(hosts=1, islands=2, devices_per_host=1):
        check(step)


def test_one_stage_is_a_step_with_accumulated_gradients() -> None:
    def loss(w: Any, x: Any, y: Any) -> Any:
        return jnp.mean((x @ w - y) ** 2)

    step = sw.pipeline([(loss, sw.slice(devices=1))], microbatches=4)
    x, y = batch()
    w = np.ones((4, 2), np.float32)
    with sw.simulate("C", values="compute"):
        value, (gradient,) = step([w], x, y)
        wanted = jax.grad(loss)(w, x, y)
        np.testing.assert_allclose(np.asarray(gradient), wanted, rtol=1e-5)
        np.testing.assert_allclose(np.asarray(value), loss(w, x, y), rtol=1e-5)


def test_mistakes_are_named() -> None:
    one = sw.slice(devices=1)
    with pytest.raises(ValueError, match=r"schedule='1F1B'\): 'gpipe' or '1f1b'"):
        sw.pipeline([(last, one)], microbatches=2, schedule="1F1B")
    with pytest.raises(ValueError, match=r"microbatches=0\): a whole number"):
        sw.pipeline([(last, one)], microbatches=0)
    with pytest.raises(ValueError, match="no stages"):
        sw.pipeline([], microbatches=1)
    step = sw.pipeline([(first, one), (last, one)], microbatches=5)
    x, y = batch()
    with sw.simulate("C"):
        with pytest.raises(ValueError, match="2 stages take as many trees of parameters, in a list; 3 were given"):
            step(parameters(), x, y)
        with pytest.raises(ValueError, match=r"inputs of shape \(12, 4\) do not divide into 5 micro-batches"):
            step(parameters()[:2], x, y)
    assert repr(step) == "<sw.pipeline pipeline: first -> last; 1f1b, micro-batches: 5>"
