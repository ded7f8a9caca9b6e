"""What simulated arrays contain: not numbers but where they came from, so that any mix-up shows at the
client.

The contents of a logical array are one digest. A computation's output digest is made of its key, its
inputs' digests and the output's number; a resharding changes nothing. A shard is a box of the array; what a
transfer delivers is the digest of the source and a box, and a target shard is whole only if boxes of one
digest cover it exactly.

Shares no code with `core.model.resharding`: what lies where is worked out here a second time, element-wise if
need be.
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
    """A digest of these: stable between processes and Python versions."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=7).digest(), "big")


SPOILT = mix("spoilt")  # what a placeholder computes


def torn(*parts: object) -> int:
    """Contents that are not of one piece: no two of them are alike, and no right answer is ever one."""
    return mix("torn", *parts)


# --- what computations do -------------------------------------------------------------------------------


@lru_cache(maxsize=65536)
def computed(key: str, inputs: tuple[int, ...], output: int) -> int:
    return mix("computed", key, inputs, output)


def outputs(code: Code, inputs: tuple[int, ...], number: int) -> list[int]:
    """The digests of a gang's outputs."""
    if code.key.startswith("reshard:"):
        return [inputs[0]]
    if not code.parts:
        return [computed(code.key, inputs, output) for output in range(number)]
    values = list(inputs)
    for part in code.parts:
        taken = tuple(values[value] for value in part.inputs)
        values += [computed(part.key, taken, output) for output in range(part.outputs)]
    return [values[value] for value in code.results]


def exchanged(digest: int) -> int:
    return mix("exchanged", digest)


def literal(contents: bytes) -> int:
    return mix("literal", contents)


def put(client: str, name: int) -> int:
    return mix("put", client, name)


def size(digest: int, bound: int) -> int:
    """The leading size that an irregular output turns out to have."""
    return digest % bound + 1 if bound else 0


# --- what lies where ------------------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def boxes(layout: Layout) -> tuple[Box, ...]:
    """The box of each virtual device. The last shards along a dimension may be short, or empty."""
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
    """These boxes are the whole, each element once."""
    parts = [part for part in parts if volume(part)]
    return (
        sum(map(volume, parts)) == volume(whole)
        and all(inside(part, whole) for part in parts)
        and all(disjoint(one, other) for at, one in enumerate(parts) for other in parts[:at])
    )


@lru_cache(maxsize=8192)
def devices(place: Place) -> tuple[int, ...]:
    """Physical devices, in virtual order."""
    return tuple(place.devices())


@lru_cache(maxsize=8192)
def virtual(layout: Layout, mine: range) -> tuple[int, ...]:
    """Virtual devices of this layout that are on a host with these devices."""
    return tuple(index for index, device in enumerate(devices(layout.place)) if device in mine)


@lru_cache(maxsize=8192)
def anything_on(layout: Layout, mine: range) -> bool:
    """Whether a host with these devices has any elements of it."""
    return any(volume(boxes(layout)[index]) for index in virtual(layout, mine))


@lru_cache(maxsize=8192)
def shards(layout: Layout) -> dict[int, Box]:
    """The distinct shards, numbered row-major over the parts: what a client puts or gets piece by piece."""
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
def nbytes(layout: Layout) -> int:
    """What it takes on each of its devices: the largest shard."""
    return max(map(volume, boxes(layout)), default=0) * ITEM_BYTES[layout.dtype]


# --- sparse exchange ------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def rows(digest: int, source: Layout, target: Layout) -> tuple[tuple[int, int], ...]:
    """(virtual source, virtual target) of each piece: to which few shards the data of each distinct shard
    go."""
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
    """The digest, if all are the same; else something that is nobody's."""
    found = set(digests)
    return found.pop() if len(found) == 1 else torn(*why, *sorted(found))
