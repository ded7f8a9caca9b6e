"""What accelerators this machine has, by JAX, asked in a process of its own: a process that asks JAX holds them for as
long as it lives. A session on this machine admits programs by their memory before its agent has started.

Neighbour: `seaway.sessions`, which asks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from .interface import DeviceAbout

REPORT = "import json; from backend.pjrt import WorldMembership; print(json.dumps(WorldMembership.about(0)))"
PATIENCE_S = 60.0


def accelerators_here(platform: str) -> DeviceAbout | None:
    """The "cuda" or "tpu" devices of this machine; None if JAX finds none. Why it finds none, an agent says."""
    environment = os.environ | {"JAX_PLATFORMS": platform}
    try:
        done = subprocess.run(
            [sys.executable, "-c", REPORT], env=environment, capture_output=True, timeout=PATIENCE_S, check=True
        )
        return DeviceAbout(*json.loads(done.stdout.splitlines()[-1]))
    except (subprocess.SubprocessError, ValueError, IndexError):
        return None
