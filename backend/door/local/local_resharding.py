"""Arrays of this process's devices, cut otherwise: pieces are cut where they lie, moved, and put together.

    recut(copy, devices) -> the shards of its target, which share no memory with its source

Nothing here waits: JAX enqueues each step. It compiles a step the first time that it has such shapes on such a device,
which takes some 10 ms; so `local_devices` cuts small arrays that are ready by numpy.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from ..protocol import Box
from ..session import ArrayCopy, ArrayType

Sizes = tuple[int, ...]


class LocalPiece(NamedTuple):
    """The part of a shard that a shard of the target has, too."""

    shard: int
    starts: Sizes
    sizes: Sizes


def recut(copy: ArrayCopy, devices: Sequence[Any]) -> list[Any]:
    shards, cut = copy.ref._arrays, dict[LocalPiece, Any]()
    made = []
    for device, (pieces, grid) in zip(devices, _plan(copy.source, copy.target), strict=True):
        for each in pieces:
            if each not in cut:
                cut[each] = _cut(shards[each.shard], np.array(each.starts, np.int64), each.sizes)
        parts = [jax.device_put(cut[each], device) for each in pieces]
        made.append(parts[0] if len(parts) == 1 else _joined(parts, grid))
    return made


@lru_cache(maxsize=1024)
def _plan(source: ArrayType, target: ArrayType) -> list[tuple[list[LocalPiece], Sizes]]:
    """For each shard of the target its pieces, and how many there are along each dimension."""
    owners: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for number, box in enumerate(source.sharding.boxes(source.shape)):
        owners.setdefault(tuple((each.start, each.stop) for each in box), []).append(number)
    found = []
    for number, box in enumerate(target.sharding.boxes(target.shape)):
        device = target.sharding.devices[number]
        pieces: dict[Sizes, LocalPiece] = {}
        for ends, shards in owners.items():
            common = _common(ends, box)
            if common is not None:
                here = [each for each in shards if source.sharding.devices[each] == device]
                shard = here[0] if here else shards[number % len(shards)]
                starts = tuple(low - start for (low, _), (start, _) in zip(common, ends, strict=True))
                sizes = tuple(high - low for low, high in common)
                pieces[tuple(low for low, _ in common)] = LocalPiece(shard, starts, sizes)
        order = sorted(pieces)
        grid = tuple(len(set(each)) for each in zip(*order, strict=True))
        found.append(([pieces[each] for each in order], grid))
    return found


def _common(ends: Sequence[tuple[int, int]], box: Box) -> list[tuple[int, int]] | None:
    """Where two parts of an array overlap. All parts of an array without elements do."""
    common = [(max(start, each.start), min(stop, each.stop)) for (start, stop), each in zip(ends, box, strict=True)]
    if all(low < high or stop == start for (low, high), (start, stop) in zip(common, ends, strict=True)):
        return common
    return None


@partial(jax.jit, static_argnums=2)
def _cut(shard: Any, starts: Any, sizes: Sizes) -> Any:
    return jax.lax.dynamic_slice(shard, list(starts), sizes)


@partial(jax.jit, static_argnums=1)
def _joined(parts: list[Any], grid: Sizes) -> Any:
    for dim, count in reversed(list(enumerate(grid))):
        if count > 1:
            parts = [jax.lax.concatenate(parts[at : at + count], dim) for at in range(0, len(parts), count)]
    return parts[0]
