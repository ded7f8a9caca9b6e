"""The NamedSharding of a slice. It knows the slice, and says what to use where JAX cannot put an array on its devices.

Two slices of one shape have the same abstract mesh, so a mesh does not tell which slice is meant; this sharding does.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import NotNow

if TYPE_CHECKING:
    from .slices import Slice


def sharding_over(home: Slice, spec: Any) -> Any:
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
