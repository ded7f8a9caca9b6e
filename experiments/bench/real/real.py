"""Measures fig 5 on this machine's CPU devices: OpByOp, Chained and Fused, against multi-controller JAX and Ray.

`python -m experiments.bench real [--full] [--hosts 1 2 4] [--devices 1 2] [--repeats 3]`. A step is a scalar psum over
all devices and an add, on the last step's result. JAX is `jax.distributed` over as many processes, which call the same
computation asynchronously with as many calls outstanding as an agent has. Ray's actors form such a world too
(`actors`). Below each row is its CPU time, in microseconds a step, by process and thread.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..frame import members, options
from ..frame.cpu import ThreadCpu
from . import actors

FULL = True
MODULE = "experiments.bench.real.real"
HOSTS, ALL_HOSTS = (1, 2), (1, 2, 4)
DEVICES, ALL_DEVICES = (1,), (1, 2)
CHAIN = 128
WINDOW = 31  # calls outstanding in a process
AXIS = "device"
STEPS = {"OpByOp": 2048, "Chained": 16 * CHAIN, "Fused": 64 * CHAIN}  # of a measurement
AIMS = {
    "OpByOp": ("OpByOp", 0.5),
    "Chained": ("OpByOp", 1.0),
    "Fused": ("Fused", 0.95),
}  # (JAX's kind to compare with, aimed multiple of its rate)
WARM = 3  # calls
OVER_RAY = 5.0  # aimed multiple of Ray's rate, OpByOp and Chained, on 2 hosts of one device; elsewhere 1
CROWD = 8  # divides the number of steps if there are more devices than cores
PATIENCE = 240.0  # seconds for all of JAX's side

Rates = dict[str, list[float]]


def step(x: Any) -> Any:
    import jax

    lax: Any = jax.lax
    return x - lax.pmean(x, AXIS) + 1


def fused(x: Any) -> Any:
    import jax

    return jax.lax.fori_loop(0, CHAIN, lambda _, y: step(y), x)


# --- multi-controller JAX -------------------------------------------------------------------------------------------


def jax_rates(
    hosts: int, devices: int, repeats: int, fewer: int = 1
) -> tuple[Rates, dict[str, dict[str, float]]]:
    """(rates of the slowest process, CPU microseconds a step by process and phase)."""
    words = ["--repeats", str(repeats), "--fewer", str(fewer)]
    endings = members.played(MODULE, hosts, members.environment(devices), words, bound=PATIENCE)
    for rank, ending in enumerate(endings):
        if ending.code != 0 or not ending.said:
            raise RuntimeError(f"process {rank} of JAX's side ended with {ending.code}: {ending.words}")
    said = [ending.said[-1] for ending in endings]
    rates = {
        kind: [min(found) for found in zip(*(one["rates"][kind] for one in said), strict=True)]
        for kind in said[0]["rates"]
    }
    costs = {
        kind: {
            f"process {rank} {phase}": cost
            for rank, one in enumerate(said)
            for phase, cost in one["cpu"][kind].items()
        }
        for kind in rates
    }
    return rates, costs


def steps_of(kind: str, fewer: int) -> int:
    return CHAIN * max(1, STEPS[kind] // fewer // CHAIN)


def member(address: str, rank: int, count: int, repeats: int, fewer: int) -> None:
    """Run one process of the JAX world. All processes make the same calls in the same order."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    split: Any = PartitionSpec
    if count > 1:
        jax.distributed.initialize(address, count, rank)
    mesh = Mesh(np.array(jax.devices()), (AXIS,))
    lies = NamedSharding(mesh, split(AXIS))
    zeros = np.zeros(len(jax.devices()), np.float32)
    first = jax.make_array_from_callback(zeros.shape, lies, lambda index: zeros[index])
    rates: Rates = {}
    cpu: dict[str, dict[str, float]] = {}
    for kind, work, each in (("OpByOp", step, 1), ("Fused", fused, CHAIN)):
        mapped = jax.shard_map(work, mesh=mesh, in_specs=split(AXIS), out_specs=split(AXIS))
        compiled = jax.jit(mapped).lower(first).compile()
        steps, found = steps_of(kind, fewer), []
        for _ in range(repeats):
            before = time.thread_time(), time.process_time()
            rate = called(compiled, first, each, steps)
            caller, process = time.thread_time() - before[0], time.process_time() - before[1]
            found.append((rate, caller * 1e6 / steps, (process - caller) * 1e6 / steps))
        rates[kind] = [rate for rate, _, _ in found]
        cpu[kind] = {
            "caller": statistics.median(spent for _, spent, _ in found),
            "rest": statistics.median(spent for _, _, spent in found),
        }
    members.say(rates=rates, cpu=cpu)
    members.leave()


