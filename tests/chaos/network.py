"""How the processes of a cluster reach each other: through proxies on one machine. `machine_network` has the other way.

Agents and clients reach the controller through a proxy each, and others reach each agent through one, too.
"""

from __future__ import annotations

import random
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .schedule import Fault
from .watching import Watch

PORTS = (15_000, 32_768)
Undo = Callable[[], None]


def free_port() -> int:
    """A port below those that the kernel gives to outgoing connections: such a one could be taken while its process is
    started again."""
    while True:
        with socket.socket() as held, suppress(OSError):
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", random.randrange(*PORTS)))
            return int(held.getsockname()[1])


class Network(ABC):
    token = ""

    @abstractmethod
    def listens(self, name: str, port: int) -> str:
        """The address at which this process listens."""

    @abstractmethod
    def controller(self, name: str, port: int) -> str:
        """The address at which this process reaches the controller, which listens on this port."""

    @abstractmethod
    def advertised(self, number: int, port: int) -> list[str]:
        """The agent's options that say where others reach it."""

    @abstractmethod
    def place(self, name: str) -> list[str]:
        """The words before the command line of this process, which put it where it belongs."""

    @abstractmethod
    def disk(self, name: str) -> Path:
        """The folder for what this process keeps for itself."""

    @abstractmethod
    def env(self, name: str) -> dict[str, str]: ...

    @abstractmethod
    def access(self) -> list[str]:
        """The options by which a process is let in."""

    @abstractmethod
    def begin(self, fault: Fault) -> Undo:
        """Begins a fault of wires, disks or clocks. Returns what ends it."""

    @abstractmethod
    def close(self) -> None: ...


class Proxied(Network):
    def __init__(self, folder: Path, watch: Watch) -> None:
        self._folder, self._watch = folder, watch

    def listens(self, name: str, port: int) -> str:
        return f"127.0.0.1:{port}"

    def controller(self, name: str, port: int) -> str:
        return f"127.0.0.1:{self._watch.proxy(name, port)}"

    def advertised(self, number: int, port: int) -> list[str]:
        return ["--advertise", f"127.0.0.1:{self._watch.proxy(f'peers-{number}', port)}"]

    def place(self, name: str) -> list[str]:
        return []

    def disk(self, name: str) -> Path:
        return self._folder

    def env(self, name: str) -> dict[str, str]:
        return {}

    def access(self) -> list[str]:
        return []

    def begin(self, fault: Fault) -> Undo:
        proxy = self._watch.proxies[fault.target]
        self._watch.do(proxy.set(fault.kind))
        return lambda: self._watch.do(proxy.set(""))

    def close(self) -> None:
        """The watch ends its proxies."""
