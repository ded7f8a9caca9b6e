"""Checks code of untrusted clients: a child process tries it before this process reads it.

    Codes.admit --> CodeGate --> verdicts: known?  no --> checkers, one at a time: the child's verdict is remembered

Neighbours: `checkers`, `verdicts`, `compiled_codes`.
"""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import msgspec

from core.model import Code, Gang, Layout, canonical

from ..auth import Rules
from ..contents import StableHLOCode
from ..pjrt import CompilerFault, PjrtDevices
from ..pjrt.code import Unusable, given, identity, stablehlo_of
from .checker_line import bounds
from .checker_process import Late, NotStarted
from .checkers import CheckerEnded, Checkers, NotWanted
from .code_checker import CodeCheckerSettings, CodeQuestion
from .targets import is_callback
from .verdicts import VERSION, Verdict, Verdicts

CHECKER = "backend.sandbox.code_checker"


class CodeGate:
    """Checks code, one at a time. `cache`: the folder of compiled code; verdicts are kept there, too."""

    def __init__(self, rules: Rules, platform: str, cache: Path | None) -> None:
        never = [name for name in rules.more if is_callback(name)]
        if never:
            raise ValueError(
                f"--allow-custom-call {never[0]}: it would follow an address in the code, so clients' code may never "
                "call it"
            )
        self._rules, self._platform = rules, platform
        settings = CodeCheckerSettings(
            **bounds(rules), platform=platform, cache=str(cache or ""), largest=rules.largest
        )
        self._verdicts, self.checkers = Verdicts(cache), Checkers(CHECKER, lambda: (settings, ()))
        self._turn = threading.Lock()  # held while a code is checked
        self.checked = 0

    def check(
        self, code: Code, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout],
        blobs: Mapping[str, bytes], mine: Sequence[int], wanted: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        """Raises Unusable or CompilerFault with a text that names the computation. `mine`: the numbers of this host's
        devices; `wanted`: whether somebody wants the code still."""
        asked = stablehlo_of(code, blobs)
        if asked is not None:
            if not asked.compiled:
                return
            inputs = outputs = ()  # they are not part of what is compiled
        key = self._key(code, asked, gang, inputs, outputs)
        with self._turn, self._verdicts.about(key, self._rules.seconds) as slot:
            verdict = slot.verdict
            if verdict is None:
                places = list(gang.place.devices())
                numbers = tuple(mine) if set(places) <= set(mine) else tuple(places)
                question = CodeQuestion(code, gang, tuple(inputs), tuple(outputs), blobs, numbers)
                verdict = self._ask(question, wanted)
                slot.keep(verdict)
        if verdict.kind != "ok":
            raise Unusable(self._words(code, verdict))

    def _ask(self, question: CodeQuestion, wanted: Callable[[], bool]) -> Verdict:
        name, seconds = question.code.name, self._rules.seconds
        try:
            verdict = self.checkers.ask(question, Verdict, seconds, len(question.numbers), wanted)
        except NotWanted:
            raise Unusable(f"nobody wants computation {name!r} any more") from None
        except NotStarted as error:
            raise CompilerFault(
                f"computation {name!r} could not be checked: the checking process did not start: {error}"
            ) from None
        except Late as late:
            raise Unusable(
                f"the code of computation {name!r} was not {late}, which is the limit for clients' code here "
                "(--check-seconds of the agent)"
            ) from None
        except CheckerEnded as ended:
            said = f"computation {name!r} cannot be compiled: the compiler's process {ended}"
            raise (CompilerFault if ended.killed else Unusable)(said) from None
        self.checked += 1
        return verdict

    # --- texts and keys ---------------------------------------------------------------------------------------

    def _words(self, code: Code, verdict: Verdict) -> str:
        name, reason, limit = code.name, verdict.reason, self._rules.memory
        if verdict.kind == "refused":
            return f"the code of computation {name!r} is refused: {reason}"
        if verdict.kind == "room":
            most = f"more than the {limit} bytes that clients' code may take" if limit else "more than there is"
            return f"compiling computation {name!r} took {most} of this host's memory (--check-memory of the agent)"
        return reason if repr(name) in reason else f"computation {name!r} cannot be compiled: {reason}"

    def _key(
        self, code: Code, asked: StableHLOCode | None, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout]
    ) -> str:
        """The key of a verdict: what the code is, whatever its name and its devices."""
        rules = self._rules
        name: object = (code.code or code.key) if asked is None else identity(asked)
        what = (
            VERSION, jax.__version__, version("jaxlib"), self._platform, sorted(rules.more), rules.largest,
            name, [_look(each) for each in inputs], [_look(each) for each in outputs],
            given(gang) if asked is None else (), gang.irregular, gang.place.size,
        )  # fmt: skip
        return hashlib.sha256(msgspec.msgpack.encode(what)).hexdigest()


def _look(layout: Layout) -> tuple[object, ...]:
    plain = canonical(layout)
    return plain.shape, plain.dtype, plain.mesh, plain.sharding


# --- devices with a check before the compiler -------------------------------------------------------------------------


class CheckedDevices(PjrtDevices):
    """`cache`: a folder that the checker and the agent share; without it, both compile all code."""

    def __init__(self, rules: Rules, *, cache: Path | None = None, **options: Any) -> None:
        super().__init__(cache=cache, **options)
        self.gate = CodeGate(rules, self.about().platform, cache)
        self._codes.admit = self._admit
        self._compiling.interrupt = self.gate.checkers.interrupt

    def close(self) -> None:
        self.gate.checkers.close()
        super().close()

    def _admit(
        self, code: Code, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout],
        blobs: Mapping[str, bytes], wanted: Callable[[], bool],
    ) -> None:  # fmt: skip
        """Checks code before it is compiled, in a compiling thread."""
        world = self._world
        with world.lock:
            world.changed.wait_for(lambda: world.ready)
            mine = world.mine
        self.gate.check(code, gang, inputs, outputs, blobs, mine, wanted)
