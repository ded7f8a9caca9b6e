"""Measures what the live page costs the controller: its CPU while somebody looks, and while nobody does, by turns.

`python -m experiments.bench dashboard [--full]`. The controller is a process of its own; its hosts are timed. Somebody
who looks is what a browser with the page is to it: twice a second, with what it has, and all hosts every five seconds.
`busy`: a client runs gangs on all hosts, at a pace that does not depend on who looks. `idle`: nothing runs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

import numpy as np

import seaway as sw
from backend.admin import cpu_of
from backend.auth import Access
from seaway.dashboard import controller_source, following

from ..frame import options
from ..frame.deployed import Deployed, deployed
from ..frame.table import Table

HOSTS, ALL_HOSTS = (64,), (64, 512)
PROCESSES = 4  # processes that play all hosts
EVERY, HOSTS_EVERY = 0.5, 5.0  # seconds between looks, as in static/main.js
PACE = 2_000  # gangs a second, over all hosts: a pace that this machine keeps for any number of them
AHEAD = 4  # gangs that the client does not wait for
AIM = 2.0  # percent of a core


class Seen(NamedTuple):
    """Percent of a core that the controller used, and what looks took of that."""

    without: float
    watched: float
    looks: int

    @property
    def cost(self) -> float:
        return self.watched - self.without


class Watcher:
    """Looks as a browser does, in a thread, while it is `on`."""

    def __init__(self, address: str) -> None:
        self._source, self._reader = (
            controller_source.ControllerSource(address, Access()),
            following.TraceReader(),
        )
        self._described = 0.0
        self.looks = self.gangs = 0

    @contextmanager
    def looking(self) -> Iterator[None]:
        over = threading.Event()

        def work() -> None:
            while not over.wait(EVERY):
                self.look()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def look(self) -> None:
        hosts = time.monotonic() - self._described > HOSTS_EVERY
        if hosts:
            self._described = time.monotonic()
        found = self._source.look(self._reader.request(hosts))
        self._reader.take(found)
        self.gangs += sum(at >= 0 for at in found.trace.column("gangs", "ended"))
        self.looks += 1

    def close(self) -> None:
        self._source.close()


@contextmanager
def load(cluster: Deployed, on: bool) -> Iterator[None]:
    """A client that calls at a steady pace, in a thread."""
    if not on:
        yield
        return
    over = threading.Event()
    with sw.connect(cluster.address, client="bench") as session:
        step = sw.synthetic("step", devices=sw.slice(devices=cluster.hosts), duration="1ms")
        step(np.float32(0)).block_until_ready()

        def work() -> None:
            due, ahead = time.monotonic(), deque[sw.Array]()
            while not over.is_set():
                due += cluster.hosts / PACE
                ahead.append(step(np.float32(0)))
                if len(ahead) > AHEAD:
                    ahead.popleft().block_until_ready()
                over.wait(max(0.0, due - time.monotonic()))

        task = session.spawn(work, name="steady")
        try:
            yield
        finally:
            over.set()
            task.join()


def measured(cluster: Deployed, busy: bool, seconds: float, rounds: int) -> Seen:
    """By turns: a while without, and a while with somebody who looks. The first look, which has all, comes before."""
    watcher = Watcher(cluster.address)
    pid = cluster.controller.pid
    without, watched = [], []
    try:
        with load(cluster, busy):
            watcher.look()
            before = watcher.looks
            for _ in range(rounds):
                without.append(_percent(pid, seconds))
                watcher.look()  # what has happened meanwhile is no part of a look's usual cost
                with watcher.looking():
                    watched.append(_percent(pid, seconds))
        return Seen(median(without), median(watched), watcher.looks - before)
    finally:
        watcher.close()


def _percent(pid: int, seconds: float) -> float:
    used, begun = cpu_of(pid), time.monotonic_ns()
    time.sleep(seconds)
    return 100.0 * (cpu_of(pid) - used) / (time.monotonic_ns() - begun)


def main(arguments: Sequence[str] = ()) -> int:
    parser = options.parser("dashboard", __doc__, full="also 512 hosts")
    parser.numbers("--hosts", HOSTS, ALL_HOSTS, "numbers of hosts")
    parser.number("--seconds", 5, "length of a turn")
    parser.number("--rounds", 5, "how often each is measured")
    chosen = parser.read(arguments)
    rows = Table(
        "hosts >7", "load >7", "without >10.2f", "watched >10.2f", "cost >8.2f", "aim >6g", "looks >7d"
    )
    rows.begin(
        f"CPU of the controller's process, percent of a core; medians of {chosen.rounds} turns of {chosen.seconds} s"
    )
    missed = False
    for hosts in chosen.hosts:
        with deployed(hosts, processes=min(PROCESSES, hosts)) as cluster:
            for busy in (False, True):
                found = measured(cluster, busy, chosen.seconds, chosen.rounds)
                rows.row(
                    hosts,
                    "busy" if busy else "idle",
                    found.without,
                    found.watched,
                    found.cost,
                    AIM,
                    found.looks,
                )
                missed |= found.cost > AIM
    print(
        f"busy: {PACE:,} / hosts gangs a second, on all hosts; aim: less than {AIM:g} % while a page is open"
    )
    return int(missed)
