"""Irregular computations: what they make is padded to a bound, and a count says how much of it is meant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..graph import Evaluate
from ..specs import Aval, avals, trees


def counted(
    name: str, outputs: Sequence[Aval], tree: trees.Treedef, evaluate: Evaluate, max_shape: Any
) -> tuple[list[Aval], trees.Treedef, Evaluate]:
    """For a function that returns (arrays, count): the arrays, bounded by `max_shape`, cut to their count."""
    pair = tree.unflatten(outputs)
    if not (isinstance(pair, tuple) and len(pair) == 2) or not _is_count(pair[1]):
        raise TypeError(
            f"sw.jit({name}, irregular=True) returns (arrays, count): arrays padded along their first dimension, and "
            f"the number of rows that are meant, an integer scalar; it returned {pair!r}"
        )
    arrays, arrays_tree = trees.flatten(pair[0])
    bounds = _bounds(name, arrays, arrays_tree, max_shape)

    def cut(contents: list[Any]) -> list[Any]:
        *made, count = evaluate(contents)
        rows = int(np.asarray(count))
        return [_fit(np.asarray(each)[:rows], bound, name) for each, bound in zip(made, bounds, strict=True)]

    return bounds, arrays_tree, cut


def padded(function: Callable[..., Any], bounds: Sequence[Aval]) -> Callable[..., Any]:
    """For devices, whose arrays have one size: the arrays as large as their bounds, and behind them the count."""

    def fitted(*leaves: Any) -> tuple[Any, ...]:
        import jax.numpy as jnp

        arrays, count = function(*leaves)
        made = [_of_length(each, bound) for each, bound in zip(trees.leaves(arrays), bounds, strict=True)]
        return *made, jnp.asarray(count, jnp.int32)

    return fitted


def _of_length(array: Any, bound: Aval) -> Any:
    import jax.numpy as jnp

    more = bound.shape[0] - array.shape[0]
    if more <= 0:
        return array[: bound.shape[0]]
    return jnp.pad(array, ((0, more), *((0, 0) for _ in array.shape[1:])))


def _is_count(value: Any) -> bool:
    return isinstance(value, Aval) and not value.shape and "int" in value.dtype


def _bounds(name: str, arrays: list[Aval], tree: trees.Treedef, max_shape: Any) -> list[Aval]:
    if any(not array.shape for array in arrays):
        raise TypeError(
            f"sw.jit({name}, irregular=True) returns a scalar among its arrays; rows are counted, so give it one"
        )
    if max_shape is None:
        return arrays
    wanted = [max_shape] * len(arrays) if _is_shape(max_shape) else _flat_shapes(max_shape, tree)
    found = []
    for array, shape in zip(arrays, wanted, strict=True):
        if len(shape) != len(array.shape) or tuple(shape[1:]) != array.shape[1:]:
            raise ValueError(
                f"sw.jit({name}, max_shape={max_shape}): it makes arrays of {array.shape}, and only the first "
                f"dimension may differ"
            )
        found.append(avals.aval(shape, array.dtype))
    return found


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(size, int) for size in value)


def _flat_shapes(shapes: Any, tree: trees.Treedef) -> list[Any]:
    import jax

    found = jax.tree_util.tree_leaves(shapes, is_leaf=_is_shape)
    if len(found) != tree.num_leaves:
        raise ValueError(f"max_shape has {len(found)} shapes for {tree.num_leaves} arrays")
    return found


def _fit(rows: Any, bound: Aval, name: str) -> Any:
    if len(rows) > bound.shape[0]:
        raise ValueError(f"sw.jit {name!r} made {len(rows)} rows, and max_shape bounds them at {bound.shape[0]}")
    return rows
