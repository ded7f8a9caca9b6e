"""Where the members of an island's collective world meet, before JAX is told of it.

meeting   members come, and hear when all are there
service   the process in which they meet, `python -m backend.coordination.service`; one for each epoch
"""

from __future__ import annotations

from .meeting import Arrival, Overtaken, world_name

__all__ = [
    "Arrival",
    "Overtaken",
    "world_name",
]
