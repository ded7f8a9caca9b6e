"""Watches the processes of a session while a workload runs: CPU time by group of threads, and counts.

caller        the user's threads                          (this process)
user          the connections' loop, and other threads    (this process: controller and clients)
host          an agent's loop, and other threads          (agents; also the work of timed devices)
enqueue       an agent's enqueueing thread, which also reads and decides while it has nothing to do
completions   an agent's thread that waits for enqueued gangs to end
device        threads that compute, which JAX started from these two
"""

import os
import time
from collections import Counter
from typing import Any, NamedTuple

from backend.admin import cpu_of, threads_of

GROUPS = ("caller", "user", "host", "enqueue", "completions", "device")
STILL = 0.02  # seconds without traffic after which all messages have been sent
MOST = 2.0  # seconds to wait for that


class WatchSample(NamedTuple):
    """Clock nanoseconds, CPU nanoseconds by group, and counts of one workload."""

    name: str
    wall: float
    cpu: dict[str, float]
    counts: dict[str, float]


class Watch:
    """Watches a session of `sw.local`, whose controller writes to all hosts directly and counts messages.

    The time of watching is not included: our own times are read last at the beginning and first at the end.
    """

    def __init__(self, session: Any) -> None:
        self._driver = session.driver
        self._hosts: Counter[str] = Counter()
        self._traffic: dict[str, int] = {}
        self._mine = self._process = self._wall = 0

    def begin(self) -> None:
        self.still()
        self._traffic, self._hosts = self._node.traffic.counts(), self._of_hosts()
        self._process, self._mine, self._wall = (cpu_of(os.getpid()), time.thread_time_ns(), time.monotonic_ns())

    def end(self, name: str, **counts: float) -> WatchSample:
        """A sample since `begin`, taken when all messages have been sent. `counts`: added by the workload."""
        ended, caller = time.monotonic_ns(), time.thread_time_ns() - self._mine
        self.still()
        ours = cpu_of(os.getpid()) - self._process
        looked = time.thread_time_ns() - self._mine
        hosts = self._of_hosts()
        traffic = self._node.traffic.counts()
        cpu = {"caller": caller, "user": ours - looked}
        cpu |= {group: hosts[group] - self._hosts[group] for group in GROUPS[2:]}
        found = {key: float(value - self._traffic[key]) for key, value in traffic.items()}
        found |= {key: float(value) for key, value in counts.items()}
        spent = {group: float(nanoseconds) for group, nanoseconds in cpu.items()}
        return WatchSample(name, float(ended - self._wall), spent, found)

    def still(self) -> None:
        """Wait until no more messages are sent. Heartbeats do not count."""
        until = time.monotonic() + MOST
        seen, since = self._said(), time.monotonic()
        while time.monotonic() < until:
            time.sleep(STILL / 4)
            now = self._said()
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since >= STILL:
                return

    @property
    def _node(self) -> Any:
        return self._driver.server.node

    def _said(self) -> tuple[int, int, int]:
        traffic = self._node.traffic
        return traffic.frames_out, traffic.ends, traffic.near_out

    def _of_hosts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for child in self._driver.agents:
            groups = by_group(threads_of(child.pid))
            found.update(groups)
            found["host"] += cpu_of(child.pid) - sum(groups.values())
        return found


def by_group(threads: dict[int, tuple[str, int]]) -> Counter[str]:
    """CPU time of an agent's threads by group.

    The first thread with one of our names is ours. Later ones with that name are JAX's, started from it, and compute.
    """
    found: Counter[str] = Counter()
    for name in ("enqueue", "completions"):
        same = sorted(number for number, (called, _) in threads.items() if called == name)
        for number in same:
            found[name if number == same[0] else "device"] += threads[number][1]
    found["device"] += sum(spent for name, spent in threads.values() if name.startswith("tf_"))
    return found
