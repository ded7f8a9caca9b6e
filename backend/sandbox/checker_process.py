"""A checker as its parent sees it: starts it with a filtered environment, asks it, waits with a timeout, ends it.

Neighbours: `checkers`, which keeps several; `checker_line`, the child's side.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence

from ..admin import ROOT, MemoryKills
from ..xla import DEVICE_COUNT, xla_flags
from .checker_line import COMPILING, LENGTH, READY, TIRED

START_S = 120.0  # seconds until a child is up, on a busy machine
READ_S = 60.0  # seconds for reading one computation's code
LONGEST = 1 << 20  # bytes of an answer
SAID = 400  # characters of a dead child's last output

# The variables of the agent's environment that a checker gets; tokens, keys and accounts have other names. A checker
# has its own number of CPU devices: JAX_NUM_CPU_DEVICES would come before it.
PASSES = re.compile(
    r"PATH|LANG|LC_\w+|TZ|TMPDIR|NPROC|PYTHON(PATH|HOME|WARNINGS|UTF8|HASHSEED)|VIRTUAL_ENV|LD_LIBRARY_PATH"
    r"|DYLD_LIBRARY_PATH|XLA_FLAGS|JAX_(?!PLATFORMS|NUM_CPU_DEVICES)\w+|(OMP|OPENBLAS|MKL)_NUM_THREADS"
)
CRASHES = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGXCPU")
FATAL = re.compile(r"^F\d{4} .*?\] (.+)$", re.MULTILINE)  # a line of XLA's that says why it ends the process


class Died(Exception):
    """The child ended before it answered."""


class NotStarted(Exception):
    """The child was not up in time."""


class Late(Exception):
    """The child did not answer in time; the text says what it did not do, and in how many seconds."""


class CheckerChild:
    """One checker: a Python process that runs `main()` of the module PROGRAM. Its output goes into an unnamed file.
    `largest`: bytes of an answer; `flags`: XLA's, besides those of this process."""

    def __init__(
        self, program: str, settings: bytes, devices: int, largest: int = LONGEST, flags: Sequence[str] = ()
    ) -> None:
        self.devices, self._largest = devices, largest
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the child)
        self._line, theirs = socket.socketpair()
        end = theirs.fileno()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {program} import main; main()", settings.decode()],
                stdin=end, stdout=end, stderr=self._said, env=environment(devices, flags), cwd="/",
                start_new_session=True,
            )  # fmt: skip
        except OSError:
            self._line.close()
            self._said.close()
            raise
        finally:
            theirs.close()
        self._busy = threading.Lock()
        self._kills = MemoryKills()
        self.up = False  # it has said that it is ready

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def tired(self) -> bool:
        """Whether it ended in order, after it had waited too long for a question."""
        return self._process.returncode == TIRED

    @property
    def crashed(self) -> bool:
        """Whether it ended over what it was asked: that would end the next one, too. After `last_words`."""
        return -(self._process.returncode or 0) in {signal.Signals[name] for name in CRASHES}

    @property
    def killed(self) -> bool:
        """Whether something else ended it: somebody, or the kernel for lack of memory. After `last_words`."""
        return (self._process.returncode or 0) < 0 and not self.crashed

    def await_ready(self) -> None:
        if self.up:
            return
        try:
            with self._busy:
                said = self._read(time.monotonic() + START_S)
        except Late:
            self.end()
            raise NotStarted(f"it is not up after {START_S:g} s") from None
        if said != READY:
            raise Died
        self.up = True

    def ask(self, question: bytes, seconds: float) -> bytes:
        """The answer to a question. Reading code takes moments, so it has a shorter limit than compiling."""
        now, reading = time.monotonic(), min(READ_S, seconds)
        with self._busy:
            try:
                self._say(LENGTH.pack(len(question)) + question, now + reading)
                answer = self._read(now + reading)
            except Late:
                raise Late(f"read within {reading:g} s") from None
            if answer != COMPILING:
                return answer
            try:
                return self._read(now + seconds)
            except Late:
                raise Late(f"compiled within {seconds:g} s") from None

    def _say(self, message: bytes, until: float) -> None:
        self._wait_until(until)
        try:
            self._line.sendall(message)
        except TimeoutError:
            raise Late from None
        except OSError:
            raise Died from None

    def kill(self) -> None:
        """It answers no more: a waiting `ask` ends with Died. From any thread."""
        self._process.kill()

    def end(self) -> None:
        """Kills the child, which has no state to lose. From any thread; may be called twice."""
        process = self._process
        process.kill()
        process.wait()
        with self._busy:  # a waiting `ask` has ended by now
            self._line.close()
            self._said.close()

    def last_words(self) -> str:
        """How it ended, as text; waits for its end."""
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if status == -signal.SIGKILL:
            return self._kills.fate()  # its last output has nothing to do with it
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"returned {status}"
        with self._busy:
            if self._said.closed:
                return how
            self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - (1 << 16)))
            said = self._said.read().decode(errors="replace")
        if found := FATAL.findall(said):
            return f"{how}: {found[-1].strip()[:SAID]}"
        lines = said.strip().splitlines()
        return f"{how}: {lines[-1].strip()[-SAID:]}" if lines else how

    def _read(self, until: float) -> bytes:
        size = LENGTH.unpack(self._exactly(LENGTH.size, until))[0]
        if size > self._largest:
            raise Died
        return self._exactly(size, until)

    def _exactly(self, size: int, until: float) -> bytes:
        found = bytearray()
        while len(found) < size:
            self._wait_until(until)
            try:
                portion = self._line.recv(min(size - len(found), 1 << 20))
            except TimeoutError:
                raise Late from None
            except OSError:
                raise Died from None
            if not portion:
                raise Died
            found += portion
        return bytes(found)

    def _wait_until(self, until: float) -> None:
        """The next call of the line waits so long."""
        left = until - time.monotonic()
        if left <= 0:
            raise Late
        self._line.settimeout(left)


def environment(devices: int, more: Sequence[str] = ()) -> dict[str, str]:
    """A child's environment: the harmless part of ours, and `devices` CPU devices. `more`: flags of XLA."""
    found = {name: value for name, value in os.environ.items() if PASSES.fullmatch(name)}
    flags = [*xla_flags(found), *more, f"{DEVICE_COUNT}={devices}"]
    path = found.get("PYTHONPATH")
    return found | {
        "XLA_FLAGS": " ".join(flags),
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT) if not path else f"{path}{os.pathsep}{ROOT}",
    }
