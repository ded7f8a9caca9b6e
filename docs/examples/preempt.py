"""An urgent job takes the devices of a training job, and gives them back. The losses are those of a run left alone.

python docs/examples/preempt.py
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import seaway as sw

train_on = sw.slice(devices=4, exclusive=True, name="train")
urgent_on = sw.slice(devices=4, exclusive=True, name="urgent")
numbers = np.linspace(-1, 1, 64, dtype=np.float32)


def loss(weights: Any, x: Any) -> Any:
    return jnp.mean((weights[0] * x + weights[1] - jnp.sin(3 * x)) ** 2)


@sw.jit(devices=train_on)
def train(weights: Any, x: Any) -> Any:
    value, slope = jax.value_and_grad(loss)(weights, x)
    return weights - 0.1 * slope, value


work = sw.jit(lambda x: jnp.sum(x * x), devices=urgent_on)


def steps(weights: Any, count: int) -> tuple[Any, list[float]]:
    losses = []
    for _ in range(count):
        weights, value = train(weights, numbers)
        losses.append(float(value))
    return weights, losses


start = np.zeros(2, np.float32)
with sw.local(hosts=2, devices_per_host=2, policy="priority") as s:
    with s.client("alone"):
        _, expected = steps(start, 20)
        s.release(train_on)
    with s.client("training"):
        weights, before = steps(start, 10)
        with s.client("urgent", priority=10):
            print("urgent:", float(work(numbers)))  # the other's arrays go to host memory; its calls would wait
            s.release(urgent_on)  # and they come back
        _, after = steps(weights, 10)
    assert before + after == expected
    print("losses:", ", ".join(f"{each:.4f}" for each in (before + after)[::5]))
