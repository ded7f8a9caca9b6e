"""Short workloads with different mixes of calls, messages and gangs: single calls, streams, calls of many nodes.

A session goes in, samples of CPU time and counts come out. `watching` measures each workload; `costs` fits the costs of
messages and gangs to the samples.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .device_costs import AXIS, product
from .watching import Watch, WatchSample

CHAINS = (8, 32, 128)  # nodes of a call
LITERALS = (1024, 4096)  # bytes
ALONE = "calls, one at a time"
CLIENTS = 4
BURST = 8
LEAST = 2  # rounds through all workloads
TRIAL = 3  # calls made to learn how long one takes
ROWS = 64  # rows of a product large enough for JAX to compute it on another thread than the enqueueing one
Made = Callable[[int], "DoneWork"]  # runs a workload this many times


class DoneWork(NamedTuple):
    """Numbers of calls, and of literals, which are arguments that travel in a call."""

    calls: int
    literals: int


class CalibrationWorkload(NamedTuple):
    name: str
    run: Made
    sums: bool = True  # whether its gangs sum over all devices


class Rig:
    """A session with one computation on all of its devices, and chains of it."""

    def __init__(self, session: Any, platform: str, hosts: int, devices: int) -> None:
        import seaway as sw

        self.session, self.hosts, self.devices = session, hosts, hosts * devices
        self.rounds = rounds(hosts) if platform != "timed" else 0  # of a sum; timed devices compute none
        devices *= hosts
        home = sw.slice(devices=devices)
        self.first: Any = np.zeros((devices, 1), np.float32)
        if platform == "timed":
            self.step: Any = sw.synthetic("step", devices=home, duration="1us")
        else:
            self.step = sw.pmap(step, AXIS, devices=home)
        self.chains = {length: chained([self.step] * length) for length in CHAINS}
        self.product: Any = None if platform == "timed" else sw.pmap(product, AXIS, devices=home)
        self.matrices: Any = np.ones((devices, ROWS, ROWS), np.float32)

    def literal(self, nbytes: int) -> Any:
        """An array of about this many bytes, small enough to travel in a call."""
        each = max(1, nbytes // (4 * self.devices))
        return np.zeros((self.devices, each), np.float32)


def rounds(hosts: int) -> int:
    """Rounds of messages in a sum over so many hosts."""
    return math.ceil(math.log2(hosts))


def step(x: Any) -> Any:
    """A sum over all devices, and an addition."""
    import jax

    lax: Any = jax.lax
    return x - lax.pmean(x, AXIS) + 1


def chained(works: Sequence[Any]) -> Any:
    """A program that calls these one after the other; a single computation stays as it is."""
    import seaway as sw

    if len(works) == 1:
        return works[0]

    def chain(x: Any) -> Any:
        for work in works:
            x = work(x)
        return x

    chain.__name__ = f"chain{len(works)}"
    return sw.program(chain)


def workloads(rig: Rig) -> Iterator[CalibrationWorkload]:
    yield CalibrationWorkload(ALONE, partial(waited, rig.step, rig.first))
    for nbytes in LITERALS:
        name = f"calls with a literal of {nbytes} B, one at a time"
        yield CalibrationWorkload(name, partial(waited, rig.step, rig.literal(nbytes), again=True))
    yield CalibrationWorkload("a stream of calls", partial(streamed, rig.step, rig.first, many=BURST))
    yield CalibrationWorkload("a stream of calls with a literal each", partial(apart, rig.step, rig.first, many=BURST))
    yield CalibrationWorkload(f"{BURST} calls at a time", partial(bursts, rig.step, rig.first))
    for length, chain in rig.chains.items():
        yield CalibrationWorkload(f"calls of {length} nodes, one at a time", partial(waited, chain, rig.first))
        yield CalibrationWorkload(f"a stream of calls of {length} nodes", partial(streamed, chain, rig.first, many=2))
    if rig.product is not None:
        chain, matrices = chained([rig.product] * CHAINS[1]), rig.matrices
        yield CalibrationWorkload("products, one at a time", partial(waited, rig.product, matrices), False)
        yield CalibrationWorkload("a stream of products", partial(streamed, rig.product, matrices, many=BURST), False)
        name = f"a stream of calls of {CHAINS[1]} products"
        yield CalibrationWorkload(name, partial(streamed, chain, matrices, many=2), False)
    yield CalibrationWorkload(f"{CLIENTS} clients, a stream each", partial(clients, rig, each=BURST))
    yield CalibrationWorkload(f"{CLIENTS} clients, a call each at a time", partial(clients, rig, each=1))


def waited(call: Any, first: Any, times: int, *, again: bool = False) -> DoneWork:
    """Calls waited for one by one. again: pass the user's own contents each time, not the last result."""
    x = first
    for _ in range(times):
        x = call(first if again else x).block_until_ready()
    return DoneWork(times, times if again else 1)


def streamed(call: Any, first: Any, times: int, *, many: int = 1) -> DoneWork:
    x = first
    for _ in range(times * many):
        x = call(x)
    x.block_until_ready()
    return DoneWork(times * many, 1)


def apart(call: Any, first: Any, times: int, *, many: int = 1) -> DoneWork:
    """A stream of calls that do not need each other's results."""
    for x in [call(first) for _ in range(times * many)]:
        x.block_until_ready()
    return DoneWork(times * many, times * many)


def bursts(call: Any, first: Any, times: int) -> DoneWork:
    for _ in range(times):
        streamed(call, first, BURST)
    return DoneWork(times * BURST, times)


def clients(rig: Rig, times: int, *, each: int) -> DoneWork:
    """Calls of several clients, made in turn by one thread."""
    for _ in range(times):
        last = []
        for number in range(CLIENTS):
            with rig.session.client(f"client {number}"):
                x = rig.first
                for _ in range(each):
                    x = rig.step(x)
                last.append(x)
        for x in last:
            x.block_until_ready()
    return DoneWork(times * CLIENTS * each, times * CLIENTS)


def samples(
    rig: Rig, repeats: int, seconds: float, bound: float, say: Callable[[str], object] = lambda text: None
) -> list[WatchSample]:
    """Samples of all workloads, in rounds; each takes about `seconds`. After `bound` seconds no third round begins."""
    watch, until = Watch(rig.session), time.monotonic() + bound
    chosen = [(workload, times_for(workload, seconds)) for workload in workloads(rig)]
    found = []
    for turn in range(repeats):
        if turn >= LEAST and time.monotonic() > until:
            break
        for workload, times in chosen:
            watch.begin()
            done = workload.run(times)
            counts = {"calls": done.calls, "literals": done.literals * rig.hosts}
            sample = watch.end(f"{workload.name}; {rig.hosts} hosts", **counts)
            sample.counts["sums"] = sample.counts["ends"] * rig.rounds if workload.sums else 0.0
            found.append(sample)
        say(f"  turn {turn + 1} of {repeats}")
    return found


def times_for(workload: CalibrationWorkload, seconds: float) -> int:
    """How often to run a workload so that it takes some seconds. A first run compiles and does not count."""
    workload.run(1)
    begun = time.monotonic()
    workload.run(TRIAL)
    return max(TRIAL, round(seconds * TRIAL / (time.monotonic() - begun)))
