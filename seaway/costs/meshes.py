"""Turns meshes and shardings as a user writes them into JAX's, on an abstract mesh without devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import CostError


def jax_() -> Any:
    """JAX, imported late since that takes a second, and untyped since its types differ between versions."""
    import jax

    return jax


def abstract_mesh(mesh: object, where: object) -> Any:
    """An abstract mesh from a dictionary of axes or a JAX mesh. If `mesh` is None, from a sharding found in `where`."""
    sharding = jax_().sharding
    if mesh is None:
        mesh = _mesh_in(where)
    if isinstance(mesh, sharding.Mesh):
        return mesh.abstract_mesh
    if isinstance(mesh, sharding.AbstractMesh):
        return mesh
    if isinstance(mesh, Mapping) and mesh and all(_is_size(size) for size in mesh.values()):
        names = tuple(str(axis) for axis in mesh)
        types = (sharding.AxisType.Auto,) * len(names)  # its default differs between versions of JAX
        return sharding.AbstractMesh(tuple(mesh.values()), names, axis_types=types)
    raise CostError(
        f"mesh cannot be {mesh!r}; write each axis and its size, as in mesh={{'data': 8, 'model': 4}}"
    )


def _is_size(size: object) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size > 0


def _mesh_in(where: object) -> object:
    jax = jax_()
    for leaf in jax.tree.leaves(where):
        one = leaf if isinstance(leaf, jax.sharding.Sharding) else getattr(leaf, "sharding", None)
        if isinstance(one, jax.sharding.NamedSharding) and one.mesh.size > 1:
            return one.mesh
    return {"all": 1}


class _Boxed:
    """Makes a spec a leaf of a tree, since JAX may treat None and PartitionSpec as trees."""

    def __init__(self, spec: object) -> None:
        self.spec = spec


def shardings(specs: object, tree: object, mesh: Any, what: str) -> list[Any]:
    """A NamedSharding or None for each leaf of `tree`. A spec in `specs` may stand for a whole subtree."""
    jax = jax_()

    def is_spec(one: object) -> bool:
        return one is None or isinstance(one, jax.sharding.PartitionSpec | jax.sharding.Sharding)

    boxed = jax.tree.map(_Boxed, specs, is_leaf=is_spec)
    try:
        found = jax.tree.leaves(jax.tree.broadcast(boxed, tree))
    except ValueError as error:
        raise CostError(f"{what} does not fit the tree that it is for: {error}") from None
    return [named(box.spec, mesh, what) for box in found]


def named(spec: object, mesh: Any, what: str) -> Any:
    """The sharding on `mesh` for a spec, or for a sharding on another mesh with these axes."""
    sharding = jax_().sharding
    if spec is None:
        return None
    if isinstance(spec, sharding.NamedSharding):
        spec = spec.spec
    if not isinstance(spec, sharding.PartitionSpec):
        raise CostError(f"{what} holds {spec!r}; write PartitionSpecs, and the mesh as mesh={{'axis': size}}")
    for part in spec:
        for axis in part if isinstance(part, tuple) else (part,):
            if isinstance(axis, str) and axis not in mesh.axis_names:
                raise CostError(f"{what} names the axis {axis!r}; the mesh has {', '.join(mesh.axis_names)}")
    return sharding.NamedSharding(mesh, spec)


def described(leaf: Any, sharding: Any, mesh: Any) -> Any:
    """An argument's shape, type and sharding: the given sharding, or else its own, or else replicated."""
    jax = jax_()
    own = getattr(leaf, "sharding", None)
    if sharding is None and isinstance(own, jax.sharding.NamedSharding):
        sharding = named(own, mesh, "an argument")
    if sharding is None:
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        leaf = jax.eval_shape(lambda one: one, leaf)
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
