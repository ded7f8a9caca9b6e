"""A training loop that reads its loss: data-parallel linear regression, written as for real devices.

python examples/train.py
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import seaway as sw

mesh = sw.slice(mesh={"data": 8}, name="trainers")


def loss_of(w: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    return jnp.mean((batch["x"] @ w - batch["y"]) ** 2)


@sw.jit(devices=mesh, in_shardings=(None, mesh.sharding("data")), donate_argnums=0)
def step(w: jax.Array, batch: dict[str, jax.Array]) -> Any:
    loss, gradient = jax.value_and_grad(loss_of)(w, batch)
    return w - 0.1 * gradient, loss


def train(steps: int) -> Any:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=256).astype(np.float32)
    w = sw.put(np.zeros(256, np.float32), devices=mesh)
    for number in range(steps):
        x = rng.normal(size=(512, 256)).astype(np.float32)
        w, loss = step(w, {"x": x, "y": x @ truth})
        if number % 10 == 0:
            print(f"{sw.now() * 1e3:8.2f} ms  step {number:3}  loss {float(loss):.4f}")
        if loss < 1e-3:
            break
    return w


if __name__ == "__main__":
    with sw.simulate("B", hosts=2, values="compute") as s:
        w = train(50)
        print(w.shape, w.sharding.spec, f"norm {np.linalg.norm(np.asarray(w)):.3f}")
        print(s.trace.summary())
