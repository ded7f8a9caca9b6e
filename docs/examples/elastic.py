"""A training job that works on as many devices as it can have: it shrinks for another job, and grows when that is over.

Each loss is the one that a run of that size has from the same state.

python docs/examples/elastic.py
"""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import seaway as sw

STEPS = 400
rows = np.linspace(-1, 1, 96, dtype=np.float32)  # each size divides it: each device has as many rows
workers = sw.slice(devices=(2, 4, 6, 8), exclusive=True, name="workers")
other_on = sw.slice(devices=4, exclusive=True, name="other")


def step(weights: Any, x: Any) -> Any:
    def loss(weights: Any) -> Any:
        return jnp.mean((weights[0] * x + weights[1] - jnp.sin(3 * x)) ** 2)

    value, slope = jax.value_and_grad(loss)(weights)
    return weights - 0.1 * slope, value


def train(s: sw.Session) -> tuple[dict[int, Any], list[float]]:
    """Data-parallel: the batch lies in parts on the devices, and the weights lie whole on each."""
    weights, losses, starts = np.zeros(2, np.float32), list[float](), dict[int, Any]()
    for part in s.resizes(workers):
        starts[len(losses)] = part.devices, np.asarray(weights)
        if part.devices < 8:
            shrunk.set()
        weights = sw.put(weights, devices=part)
        x = sw.put(rows, devices=part, sharding=P("x"))
        train_step = sw.jit(step, devices=part, in_shardings=(P(), P("x")), out_shardings=P())
        while len(losses) < STEPS and not s.resized(workers):
            weights, value = train_step(weights, x)
            losses.append(float(value))
            if len(losses) == 20:
                middle.set()
        if len(losses) == STEPS:
            break
    shrunk.set()
    return starts, losses


def another(s: sw.Session) -> None:
    middle.wait()
    with s.client("other"):
        sw.jit(jnp.sum, devices=other_on)(rows).block_until_ready()
        shrunk.wait()  # a job need not take a size that is over before it looks
        s.release(other_on)


middle, shrunk = threading.Event(), threading.Event()
# Sizes are kept for a tenth of a second at least; usually it is ten seconds.
with sw.local(hosts=4, devices_per_host=2, config={"preempt_keep": "100ms"}) as s:
    job = threading.Thread(target=another, args=(s,))
    job.start()
    with s.client("training"):
        starts, losses = train(s)
        s.release(workers)
        job.join()
        ends = [*list(starts)[1:], STEPS]
        for (begin, (devices, weights)), end in zip(starts.items(), ends, strict=True):
            fixed = sw.slice(devices=devices, name=f"fixed{begin}")
            again = sw.jit(step, devices=fixed, in_shardings=(P(), P("x")), out_shardings=P())
            for at in range(begin, end):
                weights, value = again(weights, rows)
                assert float(value) == losses[at], (devices, at, float(value), losses[at])
            s.release(fixed)
sizes = [devices for devices, _ in starts.values()]
print("sizes:", *sizes)
print("losses:", ", ".join(f"{loss:.4f}" for loss in losses[::80]))
