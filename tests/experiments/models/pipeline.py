"""A pipeline's computations, each for the slice of one stage: forward, backward and update, data-parallel inside.

A stage's weights are on each of its cores, and so are its gradients: a backward pass adds those of its micro-batch, to
which every core contributes its sequences. So each layer's gradients are reduced over the stage in every backward pass,
as soon as they are there. (If the partitioner may choose, it reduces those of all layers at the end, in as many bytes;
until then they fill 1.6 GB more of a core, and four stages of 1024 tokens no longer fit.)

The last stage's forward pass ends with the softmax and the loss. Its backward pass computes the softmax again, like
every layer, unless the forward pass keeps the logits (`keeps`). The schedule is the order in which a program calls
these computations (`schedules`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from experiments.pricing.shapes import Part

from . import adafactor, decoder, parts
from .layers import COMPUTE, Array, Weights, working
from .meshes import AnyMesh, Computation, P, Shapes, Struct, constrain_on, placed

EACH = P("data")  # split over the cores along the first dimension: a batch
SAME = P()
LAYERED = P(None, "data")


class Stage(NamedTuple):
    forward: Computation  # (weights, x, targets?) -> (out, saved, loss?, logits?)
    backward: Computation  # (weights, gradients, saved, outward, *batch, logits?) -> (gradients, inward?)
    update: Computation  # (master, state, gradients) -> (master, weights, state, zeros)
    part: Part


def stage(part: Part, mesh: AnyMesh, batch: int, length: int, *, scale: float, keeps: bool = False) -> Stage:
    """The computations of one stage. `batch`: sequences of a micro-batch. `scale`: multiplies the loss's sum. `keeps`:
    the last stage's logits wait for the backward pass."""
    tokens = _split(mesh, (batch, length), jnp.int32)
    x = _split(mesh, (batch, length, part.model.d_model), COMPUTE)
    logits = _split(mesh, (batch, length, part.model.vocabulary), COMPUTE)
    saved = Struct((part.layers, *x.shape), COMPUTE, sharding=NamedSharding(mesh, LAYERED))
    master = jax.eval_shape(lambda: decoder.init(part, jax.random.key(0)))
    weights = _same(mesh, jax.eval_shape(working, master))
    keeps = keeps and part.last
    ahead = [weights, tokens if part.first else x, *[tokens] * part.last]
    back = [weights, _same(mesh, master), saved, x, *(tokens for _ in parts.reads(part)), *[logits] * keeps]
    return Stage(
        _forward(part, mesh, ahead, scale, keeps),
        _backward(part, mesh, back, scale, keeps),
        _update(part, mesh, master),
        part,
    )


def _split(mesh: AnyMesh, shape: tuple[int, ...], dtype: Any) -> Any:
    return Struct(shape, dtype, sharding=NamedSharding(mesh, EACH))


def _same(mesh: AnyMesh, tree: Any) -> Shapes:
    """The tree's shapes, whole on every core."""
    return placed(tree, jax.tree.map(lambda _: NamedSharding(mesh, SAME), tree))


def _forward(part: Part, mesh: AnyMesh, arguments: list[Shapes], scale: float, keeps: bool) -> Computation:
    constrain = constrain_on(mesh)

    def forward(weights: Weights, x: Array, *targets: Array) -> tuple[Array, ...]:
        done = parts.forward(part, weights, x, constrain)
        if not part.last:
            return done.out, done.saved
        loss, logits = parts.predicted(weights, done.out, targets[0], scale, constrain)
        return (done.out, done.saved, loss, logits)[: 3 + keeps]

    results = (EACH, LAYERED, SAME, EACH)[: 2 + part.last + keeps]
    return _jitted(f"{part.name}/forward", forward, mesh, arguments, results)


def _backward(part: Part, mesh: AnyMesh, arguments: list[Shapes], scale: float, keeps: bool) -> Computation:
    reads = parts.reads(part) + ("logits",) * keeps

    def backward(weights: Weights, gradients: Weights, saved: Array, outward: Array, *batch: Array) -> Any:
        given: dict[str, Any] = dict(zip(reads, batch, strict=True))
        given |= {"scale": scale, "total": _reduced}
        done = parts.backward(part, weights, gradients, saved, outward, **given)
        return parts.given(done.gradients, done.inward)

    taken = jax.tree.map(lambda a: a.sharding.spec, tuple(arguments))
    results = parts.given(SAME, None if part.first else EACH)
    mapped = jax.shard_map(backward, mesh=mesh, in_specs=taken, out_specs=results, check_vma=False)
    reused = (1,) if part.first else (1, 3)
    return _jitted(f"{part.name}/backward", mapped, mesh, arguments, results, reused)


def _reduced(gradients: Weights) -> Weights:
    """The sum over all cores, now: the barrier keeps the compiler from adding up all layers' first."""
    found = jax.lax.psum(gradients, "data")  # type: ignore[no-untyped-call]
    return dict(jax.lax.optimization_barrier(found))  # type: ignore[no-untyped-call]


def _update(part: Part, mesh: AnyMesh, master: Weights) -> Computation:
    def update(master: Weights, state: adafactor.State, gradients: Weights) -> Any:
        master, state = adafactor.update(master, state, gradients)
        return master, working(master), state, jax.tree.map(jnp.zeros_like, gradients)

    taken = [_same(mesh, each) for each in (master, jax.eval_shape(adafactor.init, master), master)]
    return _jitted(f"{part.name}/update", update, mesh, taken, (SAME, SAME, SAME, SAME), (0, 1, 2))


def _jitted(
    name: str, function: Any, mesh: AnyMesh, arguments: list[Shapes], results: tuple[Any, ...],
    reused: tuple[int, ...] = (),
) -> Computation:  # fmt: skip
    """`results`: how each result lies, with one for all arrays of a tree."""
    shapes = jax.eval_shape(function, *arguments)
    where = tuple(
        jax.tree.map(lambda _, each=each: NamedSharding(mesh, each), shape)
        for shape, each in zip(shapes, results, strict=True)
    )
    return Computation(name, function, tuple(arguments), where, reused)
