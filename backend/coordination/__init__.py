"""Members of an island's collective world meet here before JAX forms the world.

rendezvous  members arrive, and learn when all have arrived
service     the process in which they meet, `python -m backend.coordination.service`; one for each epoch
"""

from .rendezvous import Overtaken, RendezvousMember, world_name