def called(work: Callable[[Any], Any], first: Any, each: int, steps: int) -> float:
    """Steps a second, each call with the last one's result, with WINDOW calls outstanding."""
    value = first
    for _ in range(WARM):
        value = work(value)
    value.block_until_ready()
    under_way: deque[Any] = deque()
    begun = time.perf_counter()
    for _ in range(steps // each):
        value = work(value)
        under_way.append(value)
        if len(under_way) == WINDOW:
            under_way.popleft().block_until_ready()
    value.block_until_ready()
    return steps / (time.perf_counter() - begun)


# --- Seaway -----------------------------------------------------------------------------------------------------------


def seaway_rates(
    hosts: int, devices: int, repeats: int, fewer: int = 1
) -> tuple[Rates, dict[str, dict[str, float]]]:
    """(rates, CPU microseconds a step by process and thread)."""
    import numpy as np

    import seaway as sw

    with sw.local(hosts=hosts, devices_per_host=devices) as session:
        every = sw.slice(devices=hosts * devices)
        one = sw.pmap(step, AXIS, devices=every)

        @sw.program
        def chained(x: Any) -> Any:
            for _ in range(CHAIN):
                x = one(x)
            return x

        first = np.zeros(hosts * devices, np.float32)
        kinds = (("OpByOp", one, 1), ("Chained", chained, CHAIN),
                 ("Fused", sw.pmap(fused, AXIS, devices=every), CHAIN))  # fmt: skip
        driver: Any = session.driver
        watched = ThreadCpu(driver.loop_thread, {child.name: child.pid for child in driver.agents})
        rates: Rates = {}
        costs: dict[str, dict[str, float]] = {}
        for kind, work, each in kinds:
            found = []
            for _ in range(repeats):
                before, steps = watched.cpu(), steps_of(kind, fewer)
                rate = passed(work, first, each, steps)
                found.append(
                    (
                        rate,
                        {name: (spent - before[name]) / 1e3 / steps for name, spent in watched.cpu().items()},
                    )
                )
            rates[kind] = [rate for rate, _ in found]
            costs[kind] = {name: statistics.median(cost[name] for _, cost in found) for name in found[0][1]}
    return rates, costs


def passed(work: Callable[[Any], Any], first: Any, each: int, steps: int) -> float:
    """Like `called`, but the client decides how many calls are outstanding."""
    value = first
    for _ in range(WARM):
        value = work(value)
    value.block_until_ready()
    begun = time.perf_counter()
    for _ in range(steps // each):
        value = work(value)
    value.block_until_ready()
    return steps / (time.perf_counter() - begun)


# --- the table ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("real", __doc__, full="1, 2 and 4 hosts of 1 and of 2 devices")
    parser.add_argument("--hosts", type=options.least(1), nargs="+", help="numbers of hosts (1 2)")
    parser.add_argument("--devices", type=options.least(1), nargs="+", help="devices of each host (1)")
    parser.add_argument(
        "--repeats", type=options.least(1), default=3, help="measurements for a median (%(default)s)"
    )
    parser.add_argument(
        "--fewer", type=options.least(1), default=1, help="divide the number of steps by this"
    )
    parser.add_argument("--member", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.member:
        address, rank, count = chosen.member
        member(address, int(rank), int(count), chosen.repeats, chosen.fewer)
        return
    hosts = chosen.hosts or (ALL_HOSTS if chosen.full else HOSTS)
    devices = chosen.devices or (ALL_DEVICES if chosen.full else DEVICES)
    print(
        f"steps/s, a scalar psum and an add a step; medians of {chosen.repeats}; {os.cpu_count()} cores play all hosts"
    )
    for each in devices:
        for number in hosts:
            shown(number, each, chosen.repeats, chosen.fewer)


def shown(hosts: int, devices: int, repeats: int, fewer: int = 1) -> None:
    fewer *= CROWD if hosts * devices > (os.cpu_count() or 1) else 1
    peer_rates, peer_costs = jax_rates(hosts, devices, repeats, fewer)
    peer = actors.medians(peer_rates)
    ray = actors.medians(actors.rates(hosts, devices, repeats, fewer)) if actors.installed() else {}
    rates, costs = seaway_rates(hosts, devices, repeats, fewer)
    print(f"-- {hosts} host(s) of {devices} device(s)")
    for kind, rate in peer.items():
        print(f"{'JAX':>7} {kind:<8}{rate:>9,.0f}/s\n{'':16}CPU us a step: {spelt(peer_costs[kind])}")
    for kind, rate in ray.items():
        print(f"{'Ray':>7} {kind:<8}{rate:>9,.0f}/s")
    if not ray:
        print(f"{'Ray':>7} {actors.MISSING}")
    for kind, found in rates.items():
        like, aim = AIMS[kind]
        aimed = f"aim {aim:g}" if hosts * devices > 1 else "no aim: one device has no peer to reduce with"
        rate = statistics.median(found)
        words = f"{rate / peer[like]:6.2f} x JAX's {like} ({aimed}){over(ray, kind, rate, hosts, devices)}"
        print(
            f"{'Seaway':>7} {kind:<8}{rate:>9,.0f}/s {words}\n{'':16}CPU us a step: {spelt(costs[kind])}",
            flush=True,
        )


def over(ray: dict[str, float], kind: str, rate: float, hosts: int, devices: int) -> str:
    if not ray:
        return ""
    aim = OVER_RAY if (hosts, devices) == (2, 1) and kind != "Fused" else 1.0
    return f", {rate / ray[kind]:.1f} x Ray's (aim {aim:g})"


def spelt(costs: dict[str, float]) -> str:
    return ", ".join(f"{name} {cost:,.0f}" for name, cost in costs.items() if cost >= 1)


if __name__ == "__main__":
    main(sys.argv[1:])
