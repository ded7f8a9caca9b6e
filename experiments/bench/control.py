"""The control plane at scale: controller CPU a gang and the latency of a call, over real gRPC, on timed devices.

`python -m experiments.bench control`. The controller has a process of its own, whose CPU time is read before and after;
hosts are agents with devices that only take time, many in a process. `tree`: each process writes to few; `flat`, the
baseline: the controller writes to all. Where two cores play hundreds of hosts, latencies are theirs: only the
controller's own CPU time carries over to hosts on machines of their own.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from backend.access import Access
from backend.calls import Status, ask
from backend.children import Child, Children
from backend.remote import Head, Remote
from core import effects as e
from core.client import Client
from core.program import Arg, Computation, Node, Out, Program, SliceSpec, Value
from core.session import Blocked

HOSTS = (16, 64, 256, 512)
PROCESSES = 4  # that play the hosts
NODES = 128  # of a batched call
AIMS = {16: 0.3, 512: 3.0}  # ms of the controller a gang, batched, with the tree
FLAT = 8.0  # times less than flat, at least
TREE = 23
PATIENCE = 120.0
TICK = os.sysconf("SC_CLK_TCK")


def cpu_of(pid: int) -> float:
    """Seconds of CPU, with those of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Cluster:
    """`hosts` hosts of one device, played by a few processes."""

    def __init__(self, folder: Path, hosts: int, fanout: int) -> None:
        self.hosts = hosts
        self.children = Children(folder)
        words = ["--bind", "127.0.0.1:0", "--hosts", str(hosts), "--fanout", str(fanout), "--with-parent"]
        self.controller = self.children.start(
            "controller", "backend.controlling", [*words, "--lease", "60"], stdout=subprocess.PIPE
        )
        self.address = self._address(self.controller)
        each = hosts // PROCESSES
        for number in range(PROCESSES):
            words = [
                "--controller",
                self.address,
                "--platform",
                "timed",
                "--with-parent",
                "--host",
                str(number * each),
            ]
            self.children.start(
                f"hosts-{number}", "backend.hosting", [*words, "--hosts", str(each), "--name", f"p{number}"]
            )

    @staticmethod
    def _address(controller: Child) -> str:
        assert controller.process.stdout is not None
        line = controller.process.stdout.readline().decode()
        found = re.match(r"controller at (\S+):", line)
        if found is None:
            raise RuntimeError(f"the controller did not start: {controller.tail()}")
        return found[1].rstrip(":")


def chain(nodes: int, hosts: int) -> Program:
    value = Value((hosts,), "float32", 0)
    steps = tuple(
        Node("step", 0, 0, (Arg(0) if at == 0 else Out(at - 1),), (value,), (value,)) for at in range(nodes)
    )
    slices = (SliceSpec("all", hosts),)
    return Program("chain", slices, (Computation("step", "step", 1000),), (value,), steps, (Out(nodes - 1),))


class User:
    def __init__(self, remote: Remote, ended: dict[int, asyncio.Event]) -> None:
        self.remote, self._ended = remote, ended

    def call(self, act: Callable[[Client, int], Any]) -> Any:
        answer = self.remote.act(act)
        assert not isinstance(answer, Blocked), answer
        return answer

    def start(self, program: int, argument: bytes) -> asyncio.Event:
        submitted = self.call(lambda client, now: client.submit(program, (argument,), now))
        event = self._ended.setdefault(submitted.run, asyncio.Event())
        self.call(lambda client, now: client.release(submitted.results, now))
        return event


async def measured(cluster: Cluster) -> dict[str, float]:
    """ms of the controller's CPU a gang, single and batched; ms of a call, end to end."""
    access = Access()
    head = Head(cluster.address, access)
    about = await head.about("bench", PATIENCE)
    ended: dict[int, asyncio.Event] = {}
    failures: list[BaseException] = []

    def heard(effect: e.Effect) -> None:
        if isinstance(effect, e.RunEnded):
            if effect.blame is not None:
                failures.append(RuntimeError(str(effect.blame)))
            ended.setdefault(effect.run, asyncio.Event()).set()

    remote = Remote(Client("bench"), about.cluster, about.lease, head, heard=heard, failed=failures.append)
    remote.node.start()
    user = User(remote, ended)
    channel = access.channel(cluster.address)
    until = time.monotonic() + PATIENCE
    while b'"phase":"running"' not in (await ask(channel, access, Status())).json:
        if time.monotonic() > until:
            raise RuntimeError("the hosts did not come")
        await asyncio.sleep(0.2)
    argument = bytes(4 * cluster.hosts)
    single = user.call(lambda client, now: client.register(chain(1, cluster.hosts), now))
    batched = user.call(lambda client, now: client.register(chain(NODES, cluster.hosts), now))
    for program in (single, batched):
        await user.start(program, argument).wait()
    found = {}
    latencies = []
    before = cpu_of(cluster.controller.pid)
    for _ in range(30):
        begun = time.perf_counter()
        await user.start(single, argument).wait()
        latencies.append(time.perf_counter() - begun)
    found["single"] = (cpu_of(cluster.controller.pid) - before) / 30 * 1e3
    found["latency"] = statistics.median(latencies) * 1e3
    before, begun = cpu_of(cluster.controller.pid), time.perf_counter()
    runs = [user.start(batched, argument) for _ in range(4)]
    for run in runs:
        await run.wait()
    found["batched"] = (cpu_of(cluster.controller.pid) - before) / (4 * NODES) * 1e3
    found["rate"] = 4 * NODES / (time.perf_counter() - begun)
    if failures:
        raise failures[0]
    await remote.stop()
    await head.close()
    await channel.close()
    return found


async def one(hosts: int, fanout: int) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), hosts, fanout)
        try:
            return await measured(cluster)
        finally:
            cluster.children.end_all()


def main() -> None:
    asyncio.run(table())


async def table() -> None:
    print(
        f"CPU of the controller's process, ms a gang; all hosts are played by {PROCESSES} processes of this machine"
    )
    print(f"{'':7}{'one call a gang':^28}{f'{NODES} gangs a call':^38}{'call, end to end':>18}{'gangs/s':>9}")
    print(
        f"{'hosts':>7}{'tree':>9}{'flat':>9}{'x':>10}{'tree':>9}{'flat':>9}{'x':>10}{'aim':>10}{'ms':>18}{'':9}"
    )
    for hosts in HOSTS:
        tree, flat = await one(hosts, TREE), await one(hosts, hosts)
        aim = f"{AIMS[hosts]:g}" if hosts in AIMS else ""
        cells = f"{hosts:>7}"
        for kind, wide in (("single", 2), ("batched", 3)):
            times = flat[kind] / max(tree[kind], 1e-9)
            cells += f"{tree[kind]:>9.{wide}f}{flat[kind]:>9.{wide}f}{times:>9.1f}x"
        print(f"{cells}{aim:>10}{tree['latency']:>18.1f}{tree['rate']:>9,.0f}", flush=True)
    print(f"aims: batched {AIMS} ms with the tree; at 512 hosts {FLAT:g}x less than flat")


if __name__ == "__main__":
    main()
