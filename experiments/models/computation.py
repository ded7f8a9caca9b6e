"""`Computation`: a part of a training step as a function over a mesh of devices, ready to be lowered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.sharding import PartitionSpec

Shapes = Any  # a tree of jax.ShapeDtypeStruct, each with its sharding

P: Any = PartitionSpec  # JAX has no types for the constructors of these two
Struct: Any = jax.ShapeDtypeStruct


class Computation(NamedTuple):
    """A function over a mesh, with its arguments' shapes and shardings, its results' shardings, and donations."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Shapes, ...]
    results: Any  # a tree of NamedSharding
    donate: tuple[int, ...] = ()

    def jitted(self) -> Any:
        return jax.jit(self.function, out_shardings=self.results, donate_argnums=self.donate)


def placed(tree: Any, shardings: Any) -> Shapes:
    """Shapes of arrays, each with its sharding."""
    return jax.tree.map(lambda a, where: Struct(a.shape, a.dtype, sharding=where), tree, shardings)
