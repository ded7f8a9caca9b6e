"""Starts a cluster as a deployer would, for the time of a block: controller and agents are processes on this machine.

`with deployed(hosts=3, platform="cpu") as cluster:` begins when all islands run; `sw.connect(cluster.address)` opens a
session. All processes end with the block, and with this process, however it ends.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import msgspec

from backend.admin import Child, Children
from backend.auth import Access
from backend.node import SERVICE
from backend.wire import Report, Status

PATIENCE = 300.0  # seconds for all hosts to join: hundreds take that long on a busy machine
AGENT = "backend.agent.agent_cli"


class Deployed:
    """A running controller and its agents. One process may run many `timed` hosts."""

    def __init__(
        self, folder: Path, hosts: int, devices: int = 1, options: Sequence[str] = (), token: str = ""
    ) -> None:
        self.hosts, self.devices, self._shown = hosts, devices, Access(token).shown()
        self.children = Children(folder)
        self.agents: list[Child] = []
        words = ["--bind", "127.0.0.1:0", "--hosts", str(hosts), "--devices-per-host", str(devices)]
        words += ["--with-parent", "--lease", "60", *options]
        self.controller = self.children.start(
            "controller",
            "backend.server.controller_cli",
            words,
            {"PYTHONWARNINGS": "ignore"},
            stdout=subprocess.PIPE,
        )
        self.address = self._said(self.controller)

    @staticmethod
    def _said(controller: Child) -> str:
        assert controller.process.stdout is not None
        line = controller.process.stdout.readline().decode()
        found = re.match(r"controller at (\S+):", line)
        if found is None:
            raise RuntimeError(f"the controller did not start: {controller.tail()}")
        return found[1].rstrip(":")

    def start_agents(
        self, platform: str, processes: int, env: Mapping[str, str] | None = None, *, module: str = AGENT,
        options: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Start processes that together run all hosts. `module`: the program; `options`: its further arguments."""
        first, rest = divmod(self.hosts, processes)
        at = 0
        for number in range(processes):
            count = first + (number < rest)
            words = ["--controller", self.address, "--platform", platform, "--devices", str(self.devices)]
            words += ["--host", str(at), "--name", f"agent-{number}", "--with-parent", *options]
            if count > 1:
                words += ["--hosts", str(count)]
            self.agents.append(self.children.start(f"agent-{number}", module, words, env))
            at += count

    def status(self) -> dict[str, Any]:
        """The controller's status, asked without asyncio, so that it can be called from any thread."""
        with grpc.insecure_channel(self.address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            call = channel.unary_unary(f"/{SERVICE}/{Status.__name__}")
            asked = msgspec.msgpack.encode(Status())
            answer = call(asked, metadata=self._shown, timeout=PATIENCE, wait_for_ready=True)
        found: dict[str, Any] = json.loads(msgspec.msgpack.decode(answer, type=Report).json)
        return found

    def wait(self, patience: float = PATIENCE) -> None:
        """Wait until all islands run with all their hosts. An island also runs with some of them, and then re-forms."""
        until = time.monotonic() + patience
        while not all(_whole(island) for island in self.status()["islands"]):
            gone = next((child for child in self.agents if not child.alive), None)
            if gone is not None:
                raise RuntimeError(f"{gone.name} ended while it started: {gone.tail()}")
            if time.monotonic() > until:
                raise RuntimeError(f"the hosts did not join within {patience:g} s")
            time.sleep(0.1)

    def end(self) -> None:
        self.children.end_all()


def _whole(island: dict[str, Any]) -> bool:
    return island["phase"] == "running" and all(
        host["connected"] and host["member"] for host in island["hosts"]
    )


@contextmanager
def deployed(
    hosts: int, devices: int = 1, *, platform: str = "timed", processes: int = 0, env: Mapping[str, str] | None = None,
    controller: Sequence[str] = (), module: str = AGENT, options: Sequence[str] = (),
    token: str = "",
) -> Iterator[Deployed]:  # fmt: skip
    """A cluster for the time of a block. processes: how many run the hosts; 0: one for each host. controller, options:
    further arguments of the controller and of the agents. token: the token in the file that these arguments name."""
    with TemporaryDirectory() as folder:
        cluster = Deployed(Path(folder), hosts, devices, controller, token)
        try:
            cluster.start_agents(platform, processes or hosts, env, module=module, options=options)
            cluster.wait()
            yield cluster
        finally:
            cluster.end()
