"""Fig 5 for real: OpByOp, Chained and Fused on this machine's CPU devices, against multi-controller JAX.

`python -m experiments.bench.real [--hosts 1 2] [--devices 1] [--repeats 3]`, or `python -m experiments.bench real`. One
step is a scalar psum over all devices and an add; each takes what the last one made. JAX is `jax.distributed` over as
many processes, which call the same computation asynchronously with as many calls outstanding as an agent has.
Under each row stands where Seaway's CPU time goes: microseconds a step, by process and thread.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CHAIN = 128
WINDOW = 31  # programs of several devices that may be outstanding in a process
AXIS = "device"
STEPS = {"OpByOp": 2048, "Chained": 16 * CHAIN, "Fused": 64 * CHAIN}  # of a measurement
AIMS = {
    "OpByOp": ("OpByOp", 0.5),
    "Chained": ("OpByOp", 1.0),
    "Fused": ("Fused", 0.95),
}  # times which of JAX's
WARM = 3  # calls
PATIENCE = 120.0  # seconds

Rates = dict[str, list[float]]


def step(x: Any) -> Any:
    import jax

    lax: Any = jax.lax
    return x - lax.pmean(x, AXIS) + 1


def fused(x: Any) -> Any:
    import jax

    return jax.lax.fori_loop(0, CHAIN, lambda _, y: step(y), x)


# --- multi-controller JAX -------------------------------------------------------------------------------------------


def jax_rates(hosts: int, devices: int, repeats: int) -> tuple[Rates, Rates]:
    """Of the slowest process, which all wait for; and its CPU time, in microseconds a step."""
    from backend.children import Children

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        children = Children(Path(folder))
        try:
            members = [
                children.start(
                    f"member-{rank}", __spec__.name,
                    ["--member", address, str(rank), str(hosts), "--repeats", str(repeats)],
                    environment(devices), stdout=subprocess.PIPE,
                )
                for rank in range(hosts)
            ]  # fmt: skip
            said = [member.process.communicate(timeout=PATIENCE)[0] for member in members]
            for member in members:
                if member.process.returncode:
                    raise RuntimeError(f"{member.name} of JAX's side ended: {member.tail()}")
        finally:
            children.end_all()
    return _worst(said, "rates", min), _worst(said, "cpu", max)


def _worst(said: Sequence[bytes], what: str, worst: Callable[..., float]) -> Rates:
    each = [json.loads(words.splitlines()[-1])[what] for words in said]
    return {
        kind: [worst(found) for found in zip(*(one[kind] for one in each), strict=True)] for kind in each[0]
    }


def environment(devices: int) -> dict[str, str]:
    flags = f"--xla_force_host_platform_device_count={devices}"
    return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "NPROC": str(max(32, 2 * devices))}


def member(address: str, rank: int, count: int, repeats: int) -> None:
    """One process of JAX's side; all make the same calls in the same order."""
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
    cpu: Rates = {}
    for kind, work, each in (("OpByOp", step, 1), ("Fused", fused, CHAIN)):
        mapped = jax.shard_map(work, mesh=mesh, in_specs=split(AXIS), out_specs=split(AXIS))
        compiled = jax.jit(mapped).lower(first).compile()
        found = []
        for _ in range(repeats):
            before = time.process_time()
            rate = called(compiled, first, each, STEPS["Fused"])
            found.append((rate, (time.process_time() - before) * 1e6 / STEPS["Fused"]))
        rates[kind], cpu[kind] = [rate for rate, _ in found], [spent for _, spent in found]
    print(f"\n{json.dumps({'rates': rates, 'cpu': cpu})}")  # on a line of its own: collectives print too
    sys.stdout.flush()
    os._exit(0)  # an orderly exit would wait for the others


def called(work: Callable[[Any], Any], first: Any, each: int, steps: int) -> float:
    """Steps a second, each call with the last one's result, so many outstanding."""
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


