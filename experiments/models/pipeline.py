"""A pipeline's computations, each for the slice of one stage: forward, backward and update, data-parallel inside.

A stage's weights are replicated over its cores. Each core adds up its own gradients, in its row of an array with one
more axis; they are reduced once a step, in the update. The schedule is the order in which a program calls these
computations (`schedules`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from . import adafactor, decoder, parts
from .computation import Computation, P, Shapes, Struct
from .decoder import Part
from .layers import COMPUTE, Array, Weights, working
from .meshes import AnyMesh

EACH = P("data")  # split over the cores along the first dimension: a batch, or rows of gradients
SAME = P()
LAYERED = P(None, "data")


class Stage(NamedTuple):
    forward: Computation  # (weights, x) -> (out, saved)
    backward: Computation  # (weights, gradients, saved, outward, *batch) -> (gradients, inward?, loss?)
    update: Computation  # (master, state, gradients) -> (master, weights, state, zeros)
    part: Part


class _Kept(NamedTuple):
    """The arrays that a stage keeps from step to step, with their shardings."""

    master: Shapes
    weights: Shapes  # the copy that is used in computation
    state: Shapes
    gradients: Shapes


def stage(part: Part, mesh: AnyMesh, batch: int, length: int, *, scale: float) -> Stage:
    """The computations of one stage. `batch`: sequences of a micro-batch. `scale`: multiplies the loss's sum."""
    kept = _kept(part, mesh)
    tokens = Struct((batch, length), jnp.int32, sharding=NamedSharding(mesh, EACH))
    x = Struct((batch, length, part.model.d_model), COMPUTE, sharding=NamedSharding(mesh, EACH))
    saved = Struct((part.layers, *x.shape), COMPUTE, sharding=NamedSharding(mesh, LAYERED))
    return Stage(
        _forward(part, mesh, (kept.weights, tokens if part.first else x)),
        _backward(
            part, mesh, (kept.weights, kept.gradients, saved, x, *(tokens for _ in parts.reads(part))), scale
        ),
        _update(part, mesh, kept),
        part,
    )


def _kept(part: Part, mesh: AnyMesh) -> _Kept:
    def lying(tree: Any, where: Any, rows: tuple[int, ...] = ()) -> Shapes:
        sharding = NamedSharding(mesh, where)
        return jax.tree.map(lambda a: Struct((*rows, *a.shape), a.dtype, sharding=sharding), tree)

    master = jax.eval_shape(lambda: decoder.init(part, jax.random.key(0)))
    return _Kept(
        lying(master, SAME),
        lying(jax.eval_shape(working, master), SAME),
        lying(jax.eval_shape(adafactor.init, master), SAME),
        lying(master, EACH, (mesh.shape["data"],)),
    )


def _forward(part: Part, mesh: AnyMesh, arguments: tuple[Shapes, ...]) -> Computation:
    def forward(weights: Weights, x: Array) -> tuple[Array, Array]:
        done = parts.forward(part, weights, x)
        return done.out, done.saved

    return _over_cores(f"{part.name}/forward", forward, mesh, arguments, out=(EACH, LAYERED))


def _backward(part: Part, mesh: AnyMesh, arguments: tuple[Shapes, ...], scale: float) -> Computation:
    def backward(weights: Weights, gradients: Weights, saved: Array, outward: Array, *batch: Array) -> Any:
        mine = jax.tree.map(lambda rows: rows[0], gradients)
        given: dict[str, Any] = dict(zip(parts.reads(part), batch, strict=True))
        done = parts.backward(part, weights, mine, saved, outward, scale=scale, **given)
        rows = jax.tree.map(lambda a: a[None], done.gradients)
        return parts.given(rows, done.inward, _summed(done.loss) if part.last else None)

    spread = jax.tree.map(lambda _: EACH, arguments[1])
    out = parts.given(spread, None if part.first else EACH, SAME if part.last else None)
    reused = (1,) if part.first else (1, 3)
    return _over_cores(f"{part.name}/backward", backward, mesh, arguments, out=out, reused=reused)


def _update(part: Part, mesh: AnyMesh, kept: _Kept) -> Computation:
    def update(master: Weights, state: adafactor.State, gradients: Weights) -> Any:
        total = jax.tree.map(lambda rows: _summed(rows[0]), gradients)
        master, state = adafactor.update(master, state, total)
        return master, working(master), state, jax.tree.map(jnp.zeros_like, gradients)

    out = jax.tree.map(lambda a: a.sharding.spec, tuple(kept))
    taken = (kept.master, kept.state, kept.gradients)
    return _over_cores(f"{part.name}/update", update, mesh, taken, out=out, reused=(0, 1, 2))


def _summed(a: Any) -> Any:
    return jax.lax.psum(a, "data")  # type: ignore[no-untyped-call]


def _over_cores(
    name: str,
    function: Any,
    mesh: AnyMesh,
    arguments: tuple[Shapes, ...],
    *,
    out: Any,
    reused: tuple[int, ...] = (),
) -> Computation:
    taken = jax.tree.map(lambda a: a.sharding.spec, arguments)
    mapped = jax.shard_map(function, mesh=mesh, in_specs=taken, out_specs=out, check_vma=False)
    results = jax.tree.map(lambda where: NamedSharding(mesh, where), out)
    return Computation(name, mapped, arguments, results, reused)
