"""The decoder-only language model, whole or in parts (`experiments.pricing.shapes`).

Weights of a part: {"layers": stacked, "embedding"?: ..., "head"?: ...}.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from experiments.pricing.shapes import Part

from .layers import (
    Array,
    Constrain,
    Weights,
    alone,
    attention,
    causal,
    cross_entropy,
    feed_forward,
    fresh,
    lookup,
    norm,
)


def init(part: Part, key: Array) -> Weights:
    model, wide = part.model, part.model.d_model
    shapes = {
        "query": (wide, model.heads, model.d_head),
        "key": (wide, model.heads, model.d_head),
        "value": (wide, model.heads, model.d_head),
        "out": (model.heads, model.d_head, wide),
        "up": (wide, model.d_ff),
        "gate": (wide, model.d_ff),
        "down": (model.d_ff, wide),
    }
    fan_in = {"out": model.heads * model.d_head, "down": model.d_ff}
    keys = dict(zip([*shapes, "table", "softmax"], jax.random.split(key, len(shapes) + 2), strict=True))

    def group(*names: str) -> Weights:
        made: Weights = {
            name: fresh(keys[name], (part.layers, *shapes[name]), fan_in.get(name, wide)) for name in names
        }
        return made | {"norm": jnp.ones((part.layers, wide), jnp.float32)}

    feed = ("up", "gate", "down") if model.gated else ("up", "down")
    weights: Weights = {"layers": {"attention": group("query", "key", "value", "out"), "feed_forward": group(*feed)}}
    if part.first:
        weights["embedding"] = {"table": fresh(keys["table"], (model.vocabulary, wide), 1)}
    if part.last:
        weights["head"] = {
            "norm": jnp.ones((wide,), jnp.float32),
            "softmax": fresh(keys["softmax"], (wide, model.vocabulary), wide),
        }
    return weights


def layer(w: Weights, x: Array, constrain: Constrain = alone) -> Array:
    inside = norm(w["attention"]["norm"], x)
    x = constrain(x + attention(w["attention"], inside, inside, causal(x.shape[1]), constrain), "residual")
    inside = norm(w["feed_forward"]["norm"], x)
    return constrain(x + feed_forward(w["feed_forward"], inside, constrain), "residual")


def embed(weights: Weights, tokens: Array, constrain: Constrain = alone) -> Array:
    """Token vectors plus positions as sines and cosines, which have no parameters and work for any length."""
    x = lookup(weights["table"], tokens, constrain)
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * jnp.exp(jnp.arange(half) * (-9.2 / half))[None, :]
    return constrain(x + jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1).astype(x.dtype), "residual")


def loss(weights: Weights, x: Array, targets: Array, constrain: Constrain = alone, chunks: int = 1) -> Array:
    """The loss of the last layer's output, summed over all tokens."""
    inside = norm(weights["norm"], x)
    return cross_entropy(weights["softmax"], inside, targets, constrain, chunks)
