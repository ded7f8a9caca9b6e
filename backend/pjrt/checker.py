"""A child process that reads and compiles clients' code before the agent does: harmful code breaks only this process.

    agent --Question--> checker     inspects each blob, traces it as the agent would, compiles it for CPU devices
    agent <--Verdict--- checker     compiled code is in JAX's cache on disk, where the agent finds it

A checker has CPU devices and never an accelerator, which only the agent may use; so code for other platforms is
traced and not compiled. It has no secrets: `checker_process` filters its environment, and it inherits no open file
of the agent. It ends with the agent, even if the agent is killed. `python -m backend.pjrt.checker SETTINGS`.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import msgspec

from core.model import Code, Gang, Layout

from ..process_title import show_as
from . import jax_errors
from .inspection import CodeRefused, inspect
from .launchable_code import keep_on_disk, lower, wake_lapack
from .verdicts import Verdict
from .world import WorldMembership, in_order

LENGTH = struct.Struct(">Q")  # precedes each message
READY, COMPILING = b"ready", b"compiling"  # messages before verdicts: it has started; it has read the code
TIRED = 75  # exit status after IDLE_S
IDLE_S = 600  # seconds without a question, after which it ends; the next question starts another
NO_ROOM = "RESOURCE_EXHAUSTED"
PDEATHSIG, NO_NEW_PRIVS = 1, 38  # of Linux's prctl


class CheckerSettings(msgspec.Struct, frozen=True):
    """A checker's settings, given when it starts."""

    parent: int  # process id
    platform: str  # of the agent's devices
    cache: str  # a folder, or ""
    more: tuple[str, ...]  # foreign functions that are allowed besides the built-in list
    largest: int  # bytes of one computation's code
    seconds: float  # longest compilation
    memory: int  # bytes that a compilation may take; 0: no limit


class Question(msgspec.Struct, frozen=True):
    code: Code
    gang: Gang
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    blobs: Mapping[str, bytes]
    numbers: tuple[int, ...]  # of this process's devices, in the cluster


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=CheckerSettings)
    asked, answers = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # so that libraries' output does not mix with answers
    _bound_for_life(settings.parent)
    show_as(f"checker of agent {settings.parent}")
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    keep_on_disk(Path(settings.cache) if settings.cache else None)
    wake_lapack()
    jax.local_devices()
    _write(answers, READY)
    while (question := _next(asked)) is not None:
        _limit(settings)
        what = msgspec.msgpack.decode(question, type=Question)
        verdict = _inspected(what, settings)
        if verdict.kind == "ok":
            _write(answers, COMPILING)
            verdict = _compiled(what, settings)
        _write(answers, msgspec.msgpack.encode(verdict))
        jax.clear_caches()  # type: ignore[no-untyped-call]
    os._exit(0)


def _next(asked: int) -> bytes | None:
    ready, _, _ = select.select([asked], [], [], IDLE_S)
    if not ready:
        os._exit(TIRED)
    return _read(asked)


def _inspected(question: Question, settings: CheckerSettings) -> Verdict:
    code, gang = question.code, question.gang
    names = [part.code for part in code.parts] or [code.code]
    for number, name in enumerate(names):
        blob = question.blobs.get(name) if name else None  # `blobs.function_of` reports missing code
        if blob is not None:
            try:
                inspect(blob, settings.platform, gang.place.size, settings.more, settings.largest)
            except CodeRefused as refused:
                return Verdict("refused", number, str(refused))
    return Verdict("ok")


def _compiled(question: Question, settings: CheckerSettings) -> Verdict:
    code, gang = question.code, question.gang
    try:
        world = WorldMembership()
        world.devices = dict(zip(question.numbers, in_order(jax.local_devices()), strict=False))
        world.mine = question.numbers
        here = settings.platform == "cpu"
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
        return Verdict("room" if NO_ROOM in text else "failed", 0, text)
    return Verdict("ok")


# --- limits -------------------------------------------------------------------------------------------------------


def _bound_for_life(parent: int) -> None:
    """Makes this process end with the agent, be the first victim when memory is short, and write no core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with suppress(OSError, AttributeError):
        prctl: Any = ctypes.CDLL(None, use_errno=True).prctl
        prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
        prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _limit(settings: CheckerSettings) -> None:
    """Sets limits for the next question, beyond what has been used. The agent measures wall-clock time; the limit
    of CPU time is for an agent that does not."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cores = os.cpu_count() or 1
    seconds = int(used.ru_utime + used.ru_stime + settings.seconds * cores) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    if settings.memory:
        with suppress(OSError, ValueError):
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
            room = pages * resource.getpagesize() + settings.memory
            resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))


# --- messages -----------------------------------------------------------------------------------------------------


def _read(source: int) -> bytes | None:
    head = _exactly(source, LENGTH.size)
    return None if head is None else _exactly(source, LENGTH.unpack(head)[0])


def _exactly(source: int, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        portion = os.read(source, size - len(found))
        if not portion:
            return None
        found += portion
    return bytes(found)


def _write(target: int, message: bytes) -> None:
    rest = memoryview(LENGTH.pack(len(message)) + message)
    while rest:
        rest = rest[os.write(target, rest) :]


if __name__ == "__main__":
    main()
