"""JAX programs as processes that a test talks to line by line, and what the controller holds while they run."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from backend.admin.children import environment
from experiments.bench.frame.deployed import Deployed

PATIENCE = 120.0  # seconds


class JaxProgram:
    """`python -c code words`, in an environment that says where its door is."""

    def __init__(self, code: str, env: Mapping[str, str], *words: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the program)
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", code, *words], text=True,
            env=environment({"TF_CPP_MIN_LOG_LEVEL": "3"} | dict(env)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors,
        )  # fmt: skip
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._said.put(line.strip())
        self._said.put("")

    def line(self, patience: float = PATIENCE) -> str:
        """What it prints next. "" if it has ended."""
        try:
            return self._said.get(timeout=patience)
        except queue.Empty:
            raise AssertionError(f"the program says nothing for {patience:g} s\n{self.errors()}") from None

    def until(self, begins: str) -> str:
        """The next line that begins so."""
        while not (said := self.line()).startswith(begins):
            assert said, f"the program has ended\n{self.errors()}"
        return said

    def go_on(self) -> None:
        """A line for the program, which waits for one."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self, number: int = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            assert pipe is not None
            pipe.close()


@contextmanager
def program(code: str, env: Mapping[str, str], *words: str) -> Iterator[JaxProgram]:
    found = JaxProgram(code, env, *words)
    try:
        yield found
    finally:
        found.close()


def until(true: Callable[[], Any], what: str | Callable[[], object]) -> Any:
    """Waits until it is true; `what` is said if it does not become so."""
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, what if isinstance(what, str) else what()
        time.sleep(0.05)
    return found


def held(cluster: Deployed) -> dict[str, int]:
    """What the controller holds for all clients, and what is under way on its islands."""
    status = cluster.status()
    clients = status["clients"]
    return {
        "clients": len(clients),
        "programs": sum(each["programs"] for each in clients),
        "runs": status["runs"],
        "buffers": status["buffers"],
        "waits": len(status["waits"]) + len(status["stalled"]),
        "under way": sum(island["under_way"] for island in status["islands"]),
    }


def await_nothing_held(cluster: Deployed) -> None:
    until(lambda: not any(held(cluster).values()), lambda: f"left over: {held(cluster)}")


def compiling(cluster: Deployed) -> bool:
    return any("compiling" in each["reason"] for each in cluster.status()["waits"])


def running(cluster: Deployed) -> bool:
    return any(island["under_way"] for island in cluster.status()["islands"])
