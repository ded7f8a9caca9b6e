"""Orbax saves a sharded training state, and restores it into another sharding: training goes on as if not stopped.

python examples/door/orbax_restore.py
"""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec

STEPS, SAVED_AT = 12, 6
optimizer = optax.adam(3e-2)


@jax.jit
def train(state, x):
    weights, moments = state
    loss, grads = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - x) ** 2))(weights)
    updates, moments = optimizer.update(grads, moments)
    return (optax.apply_updates(weights, updates), moments), loss


def batches():
    rng = np.random.default_rng(2)
    return [rng.normal(size=(16, 8)).astype(np.float32) for _ in range(STEPS)]


def new_state(sharding):
    a, b = jax.random.split(jax.random.key(0))
    weights = {"a": jax.random.normal(a, (8, 16)) / 4, "b": jax.random.normal(b, (16, 8)) / 4}
    weights = jax.device_put(weights, sharding)
    return weights, optimizer.init(weights)


def main():
    mesh = jax.make_mesh((len(jax.devices()) // 2, 2), ("x", "y"))
    rows, columns = (NamedSharding(mesh, PartitionSpec("y")), NamedSharding(mesh, PartitionSpec(None, "x")))
    state, wanted = new_state(rows), []
    with tempfile.TemporaryDirectory() as folder, ocp.StandardCheckpointer() as checkpointer:
        for step, x in enumerate(batches()):
            if step == SAVED_AT:
                checkpointer.save(Path(folder) / "saved", state)
                checkpointer.wait_until_finished()
            state, loss = train(state, x)
            wanted.append(float(loss))
            print(f"step {step:2}  loss {wanted[-1]!r}")
        target = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=columns if x.ndim == 2 else x.sharding), state
        )
        state = checkpointer.restore(Path(folder) / "saved", target)
    print("restored:", state[0]["a"].sharding.spec)
    for step, x in list(enumerate(batches()))[SAVED_AT:]:
        state, loss = train(state, x)
        print(f"step {step:2}  loss {float(loss)!r}  close to the first: {np.isclose(loss, wanted[step])}")


if __name__ == "__main__":
    main()
