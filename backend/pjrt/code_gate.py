"""Checks code of untrusted clients: a child process tries it before this process reads it.

    Codes.admit --> gate --> verdicts: known?  no --> checker, a child process: started when needed, limited in time,
                                                      killed if it does not answer, started again for the next
                                                      question, and for the same one if something else killed it

Neighbours: `checked`, `checker_process`, `verdicts`, `compiled_codes`.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import jax
import msgspec

from core.model import Code, Gang, Layout, canonical

from ..auth import Rules
from ..contents import StableHLOCode
from .blobs import Unusable
from .checker import CheckerSettings, CodeQuestion
from .checker_process import TRIES, CheckerChild, Died, Late, NotStarted
from .jax_errors import CompilerFault
from .launchable_code import given
from .stablehlo_codes import identity, stablehlo_of
from .targets import is_callback
from .verdicts import VERSION, Verdict, Verdicts

CHECKER = "backend.pjrt.checker"
log = logging.getLogger("seaway.pjrt")


class CodeGate:
    """Checks code, one at a time. `cache`: the folder of compiled code; verdicts are kept there, too."""

    def __init__(self, rules: Rules, platform: str, cache: Path | None) -> None:
        never = [name for name in rules.more if is_callback(name)]
        if never:
            raise ValueError(
                f"--allow-custom-call {never[0]}: it would follow an address in the code, so clients' code may never "
                "call it"
            )
        self._rules, self._platform, self._cache = rules, platform, cache
        self._verdicts = Verdicts(cache)
        self._child: CheckerChild | None = None
        self._turn = threading.Lock()  # held while a code is checked
        self._lock = threading.Lock()  # protects `_child`, `_closed` and `_asking`
        self._closed = False
        self._asking = False  # the child has a question that it has not answered
        self.checked = 0

    @property
    def pid(self) -> int:
        """The child's process id; 0: there is none."""
        child = self._child
        return 0 if child is None or not child.alive else child.pid

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

    def interrupt(self) -> bool:
        """Ends the child if it is being asked, so that the check under way fails; from any thread. False: it is not."""
        with self._lock:
            if self._asking and self._child is not None:
                self._child.kill()
                self._asking = False
                return True
        return False

    def close(self) -> None:
        """Ends the child; from any thread."""
        with self._lock:
            self._closed = True
            child, self._child = self._child, None
        if child is not None:
            child.end()

    # --- the child --------------------------------------------------------------------------------------------

    def _ask(self, question: CodeQuestion, wanted: Callable[[], bool]) -> Verdict:
        """Asks a child; asks another one if something other than the code ends that."""
        name, killed = question.code.name, 0
        while True:
            child = self._child_for(question)
            with self._lock:
                if not wanted():
                    raise Unusable(f"nobody wants computation {name!r} any more")
                self._asking = True
            try:
                child.await_ready()
                answer = child.ask(msgspec.msgpack.encode(question), self._rules.seconds)
                break
            except NotStarted as error:
                raise _not_checked(name, error) from None
            except Late as late:
                child.end()
                raise Unusable(
                    f"the code of computation {name!r} was not {late}, which is the limit for clients' code here "
                    "(--check-seconds of the agent)"
                ) from None
            except Died:
                how = child.last_words()
                with self._lock:
                    interrupted = not self._asking
                killed += child.killed
                if child.killed and not interrupted:
                    log.warning("the process that compiled computation %r %s", name, how)
                    if killed < TRIES:
                        continue
                    raise CompilerFault(
                        f"computation {name!r} cannot be compiled: the compiler's process {how}. So were the "
                        f"{TRIES - 1} before it, which compiled the same"
                    ) from None
                if child.tired:  # it ended for lack of questions at this very moment
                    continue
                if not child.up:
                    raise _not_checked(name, how) from None
                raise Unusable(
                    f"computation {name!r} cannot be compiled: the compiler's process {how}"
                ) from None
            finally:
                with self._lock:
                    self._asking = False
        self.checked += 1
        verdict = msgspec.msgpack.decode(answer, type=Verdict)
        if verdict.kind == "room":
            child.end()  # its state is unknown after running out of memory
        return verdict

    def _child_for(self, question: CodeQuestion) -> CheckerChild:
        child, devices = self._child, len(question.numbers)
        if child is not None and child.alive and child.devices >= devices:
            return child
        if child is not None:
            devices = max(devices, child.devices)
            child.end()
        with self._lock:
            if self._closed:
                raise _not_checked(question.code.name, "the agent ends")
            try:
                child = self._child = CheckerChild(CHECKER, msgspec.json.encode(self._settings()), devices)
            except OSError as error:
                raise _not_checked(question.code.name, error) from error
        return child

    def _settings(self) -> CheckerSettings:
        rules = self._rules
        room = rules.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        cache = "" if self._cache is None else str(self._cache)
        return CheckerSettings(
            os.getpid(), self._platform, cache, rules.more, rules.largest, rules.seconds, room
        )

    # --- texts and keys ---------------------------------------------------------------------------------------

    def _words(self, code: Code, verdict: Verdict) -> str:
        name, reason, limit = code.name, verdict.reason, self._rules.memory
        if verdict.kind == "refused":
            return f"the code of computation {name!r} is refused: {reason}"
        if verdict.kind == "room":
            most = (
                f"more than the {limit} bytes that clients' code may take" if limit else "more than there is"
            )
            return f"compiling computation {name!r} took {most} of this host's memory (--check-memory of the agent)"
        return reason if repr(name) in reason else f"computation {name!r} cannot be compiled: {reason}"

    def _key(
        self, code: Code, asked: StableHLOCode | None, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout]
    ) -> str:  # fmt: skip
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


def _not_checked(name: str, why: object) -> CompilerFault:
    return CompilerFault(
        f"computation {name!r} could not be checked: the checking process did not start: {why}"
    )
