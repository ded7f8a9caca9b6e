"""Trains on all slices that are up, each with its part of the batch, with pathwaysutils' elastic loop.

`test_elastic` runs it through a door to two islands, until it is given a line. It prints on which slices it trains,
each step, what its loop takes for a slice that is down, and whether it ends with what numpy computes of the same
batches.
"""

# mypy: ignore-errors
# It is written as users write, and knows nothing of this project.

import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pathwaysutils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pathwaysutils.elastic import manager

saved = {"steps": 0, "weights": np.eye(32, dtype=np.float32)}  # what a checkpoint would be
over = threading.Event()


def say(*words):
    print(*words, flush=True)


def batch(step):
    return np.random.default_rng(step).normal(size=(64, 32)).astype(np.float32)


@jax.jit
def slope(w, x):
    return jax.grad(lambda w: jnp.sum((jnp.tanh(x @ w) - x) ** 2) / 64)(w)


@jax.jit
def updated(w, slopes):
    return w - 0.1 * sum(slopes)


def train(elastic):
    active = sorted(elastic.active_slice_indices)
    meshes = [Mesh(np.array(elastic.slice_to_devices[each]), "x") for each in active]
    whole, rows = ([NamedSharding(mesh, PartitionSpec(*axes)) for mesh in meshes] for axes in ((), ("x",)))
    weights = [jax.device_put(saved["weights"], each) for each in whole]
    say("on", *active, "from", saved["steps"])
    while not over.is_set():
        if elastic.available_inactive_slices:
            raise manager.ScaleUpSignalError
        parts = np.split(batch(saved["steps"]), len(meshes))
        slopes = [slope(w, jax.device_put(x, each)) for w, x, each in zip(weights, parts, rows, strict=True)]
        first = updated(weights[0], [jax.device_put(each, whole[0]) for each in slopes])
        weights = [first, *(jax.device_put(first, each) for each in whole[1:])]
        read = np.asarray(weights[-1])
        saved.update(steps=saved["steps"] + 1, weights=read)
        say("step", saved["steps"])


def by_hand(steps):
    w = np.eye(32)
    for step in range(steps):
        x = batch(step).astype(np.float64)
        y = np.tanh(x @ w)
        w = w - 0.1 * x.T @ (2 * (y - x) * (1 - y * y)) / 64
    return w


def goes_on(attempt, error):
    say("again", type(error).__name__, " ".join(str(error).split()))
    return True


if __name__ == "__main__":
    pathwaysutils.initialize()
    threading.Thread(target=lambda: sys.stdin.readline() and over.set(), daemon=True).start()
    elastic = manager.Manager()
    say("slices", elastic.total_slice_count)
    retried = elastic.elastic_retry(minimum_slice_count=1, poll_interval=0.5, timeout=120, retry_policy=goes_on)
    retried(train)(elastic)
    say("as by hand", np.allclose(saved["weights"], by_hand(saved["steps"]), atol=1e-3))
