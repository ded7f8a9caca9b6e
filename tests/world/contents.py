"""The contents of simulated arrays: digests of where they came from, so that the client sees any mix-up.

The contents of a logical array are one digest. The digest of a computation's output is made of the computation's key,
the digests of its inputs and the number of the output. A resharding does not change it. A shard is a box of the array.
A transfer delivers the digest of its source, and boxes. A target shard is complete only if boxes of one digest cover
it exactly.

This module shares no code with `core.model.resharding`: it computes all layouts itself, element by element if needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import product
from math import prod

from core.model.place import Place
from core.model.plan import Code, Layout
from core.model.program import ITEM_BYTES

Box = tuple[tuple[int, int], ...]  # (low, high) along each dimension


def mix(*parts: object) -> int:
    """Return a digest of these values that is the same in all processes and Python versions."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=7).digest(), "big")


SPOILT = mix("spoilt")  # the output of a gang with placeholders


def torn(*parts: object) -> int:
    """Return the digest of wrong contents. Each is different, and differs from all right answers."""
    return mix("torn", *parts)


# --- computations -----------------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def computed(key: str, inputs: tuple[int, ...], output: int) -> int:
    return mix("computed", key, inputs, output)


def outputs(code: Code, inputs: tuple[int, ...], number: int) -> list[int]:
    """Return the digests of a gang's outputs."""
    if code.key.startswith("reshard:"):
        return list(inputs)
    return [computed(code.key, inputs, output) for output in range(number)]


def exchanged(digest: int) -> int:
    return mix("exchanged", digest)


def literal(contents: bytes) -> int:
    return mix("literal", contents)


def put(client: str, name: int) -> int:
    return mix("put", client, name)


def viewed(shards: Iterable[tuple[int, int]]) -> int:
    """Of an array that consists of shards of others: the digest of each source, and which of its shards it is."""
    return mix("viewed", tuple(shards))


def size(digest: int, bound: int) -> int:
    """Return the actual size of an irregular output's first dimension."""
    return digest % bound + 1 if bound else 0


# --- places of data ---------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def boxes(layout: Layout) -> tuple[Box, ...]:
    """Return the box of each virtual device. The last shards along a dimension may be short, or empty."""
    dims = layout.sharding.dims or ((),) * len(layout.shape)
    found = []
    for at in product(*map(range, layout.mesh)):
        box = []
        for extent, axes in zip(layout.shape, dims, strict=True):
            parts, index = 1, 0
            for axis in axes:
                index = index * layout.mesh[axis] + at[axis]
                parts *= layout.mesh[axis]
            step = -(-extent // parts)
            box.append((min(extent, index * step), min(extent, (index + 1) * step)))
        found.append(tuple(box))
    return tuple(found)


def volume(box: Box) -> int:
    return prod(high - low for low, high in box)


def inside(inner: Box, outer: Box) -> bool:
    return all(a <= c and d <= b for (c, d), (a, b) in zip(inner, outer, strict=True))


def disjoint(left: Box, right: Box) -> bool:
    return any(b <= c or d <= a for (a, b), (c, d) in zip(left, right, strict=True))


def covers(parts: Sequence[Box], whole: Box) -> bool:
    """Whether these boxes cover the whole box, each element once."""
    parts = [part for part in parts if volume(part)]
    return (
        sum(map(volume, parts)) == volume(whole)
        and all(inside(part, whole) for part in parts)
        and all(disjoint(one, other) for at, one in enumerate(parts) for other in parts[:at])
    )


@lru_cache(maxsize=8192)
def devices(place: Place) -> tuple[int, ...]:
    """Return the physical devices of a place, in virtual order."""
    return tuple(place.devices())


@lru_cache(maxsize=8192)
def virtual(layout: Layout, mine: range) -> tuple[int, ...]:
    """Return the virtual devices of this layout that are on a host with these devices."""
    return tuple(index for index, device in enumerate(devices(layout.place)) if device in mine)


@lru_cache(maxsize=8192)
def anything_on(layout: Layout, mine: range) -> bool:
    """Whether a host with these devices has any elements of it."""
    return any(volume(boxes(layout)[index]) for index in virtual(layout, mine))


@lru_cache(maxsize=8192)
def shards(layout: Layout) -> dict[int, Box]:
    """Return the distinct shards, numbered row-major over the parts: the pieces of a client's put or get."""
    dims = layout.sharding.dims or ((),) * len(layout.shape)
    counts = [prod(layout.mesh[axis] for axis in axes) for axes in dims]
    steps = [-(-extent // count) for extent, count in zip(layout.shape, counts, strict=True)]
    found: dict[int, Box] = {}
    for number, at in enumerate(product(*map(range, counts))):
        found[number] = tuple(
            (min(extent, index * step), min(extent, (index + 1) * step))
            for index, step, extent in zip(at, steps, layout.shape, strict=True)
        )
    return found


@lru_cache(maxsize=8192)
def shard_on(layout: Layout, device: int) -> int:
    """Return the number of the distinct shard that is on a device of its place; -1: none is."""
    if device not in devices(layout.place):
        return -1
    box = boxes(layout)[devices(layout.place).index(device)]
    return next(number for number, each in shards(layout).items() if each == box)


@lru_cache(maxsize=8192)
def nbytes(layout: Layout) -> int:
    """Return the bytes that an array takes on each of its devices: those of the largest shard."""
    return max(map(volume, boxes(layout)), default=0) * ITEM_BYTES[layout.dtype]


# --- sparse exchange ------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def rows(digest: int, source: Layout, target: Layout) -> tuple[tuple[int, int], ...]:
    """Return (virtual source, virtual target) of each piece: each distinct shard sends rows to a few shards."""
    first: dict[Box, int] = {}
    for index, box in enumerate(boxes(source)):
        first.setdefault(box, index)
    width = target.place.size
    found: list[tuple[int, int]] = []
    for index in first.values():
        chosen = {mix(digest, index, draw) % width for draw in range(mix(digest, index) % 3)}
        found += [(index, to) for to in sorted(chosen)]
    return tuple(found)


def row_bytes(digest: int, source: int, target: int) -> int:
    return 64 * (mix(digest, source, target) % 8 + 1)


def one_of(digests: Iterable[int], *why: object) -> int:
    """Return the digest if all are the same, else a wrong one."""
    found = set(digests)
    return found.pop() if len(found) == 1 else torn(*why, *sorted(found))
