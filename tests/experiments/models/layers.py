"""The layers of both kinds of transformer. They compute in the type of their weights.

Training keeps float32 weights, and computes with a `working` copy in bfloat16. The weights of a layer are a dictionary
of arrays. `AXES` names the logical axes of each, which `meshes` maps to axes of a mesh. With `Constrain` a caller sets
the sharding of activations; on a single device it does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array
Weights = dict[str, Any]  # nested dictionaries of arrays
Constrain = Callable[[Array, str], Array]  # (activations, a name in meshes.ACTIVATIONS)

COMPUTE = jnp.bfloat16

# Axes of one layer's weights. If layers are stacked for a scan, there is one more axis in front.
AXES: dict[str, tuple[str, ...]] = {
    "norm": ("all",),
    "query": ("width", "heads", "head"),
    "key": ("width", "heads", "head"),
    "value": ("width", "heads", "head"),
    "out": ("heads", "head", "width"),
    "up": ("width", "hidden"),
    "gate": ("width", "hidden"),
    "down": ("hidden", "width"),
    "table": ("all", "features"),
    "softmax": ("width", "words"),
    "bias": ("all", "heads"),
}


def alone(x: Array, name: str) -> Array:
    """The Constrain of a single device."""
    return x


def norm(scale: Array, x: Array) -> Array:
    """Root-mean-square normalisation, in float32."""
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def working(weights: Weights) -> Weights:
    """The copy of the weights that is used in computation."""
    return dict(jax.tree.map(lambda w: w.astype(COMPUTE), weights))


def attention(w: Weights, x: Array, context: Array, bias: Array, constrain: Constrain) -> Array:
    """Attention of the positions of `x` to those of `context`. `bias` is added to the scores; -inf masks."""
    query = constrain(jnp.einsum("bsd,dhk->bshk", x, w["query"]), "heads")
    key = constrain(jnp.einsum("bsd,dhk->bshk", context, w["key"]), "heads")
    value = constrain(jnp.einsum("bsd,dhk->bshk", context, w["value"]), "heads")
    scores = jnp.einsum("bqhk,bshk->bhqs", query, key).astype(jnp.float32)
    shares = jax.nn.softmax(scores * query.shape[-1] ** -0.5 + bias, axis=-1).astype(query.dtype)
    mixed = constrain(jnp.einsum("bhqs,bshk->bqhk", shares, value), "heads")
    return jnp.einsum("bshk,hkd->bsd", mixed, w["out"])


def feed_forward(w: Weights, x: Array, constrain: Constrain) -> Array:
    hidden = jax.nn.relu(jnp.einsum("bsd,df->bsf", x, w["up"]))
    if "gate" in w:
        hidden = hidden * jnp.einsum("bsd,df->bsf", x, w["gate"])
    out: Array = jnp.einsum("bsf,fd->bsd", constrain(hidden, "hidden"), w["down"])
    return out


def causal(length: int) -> Array:
    """A bias that hides later positions from each position."""
    seen = jnp.arange(length)[:, None] >= jnp.arange(length)[None, :]
    return jnp.where(seen, 0.0, -jnp.inf)


def lookup(table: Array, tokens: Array, constrain: Constrain) -> Array:
    return constrain(jnp.take(table, tokens, axis=0), "residual")


def logits(softmax: Array, x: Array) -> Array:
    found: Array = jnp.einsum("bsd,dv->bsv", x, softmax)
    return found


def surprise(logits: Array, targets: Array) -> Array:
    """The loss of these logits, summed over all tokens."""
    wide = logits.astype(jnp.float32)
    right = jnp.take_along_axis(wide, targets[..., None], axis=-1)[..., 0]
    return jnp.sum(jax.nn.logsumexp(wide, axis=-1) - right)


def cross_entropy(softmax: Array, x: Array, targets: Array, constrain: Constrain, chunks: int = 1) -> Array:
    """The loss summed over all tokens. `chunks`: split positions if the logits of a whole batch do not fit a device;
    each chunk's logits are then computed again in the backward pass."""

    def of_chunk(total: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
        part, wanted = chunk
        return total + surprise(constrain(logits(softmax, part), "logits"), wanted), None

    def split(a: Array) -> Array:
        return jnp.moveaxis(a.reshape(a.shape[0], chunks, -1, *a.shape[2:]), 1, 0)

    nothing = jnp.zeros((), jnp.float32)
    if chunks == 1:
        return of_chunk(nothing, (x, targets))[0]
    total: Array = jax.lax.scan(jax.checkpoint(of_chunk), nothing, (split(x), split(targets)))[0]
    return total


def fresh(key: Array, shape: tuple[int, ...], fan_in: int) -> Array:
    """Initial weights."""
    drawn: Array = jax.random.normal(key, shape, jnp.float32) * fan_in**-0.5
    return drawn
