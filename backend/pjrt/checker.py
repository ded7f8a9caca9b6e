"""A child process that reads and compiles clients' code before the agent does: harmful code breaks only this process.

    agent --Question--> checker     inspects each blob, traces it as the agent would, compiles it for CPU devices
    agent <--Verdict--- checker     compiled code is in a cache on disk (JAX's, or `executable_cache`), where the agent
                                    finds it

A checker has CPU devices and never an accelerator, which only the agent may use; so code for other platforms is
traced and not compiled. It has no secrets: `checker_process` filters its environment, and it inherits no open file
of the agent. It ends with the agent, even if the agent is killed (`checker_pipes`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import jax
import msgspec

from core.model import Code, Gang, Layout

from ..contents import StableHLOCode, stablehlo_code
from ..process_title import show_as
from . import jax_errors
from .checker_pipes import COMPILING, READY, bound_for_life, limit, next_question, take_pipes, write
from .executable_cache import ExecutableCache
from .inspection import CodeRefused, inspect
from .launchable_code import keep_on_disk, lower, wake_lapack
from .stablehlo_codes import StableHLOCodes, options_for, stablehlo_of
from .stablehlo_reading import inspect_program
from .verdicts import Verdict
from .world import WorldMembership, in_order

NO_ROOM = "RESOURCE_EXHAUSTED"


class CheckerSettings(msgspec.Struct, frozen=True):
    """A checker's settings, given when it starts."""

    parent: int  # process id
    platform: str  # of the agent's devices
    cache: str  # a folder, or ""
    more: tuple[str, ...]  # foreign functions that are allowed besides the built-in list
    largest: int  # bytes of one computation's code
    seconds: float  # longest compilation
    memory: int  # bytes that a compilation may take; 0: no limit


class CodeQuestion(msgspec.Struct, frozen=True):
    code: Code
    gang: Gang
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    blobs: Mapping[str, bytes]
    numbers: tuple[int, ...]  # of this process's devices, in the cluster


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=CheckerSettings)
    asked, answers = take_pipes()
    bound_for_life(settings.parent)
    show_as(f"checker of agent {settings.parent}")
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    keep_on_disk(Path(settings.cache) if settings.cache else None)
    wake_lapack()
    jax.local_devices()
    write(answers, READY)
    while (question := next_question(asked)) is not None:
        limit(settings.seconds, settings.memory)
        what = msgspec.msgpack.decode(question, type=CodeQuestion)
        verdict = _inspected(what, settings)
        if verdict.kind == "ok":
            write(answers, COMPILING)
            verdict = _compiled(what, settings)
        write(answers, msgspec.msgpack.encode(verdict))
        jax.clear_caches()  # type: ignore[no-untyped-call]
    os._exit(0)


def _inspected(question: CodeQuestion, settings: CheckerSettings) -> Verdict:
    code, gang = question.code, question.gang
    blob = question.blobs.get(code.code) if code.code else None  # `blobs.function_of` reports missing code
    if blob is not None:
        try:
            if stablehlo_code.is_stablehlo(blob):
                inspect_program(stablehlo_code.decode(blob).program, settings.more, settings.largest)
            else:
                inspect(blob, settings.platform, gang.place.size, settings.more, settings.largest)
        except (CodeRefused, stablehlo_code.MalformedCode) as refused:
            return Verdict("refused", str(refused))
    return Verdict("ok")


def _compiled(question: CodeQuestion, settings: CheckerSettings) -> Verdict:
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
            world, code, gang, question.inputs, question.outputs, question.blobs,
            "" if here else settings.platform,
        )  # fmt: skip
        for each in lowered if here else ():
            each.compile()
    except MemoryError:
        return Verdict("room")
    except Exception as error:
        text = jax_errors.text_of(error)
        return Verdict("room" if NO_ROOM in text else "failed", text)
    return Verdict("ok")


def _compile_stablehlo(
    world: WorldMembership, asked: StableHLOCode, question: CodeQuestion, settings: CheckerSettings
) -> None:
    if settings.platform != "cpu":
        options_for(asked, question.gang, range(question.gang.place.size))
        return
    cache = ExecutableCache(Path(settings.cache) if settings.cache else None)
    StableHLOCodes(world, 0, cache).begin(asked, question.gang, question.inputs, question.outputs)()
