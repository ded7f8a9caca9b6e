"""Measures one client's throughput while another client's computation compiles. A part of `sharing`.

The other client is a separate process, so that its tracing does not slow this client. Its computation has very many
unrolled operations, which take long to compile on each host. Compiling uses cores, which are few, so there are two
baselines: the client alone, and the client while as many processes as hosts only spin.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from backend.admin import Children

from ..frame import processes
from ..frame.deployed import deployed
from ..frame.table import Table

HOSTS = 2
SHORT, LONG = 150, 800  # operations: about 5 s and 30 s if two busy cores compile for two hosts
SIDE = 16  # of their matrices
AHEAD = 8


class Meanwhile(NamedTuple):
    """Calls a second: alone, while others spin, and while another client compiles. seconds: time of compiling."""

    alone: float
    spinning: float
    compiling: float
    seconds: float


class Caller:
    """Makes calls in a thread and counts them."""

    def __init__(self, work: Callable[[Any], Any], first: Any) -> None:
        self._work, self._first = work, first
        self.calls, self.over = 0, threading.Event()

    def run(self) -> None:
        x = self._first
        while not self.over.is_set():
            for _ in range(AHEAD):
                x = self._work(x)
            x.block_until_ready()
            self.calls += AHEAD

    def rate(self, over: threading.Event, seconds: float | None = None) -> float:
        """Calls a second until `over` is set, or for some seconds."""
        before, begun = self.calls, time.perf_counter()
        over.wait(seconds)
        return (self.calls - before) / (time.perf_counter() - begun)


def deep(operations: int) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        import jax.numpy as jnp

        for number in range(operations):
            x = jnp.sin(x @ x + number)
        return x

    return function


def other(address: str, operations: int) -> None:
    """The other client: says when its call was made, and when its result is ready."""
    import seaway as sw

    with sw.connect(address, client="other") as session:
        work = sw.jit(deep(operations), devices=sw.slice(devices=HOSTS))
        x = work(np.ones((SIDE, SIDE), np.float32))
        processes.say(now=session.now())
        x.block_until_ready()
        processes.say(now=session.now())


def spin() -> None:
    processes.say(spins=True)
    while True:
        pass


def measured(operations: int, seconds: float) -> Meanwhile:
    import seaway as sw

    with TemporaryDirectory() as place, deployed(HOSTS, platform="cpu") as cluster:
        children = Children(Path(place))
        with sw.connect(cluster.address, client="one") as session:
            work = sw.pmap(lambda x: x + 1, "device", devices=sw.slice(devices=HOSTS))
            first = np.zeros(HOSTS, np.float32)
            work(first).block_until_ready()
            caller = Caller(work, first)
            task = session.spawn(caller.run, name="caller")
            try:
                caller.rate(caller.over, 0.5)
                alone = caller.rate(caller.over, seconds)
                with spinning(children):
                    beside = caller.rate(caller.over, seconds)
                child = processes.start(children, other, cluster.address, operations)
                called, ended = processes.heard(child)["now"], threading.Event()
                ready: list[float] = []

                def listen() -> None:
                    try:
                        ready.append(processes.heard(child)["now"])
                    finally:
                        ended.set()

                threading.Thread(target=listen, daemon=True).start()
                compiling = caller.rate(ended)
            finally:
                caller.over.set()
                children.end_all()
            task.result()
    if not ready:
        raise RuntimeError(f"the other client had no result: {child.tail()}")
    return Meanwhile(alone, beside, compiling, ready[0] - called)


@contextmanager
def spinning(children: Children) -> Iterator[None]:
    spinners = [processes.start(children, spin, name=f"spin-{number}") for number in range(HOSTS)]
    try:
        for each in spinners:
            processes.heard(each)
        yield
    finally:
        for each in spinners:
            children.end(each, 0.0)


def show(operations: int, seconds: float) -> Meanwhile:
    found = measured(operations, seconds)
    print(f"one client on {HOSTS} hosts of a CPU device, {AHEAD} calls at a time")
    table = Table(" >34", "calls/s >9,.0f", "x alone >9.2f", "x while they spin >19.2f").begin()
    table.row("alone", found.alone)
    table.row(f"while {HOSTS} processes spin", found.spinning, found.spinning / found.alone)
    words = f"while another compiles ({found.seconds:.1f} s)"
    table.row(words, found.compiling, found.compiling / found.alone, found.compiling / found.spinning)
    return found
