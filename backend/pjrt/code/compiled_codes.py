"""Code, compiled in the background for the devices of its gangs, and kept until its backend ends.

The same code for the same layouts is compiled once for all plans. It has one of two flavours: what `jax.export` writes,
which is traced and lowered here (`launchable_code`), and raw StableHLO (`stablehlo_codes`). If a folder was given,
compiled code is also kept on disk. If clients are not trusted, `admit` tries code in another process before this
process reads it (`code_gate`). Neighbours: `world`, `launcher`, `sandbox`.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.model import Code, Gang, Layout, Plan, canonical
from core.protocol import effects as e

from ...contents import CALLBACK_S
from .. import jax_errors
from ..world import WorldMembership
from .executable_cache import ExecutableCache
from .forwarders import AskClient
from .launchable_code import LaunchableCode, Unusable, check_memory, given, keep_on_disk, lower, wake_lapack
from .stablehlo_codes import StableHLOCodes, stablehlo_of
from .stablehlo_launchable import StableHLOLaunchable

log = logging.getLogger("seaway.pjrt")
Wanted = Callable[[], bool]  # whether somebody wants the code still
Admit = Callable[[Code, Gang, Sequence[Layout], Sequence[Layout], Mapping[str, bytes], Wanted], None]
MOST = 8192  # plans with code, and different codes, that are kept
NONE: Mapping[int, LaunchableCode] = {}


class Codes:
    """All compiled code. `memory`: bytes of each device; code that takes more is refused. `cache`: a folder. `asks`,
    `patience`: as of `StableHLOCodes`."""

    def __init__(
        self, world: WorldMembership, post: Callable[[e.Event], None], memory: int, cache: Path | None,
        asks: Callable[[str], AskClient] | None = None, patience: float = CALLBACK_S,
    ) -> None:  # fmt: skip
        self._world, self._post, self._memory = world, post, memory
        self._of: OrderedDict[int, dict[int, LaunchableCode]] = OrderedDict()  # by plan and code
        self._same: OrderedDict[Any, LaunchableCode] = OrderedDict()
        self._stablehlo = StableHLOCodes(world, memory, ExecutableCache(cache), asks, patience)
        self._compiled = 0
        self.admit: Admit | None = None  # raises if the code may not be compiled here
        keep_on_disk(cache)
        wake_lapack()

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    @property
    def compiled(self) -> int:
        """How many executables were compiled here, and not found in a cache of ours."""
        return self._compiled + self._stablehlo.compiled

    def get(self, plan: int, code: int) -> LaunchableCode | None:
        return self._of.get(plan, NONE).get(code)

    def forget(self, plan: int) -> None:
        """The code stays for other plans that have the same."""
        with self._world.lock:
            self._of.pop(plan, None)

    def void(self) -> None:
        """Drops all code, since the backend has ended. Call it under the world's lock."""
        self._of.clear()
        self._same.clear()
        self._stablehlo.void()

    # --- the compiling thread ---------------------------------------------------------------------------------

    def compile(
        self, command: e.CompileCode, plan: Plan, code_of: Mapping[str, bytes], wanted: Wanted = lambda: True
    ) -> None:
        """Compiles for the current world; compiles again if the world changes meanwhile."""
        blame, about, code = None, b"", plan.codes[command.code]
        try:
            self._check_first(code, plan, code_of, wanted)
            while (made := self._try(command, plan, code_of, wanted)) is None:
                log.info("the world changed while code %s was compiled", code.name)
            if command.about:
                about = made.answer()
        except Exception as error:
            blame = jax_errors.of(error)
        self._post(e.CodeReady(command.plan, command.code, blame, about))

    def _check_first(self, code: Code, plan: Plan, code_of: Mapping[str, bytes], wanted: Wanted) -> None:
        """Has clients' code checked before this process reads it. Code that core made has no bytes of a client."""
        if self.admit is None or not code_of:
            return
        gang, inputs, outputs = _gang_and_layouts(code, plan)
        if self._same.get(_content(code, gang, inputs, outputs)) is None:
            self.admit(code, gang, inputs, outputs, code_of, wanted)

    def _try(
        self, command: e.CompileCode, plan: Plan, code_of: Mapping[str, bytes], wanted: Wanted
    ) -> LaunchableCode | None:
        """None: the world has changed meanwhile."""
        code = plan.codes[command.code]
        gang, inputs, outputs = _gang_and_layouts(code, plan)
        world = self._world
        key = _content(code, gang, inputs, outputs)
        with world.lock:
            world.changed.wait_for(lambda: world.ready)
            if not wanted():
                raise Unusable(f"nobody wants code {code.name!r} any more")
            generation = world.generation
            made = self._same.get(key)
            # Begun under the lock, so that the backend cannot be dropped meanwhile.
            finish = None if made is not None else self._begin(code, gang, inputs, outputs, code_of)
        if finish is not None:
            made = finish()
        assert made is not None
        with world.lock:
            if world.generation != generation:
                return None
            self._same[key] = self._of.setdefault(command.plan, {})[command.code] = made
            if isinstance(made, StableHLOLaunchable):
                self._stablehlo.keep(made)
            for table in (self._same, self._of):
                while len(table) > MOST:
                    table.popitem(last=False)
        return made

    def _begin(
        self, code: Code, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout], code_of: Mapping[str, bytes]
    ) -> Callable[[], LaunchableCode]:
        """What it returns compiles, which is the long part, without the lock."""
        asked = stablehlo_of(code, code_of)
        if asked is not None:
            return self._stablehlo.begin(asked, gang, inputs, outputs)
        made, lowered = lower(self._world, code, gang, inputs, outputs, code_of)
        return lambda: self._finish(made, lowered)

    def _finish(self, made: LaunchableCode, lowered: Sequence[Any]) -> LaunchableCode:
        made.keeping, *giving = [each.compile() for each in lowered]
        made.giving = giving[0] if giving else None
        self._compiled += len(lowered)
        if self._memory:
            check_memory(made.name, self._memory, made.keeping.memory_analysis())
        return made


def _gang_and_layouts(code: Code, plan: Plan) -> tuple[Gang, tuple[Layout, ...], tuple[Layout, ...]]:
    """The gang to which the code belongs, and the layouts of its inputs and outputs."""
    gang = plan.steps[code.step]
    assert isinstance(gang, Gang)
    inputs, outputs = (tuple(plan.slots[slot].layout for slot in slots) for slots in (gang.inputs, gang.outputs))
    return gang, inputs, outputs


def _content(code: Code, gang: Gang, inputs: Sequence[Layout], outputs: Sequence[Layout]) -> Any:
    """A key: two codes with equal keys are the same program."""
    return (
        code.code or code.key, tuple(map(canonical, inputs)), tuple(map(canonical, outputs)),
        given(gang), gang.irregular, gang.place,
    )  # fmt: skip
