"""Faults of one process that is on a machine of its own: what it is given is changed, and later given back.

    address     the machine gets another address; after `lasts=`, its process is started again there, if it lives on
    files       it is started again, and may have 64 files open, for `lasts=`; then it is started again
    memory      it and its children get no more memory than 16 MiB beyond what they have, for `lasts=`
    state       the controller is killed, its state is damaged or an older one, and it starts so; after `lasts=` it is
                killed, gets back the right state, and starts with that

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

FILES = 64
MEMORY = 16 << 20
OLDER = 3.0  # seconds that the controller runs, so that a copy of its state is an older one
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


def state(cluster: Cluster, fault: Fault, over: Over) -> None:
    process = cluster.processes["controller"]
    folder = cluster.network.disk("controller") / "state"
    right = cluster.folder / "state-right"

    def remedy() -> None:
        process.end_now(Policy(fault.restart))
        _copy(right, folder)
        over(time.monotonic())

    def begin_old() -> None:
        process.end_now(Policy(fault.restart))
        older = cluster.folder / "state-older"
        _copy(right, older)
        _copy(folder, right)
        _copy(older, folder)
        cluster.later(fault.restart + fault.lasts, remedy)

    process.end_now(Policy(SOON if fault.kind == "old" else fault.restart))
    _copy(folder, right)
    if fault.kind == "old":
        cluster.later(OLDER, begin_old)
    else:
        damage(folder, fault)
        cluster.later(fault.restart + fault.lasts, remedy)


def damage(folder: Path, fault: Fault) -> None:
    """Flip a bit of a file, or leave half of it."""
    chance = random.Random(fault.line())
    found = sorted(
        path for path in folder.rglob("*")
        if path.is_file() and path.stat().st_size and (path.parent == folder) == (fault.file == "state")
    )  # fmt: skip
    if not found:
        return
    path = chance.choice(found)
    data = bytearray(path.read_bytes())
    if fault.kind == "flip":
        at = chance.randrange(8 * len(data))
        data[at // 8] ^= 1 << at % 8
    else:
        del data[len(data) // 2 :]
    path.write_bytes(data)


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


CARRIED_OUT = {"address": address, "files": files, "memory": memory, "flip": state, "truncate": state, "old": state}
