"""The T5 encoder-decoder (Raffel et al. 2020): relative position biases, one table for all layers of a stack.

Weights: {"embedding": ..., "encoder": {"layers", "bias", "norm"}, "decoder": the same, "head": ...}. Each layer is
computed again in the backward pass, so only its input is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from experiments.pricing.shapes import T5

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

FAR = 128  # positions further apart than this share a bucket


def init(model: T5, key: Array) -> Weights:
    wide, hidden, per_head = model.d_model, model.d_ff, (model.heads, model.d_head)
    keys = iter(jax.random.split(key, 32))

    def stacked(shape: tuple[int, ...], fan_in: int) -> Array:
        return fresh(next(keys), (model.layers, *shape), fan_in)

    def attend() -> Weights:
        inward = {name: stacked((wide, *per_head), wide) for name in ("query", "key", "value")}
        out = stacked((*per_head, wide), model.heads * model.d_head)
        return {**inward, "out": out, "norm": jnp.ones((model.layers, wide))}

    def feed() -> Weights:
        up, down = stacked((wide, hidden), wide), stacked((hidden, wide), hidden)
        return {"up": up, "down": down, "norm": jnp.ones((model.layers, wide))}

    def stack(*attentions: str) -> Weights:
        layers = {name: attend() for name in attentions} | {"feed_forward": feed()}
        bias = fresh(next(keys), (model.buckets, model.heads), 1)
        return {"layers": layers, "bias": bias, "norm": jnp.ones((wide,))}

    return {
        "embedding": {"table": fresh(next(keys), (model.vocabulary, wide), 1)},
        "encoder": stack("self"),
        "decoder": stack("self", "cross"),
        "head": {"softmax": fresh(next(keys), (wide, model.vocabulary), wide)},
    }


def relative(table: Array, queries: int, keys: int, both_ways: bool) -> Array:
    """Bias by head, query and key: exact buckets for near positions, logarithmic ones up to FAR."""
    distance = jnp.arange(keys)[None, :] - jnp.arange(queries)[:, None]
    count, base = table.shape[0], jnp.zeros_like(distance)
    if both_ways:
        count //= 2
        base = jnp.where(distance > 0, count, 0)
    away = jnp.abs(distance) if both_ways else jnp.maximum(-distance, 0)
    near = count // 2
    scale = (count - near) / math.log(FAR / near)
    far = near + (jnp.log(jnp.maximum(away, 1) / near) * scale).astype(jnp.int32)
    bucket = base + jnp.where(away < near, away, jnp.minimum(far, count - 1))
    return jnp.moveaxis(table[bucket], -1, 0).astype(jnp.float32)


def _stack(
    weights: Weights, x: Array, sublayers: dict[str, Callable[[Weights, Array], Array]], constrain: Constrain
) -> Array:
    """All layers of a stack. Each sublayer's input is normalised, and its output added to the residual."""

    @jax.checkpoint
    def step(x: Array, w: Weights) -> tuple[Array, None]:
        for name, apply in sublayers.items():
            x = constrain(x + apply(w[name], norm(w[name]["norm"], x)), "residual")
        return x, None

    return norm(weights["norm"], jax.lax.scan(step, x, weights["layers"])[0])


def loss(model: T5, weights: Weights, inputs: Array, targets: Array, constrain: Constrain = alone) -> Array:
    """The loss summed over all target tokens."""
    length, wanted = inputs.shape[1], targets.shape[1]
    table, encoder, decoder = weights["embedding"]["table"], weights["encoder"], weights["decoder"]
    around = relative(encoder["bias"], length, length, True)
    behind = relative(decoder["bias"], wanted, wanted, False) + causal(wanted)

    def feed(w: Weights, x: Array) -> Array:
        return feed_forward(w, x, constrain)

    encoded = _stack(
        encoder,
        lookup(table, inputs, constrain),
        {"self": lambda w, x: attention(w, x, x, around, constrain), "feed_forward": feed},
        constrain,
    )
    nothing = jnp.zeros((), jnp.float32)
    start = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)))
    decoded = _stack(
        decoder,
        lookup(table, start, constrain),
        {
            "self": lambda w, x: attention(w, x, x, behind, constrain),
            "cross": lambda w, x: attention(w, x, encoded, nothing, constrain),
            "feed_forward": feed,
        },
        constrain,
    )
    return cross_entropy(weights["head"]["softmax"], decoded, targets, constrain)
