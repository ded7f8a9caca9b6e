"""A cluster of real processes. Each can be killed, stopped and started again; all end with the test."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any

from backend.admin.children import environment
from backend.auth.access import Access
from backend.node.calls import ask
from backend.wire.call_messages import Report, Status
from core.model.topology import small

from .cluster import User

PATIENCE = 120.0  # seconds, after which a wait has failed


class Program:
    """One process and its output."""

    def __init__(
        self, log: Path, *words: str, env: dict[str, str] | None = None, python: tuple[str, ...] = ("-m", "seaway")
    ) -> None:
        self.log = log
        with log.open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, *python, *words], stdout=subprocess.PIPE, stderr=said, text=True,
                env=environment({"PYTHONWARNINGS": "ignore"} | (env or {})), start_new_session=True,
            )  # fmt: skip

    def line(self) -> str:
        """The next line that it prints."""
        out: IO[str] | None = self.process.stdout
        assert out is not None
        found = out.readline()
        assert found, f"it ended: {self.said()}"
        return found

    def said(self) -> str:
        return self.log.read_text()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.process.wait, PATIENCE)

    def end(self) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)
                self.signal(signal.SIGKILL)
            self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Real:
    """`lease`: in seconds. `options`: more options for the controller. `room`: bytes of each host's memory, and of its
    disk, for what has left its devices; (): as usual."""

    def __init__(
        self, folder: Path, hosts: int = 2, devices_per_host: int = 2, islands: int = 1, *, lease: float = 2.0,
        platform: str = "timed", options: tuple[str, ...] = (), room: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.folder, self.cluster, self.access = folder, small(hosts, devices_per_host, islands), Access()
        self.lease = round(lease * 1e9)
        self._platform, self._options, self._spill = platform, options, list[str]()
        self._shape = ["--hosts", str(hosts), "--devices-per-host", str(devices_per_host), "--islands", str(islands)]
        if room:
            file = folder / "cluster.toml"
            island = {
                "hosts": hosts,
                "devices_per_host": devices_per_host,
                "host_memory": room[0],
                "host_disk": room[1],
            }
            lines = [f"{key} = {value}" for key, value in island.items()]
            file.write_text("\n".join(["[[island]]", 'name = "i"', *lines]), encoding="utf-8")
            self._shape, self._spill = ["--cluster", str(file)], ["--spill", str(folder / "spilled")]
        self.address = "127.0.0.1:0"
        self.agents: dict[int, Program] = {}
        self.users: list[User] = []
        self._all: list[Program] = []

    def program(self, name: str, *words: str, env: dict[str, str] | None = None) -> Program:
        found = Program(self.folder / f"{name}.log", *words, env=env)
        self._all.append(found)
        return found

    def start_controller(self, *options: str) -> None:
        """Start a controller with the state and address of an earlier one."""
        lease = str(self.lease / 1e9)
        self.controller = self.program(
            "controller", "controller", "--bind", self.address, "--state", str(self.folder / "state"),
            "--lease", lease, "--verbose", *self._shape, *self._options, *options,
        )  # fmt: skip
        self.address = self.controller.line().split()[2].rstrip(":")

    def agent(self, host: int, *words: str, env: dict[str, str] | None = None) -> Program:
        self.agents[host] = self.program(
            f"agent-{host}", "agent", "--controller", self.address, "--host", str(host), "--name", f"host-{host}",
            "--platform", self._platform, "--devices", str(self.cluster.islands[0].devices_per_host),
            *self._spill, *words, env=env,
        )  # fmt: skip
        return self.agents[host]

    def figures(self) -> str:
        """Where a controller with --metrics-port, which has just started, shows its figures."""
        found = re.search(r"http://\S+", self.controller.line())
        assert found is not None
        return found[0]

    async def status(self) -> dict[str, Any]:
        channel = self.access.channel(self.address)
        try:
            report: Report = await ask(channel, self.access, Status(), 10.0)
        finally:
            await channel.close()
        found: dict[str, Any] = json.loads(report.json)
        return found

    async def until(self, over: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Poll the status until `over` is true of it, and return it."""
        end = time.monotonic() + PATIENCE
        while not over(found := await self.status()):
            assert time.monotonic() < end, json.dumps(found, indent=1)
            await asyncio.sleep(0.05)
        return found

    async def ready(self, epoch: int = 0) -> dict[str, Any]:
        """Wait until all islands run, in this epoch or a later one, with all their hosts."""
        return await self.until(
            lambda found: all(
                island["phase"] == "running"
                and island["epoch"] >= epoch
                and all(host["connected"] and host["member"] for host in island["hosts"])
                for island in found["islands"]
            )
        )

    def user(self, name: str = "ann") -> User:
        found = User(self, name)  # type: ignore[arg-type]
        self.users.append(found)
        return found

    async def stop(self) -> None:
        for user in self.users:
            await user.stop()
        for program in reversed(self._all):
            program.end()


@asynccontextmanager
async def real(folder: Path, hosts: int = 2, devices_per_host: int = 2, **options: Any) -> AsyncIterator[Real]:
    found = Real(folder, hosts, devices_per_host, **options)
    try:
        found.start_controller()
        for host in range(found.cluster.hosts):
            found.agent(host)
        await found.ready()
        yield found
    finally:
        await found.stop()


def title_of(pid: int) -> str:
    """What `ps` shows of a process; "" if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
    return ""


def children_of(pid: int, program: str) -> list[int]:
    """The children of this process that show themselves as `seaway PROGRAM`, in the order of their starts."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError, IndexError):
                parent = (each / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == pid and f"{title_of(int(each.name))} ".startswith(f"seaway {program} "):
                    found.append(int(each.name))
    return sorted(found)


def await_end(pid: int) -> None:
    """Wait for the end of a process that is not our child."""
    end = time.monotonic() + PATIENCE
    while (stat := Path(f"/proc/{pid}/stat")).exists():
        with suppress(OSError, IndexError):
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return  # its status is not known here
        assert time.monotonic() < end, f"process {pid} still runs"
        time.sleep(0.02)
