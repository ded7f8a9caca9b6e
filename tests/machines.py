"""Several machines on one: network namespaces that a bridge joins, each with a hostname and a hosts file of its own.

    with Machines(["head", "a", "b"]) as machines:
        subprocess.run(machines.words("a", "seaway", "agent", ...))     its pid is the command's own
        machines.cut("a", "b")                                          nothing from a reaches b any more
        machines.mend()

A hosts file is as Debian makes it: a machine's own name stands for 127.0.1.1; the others' names for their addresses, as
a name server would say. The process that makes the machines is in none of them and reaches all (`here`). This needs
root, `ip` and `unshare`; `why_not` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType

HOSTS = Path("/etc/netns")  # `ip netns exec` puts the files of its folder of that name over those in /etc
MARK = "seaway-"  # namespaces: this, the pid of the process that made them, and a name
NETWORKS = 512  # 198.18.0.0/15 is kept for trials like this one, and nobody's
LOCAL, CUT = 100, 10  # the rule by which a machine finds its own addresses stands behind those that cut


class Machines:
    """`names`: their hostnames."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._number = -1
        self._cuts: list[tuple[str, tuple[str, ...]]] = []

    def __enter__(self) -> Machines:
        _sweep()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _make(self) -> None:
        switch = self._space("")
        _ip("netns", "add", switch)
        for number in range(NETWORKS):
            at = (os.getpid() + number) % NETWORKS
            joined = ("link", "add", f"sw{at}", "type", "veth", "peer", "name", "here", "netns", switch)
            if _ran("ip", *joined).returncode == 0:  # the name is taken where somebody else has this network
                self._number = at
                break
        else:
            raise OSError("no network of 198.18.0.0/15 is free")
        self._network = f"198.{18 + self._number // 256}.{self._number % 256}"
        self.here = f"{self._network}.254"
        self.addresses = {name: f"{self._network}.{at}" for at, name in enumerate(self.names, 1)}
        _ip("addr", "add", f"{self.here}/24", "dev", f"sw{self._number}")
        _ip("link", "set", f"sw{self._number}", "up")
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        _ip("-n", switch, "link", "set", "here", "master", "bridge", "up")
        for name in self.names:
            self._machine(name, switch)

    def _machine(self, name: str, switch: str) -> None:
        space, port = self._space(name), f"port{self.addresses[name].rpartition('.')[2]}"
        folder = HOSTS / space
        folder.mkdir(parents=True)
        others = [f"{address} {other}" for other, address in self.addresses.items() if other != name]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", f"127.0.1.1 {name}", *others, ""]))
        _ip("netns", "add", space)
        _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", switch, "link", "set", port, "master", "bridge", "up")
        _ip("-n", space, "addr", "add", f"{self.addresses[name]}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip("-n", space, "link", "set", link, "up")
        _ip("-n", space, "rule", "add", "pref", str(LOCAL), "lookup", "local")
        _ip("-n", space, "rule", "del", "pref", "0")

    def words(self, name: str, *words: str) -> list[str]:
        """The command line that runs these words on a machine. Each step becomes the next, in one process."""
        named = f'echo {name} >/proc/sys/kernel/hostname; exec "$@"'
        return ["ip", "netns", "exec", self._space(name), "unshare", "--uts", "sh", "-c", named, name, *words]

    def cut(self, source: str, target: str, port: int = 0) -> None:
        """From now on the target silently drops what comes from the source. `port`: only what goes to or comes from
        this TCP port."""
        ends = [("ipproto", "tcp", end, str(port)) for end in ("sport", "dport")] if port else [()]
        for end in ends:
            rule = ("pref", str(CUT), "from", self.addresses[source], *end, "blackhole")
            _ip("-n", self._space(target), "rule", "add", *rule)
            self._cuts.append((target, rule))

    def mend(self) -> None:
        """Ends all cuts."""
        for target, rule in self._cuts:
            _ip("-n", self._space(target), "rule", "del", *rule)
        self._cuts = []

    def close(self) -> None:
        """Ends all that runs on the machines, and them."""
        for name in ("", *self.names):
            _remove(self._space(name))
        if self._number >= 0:
            _ran("ip", "link", "del", f"sw{self._number}")  # mostly gone with the other end

    @staticmethod
    def _space(name: str) -> str:
        return f"{MARK}{os.getpid()}-{name or 'switch'}"


@cache
def why_not() -> str:
    """Why no machines can be made here; "" if they can."""
    missing = [program for program in ("ip", "unshare") if shutil.which(program) is None]
    if missing:
        return f"no network namespaces here: {' and '.join(missing)} not installed"
    try:
        with Machines(["trial"]) as machines:
            ran = _ran(*machines.words("trial", "true"))
    except OSError as error:
        return f"no network namespaces here: {error}"
    return f"no network namespaces here: {ran.stderr.strip()}" if ran.returncode else ""


def _sweep() -> None:
    """Removes what processes have left that were killed."""
    for line in _ran("ip", "netns", "list").stdout.splitlines():
        space = line.split()[0]
        pid = space.removeprefix(MARK).partition("-")[0]
        if space.startswith(MARK) and pid.isdigit() and not Path("/proc", pid).exists():
            _remove(space)


def _remove(space: str) -> None:
    for pid in _ran("ip", "netns", "pids", space).stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    _ran("ip", "netns", "del", space)
    shutil.rmtree(HOSTS / space, ignore_errors=True)


def _ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _ip(*words: str) -> None:
    ran = _ran("ip", *words)
    if ran.returncode:
        raise OSError(f"ip {' '.join(words)}: {ran.stderr.strip()}")