def seaway_rates(hosts: int, devices: int, repeats: int) -> tuple[Rates, dict[str, dict[str, float]]]:
    """And CPU time, in microseconds a step, by process and thread."""
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
        watched = Watch(driver.loop_thread, {child.name: child.pid for child in driver.agents})
        rates: Rates = {}
        costs: dict[str, dict[str, float]] = {}
        for kind, work, each in kinds:
            found = []
            for _ in range(repeats):
                before = watched.cpu()
                rate = passed(work, first, each, STEPS[kind])
                found.append(
                    (
                        rate,
                        {
                            name: (spent - before[name]) / 1e3 / STEPS[kind]
                            for name, spent in watched.cpu().items()
                        },
                    )
                )
            rates[kind] = [rate for rate, _ in found]
            costs[kind] = {name: statistics.median(cost[name] for _, cost in found) for name in found[0][1]}
    return rates, costs


def passed(work: Callable[[Any], Any], first: Any, each: int, steps: int) -> float:
    """As `called`; how many are outstanding is the client's affair."""
    value = first
    for _ in range(WARM):
        value = work(value)
    value.block_until_ready()
    begun = time.perf_counter()
    for _ in range(steps // each):
        value = work(value)
    value.block_until_ready()
    return steps / (time.perf_counter() - begun)


class Watch:
    """CPU time of the threads that work: nanoseconds, by name. What has no name of ours is the rest."""

    def __init__(self, loop: threading.Thread, agents: dict[str, int]) -> None:
        self._mine = {threading.get_native_id(): "caller", loop.native_id or 0: "loop"}
        self._agents = agents

    def cpu(self) -> Counter[str]:
        found = Counter({f"user {name}": 0 for name in ("caller", "loop", "rest")})
        for number, (_, spent) in threads_of(os.getpid()).items():
            found[f"user {self._mine.get(number, 'rest')}"] += spent
        for agent, pid in self._agents.items():
            for number, (name, spent) in threads_of(pid).items():
                phase = "loop" if number == pid else name if name in ("enqueue", "completions") else "rest"
                found[f"{agent} {phase}"] += spent
        return found


def threads_of(pid: int) -> dict[int, tuple[str, int]]:
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, spent = (task / "comm").read_text().strip(), (task / "schedstat").read_text().split()[0]
        except OSError:
            continue  # it ended meanwhile
        found[int(task.name)] = name, int(spent)
    return found


# --- the table ------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.bench.real", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--devices", type=int, default=1, help="of each host")
    parser.add_argument("--repeats", type=int, default=3, help="medians of so many")
    parser.add_argument("--member", nargs=3, metavar=("ADDRESS", "RANK", "COUNT"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.member:
        address, rank, count = chosen.member
        member(address, int(rank), int(count), chosen.repeats)
        return
    print(
        f"steps/s, a scalar psum and an add a step; medians of {chosen.repeats}; {os.cpu_count()} cores play all hosts"
    )
    for hosts in chosen.hosts:
        shown(hosts, chosen.devices, chosen.repeats)


def shown(hosts: int, devices: int, repeats: int) -> None:
    peer, peer_cpu = (
        {kind: statistics.median(found) for kind, found in each.items()}
        for each in jax_rates(hosts, devices, repeats)
    )
    rates, costs = seaway_rates(hosts, devices, repeats)
    words = ", ".join(
        f"{kind} {rate:,.0f}/s (CPU {peer_cpu[kind]:,.0f} us a step and process)"
        for kind, rate in peer.items()
    )
    print(f"-- {hosts} host(s) of {devices} device(s); JAX: {words}")
    for kind, found in rates.items():
        like, aim = AIMS[kind]
        aimed = f"aim {aim:g}" if hosts * devices > 1 else "no aim: one device has nobody to reduce with"
        rate = statistics.median(found)
        print(f"{kind:>8} {rate:>9,.0f}/s   {rate / peer[like]:5.2f} x JAX's {like:<7} ({aimed})")
        spent = ", ".join(f"{name} {cost:,.0f}" for name, cost in costs[kind].items() if cost >= 1)
        print(f"{'':8} CPU us a step: {spent}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
