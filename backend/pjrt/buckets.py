"""Irregular outputs keep only a bucket of rows on devices, instead of their bound.

Code is compiled for the bound, so an irregular output has unused rows behind its valid ones. When the count is known,
each of this host's shards is cut to the next power of two; a reader gets it padded to the bound again. Each step
concerns one device, so no other host takes part. Neighbour: `store`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


class Packed:
    """Shards of an array, cut to a bucket of rows."""

    __slots__ = ("_bound", "_parts", "_shape", "_sharding", "share")

    def __init__(self, array: Any, bucket: int) -> None:
        self._shape, self._sharding = array.shape, array.sharding
        shards = [part.data for part in array.addressable_shards]
        self._bound = shards[0].shape[0]
        self._parts: Sequence[Any] = [_cut(part, bucket) for part in shards]
        self.share = bucket / self._bound  # the part of the whole array's memory that it takes

    def whole(self) -> Any:
        parts = [_padded(part, self._bound) for part in self._parts]
        return jax.make_array_from_single_device_arrays(self._shape, self._sharding, parts)


def packed(array: Any, rows: int) -> Packed | None:
    """The array cut to a bucket; `rows`: valid rows of its largest shard. None: that would save too little."""
    shards = array.addressable_shards
    if not array.ndim or not shards or jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return None
    bucket = 1 << max(0, rows - 1).bit_length()
    return Packed(array, bucket) if 2 * bucket <= shards[0].data.shape[0] else None


@partial(jax.jit, static_argnums=1)
def _cut(part: Any, rows: int) -> Any:
    return part[:rows]


@partial(jax.jit, static_argnums=1)
def _padded(part: Any, rows: int) -> Any:
    return jnp.pad(part, ((0, rows - part.shape[0]), *((0, 0),) * (part.ndim - 1)))
