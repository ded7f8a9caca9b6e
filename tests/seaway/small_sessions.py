"""Small simulated sessions for tests."""

from __future__ import annotations

from typing import Any

import seaway as sw


def small(hosts: int = 2, devices_per_host: int = 2, islands: int = 1, **options: Any) -> sw.Session:
    """Islands of TPU v3 hosts, all alike, small enough to read their traces."""
    kind = {"name": "i", "count": islands, "kind": "tpu-v3", "hosts": hosts, "devices_per_host": devices_per_host}
    return sw.simulate({"name": "small", "island": [kind]}, progress=False, **options)
