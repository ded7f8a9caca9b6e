"""Short workloads that differ in what goes together: calls waited for one by one, streams, calls of many nodes.

Each is run for about as long as it is told to. Neighbours: `watching`, which looks on; `costs`, which makes of it what
a message and a gang cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .devices import product
from .watching import Sample, Watch

CHAINS = (8, 32, 128)  # nodes of a call
LITERALS = (1024, 4096)  # bytes
CLIENTS = 4
BURST = 8
LEAST = 2  # turns
TRIAL = 3  # calls, to know how long one takes
ROWS = 64  # of a product that is computed by another thread than the one that enqueues it
AXIS = "device"
Made = Callable[[int], "Done"]  # so many times


class Done(NamedTuple):
    """calls; and literals, which travel with a call: what an array of the session is needs none."""

    calls: int
    literals: int


class Workload(NamedTuple):
    """handed: its gangs, by the threads that enqueue to others that compute."""

    name: str
    run: Made
    handed: bool = False


class Rig:
    """Of a session: one computation on all of its devices, and chains of it."""

    def __init__(self, session: Any, platform: str, hosts: int, devices: int) -> None:
        import seaway as sw

        self.session, self.hosts, self.devices = session, hosts, hosts * devices
        devices *= hosts
        home = sw.slice(devices=devices)
        self.first: Any = np.zeros((devices, 1), np.float32)
        if platform == "timed":
            self.step: Any = sw.synthetic("step", devices=home, duration="1us")
        else:
            self.step = sw.pmap(step, AXIS, devices=home)
        self.chains = {length: chained(self.step, length) for length in CHAINS}
        self.product: Any = None if platform == "timed" else sw.pmap(product, AXIS, devices=home)
        self.matrices: Any = np.ones((devices, ROWS, ROWS), np.float32)

    def literal(self, nbytes: int) -> Any:
        """As large as a call may carry, or nearly."""
        each = max(1, nbytes // (4 * self.devices))
        return np.zeros((self.devices, each), np.float32)


def step(x: Any) -> Any:
    """A sum over all devices, and an addition."""
    import jax

    lax: Any = jax.lax
    return x - lax.pmean(x, AXIS) + 1


def chained(one: Any, length: int) -> Any:
    import seaway as sw

    def chain(x: Any) -> Any:
        for _ in range(length):
            x = one(x)
        return x

    chain.__name__ = f"chain{length}"
    return sw.program(chain)


def workloads(rig: Rig) -> Iterator[Workload]:
    yield Workload("calls, one at a time", partial(waited, rig.step, rig.first))
    for nbytes in LITERALS:
        name = f"calls with a literal of {nbytes} B, one at a time"
        yield Workload(name, partial(waited, rig.step, rig.literal(nbytes), again=True))
    yield Workload("a stream of calls", partial(streamed, rig.step, rig.first, many=BURST))
    yield Workload("a stream of calls with a literal each", partial(apart, rig.step, rig.first, many=BURST))
    yield Workload(f"{BURST} calls at a time", partial(bursts, rig.step, rig.first))
    for length, chain in rig.chains.items():
        yield Workload(f"calls of {length} nodes, one at a time", partial(waited, chain, rig.first))
        yield Workload(f"a stream of calls of {length} nodes", partial(streamed, chain, rig.first, many=2))
    if rig.product is not None:
        chain, matrices = chained(rig.product, CHAINS[1]), rig.matrices
        yield Workload("products, one at a time", partial(waited, rig.product, matrices), handed=True)
        yield Workload(
            "a stream of products", partial(streamed, rig.product, matrices, many=BURST), handed=True
        )
        name = f"a stream of calls of {CHAINS[1]} products"
        yield Workload(name, partial(streamed, chain, matrices, many=2), handed=True)
    yield Workload(f"{CLIENTS} clients, a stream each", partial(clients, rig, each=BURST))
    yield Workload(f"{CLIENTS} clients, a call each at a time", partial(clients, rig, each=1))


def waited(call: Any, first: Any, times: int, *, again: bool = False) -> Done:
    """again: with contents of the user's own each time, and not with what the last one made."""
    x = first
    for _ in range(times):
        x = call(first if again else x).block_until_ready()
    return Done(times, times if again else 1)


def streamed(call: Any, first: Any, times: int, *, many: int = 1) -> Done:
    x = first
    for _ in range(times * many):
        x = call(x)
    x.block_until_ready()
    return Done(times * many, 1)


def apart(call: Any, first: Any, times: int, *, many: int = 1) -> Done:
    """None needs another's result."""
    for x in [call(first) for _ in range(times * many)]:
        x.block_until_ready()
    return Done(times * many, times * many)


def bursts(call: Any, first: Any, times: int) -> Done:
    for _ in range(times):
        streamed(call, first, BURST)
    return Done(times * BURST, times)


def clients(rig: Rig, times: int, *, each: int) -> Done:
    """From one thread, by turns."""
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
    return Done(times * CLIENTS * each, times * CLIENTS)


def samples(
    rig: Rig, repeats: int, seconds: float, bound: float, say: Callable[[str], object] = lambda text: None
) -> list[Sample]:
    """Of all workloads, by turns; each for about so long. After so many seconds no third turn begins."""
    watch, until = Watch(rig.session), time.monotonic() + bound
    chosen = [(workload, times_for(workload, seconds)) for workload in workloads(rig)]
    found = []
    for turn in range(repeats):
        if turn >= LEAST and time.monotonic() > until:
            break
        for workload, times in chosen:
            watch.begin()
            done = workload.run(times)
            counts = {"calls": done.calls, "literals": done.literals * rig.hosts, "hosts": rig.hosts}
            counts["handed"] = int(workload.handed)
            found.append(watch.end(f"{workload.name}; {rig.hosts} hosts", **counts))
        say(f"  turn {turn + 1} of {repeats}")
    return found


def times_for(workload: Workload, seconds: float) -> int:
    """After some that do not count: what is compiled and found once is then there."""
    workload.run(1)
    begun = time.monotonic()
    workload.run(TRIAL)
    return max(TRIAL, round(seconds * TRIAL / (time.monotonic() - begun)))
