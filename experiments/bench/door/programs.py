"""What `door` measures of a JAX program, in a process whose environment chooses the devices. Nothing here is ours."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from backend.admin import cpu_of


class Sizes(NamedTuple):
    """calls: of a scalar in a loop; of many arrays a fraction of that. mib: an array that is put and read."""

    calls: int
    mib: int


def measured(calls: int, mib: int, server: int) -> dict[str, float]:
    """All figures, each once. server: the process with the devices; 0: this one."""
    import jax

    sizes = Sizes(calls, mib)
    found = scalars(jax, sizes, server)
    for count in (50, 500, 1000):
        found |= {f"call of {count} arrays": many(jax, sizes.calls // count + 5, count)}
    found |= on_a_mesh(jax, sizes)
    found |= contents(jax, sizes)
    return found | compiling(jax)


def took(work: Callable[[], Any], times: int) -> float:
    """Microseconds of one, of several one after another."""
    begun = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - begun) * 1e6 / times


def looped(call: Callable[[Any], Any], first: Any, times: int) -> float:
    """Microseconds of a call with the last one's result, until the last is done."""
    import jax

    x = call(call(first))
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


def many(jax: Any, calls: int, count: int) -> float:
    f = jax.jit(lambda xs: [x + 1 for x in xs])
    return looped(f, [jax.device_put(np.zeros(4, np.float32)) for _ in range(count)], calls)


def rows(jax: Any) -> Any:
    mesh = jax.make_mesh((len(jax.devices()),), ("x",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))


def on_a_mesh(jax: Any, sizes: Sizes) -> dict[str, float]:
    x = jax.device_put(np.zeros((64, 16), np.float32), rows(jax))
    return {"call on all devices": looped(jax.jit(lambda x: x + 1), x, sizes.calls // 10)}


def contents(jax: Any, sizes: Sizes) -> dict[str, float]:
    """MB a second, of arrays that nothing has cached."""
    x = np.arange(sizes.mib << 18, dtype=np.float32)
    found: dict[str, list[float]] = {}
    again = jax.jit(lambda x: x + 1)
    for name, place in (("one device", jax.devices()[0]), ("all devices", rows(jax))):
        for _ in range(4):
            begun = time.perf_counter()
            put = jax.block_until_ready(jax.device_put(x, place))
            found.setdefault(f"put to {name}", []).append(x.nbytes / 1e6 / (time.perf_counter() - begun))
            fresh = jax.block_until_ready(again(put))
            begun = time.perf_counter()
            np.asarray(fresh)
            found.setdefault(f"read of {name}", []).append(x.nbytes / 1e6 / (time.perf_counter() - begun))
    return {name: median(each[1:]) for name, each in found.items()}


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
