"""Child processes: they are started and watched here, and end with this process whatever happens.

A child gets a pipe as its standard input and ends when that closes. So it does not outlive its parent, even if the
parent is killed. Its output goes into a file, whose end is shown when the child dies too early. The kernel counts which
processes it kills for lack of memory (`MemoryKills`).
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).parents[2]
TAIL = 2000  # bytes of a dead child's output that are shown
SAID = 1 << 20  # bytes of a child's first output that are read, in which it prints that it is up
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "no_proxy")


class Child:
    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, since: int = 0) -> None:
        self.name, self.process, self.log = name, process, log
        self._since = since  # bytes of the log that an earlier process wrote
        self.ended = False  # ended by this process
        self._kills = MemoryKills()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def said(self, most: int = SAID) -> str:
        """The first output of this process."""
        try:
            with self.log.open("rb") as file:
                file.seek(self._since)
                return file.read(most).decode(errors="replace")
        except OSError:
            return ""

    def tail(self) -> str:
        """The last output of this process."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._since, size - TAIL))
                return file.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def fate(self) -> str:
        """How it ended, as text: by which signal, or with which status."""
        status = self.process.poll()
        if status is None:
            return "still runs"
        if status >= 0:
            return f"ended with status {status}"
        if status == -signal.SIGKILL:
            return self._kills.fate()
        try:
            return f"was ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"was ended by signal {-status}"

    def ask_to_end(self) -> None:
        self.ended = True
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()


class Children:
    """All children of this process. `folder`: for their logs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Child] = []
        self._lock = threading.Lock()

    def start(
        self, name: str, module: str, arguments: Sequence[str], env: Mapping[str, str] | None = None, *,
        stdout: int | IO[bytes] | None = None,
    ) -> Child:  # fmt: skip
        """Runs `python -m module arguments`, with `env` added to ours. stdout: PIPE, to read its answers."""
        log = self._folder / f"{name.replace('/', '-')}.log"
        with log.open("ab") as words:
            since = words.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=stdout or words, stderr=words,
                env=environment(env or {}), start_new_session=True,  # Ctrl-C reaches only the parent
            )  # fmt: skip
        child = Child(name, process, log, since)
        with self._lock:
            self._all.append(child)
        return child

    def all(self) -> list[Child]:
        with self._lock:
            return list(self._all)

    def end(self, child: Child, grace: float = 3.0) -> None:
        child.ask_to_end()
        try:
            child.process.wait(grace)
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()
        if child.process.stdout is not None:
            child.process.stdout.close()
        with self._lock:
            if child in self._all:
                self._all.remove(child)

    def end_all(self, grace: float = 3.0) -> None:
        everyone = self.all()
        for child in everyone:
            child.ask_to_end()
        for child in everyone:
            self.end(child, grace)


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Our environment for a child, without proxies, which no connection of ours needs, and with our code's path."""
    found = {key: value for key, value in os.environ.items() if key.lower() not in PROXIES}
    path = found.get("PYTHONPATH")
    found["PYTHONPATH"] = str(ROOT) if not path else f"{path}{os.pathsep}{ROOT}"
    return found | dict(more)


def become(command: Sequence[str]) -> NoReturn:
    """Replaces this process by another program. Closes all but the standard streams, Gloo's sockets too."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            with suppress(OSError):  # the handle of the listing itself
                os.set_inheritable(int(name), False)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], list(command))


def end_with_parent(*, in_order: float = 0.0) -> None:
    """For a child: ends when the standard input closes. `in_order`: seconds to end as on SIGTERM; 0: ends at once."""

    def watch() -> None:
        while os.read(0, 4096):  # not sys.stdin, whose lock would be held when the interpreter ends
            pass
        if in_order:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(in_order)
        os._exit(0)

    threading.Thread(target=watch, name="parent", daemon=True).start()


# --- killed for lack of memory -------------------------------------------------------------------------------------

GROUPS = Path("/proc/self/cgroup")
MOUNTED = Path("/sys/fs/cgroup")
MACHINE = Path("/proc/vmstat")


class MemoryKills:
    """The counters as they were when this was made."""

    def __init__(self) -> None:
        self._before = _counts()

    def fate(self) -> str:
        """What to say of a child that was ended by SIGKILL since then."""
        for source, count in _counts().items():
            if (more := count - self._before.get(source, count)) > 0:
                return (
                    f"was ended by SIGKILL, probably by the kernel for lack of memory (since it began, oom_kill in "
                    f"{source} rose by {more}): give this machine or container more memory, or run less on it"
                )
        return "was ended by SIGKILL: if nobody did this, memory ran out"


def _counts() -> dict[Path, int]:
    """Kills for lack of memory so far, by the file that says so; the control group comes first."""
    found: dict[Path, int] = {}
    for path in (*_of_groups(), MACHINE):
        try:
            lines = path.read_text(encoding="ascii").splitlines()
        except (OSError, ValueError):
            continue
        for line in lines:
            if line.startswith("oom_kill "):
                found[path] = int(line.split()[1])
    return found


def _of_groups() -> list[Path]:
    try:
        lines = GROUPS.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    found = []
    for _, kinds, group in (line.split(":", 2) for line in lines):
        inside = group.lstrip("/")
        if not kinds:
            found += [MOUNTED / inside / "memory.events", MOUNTED / "unified" / inside / "memory.events"]
        elif "memory" in kinds.split(","):
            found.append(MOUNTED / kinds / inside / "memory.oom_control")
            found.append(MOUNTED / kinds / "memory.oom_control")  # as a container sees its own
    return found


# --- CPU time as Linux counts it, in nanoseconds ----------------------------------------------------------------------


def threads_of(pid: int) -> dict[int, tuple[str, int]]:
    """The living threads of a process: their names, and the CPU time of each."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, spent = (task / "comm").read_text().strip(), (task / "schedstat").read_text().split()[0]
        except OSError:
            continue  # the thread has ended
        found[int(task.name)] = name, int(spent)
    return found


def cpu_of(pid: int) -> int:
    """CPU time of a process with all its threads, ended ones too. Its clock's number: clock_getcpuclockid(3)."""
    return time.clock_gettime_ns((~pid << 3) | 2)
