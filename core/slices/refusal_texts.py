"""Words the error for a slice that cannot fit: why it cannot, and the nearest slice that would fit."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import islice, permutations
from math import prod

import msgspec

from ..model import Cluster, Impossible, Island, Shape, SliceSpec, dims, orientations
from .placing import fits

MESH_AXES = 8  # the most axes that a mesh may have
SHOWN = 3  # entries of a list that are shown; the others are only counted


def refuse(cluster: Cluster, spec: SliceSpec) -> None:
    """Raise Impossible, unless the slice would fit if all hosts were up and there were no other slices."""
    if sound(spec) and any(fits(island, spec) for island in cluster.islands):
        return
    there = some([island.describe() for island in cluster.islands], "; ")
    near = nearest(cluster, spec)
    raise Impossible(f"there is {there}. {asked(spec)}. The nearest that would fit: {wish(near)}")


def sound(spec: SliceSpec) -> bool:
    """Whether the slice's numbers are consistent with each other."""
    axes = spec.mesh
    return spec.devices >= 1 and (
        not axes or (len(axes) <= MESH_AXES and min(axes) >= 1 and prod(axes) == spec.devices)
    )


def asked(spec: SliceSpec) -> str:
    axes = spec.mesh
    text = f"Slice {spec.name!r} asks for {wish(spec)}"
    if len(axes) > MESH_AXES:
        return f"{text}; a mesh has at most {MESH_AXES} axes"
    if axes and min(axes) < 1:
        return f"{text}; an axis has at least one device"
    if axes and prod(axes) != spec.devices:
        return f"{text}; but a mesh {dims(axes)} has {prod(axes)}"
    return text


def wish(spec: SliceSpec) -> str:
    """Return the slice as people read it: `8 devices as a mesh 2x4, kind 'v3', on island 'a', spread, exclusive`."""
    if spec.of:
        which = some([str(pick) for pick in spec.picks])
        mesh = f" as a mesh {dims(spec.mesh)}" if spec.mesh else ""
        return f"devices {which} of slice {spec.of!r}{mesh}"
    parts = [
        f"{spec.devices} device{'s' if spec.devices != 1 else ''}",
        f" as a mesh {dims(spec.mesh)}" if spec.mesh else "",
        f", kind {spec.kind!r}" if spec.kind else "",
        f", on island {spec.island!r}" if spec.island else "",
        ", spread" if spec.layout == "spread" else "",
        ", exclusive" if spec.exclusive else "",
        ", failing while hosts are absent" if spec.absent == "fail" else "",
    ]
    return "".join(parts)


def some(things: Sequence[str], between: str = ", ") -> str:
    rest = len(things) - SHOWN
    return between.join(things[:SHOWN]) + (f"{between}and {rest} more" if rest > 0 else "")


# --- the nearest that would fit -----------------------------------------------------------------------------


def nearest(cluster: Cluster, spec: SliceSpec) -> SliceSpec:
    """Return a slice that fits here and is close to the one asked for.

    It tries, in this order: another island and kind, a mesh of as many devices, a smaller mesh, devices without mesh.
    """
    spec = _somewhere(cluster, spec)
    replace = msgspec.structs.replace
    islands = [i for i in cluster.islands if spec.island in ("", i.name) and spec.kind in ("", i.kind)]
    room = max(island.regular * island.devices_per_host for island in islands)
    meshes = _meshes(islands, spec, room) if spec.mesh else iter(())
    for mesh in islice(meshes, 1000):
        found = replace(spec, devices=prod(mesh), mesh=mesh)
        if any(fits(island, found) for island in islands):
            return found
    return replace(spec, devices=min(max(spec.devices, 1), room), mesh=())


def _somewhere(cluster: Cluster, spec: SliceSpec) -> SliceSpec:
    """Return the slice with an island and a kind that exist together.

    A misspelt name becomes the nearest one. If the island has no devices of the kind, the kind is kept.
    """
    names = [island.name for island in cluster.islands]
    kinds = [island.kind for island in cluster.islands]
    name = _close(spec.island, names)
    kind = _close(spec.kind, kinds)
    if (name or kind) and not any(name in ("", i.name) and kind in ("", i.kind) for i in cluster.islands):
        name = ""
    return msgspec.structs.replace(spec, island=name, kind=kind)


def _close(word: str, known: list[str]) -> str:
    """Return the word if it is known, else the nearest known word, else ""."""
    if not word or word in known:
        return word
    return next(iter(get_close_matches(word, known, 1)), "")


def _meshes(islands: Sequence[Island], spec: SliceSpec, room: int) -> Iterator[Shape]:
    """Yield meshes to try: with as many devices and axes, the nearest first; then the mesh cut down to a torus."""
    mesh = tuple(max(1, extent) for extent in spec.mesh[:MESH_AXES])
    if mesh == spec.mesh and prod(mesh) <= room:
        yield mesh
    if len(mesh) <= 3:
        sizes = {spec.devices, prod(mesh)}
        for size in sorted((size for size in sizes if 1 <= size <= room), key=lambda size: size != spec.devices):
            possible = [other for other in _factors(size, len(mesh)) if _has_shape(islands, other)]
            yield from sorted(possible, key=lambda other: (_distance(other, mesh), other))
    cut = {other: None for island in islands for other in _cut_down(mesh, island.torus)}
    yield from sorted(cut, key=lambda other: (-prod(other), other))


def _has_shape(islands: Iterable[Island], mesh: Shape) -> bool:
    return any(not island.torus or orientations(mesh, island.torus) for island in islands)


def _distance(mesh: Shape, other: Shape) -> int:
    return sum(abs(a - b) for a, b in zip(mesh, other, strict=True))


def _factors(size: int, count: int) -> Iterator[Shape]:
    if count == 1:
        yield (size,)
        return
    for first in range(1, size + 1):
        if size % first == 0:
            for rest in _factors(size // first, count - 1):
                yield (first, *rest)


def _cut_down(mesh: Shape, torus: Shape) -> Iterator[Shape]:
    if len(torus) >= len(mesh):
        for sizes in permutations(torus, len(mesh)):
            yield tuple(min(extent, size) for extent, size in zip(mesh, sizes, strict=True))
