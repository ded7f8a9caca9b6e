"""A process with its supervisor, which restarts it when it ends, as a fault's policy says; and what a process holds.

The supervisor is a `tick`, called often from one thread. No other thread sends a signal or starts a process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from backend.admin.children import environment

SOON = 0.3  # seconds until a process that ended by itself is restarted
TAIL = 3000
LAST = 600  # characters of a process that has ended
# a process that is aborted writes the stacks of its threads
ENVIRONMENT = {"PYTHONWARNINGS": "ignore", "PYTHONFAULTHANDLER": "1"}
# What a process does first: the kernel is to kill it when we end, even by SIGKILL (PR_SET_PDEATHSIG); then it becomes
# the program that it is to be. This cannot be set between fork and exec, because gRPC's threads are in the way.
BOUND = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"


class ProcessEnd(msgspec.Struct):
    """A process that has ended. `meant`: the signal that a fault sent to it; 0: none did."""

    at: float
    name: str
    pid: int
    code: int
    meant: int
    said: str = ""  # its last words

    @property
    def wrong(self) -> bool:
        """Whether it ended without being told to, or not as a process does that is told to."""
        if self.meant == signal.SIGKILL:
            return False
        return self.code not in (0, -signal.SIGTERM) if self.meant == signal.SIGTERM else True


class Policy(msgspec.Struct, frozen=True):
    """How the supervisor makes one restart."""

    after: float = SOON
    port: int | None = None  # to listen on from then on


class Process:
    """A process and its restarts. `words(port)` returns its command line after `python -m`; `place`: the words before
    it, which put it on a machine. `files`: how many it may have open, when it starts; 0: as many as others."""

    def __init__(
        self, name: str, log: Path, words: Callable[[int], list[str]], port: int = 0, env: dict[str, str] | None = None,
        place: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.name, self.log, self.port = name, log, port
        self.starts: list[float] = []
        self.stopped = False
        self.files = 0
        self._words, self._env, self._place = words, env or {}, place
        self._meant = 0
        self._policy = Policy()
        self._again: float | None = None  # when it is to be started
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._popen.pid if self._popen is not None else 0

    @property
    def alive(self) -> bool:
        return self._again is None and self._popen is not None and self._popen.poll() is None

    def start(self) -> None:
        self.stopped, self._meant, self._policy, self._again = False, 0, Policy(), None
        with self.log.open("ab") as said:
            self._popen = subprocess.Popen(
                [
                    sys.executable, "-ISc", BOUND, *self._place, *_with_files(self.files),
                    sys.executable, "-m", *self._words(self.port),
                ],
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment(ENVIRONMENT | self._env),
                start_new_session=True,
            )  # fmt: skip
        self.starts.append(time.monotonic())

    def end(self, number: int, policy: Policy) -> bool:
        """End it by a fault. Returns False if it has ended already."""
        if not self.alive:
            return False
        self._meant, self._policy = self._meant or number, policy
        if number == signal.SIGKILL:
            self._meant = number
        self.signal(number)
        return True

    def signal(self, number: int) -> None:
        if self._popen is not None and self._popen.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
            if number in (signal.SIGSTOP, signal.SIGCONT):
                self.stopped = number == signal.SIGSTOP

    def tick(self) -> ProcessEnd | None:
        now = time.monotonic()
        if self._again is not None:
            if now >= self._again:
                if self._policy.port is not None:
                    self.port = self._policy.port
                self.start()
            return None
        if self._popen is None or (code := self._popen.poll()) is None:
            return None
        self._again = now + self._policy.after
        return ProcessEnd(now, self.name, self.pid, code, self._meant, self.tail(LAST))

    def end_now(self, policy: Policy) -> None:
        """Kill it, and wait until it is dead."""
        if self.end(signal.SIGKILL, policy) and self._popen is not None:
            self._popen.wait()

    def quit(self) -> None:
        """End it for good, whatever it does just then."""
        self.signal(signal.SIGKILL)
        if self._popen is not None:
            self._popen.wait()
        self._popen, self._again = None, None

    def tail(self, characters: int = TAIL) -> str:
        with suppress(OSError):
            return self.log.read_text(errors="replace")[-characters:]
        return ""


def _with_files(most: int) -> list[str]:
    return ["sh", "-c", f'ulimit -n {most}; exec "$@"', "sh"] if most else []


# --- what a process holds -----------------------------------------------------------------------------------------


class Usage(msgspec.Struct, frozen=True):
    threads: int = 0
    fds: int = 0
    children: int = 0  # zombies among them
    ports: int = 0  # on which it listens
    rss: int = 0  # MiB


def usage(pid: int) -> Usage | None:
    """Measure a process. Returns None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        links = [_link(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "VmRSS" not in fields:
        return None  # a zombie
    sockets = {link[8:-1] for link in links if link.startswith("socket:[")}
    return Usage(
        threads=int(fields["Threads"]), fds=len(links), children=len(children_of(pid)),
        ports=len(sockets & _listening(pid)), rss=int(fields["VmRSS"].split()[0]) >> 10,
    )  # fmt: skip


def children_of(pid: int) -> list[int]:
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with suppress(OSError, IndexError):
                if int((each / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(each.name))
    return sorted(found)


def adopt_orphans() -> None:
    """From now on, a process whose parent ends becomes our child (PR_SET_CHILD_SUBREAPER), so that none is left over
    unseen."""
    ctypes.CDLL(None).prctl(36, 1)


def strays(known: Iterable[int]) -> list[int]:
    """Children of ours that we have not started, and that still run. Those that have ended are reaped."""
    found = []
    for pid in set(children_of(os.getpid())).difference(known):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                found.append(pid)
    return sorted(found)


def said_into(pid: int) -> str:
    """The file that receives its standard error."""
    return _link(Path(f"/proc/{pid}/fd/2"))


def is_coordination(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"seaway coordination ")
    return False


def _link(path: Path) -> str:
    with suppress(OSError):
        return str(path.readlink())
    return ""


def _listening(pid: int) -> set[str]:
    """Inodes of listening sockets."""
    found = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A":
                    found.add(words[9])
    return found
