"""Adafactor (Shazeer and Stern 2018) without momentum, with which T5 and its contemporaries were trained.

Second moments of a matrix are kept as those of its rows and of its columns, so the state is very small. An array's last
axis is its columns. Arrays under "layers" have one matrix a layer.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from .layers import Array, Weights

RATE = 1e-3
CLIP = 1.0
TINY = 1e-30
State = dict[str, Any]  # {"step": ..., "moments": a tree as the weights, of (rows, columns) or (all,)}


def _stacked(path: tuple[Any, ...]) -> bool:
    return any(getattr(key, "key", None) == "layers" for key in path)


def _matrix(path: tuple[Any, ...], array: Any) -> bool:
    return bool(array.ndim - _stacked(path) >= 2)


def _inner(path: tuple[Any, ...], array: Any) -> tuple[int, ...]:
    """The axes of a matrix's rows."""
    return tuple(range(int(_stacked(path)), array.ndim - 1))


def init(weights: Weights) -> State:
    def moments(path: tuple[Any, ...], w: Array) -> tuple[Array, ...]:
        if not _matrix(path, w):
            return (jnp.zeros(w.shape, jnp.float32),)
        columns = (*w.shape[: int(_stacked(path))], w.shape[-1])
        return jnp.zeros(w.shape[:-1], jnp.float32), jnp.zeros(columns, jnp.float32)

    return {"step": jnp.zeros((), jnp.int32), "moments": jax.tree_util.tree_map_with_path(moments, weights)}


def update(weights: Weights, state: State, gradients: Weights) -> tuple[Weights, State]:
    step = state["step"] + 1
    decay = 1.0 - step.astype(jnp.float32) ** -0.8

    def of(path: tuple[Any, ...], w: Array, g: Array, old: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        square = g * g + TINY
        if not _matrix(path, w):
            all_of_it = decay * old[0] + (1 - decay) * square
            new: tuple[Array, ...] = (all_of_it,)
            change = g * jax.lax.rsqrt(all_of_it)
        else:
            inner = _inner(path, w)
            rows = decay * old[0] + (1 - decay) * square.mean(-1)
            columns = decay * old[1] + (1 - decay) * square.mean(inner)
            new = (rows, columns)
            share = rows / rows.mean(inner, keepdims=True)
            column = jnp.expand_dims(columns, inner)
            change = g * jax.lax.rsqrt(share)[..., None] * jax.lax.rsqrt(column)
        axes = tuple(range(int(_stacked(path)), w.ndim))
        size = jnp.sqrt((change * change).mean(axes, keepdims=True))
        return w - RATE * change / jnp.maximum(1.0, size / CLIP), new

    flat, structure = jax.tree_util.tree_flatten_with_path(weights)
    tree: Any = structure
    moments = tree.flatten_up_to(state["moments"])
    done = [of(path, w, g, old) for (path, w), g, old in zip(flat, jax.tree.leaves(gradients), moments, strict=True)]
    return (tree.unflatten([w for w, _ in done]), {"step": step, "moments": tree.unflatten([new for _, new in done])})
