"""Clusters ready to use, as the tables that a TOML file would hold: the paper's set-ups, and small ones.

The paper gives devices a host and hosts; it ran T5 on TPU v3, whose chips have two cores of 16 GB each. A
core is a device here, and the two cores of a chip lie side by side on the torus's second axis. That A is a
whole pod, with links that wrap, and that B and C are parts of one, without, is our assumption.
"""

from __future__ import annotations

from difflib import get_close_matches

from .errors import Impossible
from .topology import Cluster

PRESETS: dict[str, dict[str, object]] = {
    "A": {
        "island": [
            {"name": "a", "kind": "tpu-v3", "hosts": 512, "per_host": 4, "memory": "16GiB",
             "torus": [32, 64], "block": [2, 2], "wraps": [True, True]},
        ],
    },
    "B": {
        "island": [
            {"name": "b", "kind": "tpu-v3", "hosts": 64, "per_host": 8, "memory": "16GiB",
             "torus": [16, 32], "block": [2, 4], "wraps": [False, False]},
        ],
    },
    "C": {
        "island": [
            {"name": "c", "count": 4, "kind": "tpu-v3", "hosts": 4, "per_host": 8, "memory": "16GiB",
             "torus": [4, 8], "block": [2, 4], "wraps": [False, False]},
        ],
    },
}  # fmt: skip


def preset(name: str) -> Cluster:
    if name not in PRESETS:
        close = get_close_matches(name, PRESETS, 1, 0.0)
        raise Impossible(f"no preset {name!r}; there is: {', '.join(PRESETS)}; nearest: {close[0]}")
    return Cluster.from_table(PRESETS[name])


def small(hosts: int = 2, per_host: int = 2, islands: int = 1) -> Cluster:
    """Alike islands of CPU hosts, named i0, i1, ...: for tests, examples and one's own machine."""
    island = {"name": "i", "count": islands, "hosts": hosts, "per_host": per_host}
    return Cluster.from_table({"island": [island]})
