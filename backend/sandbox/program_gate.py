"""Programs that a child process has read and compiled: what breaks the compiler ends one program, not the door.

    compiling threads --check--> ProgramGate --> checkers: program_checker, a child for each thread at most
                      <-- what the program says of itself, and its executable as bytes; or StatusError

A program that crashed a child is not tried again. Neighbours: `local_devices`, `described_code`, `checkers`.
"""

import hashlib
import tempfile
import threading
from collections.abc import Sequence

import msgspec

from ..auth import Rules
from ..contents import StagedProgram
from ..pjrt.code import MainFacts
from ..scratch_folder import ScratchFolder
from ..xla import StatusCode, StatusError
from .checker_line import bounds
from .checker_process import Late, NotStarted
from .checkers import CheckerEnded, Checkers
from .program_checker import PARTITIONED, ProgramAnswer, ProgramCheckerSettings, ProgramQuestion, StagesQuestion

CHECKER = "backend.sandbox.program_checker"
LARGEST = 1 << 30  # bytes of an executable
KNOWN = 1024  # programs that crashed a child, and are remembered


class ProgramGate:
    """`rules`: what programs may call and take; `devices`: how many CPU devices a child has; `compiles`: whether
    they are like the door's; `describes`: executables are described, and not returned. Thread-safe."""

    def __init__(self, rules: Rules, *, devices: int, compiles: bool, describes: bool = False) -> None:
        self._rules, self._devices, self._compiles = rules, devices, compiles
        self._dumps = ScratchFolder("door") if describes else None
        self._lock = threading.Lock()
        self._crashed: dict[bytes, StatusError] = {}
        self.checkers = Checkers(CHECKER, self._settings, LARGEST)

    def warm(self) -> None:
        self.checkers.warm(self._devices)

    def check(
        self, program: bytes, options: bytes, devices: Sequence[int], callbacks: bool = False
    ) -> tuple[MainFacts, bytes]:
        """What the program says of itself, and its executable, or its Description; no bytes: it is harmless, but to be
        compiled here. `callbacks`: its client answers calls. Raises StatusError."""
        answer = self._asked(ProgramQuestion(program, options, tuple(devices), callbacks))
        assert answer.main is not None
        return answer.main, answer.executable

    def read_stages(self, program: bytes, serdes: int) -> StagedProgram:
        """What an MPMD program says, which a client with this serialization version wrote. Raises StatusError."""
        return msgspec.msgpack.decode(self._asked(StagesQuestion(program, serdes)).executable, type=StagedProgram)

    def _asked(self, question: ProgramQuestion | StagesQuestion) -> ProgramAnswer:
        key = hashlib.sha256(msgspec.msgpack.encode(question)).digest()
        if (known := self._crashed.get(key)) is not None:
            raise StatusError(known.code, known.text)
        try:
            answer = self.checkers.ask(question, ProgramAnswer, self._rules.seconds, self._devices)
        except NotStarted as error:
            raise StatusError(
                StatusCode.UNAVAILABLE,
                f"programs cannot be compiled now: the compiler's process did not start: {error}",
            ) from None
        except Late as late:
            raise StatusError(
                StatusCode.DEADLINE_EXCEEDED,
                f"the program was not {late}, which is the limit for programs here (--check-seconds of the door)",
            ) from None
        except CheckerEnded as ended:
            raise self._fault(ended, key) from None
        if answer.code:
            raise StatusError(answer.code, answer.text)
        return answer

    def close(self) -> None:
        self.checkers.close()
        if self._dumps is not None:
            self._dumps.cleanup()

    def _fault(self, ended: CheckerEnded, key: bytes) -> StatusError:
        if ended.killed:
            return StatusError(
                StatusCode.UNAVAILABLE, f"the program cannot be compiled: the compiler's process {ended}"
            )
        fault = StatusError(
            StatusCode.INTERNAL,
            f"the compiler crashed on this program: its process {ended}. The door goes on, and so does your session; "
            "without a door, the program itself would have ended. Change or leave out the operation",
        )
        if ended.crashed:
            with self._lock:
                if len(self._crashed) >= KNOWN:
                    self._crashed.pop(next(iter(self._crashed)))
                self._crashed[key] = fault
        return fault

    def _settings(self) -> tuple[ProgramCheckerSettings, Sequence[str]]:
        folder, flags = "", tuple[str, ...]()
        if self._dumps is not None:
            folder = tempfile.mkdtemp(dir=self._dumps.name)
            flags = (f"--xla_dump_to={folder}", f"--xla_dump_hlo_pass_re={PARTITIONED}")
        return ProgramCheckerSettings(**bounds(self._rules), compiles=self._compiles, dumps=folder), flags
