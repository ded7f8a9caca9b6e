"""`seaway controller`, `agent`, `up`, `down`: a cluster, its processes one by one or all on this machine.

The first two are programs of `backend`, which say their own options; `up` starts both here, as children.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from backend import controlling, hosting, trust
from backend.access import Access, Refused, checked, is_loopback
from backend.children import Child, Children

from ..errors import SeawayError
from ..wording import plural
from .status import look, table

READY = 60.0  # seconds for all hosts of `up` to be there
EVERY = 1.0  # seconds between looks whether all live


def add(commands: Any) -> None:
    for name, program in (("controller", controlling), ("agent", hosting)):
        parser = commands.add_parser(
            name, parents=[program.options()], conflict_handler="resolve", add_help=False,
            help=str(program.options().description),
        )  # fmt: skip
        parser.set_defaults(run=_running(program))
    _add_up(commands)
    down = commands.add_parser("down", help="end what `seaway up --state FOLDER` has started")
    down.add_argument("--state", required=True, metavar="FOLDER")
    down.set_defaults(run=_down)


def _running(program: Any) -> Any:
    """It reads its own command line again: it may have to begin anew with the same."""
    return lambda given: program.main(sys.argv[2:])


def _add_up(commands: Any) -> None:
    up = commands.add_parser("up", help="a whole cluster on this machine, until Ctrl-C")
    controlling.add_cluster_options(up)
    up.add_argument("--bind", default="127.0.0.1:29000", help="where the controller listens (%(default)s)")
    up.add_argument("--platform", default="cpu", choices=("cpu", "timed"), help="devices (%(default)s)")
    up.add_argument(
        "--state", default="", metavar="FOLDER", help="logs, and what `seaway down` needs to end it"
    )
    up.add_argument(
        "--checkpoints", default="", metavar="FOLDER", help="clients may save and restore below it"
    )
    up.add_argument(
        "--record", default="", metavar="FILE", help="all that the controller is told, for `seaway replay`"
    )
    trust.add_trust(up)
    up.set_defaults(run=_up)


# --- up and down --------------------------------------------------------------------------------------------------


def _up(given: argparse.Namespace) -> int:
    _on_loopback(given.bind)
    cluster = controlling.cluster_of(given)
    with tempfile.TemporaryDirectory(prefix="seaway-") as scratch:
        folder = Path(given.state or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        children = Children(folder)
        try:
            signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            address = _start_controller(given, children)
            for island in cluster.islands:
                for host in range(island.base_host, island.base_host + island.hosts):
                    _start_agent(given, children, address, host, island.per_host)
            (folder / "up.pid").write_text(str(os.getpid()), encoding="utf-8")
            _await_ready(children, address)
            print(
                f"{plural(cluster.hosts, 'host')}, {plural(cluster.devices, 'device')} at grpc://{address}",
                flush=True,
            )
            print(
                f"  a program: sw.connect('grpc://{address}')      how it is: seaway status {address}",
                flush=True,
            )
            return _watch(children)
        except KeyboardInterrupt:
            return 130
        finally:
            children.end_all()
            (folder / "up.pid").unlink(missing_ok=True)


def _on_loopback(bind: str) -> None:
    """All processes of `up` are on this machine, and nothing protects them."""
    try:
        checked(bind)
    except Refused as refused:
        raise SeawayError(f"--bind {bind}: {refused}") from None
    if not is_loopback(bind):
        port = bind.rpartition(":")[2]
        raise SeawayError(
            f"--bind {bind}: `seaway up` is one machine, unprotected, and listens on loopback alone, as "
            f"127.0.0.1:{port}. What other machines reach is `seaway controller --bind {bind} --token-file FILE`, and "
            f"`seaway agent` with the same FILE on each host"
        )


def _start_controller(given: argparse.Namespace, children: Children) -> str:
    words = ["--bind", given.bind, "--policy", given.policy, "--with-parent", "--verbose"]
    for name in ("cluster", "record"):
        if getattr(given, name):
            words += [f"--{name}", getattr(given, name)]
    for name in ("islands", "hosts", "devices_per_host"):
        words += [f"--{name.replace('_', '-')}", str(getattr(given, name))]
    child = children.start("controller", "backend.controlling", words, stdout=subprocess.PIPE)
    assert child.process.stdout is not None
    line = child.process.stdout.readline().decode()
    found = re.match(r"controller at (\S+):", line)
    if found is None:
        raise SeawayError(f"the controller did not start: {_why(child)}")
    return found[1].rstrip(":")


def _start_agent(
    given: argparse.Namespace, children: Children, address: str, host: int, devices: int
) -> None:
    words = [
        "--controller",
        address,
        "--host",
        str(host),
        "--name",
        f"host-{host}",
        "--platform",
        given.platform,
    ]
    if given.checkpoints:
        words += ["--checkpoints", given.checkpoints]
    words += ["--devices", str(devices), *trust.words_of(given), "--with-parent", "--verbose"]
    children.start(f"agent-{host}", "backend.hosting", words)


def _await_ready(children: Children, address: str) -> None:
    until = time.monotonic() + READY
    while True:
        _nobody_died(children)
        found = look(address, Access())
        if all(island["phase"] == "running" for island in found["islands"]):
            return
        if time.monotonic() > until:
            raise SeawayError(f"not all hosts were there within {READY:.0f} s: {table(found)}")
        time.sleep(0.1)


def _nobody_died(children: Children) -> None:
    for child in children.all():
        if not child.alive:
            raise SeawayError(f"{child.name} has ended: {_why(child)}")


def _watch(children: Children) -> int:
    while True:
        _nobody_died(children)
        time.sleep(EVERY)


def _why(child: Child) -> str:
    return child.tail() or f"it returned {child.process.poll()}, and said nothing"


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
