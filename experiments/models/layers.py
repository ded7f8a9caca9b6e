"""The layers that both kinds of transformer are made of; they compute in the type of the weights they are given.

Training keeps float32 weights and multiplies a `working` copy of them in bfloat16. Weights of a layer are a
dictionary of arrays; `AXES` names the logical axes of each, which `meshes` maps to the axes of a mesh. `Constrain`
is how a caller says where activations lie; alone on a device it does nothing.
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

# One layer's weights; where layers are stacked for a scan, one axis more stands in front.
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
    """The Constrain of a device by itself."""
    return x


def norm(scale: Array, x: Array) -> Array:
    """Root-mean-square normalisation, in float32."""
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def working(weights: Weights) -> Weights:
    """The copy that is multiplied."""
    return dict(jax.tree.map(lambda w: w.astype(COMPUTE), weights))


def attention(w: Weights, x: Array, context: Array, bias: Array, constrain: Constrain) -> Array:
    """Of each position of `x` over those of `context`; `bias` is added to the scores, and masks with -inf."""
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
    """A bias under which no position sees those behind it."""
    seen = jnp.arange(length)[:, None] >= jnp.arange(length)[None, :]
    return jnp.where(seen, 0.0, -jnp.inf)


def lookup(table: Array, tokens: Array, constrain: Constrain) -> Array:
    return constrain(jnp.take(table, tokens, axis=0), "residual")


def cross_entropy(softmax: Array, x: Array, targets: Array, constrain: Constrain, chunks: int = 1) -> Array:
    """Sum over all tokens. `chunks`: of positions, where the logits of a whole batch would fill a device; each
    chunk's are then computed again in the backward pass."""

    def of_chunk(total: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
        part, wanted = chunk
        logits = jnp.einsum("bsd,dv->bsv", part, softmax)
        logits = constrain(logits, "logits").astype(jnp.float32)
        right = jnp.take_along_axis(logits, wanted[..., None], axis=-1)[..., 0]
        return total + jnp.sum(jax.nn.logsumexp(logits, axis=-1) - right), None

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
