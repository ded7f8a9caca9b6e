"""`seaway up` and `seaway down`: start a controller and agents as child processes on this machine, and end them."""

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from backend.admin import Child, Children, Supervisor, metrics
from backend.auth import Access, AccessRefused, checked, is_loopback, read, trust
from backend.plain_files import plain_bytes
from backend.process_title import show_as
from backend.scratch_folder import ScratchFolder
from backend.server import HeldFolder, controller_cli
from backend.wire import AboutReply, Described, GrowCall
from core.model import Cluster

from .. import __version__
from ..errors import SeawayError
from ..wording import plural
from .status import asked, look, table

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
    access = read(given.token_file)
    if given.metrics_port:
        metrics.place_of(given.metrics_port)
    cluster = controller_cli.cluster_of(given)
    if given.state and (running := _running(Path(given.state))):
        return _grow(given, cluster, access, *running)
    with ScratchFolder() as scratch:
        folder = Path(given.state or scratch)
        with HeldFolder(folder):
            show_as("up", sys.argv[2:])
            up = UpProcesses(given, folder, Children(folder), access)
            try:
                signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
                signal.signal(signal.SIGUSR1, up.more)
                (folder / "up.pid").write_text(str(os.getpid()), encoding="utf-8")
                up.start()
                (folder / "up.pid").write_text(f"{os.getpid()} {up.address}", encoding="utf-8")
                print(_greeting(look(up.address, access), up.address, given.token_file, up.figures()), flush=True)
                return up.watch()
            except KeyboardInterrupt:
                return 130
            finally:
                up.children.end_all()
                (folder / "up.pid").unlink(missing_ok=True)


def _running(folder: Path) -> tuple[int, str] | None:
    """The process that runs `up` in this folder, and its controller's address, if it has begun."""
    try:
        with HeldFolder(folder):
            return None  # nobody does; what an earlier process has left there says nothing
    except AccessRefused:
        pass
    try:
        pid, address = (folder / "up.pid").read_text(encoding="utf-8").split()
        return int(pid), address
    except (OSError, ValueError):
        return None


def _grow(given: argparse.Namespace, cluster: Cluster, access: Access, pid: int, address: str) -> int:
    """The controller takes in the hosts that are wanted now, and the process that runs the others starts agents."""
    name = given.cluster or f"--hosts {given.hosts}"
    try:
        asked(address, access, GrowCall(_file_of(given), name))
    except SeawayError as wrong:
        begins = f"--state {given.state} is in use by process {pid}: end that one first, or let it grow"
        raise SeawayError(f"{begins}. {wrong}") from None
    os.kill(pid, signal.SIGUSR1)
    found = _await_ready(address, access, cluster.hosts)
    print(_greeting(found, address, given.token_file), flush=True)
    return 0


def _file_of(given: argparse.Namespace) -> bytes:
    if given.cluster:
        return plain_bytes(Path(given.cluster))
    lines = ["[[island]]", 'name = "i"', f"count = {given.islands}", f"hosts = {given.hosts}",
             f"devices_per_host = {given.devices_per_host}"]  # fmt: skip
    return "\n".join(lines).encode()


def _await_ready(address: str, access: Access, hosts: int, check: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Wait until all islands run and so many hosts are there; return the status. `check` raises if that cannot be."""
    until = time.monotonic() + READY
    while True:
        check()
        found = look(address, access)
        here = sum(host["member"] or host["drained"] for island in found["islands"] for host in island["hosts"])
        if here >= hosts and all(island["phase"] == "running" for island in found["islands"]):
            return found
        if time.monotonic() > until:
            raise SeawayError(f"not all hosts had joined within {READY:.0f} s: {table(found)}")
        time.sleep(0.1)


def _greeting(found: dict[str, Any], address: str, token_file: str, figures: str = "") -> str:
    token, words = (f", token_file={token_file!r}", f" --token-file {token_file}") if token_file else ("", "")
    place, islands = f"grpc://{address}", found["islands"]
    hosts, devices = sum(len(each["hosts"]) for each in islands), sum(each["devices"] for each in islands)
    return (
        f"{plural(hosts, 'host')}, {plural(devices, 'device')} at {place}\n"
        f"  a program: sw.connect({place!r}{token})      how it is: seaway status {address}{words}"
        + (f"\n  {figures}" if figures else "")
    )


class UpProcesses:
    """The processes of `seaway up`. Their logs and the controller's state across restarts are in the folder."""

    def __init__(self, given: argparse.Namespace, folder: Path, children: Children, access: Access) -> None:
        self._given, self._folder, self.children, self._access = given, folder, children, access
        self._token = ["--token-file", given.token_file] if given.token_file else []
        self._supervisor = Supervisor(children, _tell)
        self.address, self._hosts, self._grown = given.bind, 0, False

    def start(self) -> None:
        controller = self._start_controller()
        self.address = self._await_address(controller)
        self._supervisor.keep(controller, self._start_controller)
        self._start_agents()
        _await_ready(self.address, self._access, 0, self._check)

    def _start_agents(self) -> None:
        """For all hosts of the controller's cluster that have none: it may have grown, now or before an earlier end."""
        described: Described = asked(self.address, self._access, AboutReply(__version__))
        for host in range(self._hosts, described.cluster.hosts):
            start = partial(self._start_agent, host, len(described.cluster.devices_of(host)))
            self._supervisor.keep(start(), start)
        self._hosts = described.cluster.hosts

    def more(self, *_: Any) -> None:
        """At a signal: the cluster has grown."""
        self._grown = True

    def figures(self) -> str:
        found = re.search(r"^metrics at \S+", self._supervisor.all[0].said(), re.MULTILINE)
        return found[0] if found else ""

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

    def _check(self) -> None:
        for child in self.children.all():
            if not child.alive:
                raise SeawayError(f"{child.name} {child.fate()} before the cluster was up: {_why(child)}")

    def watch(self) -> int:
        """Restart processes that die. Raise when the controller, or the last agent, cannot be restarted."""
        while True:
            if self._grown:
                with suppress(SeawayError):  # a controller that does not answer now may be starting again
                    self._start_agents()
                    self._grown = False
            controller, *agents = self._supervisor.all
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
        pid = int(path.read_text(encoding="utf-8").split()[0])
        os.kill(pid, signal.SIGTERM)
    except (OSError, ValueError, IndexError):
        raise SeawayError(f"nothing that `seaway up --state {given.state}` started is running") from None
    until = time.monotonic() + 20
    while path.exists() and time.monotonic() < until:
        time.sleep(0.05)
    return 0 if not path.exists() else 1
