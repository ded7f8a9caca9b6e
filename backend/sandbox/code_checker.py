"""The child of an agent: reads and compiles a client's computation before the agent does.

    agent --CodeQuestion--> checker     inspects each blob, traces it as the agent would, compiles it for CPU devices
    agent <--Verdict------- checker     compiled code is in a cache on disk (JAX's, or `executable_cache`), where the
                                        agent finds it

Code for other platforms is traced and not compiled. Neighbours: `code_gate`, which asks; `checker_line`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import msgspec

from core.model import Code, Gang, Layout

from ..contents import StableHLOCode, stablehlo_code
from ..pjrt import WorldMembership, in_order, jax_errors
from ..pjrt.code import ExecutableCache, StableHLOCodes, keep_on_disk, lower, options_for, stablehlo_of
from .checker_line import CheckerSettings, serve
from .inspection import CodeRefused, inspect, inspect_program
from .verdicts import Verdict

NO_ROOM = "RESOURCE_EXHAUSTED"


class CodeCheckerSettings(CheckerSettings, frozen=True, kw_only=True):
    platform: str  # of the agent's devices
    cache: str  # a folder, or ""
    largest: int  # bytes of one computation's code

    @property
    def folder(self) -> Path | None:
        return Path(self.cache) if self.cache else None


class CodeQuestion(msgspec.Struct, frozen=True):
    code: Code
    gang: Gang
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    blobs: Mapping[str, bytes]
    numbers: tuple[int, ...]  # of this process's devices, in the cluster


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=CodeCheckerSettings)
    keep_on_disk(settings.folder)

    def verdict_on(asked: bytes, compiles: Callable[[], None]) -> Verdict:
        jax.clear_caches()  # type: ignore[no-untyped-call]
        question = msgspec.msgpack.decode(asked, type=CodeQuestion)
        try:
            _inspect(question, settings)
        except (CodeRefused, stablehlo_code.MalformedCode) as refused:
            return Verdict("refused", str(refused))
        compiles()
        return _compiled(question, settings)

    serve(settings, "agent", verdict_on)


def _inspect(question: CodeQuestion, settings: CodeCheckerSettings) -> None:
    blob = question.blobs.get(question.code.code) if question.code.code else None
    if blob is None:
        return  # `lower` reports missing code
    if stablehlo_code.is_stablehlo(blob):
        asked = stablehlo_code.decode(blob)
        inspect_program(asked.program, settings.more, settings.largest, callbacks=bool(asked.callbacks))
    else:
        inspect(blob, settings.platform, question.gang.place.size, settings.more, settings.largest)


def _compiled(question: CodeQuestion, settings: CodeCheckerSettings) -> Verdict:
    code, gang = question.code, question.gang
    try:
        world = WorldMembership()
        world.devices = dict(zip(question.numbers, in_order(jax.local_devices()), strict=False))
        world.mine = question.numbers
        here = settings.platform == "cpu"
        asked = stablehlo_of(code, question.blobs)
        if asked is not None:
            _compile_stablehlo(world, asked, question, settings)
            return Verdict("ok")
        _, lowered = lower(
            world, code, gang, question.inputs, question.outputs, question.blobs, "" if here else settings.platform
        )
        for each in lowered if here else ():
            each.compile()
    except MemoryError:
        return Verdict("room")
    except Exception as error:
        text = jax_errors.text_of(error)
        return Verdict("room" if NO_ROOM in text else "failed", text)
    return Verdict("ok")


def _compile_stablehlo(
    world: WorldMembership, asked: StableHLOCode, question: CodeQuestion, settings: CodeCheckerSettings
) -> None:
    if settings.platform != "cpu":
        options_for(asked, question.gang, range(question.gang.place.size))
        return
    codes = StableHLOCodes(world, 0, ExecutableCache(settings.folder))
    codes.begin(asked, question.gang, question.inputs, question.outputs)()
