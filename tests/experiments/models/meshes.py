"""Shardings of weights and activations over a mesh of cores: data-parallel, or model- and data-parallel.

The two-dimensional layout is GSPMD's (Xu et al. 2021). Weights are split over both axes and gathered over "data" a
layer at a time. Activations are split over both axes between layers, and gathered over "model" within a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from .layers import AXES, Array, Constrain, Weights

AnyMesh = Mesh | AbstractMesh
Layout = Mapping[str, str | None]  # logical axis -> axis of the mesh

DATA: Layout = {"batch": "data"}
MODEL: Layout = {
    "batch": "data",
    "width": "data",
    "features": "model",
    "heads": "model",
    "hidden": "model",
    "words": "model",
    "part": "model",
}

ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "tokens": ("batch", "length"),
    "residual": ("batch", "length", "part"),
    "whole": ("batch", "length", "all"),
    "heads": ("batch", "length", "heads", "head"),
    "hidden": ("batch", "length", "hidden"),
    "logits": ("batch", "length", "words"),
    "saved": ("layers", "batch", "length", "part"),
    "all": (),
}


def abstract(axes: Mapping[str, int]) -> AbstractMesh:
    """A mesh of devices that need not exist in this process."""
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def layout_of(mesh: AnyMesh) -> Layout:
    return MODEL if "model" in mesh.axis_names else DATA


def spec(layout: Layout, names: tuple[str, ...]) -> Any:
    return P(*(layout.get(name) for name in names))


def activation(mesh: AnyMesh, name: str) -> NamedSharding:
    return NamedSharding(mesh, spec(layout_of(mesh), ACTIVATIONS[name]))


def constrain_on(mesh: AnyMesh) -> Constrain:
    def constrain(x: Array, name: str) -> Array:
        held: Array = jax.lax.with_sharding_constraint(x, activation(mesh, name))  # type: ignore[no-untyped-call]
        return held

    return constrain


def weights_on(mesh: AnyMesh, weights: Weights) -> Weights:
    """A sharding for each array of weights, which may be only shapes."""
    layout = layout_of(mesh)

    def of(path: tuple[Any, ...], array: Any) -> NamedSharding:
        return NamedSharding(mesh, spec(layout, _names(path, array)))

    return dict(jax.tree_util.tree_map_with_path(of, weights))


def state_on(mesh: AnyMesh, weights: Weights) -> dict[str, Any]:
    """A sharding for each array of Adafactor's state: rows and columns are split like their matrices."""
    layout = layout_of(mesh)

    def of(path: tuple[Any, ...], array: Any) -> tuple[NamedSharding, ...]:
        names = _names(path, array)
        stacked = names[:1] if names[0] == "layers" else ()
        if len(names) - len(stacked) < 2:
            return (NamedSharding(mesh, spec(layout, names)),)
        return tuple(NamedSharding(mesh, spec(layout, n)) for n in (names[:-1], (*stacked, names[-1])))

    return {"step": NamedSharding(mesh, P()), "moments": jax.tree_util.tree_map_with_path(of, weights)}


def _names(path: tuple[Any, ...], array: Any) -> tuple[str, ...]:
    names = AXES[path[-1].key]
    stacked: int = array.ndim - len(names)
    return ("layers",) * stacked + names


# --- a part of a training step, ready to be lowered -------------------------------------------------------------------

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
