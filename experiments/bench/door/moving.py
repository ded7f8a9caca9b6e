"""Arrays from one half of the devices to the other, cut otherwise, as weights go from trainer to rollout; and a step of
a small model that is trained on all devices. What `door` measures of them.

Neighbours: `programs`, which has the other figures; `stages`, MPMD programs on both halves.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

ARRAYS, SMALL = 50, (256, 256)  # what pathwaysutils' reshard was measured with: 256 KiB each
LAYERS, WIDE, ROWS = 4, 256, 64
TURNS = 5
SYNC = "weight sync"


def moving(jax: Any, mib: int) -> dict[str, float]:
    """Milliseconds for many small arrays, MB a second for a few large ones. By `reshard`: one request for all."""
    devices = np.array(jax.devices())
    half = len(devices) // 2
    cuts = ("x", None), (None, "x")
    places = [
        jax.sharding.NamedSharding(jax.sharding.Mesh(some, ("x",)), jax.sharding.PartitionSpec(*cut))
        for some, cut in zip((devices[:half], devices[half : 2 * half]), cuts, strict=True)
    ]
    rows = mib << 18 >> 12
    many = [jax.device_put(np.full(SMALL, at, np.float32), places[0]) for at in range(ARRAYS)]
    large = [jax.device_put(np.ones((rows // 4, 4096), np.float32), places[0]) for _ in range(4)]

    def put(given: Any) -> Any:
        return jax.device_put(given, places[1])

    def reshard(given: Any) -> Any:
        pathways: Any = importlib.import_module("jaxlib._pathways")
        return pathways._transfer_to_shardings(tuple(given), (places[1],) * len(given), False)

    found = {}
    ways = {"device_put": put}
    if devices[0].client.runtime_type.startswith("proxy"):
        ways["reshard"] = reshard
    for name, way in ways.items():
        found[f"{name} of {ARRAYS} arrays to others"] = _took(jax, partial(way, many)) * 1e3
        took = _took(jax, partial(way, large))
        found[f"{SYNC} by {name}"] = sum(each.nbytes for each in large) / 1e6 / took
    return found


def training(jax: Any, put: Callable[[Any, Any], Any], place: Any) -> dict[str, float]:
    """Milliseconds of a step: rows of the batch are on all devices, weights on each, and gradients are summed."""
    jnp = jax.numpy
    everywhere = jax.sharding.NamedSharding(place.mesh, jax.sharding.PartitionSpec())
    weights = [put(np.eye(WIDE, dtype=np.float32), everywhere) for _ in range(LAYERS)]
    batch = put(np.ones((ROWS * len(jax.devices()), WIDE), np.float32), place)

    def loss(weights: Any, x: Any) -> Any:
        for each in weights:
            x = jnp.tanh(x @ each)
        return (x**2).mean()

    def step(weights: Any, batch: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(weights, batch)
        return [w - 0.01 * g for w, g in zip(weights, slopes, strict=True)], value

    compiled = jax.jit(step)

    def trained() -> Any:
        found, value = weights, None
        for _ in range(10):
            found, value = compiled(found, batch)
        return found, value

    return {"training step on all devices": _took(jax, trained) * 1e3 / 10}


def _took(jax: Any, work: Callable[[], Any]) -> float:
    """Seconds."""
    found = []
    for _ in range(TURNS + 1):
        begun = time.perf_counter()
        jax.block_until_ready(work())
        found.append(time.perf_counter() - begun)
    return median(found[1:])
