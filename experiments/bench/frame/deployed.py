"""Starts a cluster as a deployer would, for the time of a block: controller and agents are processes on this machine.

`with deployed(hosts=3) as cluster:` begins when all islands run; `sw.connect(cluster.address)` opens a
session. All processes end with the block, and with this process, however it ends.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
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

AGENT = "backend.agent"
PATIENCE = 300.0  # seconds for all hosts to join: hundreds take that long on a busy machine


class Deployed:
    """A running controller and its agents."""

    def __init__(self, folder: Path, hosts: int, options: Sequence[str] = ()) -> None:
        self.hosts = hosts
        self.children = Children(folder)
        self.agents: list[Child] = []
        self._words: list[list[str]] = []  # of their command lines
        shape = [] if "--cluster" in options else ["--hosts", str(hosts)]
        self._options = [*shape, "--with-parent", "--lease", "60", *options]
        self.address = "127.0.0.1:0"
        self.controller_again()

    def controller_again(self) -> None:
        """Start the controller, also at the same address after it has ended. With `--state` it knows its agents."""
        self.controller = self.children.start(
            "controller",
            "backend.server",
            ["--bind", self.address, *self._options],
            {"PYTHONWARNINGS": "ignore"},
            stdout=subprocess.PIPE,
        )
        assert self.controller.process.stdout is not None
        found = re.match(r"controller at (\S+):", self.controller.process.stdout.readline().decode())
        if found is None:
            raise RuntimeError(f"the controller did not start: {self.controller.tail()}")
        self.address = found[1].rstrip(":")

    def start_agents(self, options: Sequence[str] = (), devices: int = 1, platform: str = "cpu") -> None:
        """Start a process for each host, with `devices` CPU devices, or all that there are of another platform.
        `options`: further ones."""
        count = ["--devices", str(devices)] if platform == "cpu" else []
        for number in range(self.hosts):
            name = f"agent-{number}"
            words = ["--controller", self.address, "--platform", platform, *count]
            words += ["--host", str(number), "--name", name, "--with-parent", *options]
            self._words.append(words)
            self.agents.append(self.children.start(name, AGENT, words))

    def again(self, number: int) -> None:
        """Start an agent that has ended, under its old name."""
        name = self.agents[number].name
        self.agents[number] = self.children.start(name, AGENT, self._words[number])

    def status(self) -> dict[str, Any]:
        """The controller's status, asked without asyncio, so that it can be called from any thread."""
        with grpc.insecure_channel(self.address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            call = channel.unary_unary(f"/{SERVICE}/{Status.__name__}")
            asked = msgspec.msgpack.encode(Status())
            answer = call(asked, metadata=Access().shown(), timeout=PATIENCE, wait_for_ready=True)
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


def _whole(island: dict[str, Any]) -> bool:
    return island["phase"] == "running" and all(host["connected"] and host["member"] for host in island["hosts"])


@contextmanager
def controller_only(hosts: int, options: Sequence[str] = ()) -> Iterator[Deployed]:
    """A controller for the time of a block, whose agents the block starts."""
    with TemporaryDirectory() as folder:
        cluster = Deployed(Path(folder), hosts, options)
        try:
            yield cluster
        finally:
            cluster.children.end_all()


@contextmanager
def deployed(
    hosts: int, *, controller: Sequence[str] = (), options: Sequence[str] = (), devices: int = 1, platform: str = "cpu"
) -> Iterator[Deployed]:
    """A cluster for the time of a block. controller, options: further arguments of the controller and of the agents.
    devices: of each host."""
    with controller_only(hosts, controller) as cluster:
        cluster.start_agents(options, devices, platform)
        cluster.wait()
        yield cluster
