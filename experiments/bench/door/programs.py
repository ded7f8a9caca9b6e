"""What `door` measures of a JAX program, in a process whose environment chooses the devices. Nothing here is ours.

`measured` is all of it. `member` is one process of multi-controller JAX, in which all processes make the same calls on
the devices of all; of what a process does on a device of its own, it has nothing to measure.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from backend.admin import cpu_of

from ..frame import processes

COUNTS = (50, 500, 1000)  # arrays in and out of a call
WARM = 2  # calls before a loop is measured
LAYERS, WIDE, ROWS = 4, 256, 64  # of a small model: weights of each layer, and rows of the batch on each device
STEPS, TURNS = 10, 5
PRICED = 5.0  # seconds in which a door has told the cluster what a program takes, which costs it once
HERE = "the program"  # whose CPU time is told beside that of other processes
Pids = Mapping[str, Sequence[int]]


class Sizes(NamedTuple):
    """calls: of a scalar in a loop; of many arrays a fraction of that. mib: an array that is put and read."""

    calls: int
    mib: int


def measured(calls: int, mib: int, server: int, pids: Pids) -> dict[str, float]:
    """All figures, each once. server: the process with the devices; 0: this one. pids: processes whose CPU time is
    told, for calls of the most arrays."""
    import jax

    sizes, one = Sizes(calls, mib), jax.local_devices()[0]
    found = scalars(jax, sizes, server)
    for count in COUNTS:
        given = [jax.device_put(np.zeros(4, np.float32), one) for _ in range(count)]
        times, told = 10 * sizes.calls // count + 5, pids if count == COUNTS[-1] else {}
        found |= many(jax, f"call of {count} arrays", given, times, told)
        if count == COUNTS[-1]:
            found |= many(jax, f"step that donates {count}", given, times, told, donate_argnums=0)
    found |= contents(jax, sizes, "one device", one)
    return found | on_all_devices(jax, sizes) | compiling(jax)


def member(address: str, rank: int, count: int, calls: int, mib: int) -> None:
    import jax

    if count > 1:
        jax.distributed.initialize(address, count, rank)
    processes.say(on_all_devices(jax, Sizes(calls, mib)))
    if count > 1:
        jax.distributed.shutdown()  # waits for the others, which JAX would end if this one were gone before them
    processes.leave()


def on_all_devices(jax: Any, sizes: Sizes) -> dict[str, float]:
    place, devices = rows(jax), len(jax.devices())
    x = put(jax, np.zeros((64, 16), np.float32), place)
    found = {"call on all devices": looped(jax.jit(lambda x: x + 1), x, sizes.calls // 10)}
    for count in COUNTS:
        given = [put(jax, np.zeros((devices, 4), np.float32), place) for _ in range(count)]
        found |= many(jax, f"call of {count}, on all devices", given, sizes.calls // count // 2 + 5, {})
    found |= training(jax, partial(put, jax), place)
    return found | contents(jax, sizes, "all devices", place)


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
        for _ in range(STEPS):
            found, value = compiled(found, batch)
        return found, value

    jax.block_until_ready(trained())
    found = [took(lambda: jax.block_until_ready(trained()), 1) for _ in range(TURNS)]
    return {"training step on all devices": median(found) / 1e3 / STEPS}


def took(work: Callable[[], Any], times: int) -> float:
    """Microseconds of one, of several one after another."""
    begun = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begun) * 1e6 / times


def looped(call: Callable[[Any], Any], first: Any, times: int) -> float:
    """Microseconds of a call with the last one's result, until the last is done."""
    import jax

    x = first
    for _ in range(WARM):
        x = call(x)
    jax.block_until_ready(x)
    begun = time.perf_counter()
    for _ in range(times):
        x = call(x)
    jax.block_until_ready(x)
    return (time.perf_counter() - begun) * 1e6 / times


