"""Controller, agents and clients on machines of their own: network namespaces that a bridge joins (`tests.machines`).

Each machine has a hostname, a hosts file as Debian makes it, and a small disk of its own (a tmpfs), where its processes
keep their state, caches, records and temporary files. A door and its JAX program are on one machine. Nothing passes
through a proxy: so wires between hosts (Gloo's, too) and to the coordination service are cut like all others.

`apart` gives the process that calls it, and all that it starts, a network and mounts of their own: nothing of the
machine that this runs on is changed, and all is gone with the last process.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from backend.admin.children import environment
from tests.machines import HOSTS, Machines, _ip

from .network import Network, Undo
from .processes import BOUND
from .schedule import Fault

MEBIBYTES = 64  # of a disk
YEAR = 365.25 * 86_400.0
SEGMENTS = 65_535  # of what a network card cuts into packets
WIRES = {  # options of `slow_wire`
    "delay": ("--late", "0.2"),
    "loss": ("--loses", "0.05"),
    "rate": ("--rate", "125000"),
}


def apart() -> None:
    """Leaves the network and the mounts of the machine for new ones. To be called before any thread is started."""
    libc = ctypes.CDLL(None, use_errno=True)
    # CLONE_NEWNET, CLONE_NEWNS, MS_REC|MS_PRIVATE
    network, mounts, private = (0x4000_0000, 0x0002_0000, 0x0004_4000)
    if libc.unshare(network | mounts) or libc.mount(b"none", b"/", None, private, None):
        raise OSError(ctypes.get_errno(), "no namespaces")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


class ChangingMachines(Machines):
    """Machines whose wires and addresses change one by one."""

    def ip(self, name: str, *words: str) -> None:
        """Run `ip` on this machine; "": where the bridge is."""
        _ip("-n", self._space(name), *words)

    def within(self, name: str) -> list[str]:
        return ["ip", "netns", "exec", self._space(name)]

    def mend_one(self, source: str, target: str) -> None:
        """End one cut of this kind."""
        for at, (end, rule) in enumerate(self._cuts):
            if end == target and self.addresses[source] in rule:
                del self._cuts[at]
                if (end, rule) not in self._cuts:
                    self.ip(end, "rule", "del", *rule)
                return

    def cut(self, source: str, target: str, port: int = 0) -> None:
        known = [each for each in self._cuts if each[0] == target and self.addresses[source] in each[1]]
        if known:
            self._cuts.append(known[0])
        else:
            super().cut(source, target, port)

    def renumber(self, name: str, new: str) -> None:
        """Give a machine another address. The old one is gone, and no connection with it goes on."""
        old, self.addresses[name] = self.addresses[name], new
        self.ip(name, "addr", "flush", "dev", "eth0")
        self.ip(name, "addr", "add", f"{new}/24", "dev", "eth0")
        for each in self.names:
            hosts = HOSTS / self._space(each) / "hosts"
            hosts.write_text(hosts.read_text().replace(f"{old} {name}\n", f"{new} {name}\n"))


class MachineNetwork(Network):
    """`names`: the processes. Gone after `close`."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self._folder = folder
        self.token = secrets.token_hex(16)
        (folder / "token").write_text(self.token)
        self._machines = ChangingMachines(sorted({machine_of(name) for name in names}))
        self._renumbered = 100  # the last part of the next new address
        for name in self._machines.names:
            disk = self.disk(name)
            disk.mkdir(parents=True)
            size = f"size={MEBIBYTES}m,mode=0755"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "chaos", str(disk)], check=True)
            (disk / "tmp").mkdir()
            self._set_clock(name, 0.0)
        self._machines.__enter__()
        self._ports = {name: f"port{address.rpartition('.')[2]}" for name, address in self._machines.addresses.items()}

    def listens(self, name: str, port: int) -> str:
        return f"{self.address(name)}:{port}"

    def controller(self, name: str, port: int) -> str:
        return f"controller:{port}" if name else self.listens("controller", port)

    def advertised(self, number: int, port: int) -> list[str]:
        return []

    def place(self, name: str) -> list[str]:
        return self._machines.words(machine_of(name))

    def disk(self, name: str) -> Path:
        return self._folder / "disks" / machine_of(name)

    def env(self, name: str) -> dict[str, str]:
        path = environment({})["PYTHONPATH"]
        return {
            "TMPDIR": str(self.disk(name) / "tmp"),
            "PYTHONPATH": f"{Path(__file__).with_name('clock')}{os.pathsep}{path}",
            "CHAOS_CLOCK": str(self._clock(name)),
        }

    def access(self) -> list[str]:
        return ["--token-file", str(self._folder / "token")]

    def address(self, name: str) -> str:
        return self._machines.addresses[machine_of(name)]

    # --- faults -------------------------------------------------------------------------------------------------

    def begin(self, fault: Fault) -> Undo:
        name = machine_of(fault.target)
        if fault.role == "link":
            return self._cut(fault)
        if fault.kind == "unplug":
            self._ip(name, "link", "set", "eth0", "down")
            return lambda: self._ip(name, "link", "set", "eth0", "up")
        if fault.kind == "disk":
            return self._fill(name)
        if fault.kind == "clock":
            self._set_clock(name, YEAR if sum(name.encode()) % 2 else -YEAR)
            return lambda: self._set_clock(name, 0.0)
        return self._slow(name, fault.kind)

    def renumber(self, target: str) -> None:
        """Give this process's machine another address. The old one is gone, and so are all connections with it."""
        name = machine_of(target)
        self._renumbered += 1
        self._machines.renumber(name, f"{self.address(name).rpartition('.')[0]}.{self._renumbered}")

    def _cut(self, fault: Fault) -> Undo:
        one, other, both = fault.link
        ways = [(machine_of(one), machine_of(other))]
        ways += [ways[0][::-1]] if both else []
        for source, target in ways:
            self._machines.cut(source, target)

        def mend() -> None:
            for source, target in ways:
                self._machines.mend_one(source, target)

        return mend

    def _slow(self, name: str, kind: str) -> Undo:
        port = self._ports[name]
        words = [*self._machines.within(""), sys.executable, "-m", "tests.chaos.slow_wire", "--port", port]
        self._ip(name, "link", "set", "eth0", "gso_max_segs", "1")  # each packet is lost or late by itself
        wire = subprocess.Popen(
            [sys.executable, "-ISc", BOUND, *words, "--bridge", "bridge", *WIRES[kind]],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment({}),
        )  # fmt: skip
        said = wire.stdout
        assert said is not None
        said.readline()  # it carries

        def end() -> None:
            wire.kill()
            wire.wait()
            said.close()
            self._machines.ip("", "link", "set", port, "master", "bridge")
            self._ip(name, "link", "set", "eth0", "gso_max_segs", str(SEGMENTS))

        return end

    def _fill(self, name: str) -> Undo:
        filler = self.disk(name) / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1 << 16)):
                pass
        return lambda: filler.unlink(missing_ok=True)

    def _clock(self, name: str) -> Path:
        return self._folder / "disks" / f"{machine_of(name)}.clock"

    def _set_clock(self, name: str, seconds: float) -> None:
        """Move this machine's clock: see `clock/sitecustomize.py`."""
        with self._clock(name).open("r+b" if self._clock(name).exists() else "w+b") as file:
            file.write(struct.pack("d", seconds))

    def _ip(self, name: str, *words: str) -> None:
        self._machines.ip(name, *words)

    def close(self) -> None:
        self._machines.close()
        for name in self._machines.names:
            disk = self.disk(name)
            for kept in disk.glob("record/ev.[0-9]*"):
                with suppress(OSError):
                    shutil.copy(kept, self._folder)
            subprocess.run(["umount", "--lazy", str(disk)], check=False)


def machine_of(process: str) -> str:
    """A door is where its client is."""
    role, _, name = process.partition("-")
    return f"client-{name}" if role == "door" else process
