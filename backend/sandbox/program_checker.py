"""The child of a door: reads and compiles a program before the door does.

    door --ProgramQuestion--> checker     reads it, refuses what it may not have, compiles it for CPU devices
    door <--ProgramAnswer---- checker     what it says of itself, and the executable as bytes, which the door loads

An MPMD program is only read; its stages come as programs of their own. A checker has the door's number of CPU devices:
programs for others are read and not compiled. For devices that are only simulated it describes the executable instead
(`Description`). Neighbours: `program_gate`, which asks; `checker_line`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import msgspec

from ..contents import CompiledAbout
from ..pjrt.code import MainFacts, stablehlo_executables, unasked
from ..xla import StatusCode
from .checker_line import CheckerSettings, serve
from .inspection import read_program
from .stage_reading import read_stages

PARTITIONED = "all-reduce-promotion"  # XLA's first pass that is only for CPUs: it turns bf16 into f32


class ProgramCheckerSettings(CheckerSettings, frozen=True, kw_only=True):
    compiles: bool  # whether its devices are like the door's
    dumps: str  # where XLA leaves its texts; if given, executables are described, and not returned


class ProgramQuestion(msgspec.Struct, frozen=True, tag=True):
    """`devices`: those of the device assignment, by JAX's numbers."""

    program: bytes
    options: bytes
    devices: tuple[int, ...]
    callbacks: bool = False  # its client answers calls of functions in its process


class StagesQuestion(msgspec.Struct, frozen=True, tag=True):
    """What an MPMD program says. `serdes`: the serialization version of the jaxlib that wrote it."""

    program: bytes
    serdes: int


class Description(msgspec.Struct, frozen=True):
    """An executable that nobody will run. `text`: the HLO of one device as compiled, and `partitioned`: as it was
    before passes that are only for CPUs; empty if XLA did not leave it."""

    about: CompiledAbout
    text: str
    partitioned: str
    costs: dict[str, float]  # what `cost_analysis` says


class ProgramAnswer(msgspec.Struct, frozen=True):
    """`code`: 0, or what is wrong. `executable`: empty if the door has to compile it; or its encoded Description. To a
    StagesQuestion: the encoded StagedProgram."""

    code: int
    text: str = ""
    main: MainFacts | None = None
    executable: bytes = b""

    @property
    def spends(self) -> bool:
        return bool(self.code == StatusCode.RESOURCE_EXHAUSTED)


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=ProgramCheckerSettings)

    def answer_to(asked: bytes, compiles: Callable[[], None]) -> ProgramAnswer:
        question: Any = msgspec.msgpack.decode(asked, type=ProgramQuestion | StagesQuestion)
        try:
            if isinstance(question, StagesQuestion):
                stages = read_stages(question.program, question.serdes)
                return ProgramAnswer(0, "", None, msgspec.msgpack.encode(stages))
            found = read_program(question.program, settings.more, callbacks=question.callbacks)
            compiles()
            return ProgramAnswer(0, "", found, _compiled(question, found, settings))
        except MemoryError:
            return ProgramAnswer(StatusCode.RESOURCE_EXHAUSTED, "no memory is left")
        except Exception as error:
            return ProgramAnswer(*stablehlo_executables.status_of(error))

    serve(settings, "door", answer_to)


def _compiled(question: ProgramQuestion, main: MainFacts, settings: ProgramCheckerSettings) -> bytes:
    if not settings.compiles:
        return b""
    by_number = {device.id: device for device in jax.local_devices()}
    devices: Sequence[Any] = [by_number[number] for number in question.devices]
    client = devices[0].client
    made = stablehlo_executables.compile_program(
        client, question.program, question.options, devices, unasked(main.callbacks)
    )
    if settings.dumps:
        return _described(made, Path(settings.dumps))
    return stablehlo_executables.serialized(client, made, main, devices)


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
