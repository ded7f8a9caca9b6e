"""Data-parallel islands: each runs a step on its own share of the batch, sends its gradients, and applies all of them.

The step is cut into segments of layers, so that the gradients of the last layers are sent while those of the first are
computed. A segment's weights and gradients are split in two dimensions over its island (`meshes`). Only gradients leave
an island.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.pricing.shapes import Part

from . import adafactor, decoder, parts
from .layers import COMPUTE, Array, Weights, working
from .meshes import AnyMesh, Computation, Struct, activation, constrain_on, placed, state_on, weights_on
from .spmd import CHUNKS


class Segment(NamedTuple):
    forward: Computation  # (weights, x) -> (out, saved)
    backward: Computation  # (weights, saved, outward, *batch) -> (gradients, inward?, loss?)
    update: Computation  # (master, state, gradients of each island...) -> (master, weights, state)
    part: Part


def segment(part: Part, mesh: AnyMesh, batch: int, length: int, *, scale: float, islands: int) -> Segment:
    """The computations of one segment. `batch`: of one island. `scale`: multiplies the loss's sum over tokens."""
    constrain = constrain_on(mesh)
    master = jax.eval_shape(lambda: decoder.init(part, jax.random.key(0)))
    lying = weights_on(mesh, master)
    weights = placed(jax.eval_shape(working, master), lying)
    state = placed(jax.eval_shape(adafactor.init, master), state_on(mesh, master))
    master = placed(master, lying)
    residual, kept = activation(mesh, "residual"), activation(mesh, "saved")
    tokens = Struct((batch, length), jnp.int32, sharding=activation(mesh, "tokens"))
    x = Struct((batch, length, part.model.d_model), COMPUTE, sharding=residual)
    saved = Struct((part.layers, *x.shape), COMPUTE, sharding=kept)
    rest = parts.reads(part)

    def forward(weights: Weights, x: Array) -> tuple[Array, Array]:
        return tuple(parts.forward(part, weights, x, constrain))  # type: ignore[return-value]

    def backward(weights: Weights, saved: Array, outward: Array, *batch: Array) -> Any:
        zeros = jax.tree.map(lambda w: jnp.zeros(w.shape, jnp.float32), weights)
        given: dict[str, Any] = dict(zip(rest, batch, strict=True))
        given |= {"scale": scale, "constrain": constrain, "chunks": CHUNKS}
        return parts.given(*parts.backward(part, weights, zeros, saved, outward, **given))

    def update(master: Weights, state: adafactor.State, *gradients: Weights) -> Any:
        total = jax.tree.map(lambda *each: sum(each[1:], start=each[0]), *gradients)
        master, state = adafactor.update(master, state, total)
        return master, working(master), state

    inward = None if part.first else residual
    loss = activation(mesh, "all") if part.last else None
    ahead, back = (weights, tokens if part.first else x), (weights, saved, x, *(tokens for _ in rest))
    last = (master, state, *([master] * islands))
    return Segment(
        Computation(f"{part.name}/forward", forward, ahead, (residual, kept)),
        Computation(f"{part.name}/backward", backward, back, parts.given(lying, inward, loss)),
        Computation(f"{part.name}/update", update, last, (lying, lying, state_on(mesh, master)), (0, 1)),
        part,
    )
