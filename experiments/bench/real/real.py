"""Measures fig 5 on this machine's devices: OpByOp, Chained and Fused, against multi-controller JAX.

`python -m experiments.bench real [--hosts 1 2 4] [--devices 1 2] [--repeats 3] [--platform cuda]`. A step is a scalar
psum over all devices and an add, on the last step's result. Waited is OpByOp with one call under way: its user waits
for each result, or reads it (Read, on one host: of several, JAX's processes have a part each). JAX is `jax.distributed`
over as many processes, which call the same computation asynchronously with as many calls outstanding as an agent has.
"""

import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from seaway.tools.calibrating import AXIS, chained, step

from ..frame import options, processes
from ..frame.jax_world import JaxWorld
from ..frame.options import Platform

HOSTS = (1, 2)
DEVICES = (1,)
CHAIN = 128
WINDOW = 31  # calls outstanding in a process
# of a measurement
STEPS = {"Waited": 4 * CHAIN, "Read": 4 * CHAIN, "OpByOp": 2048, "Chained": 16 * CHAIN, "Fused": 64 * CHAIN}
AIMS = {
    "Waited": ("Waited", 0.0),
    "Read": ("Read", 0.0),
    "OpByOp": ("OpByOp", 0.5),
    "Chained": ("OpByOp", 1.0),
    "Fused": ("Fused", 0.95),
}  # (JAX's kind to compare with, aimed multiple of its rate; 0: none)
RATES = {"Waited": 5_000, "Read": 2_857}  # aimed steps a second, on one host of one device
WARM = 3  # calls
CROWD = 8  # divides the number of steps if there are more devices than cores
PATIENCE = 240.0  # seconds for all of JAX's side

Rates = dict[str, list[float]]


def fused(x: Any) -> Any:
    import jax

    return jax.lax.fori_loop(0, CHAIN, lambda _, y: step(y), x)


# --- multi-controller JAX -------------------------------------------------------------------------------------------


def jax_rates(hosts: int, devices: int, repeats: int, fewer: int = 1, platform: str = "cpu") -> Rates:
    """Those of the slowest process."""
    env = processes.environment(devices, platform)
    said = processes.answers(member, hosts, env, (repeats, fewer), bound=PATIENCE)
    return {kind: [min(found) for found in zip(*(one[kind] for one in said), strict=True)] for kind in said[0]}


def steps_of(kind: str, fewer: int) -> int:
    return CHAIN * max(1, STEPS[kind] // fewer // CHAIN)


def member(address: str, rank: int, count: int, repeats: int, fewer: int) -> None:
    """Run one process of the JAX world. All processes make the same calls in the same order."""
    import numpy as np

    world = JaxWorld(address, rank, count)
    first = world.array(np.zeros(world.devices, np.float32))
    rates: Rates = {}
    kinds = [("Waited", step, 1, 1), ("OpByOp", step, 1, WINDOW), ("Fused", fused, CHAIN, WINDOW)]
    if count == 1:
        kinds.insert(1, ("Read", step, 1, 1))
    for kind, work, each, window in kinds:
        compiled, steps = world.compiled(work, first), steps_of(kind, fewer)
        reads = kind == "Read"
        rates[kind] = [called(compiled, first, each, steps, window, reads=reads) for _ in range(repeats)]
    processes.say(**rates)
    processes.leave()


def called(
    work: Callable[[Any], Any], first: Any, each: int, steps: int, window: int = 0, *, reads: bool = False
) -> float:
    """Steps a second, each call with the last one's result. `window`: calls outstanding; 0: Seaway decides. `reads`:
    each result, before the next call."""
    _stream(work, first, 0, WARM, reads)
    begun = time.perf_counter()
    _stream(work, first, window, steps // each, reads)
    return steps / (time.perf_counter() - begun)


def _stream(work: Callable[[Any], Any], x: Any, window: int, calls: int, reads: bool) -> None:
    import numpy as np

    under_way: deque[Any] = deque()
    for _ in range(calls):
        x = work(x)
        if reads:
            np.asarray(x)
        elif window:
            under_way.append(x)
            if len(under_way) >= window:
                under_way.popleft().block_until_ready()
    x.block_until_ready()


# --- Seaway -----------------------------------------------------------------------------------------------------------


def seaway_rates(hosts: int, devices: int, repeats: int, fewer: int = 1, platform: Platform = "cpu") -> Rates:
    import numpy as np

    import seaway as sw

    with sw.local(hosts=hosts, devices_per_host=devices, platform=platform):
        every = sw.slice(devices=hosts * devices)
        one = sw.pmap(step, AXIS, devices=every)
        first = np.zeros(hosts * devices, np.float32)
        kinds = [("Waited", one, 1, 1), ("OpByOp", one, 1, 0), ("Chained", chained([one] * CHAIN), CHAIN, 0),
                 ("Fused", sw.pmap(fused, AXIS, devices=every), CHAIN, 0)]  # fmt: skip
        if hosts == 1:
            kinds.insert(1, ("Read", one, 1, 1))
        return {
            kind: [
                called(work, first, each, steps_of(kind, fewer), window, reads=kind == "Read") for _ in range(repeats)
            ]
            for kind, work, each, window in kinds
        }


# --- the table ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("real", __doc__)
    parser.numbers("--hosts", HOSTS, "numbers of hosts")
    parser.numbers("--devices", DEVICES, "devices of each host")
    parser.number("--repeats", 3, "measurements for a median")
    parser.number("--fewer", 1, "divide the number of steps by this")
    parser.platform()
    chosen = parser.parse_args(arguments)
    cores = os.cpu_count()
    print(f"steps/s, a scalar psum and an add a step; medians of {chosen.repeats}; {cores} cores play all hosts")
    for each in chosen.devices:
        for number in chosen.hosts:
            shown(number, each, chosen.repeats, chosen.fewer, chosen.platform)


def shown(hosts: int, devices: int, repeats: int, fewer: int = 1, platform: Platform = "cpu") -> dict[str, float]:
    """Print both sides' rates, and return them."""
    fewer *= CROWD if hosts * devices > (os.cpu_count() or 1) else 1
    peer = medians(jax_rates(hosts, devices, repeats, fewer, platform))
    ours = medians(seaway_rates(hosts, devices, repeats, fewer, platform))
    print(f"-- {hosts} host(s) of {devices} device(s)")
    for kind, rate in peer.items():
        print(f"{'JAX':>7} {kind:<8}{rate:>9,.0f}/s")
    for kind, rate in ours.items():
        like, aim = AIMS[kind]
        aimed = f"aim {RATES[kind]:,}/s" if kind in RATES else "no aim: one device has no peer to reduce with"
        if hosts * devices > 1:
            aimed = f"aim {aim:g}" if aim else "no aim"
        words = f"{rate / peer[like]:6.2f} x JAX's {like} ({aimed})"
        print(f"{'Seaway':>7} {kind:<8}{rate:>9,.0f}/s {words}", flush=True)
    return {f"{who} {kind}": rate for who, each in (("JAX", peer), ("Seaway", ours)) for kind, rate in each.items()}


def medians(found: Rates) -> dict[str, float]:
    return {kind: statistics.median(each) for kind, each in found.items()}
