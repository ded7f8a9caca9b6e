"""A process that prints what JAX's devices are, as JSON, and ends. Neighbour: `backend.devices.accelerators`."""

from __future__ import annotations

import json

from .world import WorldMembership

if __name__ == "__main__":
    about = WorldMembership.about(0)
    print(json.dumps([about.platform, about.kind, about.devices, about.memory]))
