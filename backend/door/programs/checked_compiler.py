"""Programs that a child process has read and compiled: what breaks the compiler ends one program, not the door.

    compiling threads --check--> CheckedCompiler --Question--> program_checker, a child for each thread at most
                      <-- what the program says of itself, and its executable as bytes; or StatusError

Children are started when needed, answer one question at a time, are bounded in time and memory, and are replaced when
they die. A program that crashed one is not tried again; one whose child was killed is, in another.
Neighbours: `local_devices`; `backend.pjrt.checker_process`.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Sequence

import msgspec

from backend.pjrt import TRIES, CheckerChild, Died, Late, NotStarted

from ...auth import Rules
from ...scratch_folder import ScratchFolder
from ..protocol import StatusCode
from ..session import StatusError
from .program_checker import PARTITIONED, Answer, ProgramCheckerSettings, Question
from .stablehlo_programs import ProgramFacts

CHILD = "backend.door.programs.program_checker"
LARGEST = 1 << 30  # bytes of an executable
KNOWN = 1024  # programs that crashed a child, and are remembered


class CheckedCompiler:
    """`rules`: what programs may call and take; `devices`: how many CPU devices a child has; `compiles`: whether
    they are like the door's; `describes`: executables are described, and not returned. Thread-safe."""

    def __init__(self, rules: Rules, *, devices: int, compiles: bool, describes: bool = False) -> None:
        self._room = rules.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._rules, self._devices, self._compiles = rules, devices, compiles
        self._dumps = ScratchFolder("door") if describes else None
        self._lock = threading.Lock()
        self._idle: list[CheckerChild] = []
        self._children: set[CheckerChild] = set()
        self._crashed: dict[bytes, StatusError] = {}
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Of the children that live."""
        with self._lock:
            return [child.pid for child in self._children if child.alive]

    def warm(self) -> None:
        """Starts a child, which takes seconds, unless there is one. Returns at once."""
        with self._lock:
            if not self._closed and not any(child.alive for child in self._children):
                child = self._start()
                self._idle.append(child)

    def check(self, program: bytes, options: bytes, devices: Sequence[int]) -> tuple[ProgramFacts, bytes]:
        """What the program says of itself, and its executable, or its Description; no bytes: it is harmless, but to be
        compiled here. Raises StatusError."""
        question = msgspec.msgpack.encode(Question(program, options, tuple(devices)))
        key = hashlib.sha256(question).digest()
        if (known := self._crashed.get(key)) is not None:
            raise StatusError(known.code, known.text)
        answer = self._asked(question, key)
        if answer.about is None:
            raise StatusError(answer.code, answer.text)
        return answer.about, answer.executable

    def close(self) -> None:
        """Ends the children, and with them the questions that wait."""
        with self._lock:
            self._closed = True
            children = list(self._children)
            self._children.clear()
            self._idle.clear()
        for child in children:
            child.end()
        if self._dumps is not None:
            self._dumps.cleanup()

    # --- children ------------------------------------------------------------------------------------------

    def _asked(self, question: bytes, key: bytes) -> Answer:
        killed = 0
        while True:
            child = self._idle_child()
            try:
                child.await_ready()
                said = child.ask(question, self._rules.seconds)
                break
            except NotStarted as error:
                self._drop(child)
                raise _not_started(error) from None
            except Late as late:
                self._drop(child)
                raise StatusError(
                    StatusCode.DEADLINE_EXCEEDED,
                    f"the program was not {late}, which is the limit for programs here (--check-seconds of the door)",
                ) from None
            except Died:
                how = child.last_words()
                self._drop(child)
                killed += child.killed
                # Killed from outside; or it ended for lack of questions at this very moment.
                if child.tired or (child.killed and killed < TRIES):
                    continue
                if not child.up:
                    raise _not_started(how) from None
                raise self._fault(child, how, key) from None
        answer = msgspec.msgpack.decode(said, type=Answer)
        if answer.code == StatusCode.RESOURCE_EXHAUSTED:
            self._drop(child)  # its state is unknown after running out of memory
        else:
            with self._lock:
                self._idle.append(child)
        return answer

    def _fault(self, child: CheckerChild, how: str, key: bytes) -> StatusError:
        if child.killed:
            return StatusError(
                StatusCode.UNAVAILABLE,
                f"the program cannot be compiled: the compiler's process {how}. So were the {TRIES - 1} before it, "
                "which compiled the same",
            )
        fault = StatusError(
            StatusCode.INTERNAL,
            f"the compiler crashed on this program: its process {how}. The door goes on, and so does your session; "
            "without a door, the program itself would have ended. Change or leave out the operation",
        )
        if child.crashed:
            with self._lock:
                if len(self._crashed) >= KNOWN:
                    self._crashed.pop(next(iter(self._crashed)))
                self._crashed[key] = fault
        return fault

    def _idle_child(self) -> CheckerChild:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.alive:
                    return child
                self._children.discard(child)
                child.end()
            if self._closed:
                raise StatusError(StatusCode.UNAVAILABLE, "the door stops")
            try:
                return self._start()
            except OSError as error:
                raise _not_started(error) from error

    def _start(self) -> CheckerChild:
        """With the lock held."""
        folder, flags = "", tuple[str, ...]()
        if self._dumps is not None:
            folder = tempfile.mkdtemp(dir=self._dumps.name)
            flags = (f"--xla_dump_to={folder}", f"--xla_dump_hlo_pass_re={PARTITIONED}")
        rules = self._rules
        settings = ProgramCheckerSettings(
            os.getpid(), rules.more, self._compiles, rules.seconds, self._room, folder
        )
        child = CheckerChild(CHILD, msgspec.json.encode(settings), self._devices, LARGEST, flags)
        self._children.add(child)
        return child

    def _drop(self, child: CheckerChild) -> None:
        with self._lock:
            self._children.discard(child)
        child.end()


def _not_started(error: object) -> StatusError:
    return StatusError(
        StatusCode.UNAVAILABLE,
        f"programs cannot be compiled now: the compiler's process did not start: {error}",
    )
