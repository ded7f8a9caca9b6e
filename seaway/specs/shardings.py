"""Between JAX's words for how an array is split (PartitionSpec, NamedSharding) and core's."""

import sys
from functools import cache, lru_cache
from math import prod
from typing import Any

from core.model import Sharding

from ..errors import NotNow, nearest
from .avals import Aval
from .slices import Slice

WHOLE = Sharding()  # replicated


def is_sharding(entry: Any) -> bool:
    """A leaf of a tree of shardings. (A PartitionSpec is a tuple in some versions of JAX.)"""
    if "jax" not in sys.modules:  # then there is none yet
        return False
    from jax.sharding import PartitionSpec
    from jax.sharding import Sharding as Any_

    return isinstance(entry, PartitionSpec | Any_)


def resolve(entry: Any, home: Slice, aval: Aval, where: str) -> Sharding:
    """`entry`: None (replicated), a PartitionSpec over the slice's axes, or a NamedSharding over a mesh like its."""
    if entry is None:
        return WHOLE
    spec = getattr(entry, "spec", entry)
    if spec is not entry:
        _same_mesh(entry.mesh, home, where)
    if not is_sharding(entry):
        raise TypeError(f"{where}: {entry!r} is no sharding; use a PartitionSpec, a NamedSharding, or None")
    if len(spec) > len(aval.shape):
        raise ValueError(f"{where}: {spec} names {len(spec)} dimensions, and {aval} has {len(aval.shape)}")
    dims = tuple(_axes(part, home, where) for part in spec) + ((),) * (len(aval.shape) - len(spec))
    return checked(Sharding(dims) if any(dims) else WHOLE, home, aval, where)


def _axes(part: Any, home: Slice, where: str) -> tuple[int, ...]:
    if part is None:
        return ()
    found = []
    for name in part if isinstance(part, tuple) else (part,):
        if name not in home.axis_names:
            known = ", ".join(map(repr, home.axis_names))
            raise ValueError(
                f"{where}: no axis {name!r} in {home!r}; its axes: {known}{nearest(str(name), home.axis_names)}"
            )
        found.append(home.axis_names.index(name))
    return tuple(found)


def _same_mesh(mesh: Any, home: Slice, where: str) -> None:
    names = tuple(map(str, mesh.axis_names))
    sizes = tuple(mesh.shape[name] for name in mesh.axis_names)
    if (names, sizes) != (home.axis_names, home.shape):
        theirs = ", ".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))
        raise ValueError(f"{where}: a sharding over a mesh {theirs} does not fit {home!r}; use slice.mesh")


def checked(sharding: Sharding, home: Slice, aval: Aval, where: str) -> Sharding:
    for dimension, (axes, size) in enumerate(zip(sharding.dims, aval.shape, strict=False)):
        parts = prod(home.shape[axis] for axis in axes)
        if size % parts:
            names = ", ".join(home.axis_names[axis] for axis in axes)
            low = size - size % parts
            raise ValueError(
                f"{where}: dimension {dimension} of {aval} does not divide by {parts}, the devices along {names} of "
                f"{home!r}; the nearest sizes that do: {low} and {low + parts}"
            )
    return sharding


def along_all(home: Slice, rank: int, axis: int = 0) -> Sharding:
    """One dimension over all devices of the slice."""
    dims: list[tuple[int, ...]] = [()] * rank
    dims[axis] = tuple(range(len(home.shape)))
    return Sharding(tuple(dims))


@lru_cache(maxsize=4096)
def partition_spec(sharding: Sharding, axis_names: tuple[str, ...]) -> Any:
    from jax.sharding import PartitionSpec

    parts = [tuple(axis_names[axis] for axis in axes) for axes in sharding.dims]
    words: Any = PartitionSpec
    return words(*[None if not names else names[0] if len(names) == 1 else names for names in parts])


def named(sharding: Sharding, home: Slice) -> Any:
    """As a NamedSharding."""
    from jax.sharding import NamedSharding

    return NamedSharding(home.mesh, partition_spec(sharding, home.axis_names))


# --- that know their slice: two slices of one shape have equal meshes, so a mesh does not tell which is meant -------


def sharding_over(home: Slice, spec: Any) -> Any:
    """The NamedSharding of a slice. It says what to use where JAX cannot put an array on its devices."""
    made = _kind()(home.mesh, spec)
    made.slice = home
    return made


def slice_of_sharding(sharding: Any) -> Slice | None:
    """The slice whose `sharding()` made it; None for anything else."""
    if "jax" not in sys.modules or not isinstance(sharding, _kind()):
        return None
    home: Slice = sharding.slice
    return home


@cache
def _kind() -> Any:
    """The class, made when JAX is there."""
    from jax.sharding import NamedSharding

    class SliceSharding(NamedSharding):
        """Equal to the NamedSharding that it is, and `slice` is the slice that it was made by."""

        slice: Slice

        @property
        def is_fully_addressable(self) -> bool:
            raise NotNow(
                f"this process has none of the devices of {self.slice!r}, so JAX cannot place arrays there "
                f"(jax.device_put and the like): use sw.put(x, sharding=slice.sharding(...))"
            )

    return SliceSharding
