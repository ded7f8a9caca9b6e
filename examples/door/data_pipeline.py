"""A data pipeline: batches are drawn with `jax.random` on the mesh, or made on the host and put there ahead of use.

python examples/door/data_pipeline.py
"""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

BATCH, FEATURES, STEPS, AHEAD = 64, 8, 20, 3


def host_batches():
    rng = np.random.default_rng(5)
    while True:
        x = rng.normal(size=(BATCH, FEATURES)).astype(np.float32)
        yield {"x": x, "label": np.argmax(x[:, :3], axis=1).astype(np.int32)}


def put_ahead(batches, sharding):
    """Batches on the devices, a few of them on their way while the program computes."""
    under_way = deque()
    for batch in batches:
        under_way.append(jax.device_put(batch, sharding))
        if len(under_way) > AHEAD:
            yield under_way.popleft()


def main():
    mesh = jax.make_mesh((len(jax.devices()),), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))

    @jax.jit
    def step(weights, noise_key, batch):
        noise = 0.1 * jax.random.normal(noise_key, batch["x"].shape, out_sharding=rows)

        def loss_of(weights):
            logits = (batch["x"] + noise) @ weights
            chosen = jax.nn.one_hot(batch["label"], 3)
            return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * chosen, -1))

        loss, grads = jax.value_and_grad(loss_of)(weights)
        return weights - 0.5 * grads, loss

    key = jax.random.key(0)
    weights = jax.device_put(jnp.zeros((FEATURES, 3)), NamedSharding(mesh, PartitionSpec()))
    losses = []
    for number, batch in zip(range(STEPS), put_ahead(host_batches(), rows), strict=False):
        weights, loss = step(weights, jax.random.fold_in(key, number), batch)
        losses.append(loss)  # read later: nothing waits for it here
    for number, loss in enumerate(jax.device_get(losses)):
        print(f"step {number:2}  loss {float(loss)!r}")
    order = jax.random.permutation(key, BATCH)
    print("shuffled:", order[:8].tolist(), "mean weight", float(jnp.mean(jnp.abs(weights))))


if __name__ == "__main__":
    main()
