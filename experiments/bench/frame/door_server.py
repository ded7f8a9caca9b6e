"""A door for the time of a block, and the environment of JAX programs behind it.

`with opened(8) as door:` starts `seaway door` with 8 CPU devices (0: with the devices there are) on a unix socket, as a
process that ends with the block and with this process. `door.env` are the variables that it prints for its users.
`with on_cluster() as served:` starts a cluster, and a door to it.
"""

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from backend.admin import Child, Children

from . import processes
from .deployed import Deployed, deployed

NAMES = {"JAX_PLATFORMS", "JAX_BACKEND_TARGET", "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"}
VARIABLE = re.compile(r"\b([A-Z_]+)=(\S+)")


class Door:
    """A running door. env: the variables that it prints; printed: all that it has printed until then."""

    def __init__(self, children: Children, words: Sequence[str]) -> None:
        self._children, self._words = children, list(words)
        self.again()

    def again(self) -> None:
        """Start it, also at the same place after it has ended."""
        env = {"PYTHONWARNINGS": "ignore"}
        self.child: Child = processes.start(self._children, seaway, self._words, env=env, name="door")
        self.env: dict[str, str] = {}
        self.printed = ""
        assert self.child.process.stdout is not None
        while self.env.keys() != NAMES:
            line = self.child.process.stdout.readline().decode()
            if not line:
                raise RuntimeError(f"the door did not start: {self.child.tail()}")
            self.printed += line
            self.env |= {name: value for name, value in VARIABLE.findall(line) if name in NAMES}


@contextmanager
def opened(devices: int, options: Sequence[str] = ()) -> Iterator[Door]:
    # In a folder with a short name: a socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="door-") as place:
        children = Children(Path(place))
        count = ["--devices", str(devices)] if devices else []
        try:
            yield Door(children, ["door", "--listen", f"unix:{place}/socket", *count, *options])
        finally:
            children.end_all()


class Served(NamedTuple):
    cluster: Deployed
    door: Door


@contextmanager
def on_cluster(
    hosts: int = 2, devices: int = 4, *, islands: int = 1, platform: str = "cpu", controller: Sequence[str] = (),
    agents: Sequence[str] = ("--trust-clients",), door: Sequence[str] = (),
) -> Iterator[Served]:  # fmt: skip
    """A cluster, with `hosts` an island and `devices` a host, and a door to all of it; further options of its
    processes. Agents need not check the code of benchmarks."""
    words = ["--devices-per-host", str(devices), "--islands", str(islands), "--hosts", str(hosts), *controller]
    several = ["--islands", "all"] if islands > 1 else []
    with (
        deployed(islands * hosts, controller=words, options=agents, devices=devices, platform=platform) as cluster,
        opened(hosts * devices, ["--connect", cluster.address, *several, *door]) as there,
    ):
        yield Served(cluster, there)


def seaway(words: list[str]) -> None:
    """The command line, in a process of its own."""
    from seaway.cli import main

    sys.exit(main(words))
