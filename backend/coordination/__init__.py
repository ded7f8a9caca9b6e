"""Members of an island's collective world meet here before JAX forms the world.

meeting   members arrive, and learn when all have arrived
service   the process in which they meet, `python -m backend.coordination.service`; one for each epoch
"""

from __future__ import annotations

from .meeting import Arrival, Overtaken, world_name

__all__ = [
    "Arrival",
    "Overtaken",
    "world_name",
]
