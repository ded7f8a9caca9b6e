"""Clusters ready to use: the Pathways paper's set-ups A, B and C as tables (as in a TOML file), and small ones.

The paper states the number of hosts and of devices per host. It ran T5 on TPU v3, whose chips have two cores of
16 GB each. Here a core is a device, and the two cores of a chip are neighbours on the torus's second axis. We
assume that A is a whole pod, whose links wrap, and that B and C are parts of a pod, whose links do not.
"""

from __future__ import annotations

from .topology import Cluster

PRESETS: dict[str, dict[str, object]] = {
    "A": {
        "island": [
            {"name": "a", "kind": "tpu-v3", "hosts": 512, "devices_per_host": 4, "memory": "16GiB",
             "torus": [32, 64], "block": [2, 2], "wraps": [True, True]},
        ],
    },
    "B": {
        "island": [
            {"name": "b", "kind": "tpu-v3", "hosts": 64, "devices_per_host": 8, "memory": "16GiB",
             "torus": [16, 32], "block": [2, 4], "wraps": [False, False]},
        ],
    },
    "C": {
        "island": [
            {"name": "c", "count": 4, "kind": "tpu-v3", "hosts": 4, "devices_per_host": 8, "memory": "16GiB",
             "torus": [4, 8], "block": [2, 4], "wraps": [False, False]},
        ],
    },
}  # fmt: skip


def small(hosts: int = 2, devices_per_host: int = 2, islands: int = 1) -> Cluster:
    """Return a cluster of identical islands of CPU hosts, named i0, i1, ...: for tests and examples."""
    island = {"name": "i", "count": islands, "hosts": hosts, "devices_per_host": devices_per_host}
    return Cluster.from_table({"island": [island]})
