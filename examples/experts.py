"""A mixture-of-experts layer: a router sends each token to the expert that it chooses, and the results come back.

python examples/experts.py
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import seaway as sw

TOKENS, WIDTH, EXPERTS, SHARDS = 64, 16, 8, 4
PER_SHARD = TOKENS // SHARDS
tokens_on = sw.slice(devices=SHARDS, name="tokens")
experts_on = sw.slice(devices=EXPERTS, name="experts")
token_rows, expert_rows = tokens_on.sharding("x"), experts_on.sharding("x")  # over all devices of each


@sw.jit(devices=tokens_on, in_shardings=(token_rows, None), out_shardings=token_rows)
def choose(x: jax.Array, router: jax.Array) -> jax.Array:
    return jnp.argmax(x @ router, axis=1).astype(jnp.int32)


@sw.jit(devices=experts_on, in_shardings=expert_rows, out_shardings=expert_rows)
def apply(weights: jax.Array, rows: jax.Array) -> jax.Array:
    return jax.vmap(jnp.matmul)(rows.reshape(EXPERTS, -1, WIDTH), weights).reshape(rows.shape)


@sw.jit(devices=experts_on, in_shardings=expert_rows, out_shardings=expert_rows)
def home_of(source: jax.Array) -> jax.Array:
    return jnp.where(source >= 0, source // PER_SHARD, -1)


@sw.jit(devices=tokens_on, in_shardings=token_rows, out_shardings=token_rows)
def in_order(rows: jax.Array, token: jax.Array) -> jax.Array:
    return jnp.zeros_like(rows).at[token].set(rows)


@sw.program
def layer(x: Any, router: Any, weights: Any) -> Any:
    x = sw.put(x, devices=tokens_on, sharding=token_rows)
    rows, source = sw.route(x, choose(x, router), devices=experts_on, name="to experts")
    made = apply(weights, rows)
    (back, token), _ = sw.route((made, source), home_of(source), devices=tokens_on, capacity=PER_SHARD, name="back")
    return in_order(back, token)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    x = rng.normal(size=(TOKENS, WIDTH)).astype(np.float32)
    router = rng.normal(size=(WIDTH, EXPERTS)).astype(np.float32)
    weights = rng.normal(size=(EXPERTS, WIDTH, WIDTH)).astype(np.float32)
    with sw.simulate("B", hosts=2, values="compute") as s:
        y = layer(x, router, weights)
        chosen = np.argmax(x @ router, axis=1)
        expected = np.einsum("td,tdw->tw", x, weights[chosen])
        print("as computed without routing:", np.allclose(y, expected, atol=1e-4))
        print(s.trace.summary())
