"""Slices: what a user asks of the cluster's devices. A declaration; each session binds it to devices of its own."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, Literal, overload

import msgspec
from msgspec.structs import replace

from core.model import SliceSpec

from ..units import Time, duration

AXES = ("x", "y", "z")
Expected = Time | Mapping[str, Time]
Mesh = Mapping[str, int] | Sequence[int] | Any


class Slice:
    """Virtual devices as a mesh with named axes. `sw.slice` makes one. Slices are compared by identity.

    >>> workers = sw.slice(mesh=(4, 2))
    >>> workers.devices, workers.shape, workers.axis_names
    (8, (4, 2), ('x', 'y'))
    >>> rows = workers.sharding("x", None)  # for in_shardings=, sw.put, ...
    """

    def __init__(self, spec: SliceSpec, axis_names: tuple[str, ...]) -> None:
        self._spec = spec
        self.axis_names = axis_names

    @property
    def devices(self) -> int:
        return self._spec.devices

    @property
    def shape(self) -> tuple[int, ...]:
        return self._spec.mesh_shape

    @property
    def name(self) -> str:
        """As given; "" for one that each session names by itself."""
        return self._spec.name

    @cached_property
    def mesh(self) -> Any:
        """A `jax.sharding.AbstractMesh`: for NamedSharding, before there are devices."""
        from jax.sharding import AbstractMesh, AxisType

        return AbstractMesh(self.shape, self.axis_names, axis_types=(AxisType.Auto,) * len(self.shape))

    def sharding(self, *spec: Any) -> Any:
        """`slice.sharding("x", None)`: the NamedSharding over its mesh with this PartitionSpec. It knows its slice:
        `sw.put(x, sharding=slice.sharding("x"))`."""
        from jax.sharding import PartitionSpec

        from .shardings import sharding_over

        named = [axis for entry in spec for axis in (entry if isinstance(entry, tuple) else (entry,)) if axis]
        for axis in named:
            if axis not in self.axis_names:
                raise ValueError(f"{self!r} has no axis {axis!r}; its axes: {', '.join(self.axis_names)}")
        words: Any = PartitionSpec
        return sharding_over(self, words(*spec))

    def spec(self, name: str) -> SliceSpec:
        """For the session that calls it so."""
        return replace(self._spec, name=name)

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in zip(self.axis_names, self.shape, strict=True))
        spec = self._spec
        rest = [f"{key}={getattr(spec, key)!r}" for key in ("name", "kind", "island") if getattr(spec, key)]
        rest += [part for part, on in (("spread", spec.layout == "spread"), ("exclusive", spec.exclusive)) if on]
        return f"Slice({'; '.join([axes, *rest])})"


class ElasticSlice:
    """Virtual devices, as many as can be had of some sizes. `sw.slice(devices=(4, 16))` makes one, and
    `session.resizes(slice)` tells of the slice that it is.

    >>> sw.slice(devices=(4, 16)).sizes, sw.slice(devices=(4, 8, 16)).sizes
    ((4, 8, 12, 16), (4, 8, 16))
    """

    def __init__(self, spec: SliceSpec, sizes: tuple[int, ...]) -> None:
        self._spec = spec
        self.sizes = sizes

    @property
    def name(self) -> str:
        """As given; "" for one that each session names by itself."""
        return self._spec.name

    def spec(self, name: str) -> SliceSpec:
        """Of any of its sizes, for the session that calls it so."""
        return replace(self._spec, name=name)

    def __repr__(self) -> str:
        return f"ElasticSlice({self.name!r}, sizes {', '.join(map(str, self.sizes))})"


@overload
def slice(  # noqa: A001
    devices: tuple[int, ...],
    *,
    kind: str = "",
    island: str = "",
    name: str = "",
    layout: Literal["packed", "spread"] = "packed",
    exclusive: bool = False,
    expected: Expected = 0,
    deadline: Time = 0,
) -> ElasticSlice: ...
@overload
def slice(  # noqa: A001
    devices: int | None = None,
    *,
    mesh: Mesh | None = None,
    kind: str = "",
    island: str = "",
    name: str = "",
    layout: Literal["packed", "spread"] = "packed",
    exclusive: bool = False,
    expected: Expected = 0,
    deadline: Time = 0,
) -> Slice: ...
def slice(  # noqa: A001 - the public name, as the paper's users say it
    devices: int | tuple[int, ...] | None = None,
    *,
    mesh: Mesh | None = None,
    kind: str = "",
    island: str = "",
    name: str = "",
    layout: Literal["packed", "spread"] = "packed",
    exclusive: bool = False,
    expected: Expected = 0,
    deadline: Time = 0,
) -> Slice | ElasticSlice:
    """Ask for devices: a number of them, or a mesh. A slice is a declaration; each session gives it devices of its own.

    devices: how many; (4, 16) for as many as can be had, 4, 8, 12 or 16, and (4, 8, 16) for one of these sizes: see
    `session.resizes`. mesh: devices along each axis, as {"data": 4, "model": 2}, or as (4, 2) with axes named x, y,
    z, or as a jax Mesh or AbstractMesh.
    kind: of device, such as "tpu-v3". island: the name of one, such as "i0". Without these, any will do.
    name: shown in traces and errors. Two slices with the same name must be alike, and are the same slice.
    layout: "packed" (devices side by side) or "spread" (over hosts). exclusive: no other slice uses these devices; it
    waits until they are free. Policies that place slices may know two things more. expected: for how long it needs its
    devices, as "2h", or by their kind, as {"tpu-v3": "2h", "tpu-v4": "45min"}. deadline: after which time that should
    be over, counted from its first use.

        >>> grid = sw.slice(mesh={"data": 4, "model": 2}, name="grid")
        >>> grid.devices, grid.axis_names
        (8, ('data', 'model'))
    """
    for key, given, like in (("kind", kind, "tpu-v3"), ("island", island, "i0"), ("name", name, "workers")):
        if not isinstance(given, str):
            raise TypeError(f"sw.slice({key}={given!r}): {key} is a name, such as {like!r}")
    if not isinstance(exclusive, bool):
        raise TypeError(f"sw.slice(exclusive={exclusive!r}): True or False")
    lasts = by_kind("sw.slice(expected)", expected) or msgspec.UNSET
    due = duration(deadline, "sw.slice(deadline)") or msgspec.UNSET
    if isinstance(devices, tuple):
        if mesh is not None:
            raise ValueError(
                f"sw.slice(devices={devices}, mesh={mesh!r}): a slice of several sizes has one axis: no mesh"
            )
        elastic = SliceSpec(name, 1, (), kind, island, layout, exclusive, expected=lasts, due=due)
        return ElasticSlice(elastic, _sizes(devices))
    sizes, names = _axes(mesh, devices)
    count = prod(sizes) if devices is None else devices
    if not whole(count):
        raise ValueError(f"sw.slice(devices={count!r}): a slice has a whole number of devices, at least 1")
    if prod(sizes) != count:
        raise ValueError(
            f"sw.slice(devices={count}, mesh={mesh!r}): that mesh has {prod(sizes)} devices; leave `devices` out"
        )
    if layout not in ("packed", "spread"):
        raise ValueError(f"sw.slice(layout={layout!r}): 'packed' (side by side) or 'spread' (over hosts)")
    axes = sizes if mesh is not None else ()
    return Slice(SliceSpec(name, count, axes, kind, island, layout, exclusive, expected=lasts, due=due), names)


def by_kind(what: str, given: Expected) -> tuple[tuple[str, int], ...]:
    """Nanoseconds by kind of device; "": by any other. Nothing is said by 0."""
    table = given if isinstance(given, Mapping) else {"": given} if given else {}
    return tuple((kind, duration(time, what)) for kind, time in table.items())


def elastic_of(sizes: tuple[int, ...], **options: Any) -> ElasticSlice:
    """Of just these sizes, be they two."""
    return ElasticSlice(slice(1, **options)._spec, sizes)


def _sizes(devices: tuple[int, ...]) -> tuple[int, ...]:
    """Two are the ends of a range, in steps of the smaller one."""
    if len(devices) < 2 or not all(map(whole, devices)) or sorted(set(devices)) != list(devices):
        raise ValueError(
            f"sw.slice(devices={devices}): whole numbers, at least 1, each larger than the one before, as (4, 16)"
        )
    least, most = devices[0], devices[-1]
    return devices if len(devices) > 2 else tuple(dict.fromkeys([*range(least, most + 1, least), most]))


def _axes(mesh: Mesh | None, devices: int | None) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if mesh is None:
        if devices is None:
            raise ValueError("sw.slice() needs `devices`, a number, or `mesh`, like {'data': 4, 'model': 2}")
        return (devices,), AXES[:1]
    if isinstance(mesh, Mapping):
        names, sizes = tuple(map(str, mesh)), tuple(mesh.values())
    elif hasattr(mesh, "axis_names"):
        made: Any = mesh
        names = tuple(map(str, made.axis_names))
        sizes = tuple(made.shape[name] for name in made.axis_names)
    elif not isinstance(mesh, Iterable):
        raise TypeError(
            f"sw.slice(mesh={mesh!r}): devices along each axis, like {{'data': 4, 'model': 2}} or (4, 2); "
            f"for a number of devices, sw.slice(devices=8)"
        )
    else:
        sizes = tuple(mesh)
        names = AXES[: len(sizes)] if len(sizes) <= len(AXES) else tuple(f"axis{i}" for i in range(len(sizes)))
    if not sizes or not all(map(whole, sizes)):
        raise ValueError(f"sw.slice(mesh={mesh!r}): each axis has a whole number of devices, at least 1")
    return sizes, names


def whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def as_slice(devices: Slice | int | None, who: str) -> Slice:
    if isinstance(devices, Slice):
        return devices
    if isinstance(devices, int) and not isinstance(devices, bool):
        return slice(devices)
    if isinstance(devices, ElasticSlice):
        raise TypeError(f"{who} needs one slice, and {devices!r} may be any: use those of `session.resizes(slice)`")
    raise TypeError(f"{who} needs `devices`: sw.slice(devices=8), or a number of them; not {devices!r}")
