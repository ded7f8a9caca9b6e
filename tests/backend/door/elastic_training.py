"""Trains with pathwaysutils' elastic loop and Orbax's checkpoints, as one would on Google's own Pathways.

`test_elastic` runs it through a door: FOLDER is that of its checkpoints. It prints each step, what its loop takes for a
slice that is down, where it begins again, and a digest of the state that it ends with.
"""

# mypy: ignore-errors
# It is written as users write, and knows nothing of this project.

import hashlib
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pathwaysutils
from jax.sharding import NamedSharding, PartitionSpec
from pathwaysutils.elastic import manager

STEPS, EVERY = 40, 5
optimizer = optax.adam(3e-2)


def say(*words):
    print(*words, flush=True)


def batch(step):
    return np.random.default_rng(step).normal(size=(64, 32)).astype(np.float32)


def new_state(mesh):
    a, b = (np.random.default_rng(seed).normal(size=(32, 64)).astype(np.float32) / 6 for seed in (1, 2))
    state = {"a": a, "b": b.T}, optimizer.init({"a": a, "b": b.T})
    return jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, PartitionSpec(*["x"] * (x.ndim > 0)))), state)


def train_step(state, x):
    weights, moments = state
    loss, grads = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - x) ** 2))(weights)
    updates, moments = optimizer.update(grads, moments)
    return (optax.apply_updates(weights, updates), moments), loss


def train(folder):
    mesh = jax.make_mesh((len(jax.devices()),), ("x",))
    rows = NamedSharding(mesh, PartitionSpec("x"))
    step_of = jax.jit(train_step, donate_argnums=0)
    options = ocp.CheckpointManagerOptions(save_interval_steps=EVERY, max_to_keep=2)
    with ocp.CheckpointManager(folder, options=options) as saved:
        state, last = new_state(mesh), saved.latest_step()
        if last is not None:
            target = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
            state = saved.restore(last, args=ocp.args.StandardRestore(target))
        say("from", 0 if last is None else last + 1)
        for step in range(0 if last is None else last + 1, STEPS):
            state, loss = step_of(state, jax.device_put(batch(step), rows))
            say("step", step, float(loss))
            saved.save(step, args=ocp.args.StandardSave(state))
        saved.wait_until_finished()
    return state


def digest(state):
    found = hashlib.sha256()
    for each in jax.tree.leaves(state):
        found.update(np.ascontiguousarray(each).tobytes())
    return found.hexdigest()


def goes_on(attempt, error):
    say("down", " ".join(str(error).split()))
    return True


if __name__ == "__main__":
    pathwaysutils.initialize()
    elastic = manager.Manager()
    say("slices", elastic.total_slice_count)
    retried = elastic.elastic_retry(poll_interval=1, timeout=120, retry_policy=goes_on)
    say("digest", digest(retried(train)(Path(sys.argv[1]).absolute())))
