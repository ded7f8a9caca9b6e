"""Faults of one process that is on a machine of its own: what it is given is changed, and later given back.

    address     the machine gets another address; after `lasts=`, its process is started again there, if it lives on
    files       it is started again, and may have 64 files open, for `lasts=`; then it is started again
    memory      it and its children get no more memory than 2 MiB beyond what they have, for `lasts=`
    flip, truncate    the controller is killed, and starts with a damaged file of its state; if it then refuses to
                run, it gets the right file back after `lasts=`
    old         the controller starts with its state of an earlier start, and after `lasts=` with the newest again

Neighbours: `inject`, which calls these; `machine_network`: wires, disks and clocks.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from .cluster import Cluster
from .machine_network import MachineNetwork
from .memory_limit import MemoryLimit
from .processes import Policy, children_of
from .schedule import Fault
from .watching import standing

FILES = 64
MEMORY = 2 << 20
SOON = 0.1
CHECKER = b"seaway checker of agent "
Over = Callable[[float], None]  # the process was ended then: as soon as it runs again, the fault is over


def address(cluster: Cluster, fault: Fault, over: Over) -> None:
    assert isinstance(cluster.network, MachineNetwork)
    process, pid = cluster.processes[fault.target], cluster.processes[fault.target].pid
    begun = time.monotonic()
    cluster.network.renumber(fault.target)

    def remedy() -> None:
        if process.pid == pid:  # otherwise it has ended, and was started again at the new address
            process.end_now(Policy(fault.restart))
        over(begun)

    cluster.later(fault.lasts, remedy)


def files(cluster: Cluster, fault: Fault, over: Over) -> None:
    process = cluster.processes[fault.target]
    process.files = FILES
    process.end_now(Policy(fault.restart))

    def remedy() -> None:
        process.files = 0
        process.end_now(Policy(fault.restart))
        over(time.monotonic())

    cluster.later(fault.restart + fault.lasts, remedy)


def memory(cluster: Cluster, fault: Fault, over: Over) -> None:
    pid = cluster.processes[fault.target].pid
    limit = MemoryLimit([pid, *children_of(pid)], MEMORY)

    def remedy() -> None:
        limit.end()
        over(time.monotonic())

    cluster.later(fault.lasts, remedy)


def damaged(cluster: Cluster, fault: Fault, over: Over) -> None:
    """A controller that finds a way to go on keeps what it made of it. One that refuses gets the right file back."""
    process, folder = cluster.processes["controller"], cluster.network.disk("controller") / "state"
    process.end_now(Policy(fault.restart))
    begun = time.monotonic()
    file = damage(folder, fault)

    def remedy() -> None:
        if file is None or (cluster.watch.status is not None and cluster.watch.at > process.starts[-1]):
            over(begun)
        else:
            process.end_now(Policy(fault.restart))
            file[0].write_bytes(file[1])
            over(time.monotonic())

    cluster.later(fault.restart + fault.lasts, remedy)


def old(cluster: Cluster, fault: Fault, over: Over) -> None:
    process, folder = cluster.processes["controller"], cluster.network.disk("controller") / "state"
    older, newest = cluster.folder / "state-older", cluster.folder / "state-newest"

    def begin() -> None:
        process.end_now(Policy(fault.restart))
        _copy(folder, newest)
        _copy(older, folder)
        cluster.later(fault.restart + fault.lasts, remedy)

    def remedy() -> None:
        process.end_now(Policy(fault.restart))
        _copy(newest, folder)
        over(time.monotonic())

    def once_newer() -> None:
        """Hosts must know of the start between."""
        status, since = cluster.watch.status, process.starts[-1]
        if not process.alive or cluster.watch.at < max(since, begun) or standing(status):
            cluster.later(SOON, once_newer)
        else:
            begin()

    begun = time.monotonic()
    process.end_now(Policy(SOON))
    _copy(folder, older)
    once_newer()


def damage(folder: Path, fault: Fault) -> tuple[Path, bytes] | None:
    """Flip a bit of a file, or leave half of it. Returns it, and what it was."""
    found = sorted(folder.glob({"state": "controller.json", "agents": "agents.json", "code": "code/*"}[fault.file]))
    if not found:
        return None  # no client has sent code yet
    chance = random.Random(fault.line())
    path = chance.choice(found)
    was = path.read_bytes()
    data = bytearray(was)
    if fault.kind == "flip":
        at = chance.randrange(8 * len(data))
        data[at // 8] ^= 1 << at % 8
    else:
        del data[len(data) // 2 :]
    path.write_bytes(data)
    return path, was


def checker(cluster: Cluster, fault: Fault) -> int:
    """Kill a checker of this agent. Returns its pid, or 0 if it has none."""
    for pid in children_of(cluster.processes[f"agent-{fault.number}"].pid):
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(CHECKER):
                os.kill(pid, signal.SIGKILL)
                return pid
        except OSError:
            continue
    return 0


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    if source.exists():
        shutil.copytree(source, target)


CARRIED_OUT = {"address": address, "files": files, "memory": memory, "flip": damaged, "truncate": damaged, "old": old}
