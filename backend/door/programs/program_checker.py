"""A child process that reads and compiles programs before the door does: one that breaks the compiler breaks only this.

    door --Question--> checker     reads the program, refuses what it may not have, compiles it for CPU devices
    door <--Answer---- checker     what it says of itself, and the executable as bytes, which the door loads

It has the door's number of CPU devices, and never an accelerator, which only the door may use: programs for others
are read and not compiled. For devices that are only simulated it describes the executable instead (`Description`).
Neighbours: `checked_compiler`, which asks; `backend.pjrt.checker_pipes`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import msgspec

from backend.contents import CompiledAbout
from backend.pjrt import checker_pipes, stablehlo_executables, wake_lapack
from backend.process_title import show_as

from ..protocol import StatusCode
from ..session import StatusError
from .stablehlo_programs import ProgramFacts, read_program
from .xla_errors import translated

PARTITIONED = (
    "all-reduce-promotion"  # XLA's first pass that changes programs for CPUs: it turns bf16 into f32
)


class ProgramCheckerSettings(msgspec.Struct, frozen=True):
    parent: int  # process id
    more: tuple[str, ...]  # foreign functions that programs may call besides the built-in list
    compiles: bool  # whether its devices are like the door's
    seconds: float  # longest compilation
    memory: int  # bytes that a compilation may take; 0: no limit
    dumps: str = ""  # where XLA leaves its texts; if given, executables are described, and not returned


class Question(msgspec.Struct, frozen=True):
    """`devices`: those of the device assignment, by JAX's numbers."""

    program: bytes
    options: bytes
    devices: tuple[int, ...]


class Description(msgspec.Struct, frozen=True):
    """An executable that nobody will run. `text`: the HLO of one device as compiled, and `partitioned`: as it was
    before passes that are only for CPUs; empty if XLA did not leave it."""

    about: CompiledAbout
    text: str
    partitioned: str
    costs: dict[str, float]  # what `cost_analysis` says


class Answer(msgspec.Struct, frozen=True):
    """`code`: 0, or what is wrong. `executable`: empty if the door has to compile it; or its encoded Description."""

    code: int
    text: str = ""
    about: ProgramFacts | None = None
    executable: bytes = b""


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=ProgramCheckerSettings)
    asked, answers = checker_pipes.take_pipes()
    checker_pipes.bound_for_life(settings.parent)
    show_as(f"checker of door {settings.parent}")
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    wake_lapack()
    devices = {device.id: device for device in jax.local_devices()}
    checker_pipes.write(answers, checker_pipes.READY)
    while (asking := checker_pipes.next_question(asked)) is not None:
        checker_pipes.limit(settings.seconds, settings.memory)
        question = msgspec.msgpack.decode(asking, type=Question)
        try:
            about = read_program(question.program, settings.more)
            checker_pipes.write(answers, checker_pipes.COMPILING)
            executable = b""
            if settings.compiles:
                executable = _compiled(
                    question, [devices[number] for number in question.devices], settings.dumps
                )
            answer = Answer(0, about=about, executable=executable)
        except StatusError as fault:
            answer = Answer(fault.code, fault.text)
        except MemoryError:
            answer = Answer(StatusCode.RESOURCE_EXHAUSTED, "no memory is left")
        checker_pipes.write(answers, msgspec.msgpack.encode(answer))
    os._exit(0)


def _compiled(question: Question, devices: Sequence[Any], dumps: str) -> bytes:
    client = devices[0].client
    with translated():
        made = stablehlo_executables.compile_program(client, question.program, question.options, devices)
        return _described(made, Path(dumps)) if dumps else stablehlo_executables.serialized(client, made)


def _described(made: Any, dumps: Path) -> bytes:
    texts = sorted(dumps.glob(f"*before_{PARTITIONED}*.txt"))
    partitioned = texts[-1].read_text(encoding="utf-8", errors="replace") if texts else ""
    for each in dumps.iterdir():
        each.unlink()
    try:
        costs = stablehlo_executables.costs_of(made)
    except Exception:  # an executable without them
        costs = {}
    about = stablehlo_executables.about_executable(made)
    return msgspec.msgpack.encode(Description(about, str(made.get_hlo_text()), partitioned, costs))