def scalars(jax: Any, sizes: Sizes, server: int) -> dict[str, float]:
    f = jax.jit(lambda x: x + 1)
    x = f(jax.numpy.float32(0))
    before = time.process_time(), cpu_of(server) if server else 0
    found = {"scalar call": looped(f, x, sizes.calls)}
    found["scalar call, CPU here"] = (time.process_time() - before[0]) * 1e6 / sizes.calls
    if server:
        found["scalar call, CPU there"] = (cpu_of(server) - before[1]) / 1e3 / sizes.calls
    found["scalar call that is read"] = took(lambda: float(f(x)), sizes.calls // 10)
    found["put of a scalar"] = took(lambda: jax.device_put(np.float32(1)), sizes.calls // 4)
    return found


def many(jax: Any, name: str, given: list[Any], times: int, pids: Pids, **options: Any) -> dict[str, float]:
    """Microseconds of a call, and the CPU microseconds that each of these processes took for it, and the program."""
    call = jax.jit(lambda xs: [x + 1 for x in xs], **options)
    x = jax.block_until_ready(call(call(given)))
    priced = time.monotonic() + PRICED if pids else 0
    while time.monotonic() < priced:
        x = jax.block_until_ready(call(x))
    both = {HERE: [os.getpid()], **pids} if pids else {}
    before = {who: sum(map(cpu_of, each)) for who, each in both.items()}
    found = {name: looped(call, x, times)}
    for who, each in both.items():
        found[f"{name}, CPU of {who}"] = (sum(map(cpu_of, each)) - before[who]) / 1e3 / (times + WARM)
    return found


def rows(jax: Any) -> Any:
    mesh = jax.make_mesh((len(jax.devices()),), ("x",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))


def contents(jax: Any, sizes: Sizes, name: str, place: Any) -> dict[str, float]:
    """MB a second, of arrays that nothing has cached."""
    x = np.arange(sizes.mib << 18, dtype=np.float32)
    found: dict[str, list[float]] = {f"put to {name}": [], f"read of {name}": []}
    again = jax.jit(lambda x: x + 1)
    for _ in range(4):
        begun = time.perf_counter()
        there = jax.block_until_ready(put(jax, x, place))
        found[f"put to {name}"].append(x.nbytes / 1e6 / (time.perf_counter() - begun))
        fresh = jax.block_until_ready(again(there))
        begun = time.perf_counter()
        read(fresh)
        found[f"read of {name}"].append(x.nbytes / 1e6 / (time.perf_counter() - begun))
    return {name: median(each[1:]) for name, each in found.items()}


def put(jax: Any, x: Any, place: Any) -> Any:
    """In multi-controller JAX, each process puts what its devices have of the array."""
    if getattr(place, "is_fully_addressable", True):
        return jax.device_put(x, place)
    return jax.make_array_from_callback(x.shape, place, lambda index: x[index])


def read(x: Any) -> Any:
    """The whole array, in multi-controller JAX in each process."""
    if x.is_fully_addressable:
        return np.asarray(x)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(x, tiled=True)


def compiling(jax: Any) -> dict[str, float]:
    """Milliseconds from a traced function to one that can be called: of one operation, and of a layer with its
    gradient."""
    x = np.zeros((16, 64), np.float32)
    weights = [np.zeros((64, 64), np.float32)] * 6

    def layers(weights: Any, x: Any, at: float) -> Any:
        for w in weights:
            x = jax.nn.gelu(x @ w + at)
        return x.sum()

    small, large = [], []
    for turn in range(5):
        lowered = jax.jit(lambda x, at=float(turn): x + at).lower(x)
        small.append(took(lowered.compile, 1) / 1e3)
        lowered = jax.jit(jax.grad(lambda w, x, at=float(turn): layers(w, x, at))).lower(weights, x)
        large.append(took(lowered.compile, 1) / 1e3)
    return {"compile one operation": median(small), "compile six layers": median(large)}
