"""Which arrays of shards can be core's views, so that no contents move: of which buffers they have which shards.

    sources_of(type, shards) -> [SharedShard]     None: their contents have to be put together anew

A view shares shards as they lie on their devices. So they have to be where the array has them, and to have the shape
there that core knows: a single number is a row of one where core's array is a stack. Neighbours: `cluster_arrays`,
`cluster_layouts`; `cluster_devices` makes the views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..session import ArrayType, StatusError
from .cluster_arrays import ClusterArray, Ref, ShardOfArray, Token
from .cluster_layouts import Box, boxes_of, value_of


class SharedShard(NamedTuple):
    """A shard of an array. `number`: core's, equal for devices that have the same."""

    array: ClusterArray
    number: int
    box: Box

    @property
    def contents(self) -> np.ndarray[Any, Any]:
        """If the array is in this process."""
        assert self.array.here is not None
        return self.array.here[self.box]


def sources_of(array_type: ArrayType, shards: Sequence[Ref]) -> list[SharedShard] | None:
    try:
        value_of(array_type, 0)
    except StatusError:  # the cluster does not know its type
        return None
    found = []
    devices = array_type.sharding.devices
    for device, shard, box in zip(devices, shards, boxes_of(array_type), strict=True):
        source = _source(shard, device)
        if source is None or _size(source.box) != _size(box):
            return None
        found.append(source)
    return found


def _source(shard: Ref, device: int) -> SharedShard | None:
    """None: it is not on this device."""
    if isinstance(shard, ShardOfArray):
        parts = shard.parts
        if parts.array.type.sharding.devices[shard.at] != device:
            return None
        if shard.alone is None:
            return SharedShard(parts.array, parts.number(shard.at), parts.boxes[shard.at])
        shard = shard.alone
    if isinstance(shard, Token) or shard.type.sharding.devices != (device,):
        return None
    return SharedShard(shard, 0, boxes_of(shard.type)[0])


def _size(box: Box) -> tuple[int, ...]:
    return tuple([each.stop - each.start for each in box])
