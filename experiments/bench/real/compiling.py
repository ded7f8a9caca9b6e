"""Measures one client's throughput while another client's computation compiles. A part of `sharing`.

The other client is a separate process, so that its tracing does not slow this client. Its computation has very many
unrolled operations, which take long to compile on each host. Compiling uses cores, which are few, so there are two
baselines: the client alone, and the client while as many processes as hosts only spin.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from backend.admin import Child, Children

from ..frame import members
from ..frame.deployed import deployed

HOSTS = 2
SHORT, LONG = 150, 800  # operations: about 5 s and 30 s if two busy cores compile for two hosts
SIDE = 16  # of their matrices
AHEAD = 8
OTHER = "experiments.bench.real.sharing"
SPIN = "while True: pass"


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
        self.calls, self._over = 0, threading.Event()

    def run(self) -> None:
        x = self._first
        while not self._over.is_set():
            for _ in range(AHEAD):
                x = self._work(x)
            x.block_until_ready()
            self.calls += AHEAD

    def rate(self, over: Callable[[], bool]) -> float:
        """Calls a second until `over()`."""
        before, begun = self.calls, time.perf_counter()
        while not over():
            time.sleep(0.01)
        return (self.calls - before) / (time.perf_counter() - begun)

    def rate_for(self, seconds: float) -> float:
        until = time.monotonic() + seconds
        return self.rate(lambda: time.monotonic() > until)

    def end(self) -> None:
        self._over.set()


def deep(operations: int) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        import jax.numpy as jnp

        for number in range(operations):
            x = jnp.sin(x @ x + number)
        return x

    return function


def other(address: str, operations: int) -> None:
    """The other client: prints when its call was made, and when its result is ready."""
    import seaway as sw

    with sw.connect(address, client="other") as session:
        work = sw.jit(deep(operations), devices=sw.slice(devices=HOSTS))
        x = work(np.ones((SIDE, SIDE), np.float32))
        print(json.dumps({"called": session.now()}), flush=True)
        x.block_until_ready()
        print(json.dumps({"ready": session.now()}), flush=True)


def said(child: Child, what: str) -> float:
    """The value of `what` in the child's next line."""
    assert child.process.stdout is not None
    line = child.process.stdout.readline()
    if not line:
        raise RuntimeError(f"{child.name} ended: {child.tail()}")
    return float(json.loads(line)[what])


def measured(operations: int, seconds: float) -> Meanwhile:
    import seaway as sw

    with (
        TemporaryDirectory() as place,
        deployed(HOSTS, platform="cpu", env=members.environment(1)) as cluster,
    ):
        children = Children(Path(place))
        with sw.connect(cluster.address, client="one") as session:
            work = sw.pmap(lambda x: x + 1, "device", devices=sw.slice(devices=HOSTS))
            first = np.zeros(HOSTS, np.float32)
            work(first).block_until_ready()
            caller = Caller(work, first)
            task = session.spawn(caller.run, name="caller")
            try:
                caller.rate_for(0.5)
                alone = caller.rate_for(seconds)
                spinning = while_spinning(caller, seconds)
                words = ["--compiler", cluster.address, str(operations)]
                child = children.start("other", OTHER, words, stdout=subprocess.PIPE)
                called, ended = said(child, "called"), threading.Event()
                ready: list[float] = []

                def listen() -> None:
                    try:
                        ready.append(said(child, "ready"))
                    finally:
                        ended.set()

                threading.Thread(target=listen, daemon=True).start()
                compiling = caller.rate(ended.is_set)
            finally:
                caller.end()
                children.end_all()
            task.result()
    if not ready:
        raise RuntimeError(f"the other client had no result: {child.tail()}")
    return Meanwhile(alone, spinning, compiling, ready[0] - called)


def while_spinning(caller: Caller, seconds: float) -> float:
    spinners = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(HOSTS)]
    try:
        return caller.rate_for(seconds)
    finally:
        for each in spinners:
            each.kill()
            each.wait()


def show(operations: int, seconds: float) -> Meanwhile:
    found = measured(operations, seconds)
    print(f"one client on {HOSTS} hosts of a CPU device, {AHEAD} calls at a time; calls/s")
    print(f"{'alone':>34}{found.alone:>9,.0f}")
    print(
        f"{f'while {HOSTS} processes spin':>34}{found.spinning:>9,.0f}{found.spinning / found.alone:>7.2f} x alone"
    )
    print(
        f"{f'while another compiles ({found.seconds:.1f} s)':>34}{found.compiling:>9,.0f}"
        f"{found.compiling / found.alone:>7.2f} x alone{found.compiling / found.spinning:>7.2f} x while they spin",
        flush=True,
    )
    return found
