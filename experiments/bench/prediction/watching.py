"""Reads CPU time by process and thread, and numbers of messages, from a real or a simulated session.

For a real session they come from the system's thread times and the controller's counters. For a simulated one they are
the costs charged to its processes, if these share cores. `playing` reads before and after a measurement, and
`explain` prints both sides.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from core.protocol import CONTROLLER, is_client
from sim.network import Network
from sim.shared_cores import SharedMachines

from ..frame.cpu import ThreadCpu

DOWN, UP = "controller to hosts", "hosts to controller"
ENDED = "user threads that ended"


class Seen(NamedTuple):
    """Totals so far. cpu: nanoseconds by process and thread. wires: messages by direction."""

    cpu: Mapping[str, int]
    wires: Mapping[str, int]


def since(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: now - before.get(name, 0) for name, now in after.items()}


def real_watch(session: Any) -> Callable[[], Seen]:
    """A function that reads the totals of a session of `sw.local`."""
    driver = session.driver
    watch = ThreadCpu(driver.loop_thread, {child.name: child.pid for child in driver.agents})

    def seen() -> Seen:
        cpu, whole, traffic = watch.cpu(), time.process_time_ns(), driver.server.node.traffic
        cpu[ENDED] = whole - sum(ns for name, ns in cpu.items() if name.startswith("user "))
        return Seen(cpu, {DOWN: traffic.writes_out, UP: traffic.reads_in})

    return seen


def simulated_watch(session: Any, hosts: int) -> Callable[[], Seen]:
    simulation = session.simulation
    return lambda: Seen(charged(simulation.machines), carried(simulation.network, hosts))


def charged(machines: SharedMachines) -> Counter[str]:
    found: Counter[str] = Counter()
    for (process, thread), ns in machines.spent().items():
        found[f"{who(process)} {thread}"] += ns
    return found


def who(process: int) -> str:
    if process >= 0:
        return f"host {process}"
    return "clients" if is_client(process) else "controller"


def carried(network: Network, hosts: int) -> dict[str, int]:
    return {
        DOWN: sum(network.link(CONTROLLER, host).count for host in range(hosts)),
        UP: sum(network.link(host, CONTROLLER).count for host in range(hosts)),
    }
