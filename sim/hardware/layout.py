"""How an island of a given number of hosts lies on its torus: as near to a square or a cube as possible.

`fill` completes an island's table where it does not state its own geometry. A host is a block of chips, and the
devices of a chip are neighbours on the last axis. Which axes wrap follows from the generation: on a 2D torus those
as long as a pod's, on a 3D torus all axes of a slice that consists of whole cubes.
"""

from collections.abc import Iterator
from math import prod

from core.model import Impossible

from .chips import Chip, Generation
from .toml_tables import Table, quantity, whole

Shape = tuple[int, ...]

OVERRIDES = ("hosts", "devices_per_host", "torus", "wraps", "block", "memory", "host_memory", "host_disk", "spares",
             "kind", "ici_bandwidth", "ici_latency")  # fmt: skip
UNITS = {
    "memory": "bytes", "host_memory": "bytes", "host_disk": "bytes", "ici_bandwidth": "rate", "ici_latency": "time",
}  # fmt: skip
GEOMETRY = ("torus", "wraps", "block")


def fill(label: str, entry: Table, changed: Table, of: Generation) -> dict[str, object]:
    """An island's table as core reads it: the entry, the overrides, and what follows from its chip."""
    found: dict[str, object] = {
        "name": "i", "kind": of.chip.name, "memory": of.chip.hbm_bytes, "host_memory": of.machine.host_memory,
        "devices_per_host": of.chip.devices_per_host, **entry, **changed,
    }  # fmt: skip
    if "hosts" not in found:
        raise Impossible(f"{label} does not say how many `hosts` it has")
    for key in ("hosts", "devices_per_host"):
        found[key] = whole(label, key, found[key])
    for key, unit in UNITS.items():
        if key in found:
            found[key] = quantity(label, key, found[key], unit)
    if {"hosts", "devices_per_host", "kind", "torus"} & changed.keys():  # another size has another shape
        found = {key: value for key, value in found.items() if key not in GEOMETRY or key in changed}
    if of.chip.torus_dims:
        found |= _torus(label, found, of.chip)
    return found


def _torus(label: str, found: Table, chip: Chip) -> dict[str, object]:
    hosts, devices_per_host = (
        whole(label, "hosts", found["hosts"]),
        whole(label, "devices_per_host", found["devices_per_host"]),
    )
    share = chip.devices_per_chip
    if devices_per_host % share:
        raise Impossible(
            f"{label}: `devices_per_host` is {devices_per_host}, but {share} devices share a {chip.name} chip"
        )
    geometry = {key: found[key] for key in GEOMETRY if key in found}
    if "torus" not in found:
        block = host_block(devices_per_host // share, chip.torus_dims)
        shape = nearest_cube(hosts, block)
        geometry = {"torus": in_devices(shape, share), "block": in_devices(block, share), **geometry}
    torus = geometry["torus"]
    if isinstance(torus, list) and torus and all(type(size) is int and size > 0 for size in torus):
        if prod(torus) == hosts * devices_per_host and torus[-1] % share:
            raise Impossible(f"{label}: the last axis of `torus` is {torus[-1]}; {share} devices share a chip there")
        geometry.setdefault("wraps", list(wraps((*torus[:-1], torus[-1] // share), chip)))
    return geometry


def wraps(shape: Shape, chip: Chip) -> tuple[bool, ...]:
    """Which axes of an island of this shape, in chips, wrap round."""
    if not chip.wrap_min:
        return (False,) * len(shape)
    if chip.torus_dims == 3:
        return (all(size % chip.wrap_min == 0 for size in shape),) * len(shape)
    return tuple(size >= chip.wrap_min for size in shape)


def host_block(count: int, rank: int) -> Shape:
    """A block of `count` chips: 4 are 2x2 or 2x2x1, 8 are 4x2."""
    block = [1] * rank
    for factor in reversed(list(_primes(count))):
        block[block.index(min(block))] *= factor
    return tuple(block)


def nearest_cube(hosts: int, block: Shape) -> Shape:
    """The shape in chips with the shortest sum of its axes; among equal ones, the one whose first axes are
    shorter."""
    shapes = (
        tuple(count * size for count, size in zip(grid, block, strict=True)) for grid in _factorings(hosts, len(block))
    )
    return min(shapes, key=lambda shape: (sum(shape), shape))


def in_devices(shape: Shape, share: int) -> list[int]:
    return [*shape[:-1], shape[-1] * share]


def _factorings(number: int, parts: int) -> Iterator[Shape]:
    if parts == 1:
        yield (number,)
        return
    for first in _divisors(number):
        for rest in _factorings(number // first, parts - 1):
            yield (first, *rest)


def _divisors(number: int) -> list[int]:
    small = [at for at in range(1, int(number**0.5) + 1) if number % at == 0]
    return sorted({*small, *(number // at for at in small)})


def _primes(number: int) -> Iterator[int]:
    factor = 2
    while number > 1:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1
