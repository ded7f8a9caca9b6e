"""`seaway up` and `seaway down`: start a controller and agents as child processes on this machine, and end them."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from backend.admin import Child, Children, Supervisor, metrics
from backend.auth import Access, AccessRefused, checked, is_loopback, read, trust
from backend.process_title import show_as
from backend.scratch_folder import ScratchFolder
from backend.server import HeldFolder, controller_cli
from core.model import Cluster

from ..errors import SeawayError
from ..wording import plural
from .status import look, table

READY = 60.0  # seconds for all hosts of `up` to join
EVERY, SOON = (0.2, 0.02)  # seconds between checks that all processes live; that the controller has printed its address


def add(commands: Any) -> None:
    _add_up(commands)
    down = commands.add_parser("down", help="end the cluster that `seaway up --state FOLDER` started")
    down.add_argument("--state", required=True, metavar="FOLDER", help="the folder given to `seaway up`")
    down.set_defaults(run=_down)


def _add_up(commands: Any) -> None:
    up = commands.add_parser("up", help="run a whole cluster on this machine until Ctrl-C")
    controller_cli.add_cluster_options(up)
    option = up.add_argument
    option("--bind", default="127.0.0.1:29000", help="the address the controller listens on (%(default)s)")
    option("--platform", default="cpu", choices=("cpu", "timed"), help="kind of devices (%(default)s)")
    for name, kind, words in (
        (
            "state",
            "FOLDER",
            "for logs, the controller's state across restarts, and the process id that `seaway down` needs",
        ),
        ("checkpoints", "FOLDER", "clients may save and restore checkpoints below it"),
        ("record", "FOLDER", "each start of the controller records its events there, for `seaway replay`"),
    ):
        option(f"--{name}", default="", metavar=kind, help=words)
    trust.add_trust(up)
    up.set_defaults(run=_up)


# --- up and down --------------------------------------------------------------------------------------------------


def _up(given: argparse.Namespace) -> int:
    _on_loopback(given.bind)
    try:
        access = read(given.token_file)
        if given.metrics_port:
            metrics.place_of(given.metrics_port)
    except AccessRefused as refused:
        raise SeawayError(str(refused)) from None
    cluster = controller_cli.cluster_of(given)
    with ScratchFolder() as scratch:
        folder = Path(given.state or scratch)
        with _held(folder):
            show_as("up", sys.argv[2:])
            up = UpProcesses(given, folder, Children(folder), access)
            try:
                signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
                (folder / "up.pid").write_text(str(os.getpid()), encoding="utf-8")
                up.start(cluster)
                print(up.greeting(cluster), flush=True)
                return up.watch()
            except KeyboardInterrupt:
                return 130
            finally:
                up.children.end_all()
                (folder / "up.pid").unlink(missing_ok=True)


def _held(folder: Path) -> HeldFolder:
    try:
        return HeldFolder(folder)
    except AccessRefused as refused:
        raise SeawayError(str(refused)) from None


class UpProcesses:
    """The processes of `seaway up`. Their logs and the controller's state across restarts are in the folder."""

    def __init__(self, given: argparse.Namespace, folder: Path, children: Children, access: Access) -> None:
        self._given, self._folder, self.children, self._access = given, folder, children, access
        self._token = ["--token-file", given.token_file] if given.token_file else []
        self._supervisor = Supervisor(children, _tell)
        self.address = given.bind

    def start(self, cluster: Cluster) -> None:
        controller = self._start_controller()
        self.address = self._await_address(controller)
        self._supervisor.keep(controller, self._start_controller)
        for island in cluster.islands:
            for host in range(island.base_host, island.base_host + island.hosts):
                start = partial(self._start_agent, host, island.devices_per_host)
                self._supervisor.keep(start(), start)
        self._await_ready()

    def greeting(self, cluster: Cluster) -> str:
        token = f", token_file={self._given.token_file!r}" if self._token else ""
        place = f"grpc://{self.address}"
        figures = re.search(r"^metrics at \S+", self._supervisor.all[0].said(), re.MULTILINE)
        return (
            f"{plural(cluster.hosts, 'host')}, {plural(cluster.devices, 'device')} at {place}\n"
            f"  a program: sw.connect({place!r}{token})      how it is: seaway status "
            f"{' '.join([self.address, *self._token])}" + (f"\n  {figures[0]}" if figures else "")
        )

    def _start_controller(self) -> Child:
        """Start the controller; after the first time, at the same address and with the state left behind."""
        given = self._given
        words = ["--bind", self.address, "--policy", given.policy, "--state", str(self._folder / "controller")]
        words += ["--window", str(given.window), *self._token]
        words += ["--metrics-port", given.metrics_port] if given.metrics_port else []
        words += ["--cluster", given.cluster] if given.cluster else []
        for name in ("islands", "hosts", "devices_per_host"):
            words += [f"--{name.replace('_', '-')}", str(getattr(given, name))]
        words += ["--record", given.record] if given.record else []
        return self.children.start("controller", "backend.server", [*words, "--with-parent", "--verbose"])

    def _await_address(self, controller: Child) -> str:
        while (found := re.search(r"^controller at (\S+):", controller.said(), re.MULTILINE)) is None:
            if not controller.alive:
                raise SeawayError(f"the controller did not start: {_why(controller)}")
            time.sleep(SOON)
        return found[1]

    def _start_agent(self, host: int, devices: int) -> Child:
        given = self._given
        words = ["--controller", self.address, "--host", str(host), "--name", f"host-{host}"]
        words += ["--platform", given.platform, "--devices", str(devices), *self._token]
        if given.checkpoints:
            words += ["--checkpoints", given.checkpoints]
        words += [*trust.words_of(given), "--with-parent", "--verbose"]
        return self.children.start(f"agent-{host}", "backend.agent", words)

    def _await_ready(self) -> None:
        until = time.monotonic() + READY
        while True:
            for child in self.children.all():
                if not child.alive:
                    raise SeawayError(f"{child.name} {child.fate()} before the cluster was up: {_why(child)}")
            found = look(self.address, self._access)
            if all(island["phase"] == "running" for island in found["islands"]):
                return
            if time.monotonic() > until:
                raise SeawayError(f"not all hosts had joined within {READY:.0f} s: {table(found)}")
            time.sleep(0.1)

    def watch(self) -> int:
        """Restart processes that die. Raise when the controller, or the last agent, cannot be restarted."""
        controller, *agents = self._supervisor.all
        while True:
            self._supervisor.look()
            lost = [child.name for child in self._supervisor.given_up()]
            if controller.name in lost or len(lost) == len(agents):
                raise SeawayError(f"the cluster cannot go on: {', '.join(lost)} never came up again")
            time.sleep(EVERY)


def _tell(text: str) -> None:
    print(f"seaway up: {text}", file=sys.stderr, flush=True)


def _on_loopback(bind: str) -> None:
    """Refuse other addresses than loopback: `up` is for one machine."""
    try:
        checked(bind)
    except AccessRefused as refused:
        raise SeawayError(f"--bind {bind}: {refused}") from None
    if not is_loopback(bind):
        port = bind.rpartition(":")[2]
        raise SeawayError(
            f"--bind {bind}: `seaway up` is for one machine, and listens only on loopback, such as 127.0.0.1:{port}. "
            f"For other machines, run `seaway controller --bind {bind} --token-file FILE`, and `seaway agent` with the "
            f"same FILE on each host"
        )


def _why(child: Child) -> str:
    return child.tail() or f"it returned {child.process.poll()} and printed nothing"


def _down(given: argparse.Namespace) -> int:
    path = Path(given.state) / "up.pid"
    try:
        pid = int(path.read_text(encoding="utf-8"))
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError):
        raise SeawayError(f"nothing that `seaway up --state {given.state}` started is running") from None
    until = time.monotonic() + 20
    while path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    return 0 if not path.exists() else 1
