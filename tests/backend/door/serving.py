"""Programs on the devices of a door, and on as many of their own: the environments of both, and running a program.

`door(folder)` starts `seaway door` on a unix socket for the time of a block, and yields the environment that it prints.
`local()` is the environment of a program on local CPU devices. `python` runs a program in one of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from backend.admin import Children
from backend.admin.children import environment
from experiments.bench.frame import processes

ROOT = Path(__file__).parents[3]
DEVICES = 8
VARIABLE = re.compile(r"\b([A-Z][A-Z_]+)=(\S+)")
NAMES = {"JAX_PLATFORMS", "JAX_BACKEND_TARGET", "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS"}


class Door:
    """A running server. env: the variables that it prints for its users."""

    def __init__(self, children: Children, number: int, devices: int) -> None:
        # A path of a socket has at most 107 bytes, so it is not in the folder of a test.
        self._place = tempfile.TemporaryDirectory(prefix="door-")
        self.path = Path(self._place.name) / "socket"
        words = ["door", "--listen", f"unix:{self.path}", "--devices", str(devices)]
        env = {"PYTHONWARNINGS": "ignore"}
        self.child = children.start(f"door-{number}", "seaway", words, env, stdout=subprocess.PIPE)
        self.env: dict[str, str] = {}
        assert self.child.process.stdout is not None
        while not self.env.keys() >= NAMES:
            line = self.child.process.stdout.readline().decode()
            if not line:
                raise RuntimeError(f"the door did not start: {self.child.tail()}")
            self.env |= {name: value for name, value in VARIABLE.findall(line) if name in NAMES}

    @property
    def alive(self) -> bool:
        return self.child.alive


@contextmanager
def doors(folder: Path) -> Iterator[Doors]:
    """Any number of doors, which all end with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Doors(folder)
    try:
        yield found
    finally:
        found.end()
