"""One member of a `jax.distributed` world, as in multi-controller JAX: its arrays and its compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from seaway.tools.calibrating import AXIS


class JaxWorld:
    """Arrays are split over all devices of the world, and functions see one device's part, with the axis AXIS."""

    def __init__(self, address: str, rank: int, count: int) -> None:
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        if count > 1:
            jax.distributed.initialize(address, count, rank)
        split: Any = PartitionSpec
        self.devices = len(jax.devices())
        self._mesh, self._spec = Mesh(np.array(jax.devices()), (AXIS,)), split(AXIS)
        self._lies = NamedSharding(self._mesh, self._spec)

    def array(self, content: np.ndarray[Any, Any]) -> Any:
        import jax

        return jax.make_array_from_callback(content.shape, self._lies, lambda index: content[index])

    def compiled(self, work: Callable[[Any], Any], x: Any) -> Callable[[Any], Any]:
        import jax

        mapped = jax.shard_map(work, mesh=self._mesh, in_specs=self._spec, out_specs=self._spec)
        return jax.jit(mapped).lower(x).compile()
