"""A Flax model that Optax trains on a mesh of all devices: batches over one axis, weights over the other.

python examples/door/flax_mesh.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import NamedSharding, PartitionSpec

BATCH, WIDTH, STEPS = 64, 32, 30


class Block(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs):
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.gelu(self.up(self.norm(x))))


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.blocks = nnx.List([Block(WIDTH, rngs) for _ in range(2)])
        self.head = nnx.Linear(WIDTH, 1, rngs=rngs)

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)[:, 0]


def sharded(mesh, state):
    """Matrices in columns over the axis "model", where they divide; all else on every device."""

    def place(x):
        columns = x.ndim == 2 and x.shape[1] % mesh.shape["model"] == 0
        return jax.device_put(x, NamedSharding(mesh, PartitionSpec(None, "model") if columns else PartitionSpec()))

    return jax.tree.map(place, state)


@nnx.jit
def train_step(model, optimizer, x, y):
    loss, grads = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
    optimizer.update(model, grads)
    return loss


def main():
    mesh = jax.make_mesh((len(jax.devices()) // 2, 2), ("data", "model"))
    model = Model(nnx.Rngs(0))
    nnx.update(model, sharded(mesh, nnx.state(model)))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)
    rows = NamedSharding(mesh, PartitionSpec("data"))
    rng = np.random.default_rng(0)
    for step in range(STEPS):
        x = rng.normal(size=(BATCH, WIDTH)).astype(np.float32)
        y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
        loss = train_step(model, optimizer, *jax.device_put((x, y), rows))
        print(f"step {step:2}  loss {float(loss)!r}")
    print("weights:", model.blocks[0].up.kernel.sharding.spec, "on", len(mesh.devices.flat), "devices")


if __name__ == "__main__":
    main()
