"""The forward and backward pass of one part of a decoder, for a pipeline's stage or an island's segment.

Forward keeps each layer's input. Backward goes through the layers in reverse, computes each again from its input (so a
training step has four times the work of a forward pass), and adds to gradients in place. `predicted` is the last part's
softmax and loss as part of a forward pass; its backward pass computes the softmax again, unless it is given the logits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.pricing.shapes import Part

from . import decoder, layers
from .layers import Array, Constrain, Weights, alone

Total = Callable[[Weights], Weights]  # some weights' gradients on a core, to those of all cores


def alone_too(gradients: Weights) -> Weights:
    return gradients


class Forward(NamedTuple):
    out: Array  # activations after the last layer of the part
    saved: Array  # each layer's input, stacked


class Backward(NamedTuple):
    gradients: Weights
    inward: Array | None  # gradient of the part's input; None for the first part
    loss: Array | None  # only for the last part, and not if it was given the logits


def forward(part: Part, weights: Weights, x: Array, constrain: Constrain = alone) -> Forward:
    """`x`: tokens for the first part, activations for others."""
    if part.first:
        x = decoder.embed(weights["embedding"], x, constrain)

    def step(x: Array, w: Weights) -> tuple[Array, Array]:
        return decoder.layer(w, x, constrain), x

    out, saved = jax.lax.scan(step, x, weights["layers"])
    return Forward(out, constrain(saved, "saved"))


def predicted(
    weights: Weights, out: Array, targets: Array, scale: float, constrain: Constrain = alone
) -> tuple[Array, Array]:
    """(the loss of the last layer's output times `scale`, the logits)."""
    found = constrain(layers.logits(weights["head"]["softmax"], layers.norm(weights["head"]["norm"], out)), "logits")
    return layers.surprise(found, targets) * scale, found


def backward(
    part: Part,
    weights: Weights,
    gradients: Weights,
    saved: Array,
    outward: Array,
    *,
    tokens: Array | None = None,
    targets: Array | None = None,
    logits: Array | None = None,
    scale: float = 1.0,
    constrain: Constrain = alone,
    chunks: int = 1,
    total: Total = alone_too,
) -> Backward:
    """`outward`: the gradient of the part's output; for the last part the output itself, of which the loss with
    `targets`, times `scale`, is differentiated. `logits`: of that output, if they were kept. `tokens`: the first part's
    input. `total`: makes a weight's gradient that of the whole batch, where each core has some sequences of it."""
    gradients = dict(gradients)
    loss = None
    if part.last:
        assert targets is not None

        if logits is not None:
            change, outward = _from_logits(weights["head"], outward, targets, logits, scale)
        else:

            def head(w: Weights, x: Array) -> Array:
                return decoder.loss(w, x, targets, constrain, chunks) * scale

            loss, back = jax.vjp(head, weights["head"], outward)
            change, outward = back(jnp.ones((), jnp.float32))
        gradients["head"] = _added(gradients["head"], total(change))
    inward, gradients["layers"] = _layers(weights["layers"], gradients["layers"], saved, outward, constrain, total)
    if not part.first:
        return Backward(gradients, inward, loss)
    assert tokens is not None
    _, back = jax.vjp(lambda w: decoder.embed(w, tokens, constrain), weights["embedding"])
    gradients["embedding"] = _added(gradients["embedding"], total(back(inward)[0]))
    return Backward(gradients, None, loss)


def _from_logits(head: Weights, out: Array, targets: Array, logits: Array, scale: float) -> tuple[Weights, Array]:
    """Gradients of the head's weights and of its input, from logits that the forward pass has kept."""
    outward = jax.grad(lambda given: layers.surprise(given, targets) * scale)(logits)
    _, back = jax.vjp(lambda w, x: layers.logits(w["softmax"], layers.norm(w["norm"], x)), head, out)
    change, inward = back(outward)
    return change, inward


def given(*results: Any) -> tuple[Any, ...]:
    """The results that are not None: the first part has no gradient of its input, and only the last has a loss."""
    return tuple(result for result in results if result is not None)


def reads(part: Part) -> tuple[str, ...]:
    """Keyword names of the batch's arrays that a backward pass takes: only the first and last part read any."""
    return ("tokens",) * part.first + ("targets",) * part.last


def _layers(
    weights: Weights, gradients: Weights, saved: Array, outward: Array, constrain: Constrain, total: Total
) -> tuple[Array, Weights]:
    """The layers in reverse. Gradients are carried, so that the compiler can add to them in place."""

    def step(carry: tuple[Array, Weights], at: Array) -> tuple[tuple[Array, Weights], None]:
        outward, gradients = carry
        w = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, at, keepdims=False), weights)
        x = jax.lax.dynamic_index_in_dim(saved, at, keepdims=False)
        _, back = jax.vjp(lambda w, x: decoder.layer(w, x, constrain), w, x)
        change, inward = back(outward)
        gradients = jax.tree.map(partial(_add_at, at), gradients, total(change))
        return (constrain(inward, "residual"), gradients), None

    order = jnp.arange(saved.shape[0] - 1, -1, -1)
    (inward, gradients), _ = jax.lax.scan(step, (outward, gradients), order)
    return inward, gradients


def _add_at(at: Array, total: Array, one: Array) -> Array:
    so_far = jax.lax.dynamic_index_in_dim(total, at, keepdims=False)
    put: Array = jax.lax.dynamic_update_index_in_dim(total, so_far + one.astype(total.dtype), at, 0)
    return put


def _added(gradients: Weights, change: Weights) -> Weights:
    return dict(jax.tree.map(lambda total, one: total + one.astype(total.dtype), gradients, change))
