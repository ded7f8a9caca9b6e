"""A whole training step as one computation over a mesh, which the compiler partitions, with collectives inside.

A decoder's step is made with `parts` (forward, backward and update in one); a T5's by plain differentiation. If a mesh
has an axis "model" the layout is two-dimensional, otherwise data-parallel (`meshes`).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from experiments.pricing.shapes import T5, Decoder, whole

from . import adafactor, decoder, parts, t5
from .layers import Array, Weights, working
from .meshes import AnyMesh, Computation, Struct, activation, constrain_on, placed, state_on, weights_on

CHUNKS = 4  # chunks of positions in the loss


def step(model: Decoder, mesh: AnyMesh, batch: int, length: int) -> Computation:
    """(weights, state, tokens, targets) -> (weights, state, loss)."""
    part, constrain, scale = whole(model), constrain_on(mesh), 1.0 / (batch * length)

    def function(weights: Weights, state: adafactor.State, tokens: Array, targets: Array) -> Any:
        copy = working(weights)
        ahead = parts.forward(part, copy, tokens, constrain)
        done = parts.backward(
            part, copy, jax.tree.map(jnp.zeros_like, weights), ahead.saved, ahead.out,
            tokens=tokens, targets=targets, scale=scale, constrain=constrain, chunks=CHUNKS,
        )  # fmt: skip
        return *adafactor.update(weights, state, done.gradients), done.loss

    weights = jax.eval_shape(lambda: decoder.init(part, jax.random.key(0)))
    return _computation(f"{model.name}/step", function, mesh, weights, (batch, length), (batch, length))


def t5_step(model: T5, mesh: AnyMesh, batch: int, length: int, targets: int) -> Computation:
    """(weights, state, inputs, targets) -> (weights, state, loss)."""
    constrain = constrain_on(mesh)

    def function(weights: Weights, state: adafactor.State, inputs: Array, wanted: Array) -> Any:
        def loss(copy: Weights) -> Array:
            return t5.loss(model, copy, inputs, wanted, constrain) / (batch * targets)

        value, gradients = jax.value_and_grad(loss)(working(weights))
        wide = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
        return *adafactor.update(weights, state, wide), value

    weights = jax.eval_shape(lambda: t5.init(model, jax.random.key(0)))
    return _computation(f"{model.name}/step", function, mesh, weights, (batch, length), (batch, targets))


def _computation(name: str, function: Any, mesh: AnyMesh, weights: Weights, *tokens: tuple[int, int]) -> Computation:
    state = jax.eval_shape(adafactor.init, weights)
    lying = weights_on(mesh, weights)
    state_lying = state_on(mesh, weights)
    read = [Struct(s, jnp.int32, sharding=activation(mesh, "tokens")) for s in tokens]
    arguments = (placed(weights, lying), placed(state, state_lying), *read)
    return Computation(name, function, arguments, (lying, state_lying, activation(mesh, "all")), (0, 1))
