"""Carries out a fault of the schedule on the cluster: signals, wires and limits, and their end in time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import msgspec

from .cluster import Cluster
from .machine_faults import CARRIED_OUT, checker
from .network import free_port
from .processes import Policy
from .schedule import MOMENTS, RESTARTS, Fault

PULSE = 0.05  # seconds that a slow host is stopped, and then runs
WAIT_MOMENT = 20.0  # seconds to wait for the moment that a fault asks for; then it comes anyway


class Injected(msgspec.Struct):
    """A fault on its way. `over`: when the process was restarted, or went on, or the wire was whole; None: not yet."""

    fault: Fault
    begun: float
    over: float | None = None
    idle: bool = False  # there was no process that it could affect
    pid: int = 0
    ended: float | None = None  # when the process was ended last: once it runs again, this is over


def inject(cluster: Cluster, fault: Fault) -> Injected:
    found = Injected(fault, time.monotonic())
    if fault.role == "coordination":
        _coordination(cluster, fault, found)
    elif fault.role == "checker":
        found.pid = checker(cluster, fault)
        found.idle, found.over = not found.pid, found.begun
    elif fault.ends_process:
        _end(cluster, fault, found)
    elif fault.kind in ("stop", "pulse"):
        _stand_still(cluster, fault, found)
    elif fault.kind == "full":
        cluster.limit_files([fault.target], True)
        _then(cluster, found, lambda: cluster.limit_files([fault.target], False))
    elif fault.kind == "suspend":
        cluster.operate("suspend", fault.name)
        _then(cluster, found, lambda: cluster.operate("resume", fault.name))
    elif fault.kind == "move":
        cluster.operate("move", fault.name)
        _then(cluster, found, lambda: cluster.operate("move", fault.name))
    elif fault.kind == "grow":
        found.idle, found.over = not cluster.grow(), time.monotonic()
    elif fault.kind == "drain":
        cluster.operate("drain", f"host-{fault.number}")
        _then(cluster, found, lambda: cluster.operate("uncordon", f"host-{fault.number}"))
    elif fault.kind in CARRIED_OUT:
        found.pid = cluster.processes[fault.target].pid
        CARRIED_OUT[fault.kind](cluster, fault, lambda at: _ended(found, at))
    else:
        _then(cluster, found, cluster.network.begin(fault))
    return found


def settle(cluster: Cluster, injected: Injected) -> bool:
    """Return whether it is over. To be called at every tick."""
    if injected.over is None and injected.ended is not None:
        process = cluster.processes[injected.fault.target]
        if process.alive and (process.starts[-1] > injected.ended or injected.fault.kind not in RESTARTS):
            injected.over = max(process.starts[-1], injected.ended)
    return injected.over is not None


def await_moment(cluster: Cluster, fault: Fault) -> bool:
    """Wait until the fault's moment is under way. Returns False if it did not come within a while."""
    if not fault.moment:
        return True
    if fault.moment == "epoch":

        def now() -> bool:
            status = cluster.watch.status
            return status is not None and any(island["phase"] != "running" for island in status["islands"])

        return cluster.until(now, min(WAIT_MOMENT, 2.0 + cluster.shape.lease))

    def under_way() -> bool:
        calls = [cluster.call(name) for name in cluster.readers]
        return any(getattr(call, "what", "").startswith(begins) for call in calls)

    begins, _ = MOMENTS[fault.moment]
    return cluster.until(under_way, WAIT_MOMENT, 0.005)


def _end(cluster: Cluster, fault: Fault, found: Injected) -> None:
    process = cluster.processes[fault.target]
    port = free_port() if fault.port == "other" else None
    number = signal.SIGKILL if fault.kind == "kill" else signal.SIGTERM
    found.pid, found.ended = process.pid, found.begun
    if not process.end(number, Policy(fault.restart, port)):
        found.idle, found.over = True, found.begun


def _stand_still(cluster: Cluster, fault: Fault, found: Injected) -> None:
    process, pid = cluster.processes[fault.target], cluster.processes[fault.target].pid
    if not process.alive:
        found.idle, found.over = True, found.begun
        return

    def go_on() -> None:
        if process.pid == pid:
            process.signal(signal.SIGCONT)

    def beat() -> None:
        if found.over is None and process.pid == pid:
            process.signal(signal.SIGCONT if process.stopped else signal.SIGSTOP)
            cluster.later(PULSE, beat)

    found.pid = pid
    process.signal(signal.SIGSTOP)
    if fault.kind == "pulse":
        cluster.later(PULSE, beat)
    _then(cluster, found, go_on)


def _coordination(cluster: Cluster, fault: Fault, found: Injected) -> None:
    """Kill or stop a coordination process. It is the controller's child, and the controller starts another one: so a
    kill is over at once."""
    pid = found.pid = cluster.coordination(fault.number)
    if not pid:
        found.idle, found.over = True, found.begun
        return
    number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "terminate": signal.SIGTERM}[fault.kind]
    _signal(pid, number)
    if fault.kind == "stop":
        _then(cluster, found, lambda: _signal(pid, signal.SIGCONT))
    else:
        found.over = time.monotonic()


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _ended(found: Injected, at: float) -> None:
    found.ended = at


def _then(cluster: Cluster, found: Injected, act: Callable[[], None]) -> None:
    def over() -> None:
        act()
        found.over = time.monotonic()

    cluster.later(found.fault.lasts, over)
