"""A transformer whose layers are one `jax.lax.scan`, data-parallel with `jax.shard_map`: gradients meet in a `pmean`.

python examples/door/scan_transformer.py
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

P = PartitionSpec
LAYERS, WIDTH, HEADS, WORDS, LENGTH, BATCH, STEPS = 3, 32, 4, 17, 12, 16, 10


def new_weights(key):
    keys = iter(jax.random.split(key, 7))

    def matrix(*shape):
        return jax.random.normal(next(keys), shape) / shape[-2] ** 0.5

    return {
        "embed": matrix(WORDS, WIDTH),
        "place": matrix(LENGTH, WIDTH),
        "layers": {  # one more dimension in front: scan goes along it
            "qkv": matrix(LAYERS, WIDTH, 3 * WIDTH),
            "out": matrix(LAYERS, WIDTH, WIDTH),
            "up": matrix(LAYERS, WIDTH, 4 * WIDTH),
            "down": matrix(LAYERS, 4 * WIDTH, WIDTH),
        },
    }


def normed(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def layer(x, w):
    batch, length, _ = x.shape
    parts = (normed(x) @ w["qkv"]).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
    q, k, v = (parts[:, :, each] for each in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (WIDTH // HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape)
    x = x + mixed @ w["out"]
    return x + jax.nn.gelu(normed(x) @ w["up"]) @ w["down"], None


def loss_of(weights, words):
    x = weights["embed"][words[:, :-1]] + weights["place"][: words.shape[1] - 1]
    x, _ = lax.scan(jax.checkpoint(layer), x, weights["layers"])
    logits = jax.nn.log_softmax(normed(x) @ weights["embed"].T)
    return -jnp.mean(jnp.take_along_axis(logits, words[:, 1:, None], axis=-1))


def step(weights, words):
    """On each device: its part of the batch, and all weights."""
    loss, grads = jax.value_and_grad(loss_of)(weights, words)
    loss, grads = lax.pmean((loss, grads), "data")
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, grads), loss


def main():
    mesh = jax.make_mesh((len(jax.devices()),), ("data",))
    train = jax.jit(
        jax.shard_map(step, mesh=mesh, in_specs=(P(), P("data")), out_specs=P(), check_vma=False), donate_argnums=0
    )
    weights = jax.device_put(new_weights(jax.random.key(0)), NamedSharding(mesh, P()))
    key = jax.random.key(1)
    for number in range(STEPS):
        start = jax.random.randint(jax.random.fold_in(key, number), (BATCH, 1), 0, WORDS)
        words = (start + 3 * jnp.arange(LENGTH)) % WORDS  # counts by threes: it can be learnt
        weights, loss = train(weights, jax.device_put(words, NamedSharding(mesh, P("data"))))
        print(f"step {number}  loss {float(loss)!r}")


if __name__ == "__main__":
    main()
