"""A checker's side of its line to its parent, and the limits that it sets itself.

    parent --question--> checker         LENGTH before each message; READY when it has started
    parent <--COMPILING, answer--        COMPILING when it has read a program, before it compiles it

It ends with its parent, and when nobody has asked anything for long. It has CPU devices and never an accelerator, which
only its parent may use. Neighbours: `checker_process`, the parent's side; `code_checker`, `program_checker`.
"""

import ctypes
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NoReturn

import jax
import msgspec

from ..auth import Rules
from ..pjrt.code import wake_lapack
from ..process_title import show_as

LENGTH = struct.Struct(">Q")  # precedes each message
READY, COMPILING = b"ready", b"compiling"  # messages before answers: it has started; it has read the code
TIRED = 75  # exit status after IDLE_S
IDLE_S = 600  # seconds without a question, after which it ends; the next question starts another
PDEATHSIG, NO_NEW_PRIVS = 1, 38  # of Linux's prctl


class CheckerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A checker's settings, given when it starts."""

    parent: int  # process id
    more: tuple[str, ...]  # foreign functions that are allowed besides the built-in list
    seconds: float  # longest compilation
    memory: int  # bytes that a compilation may take


def bounds(rules: Rules) -> dict[str, Any]:
    """The settings that follow from rules."""
    memory = rules.memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"parent": os.getpid(), "more": rules.more, "seconds": rules.seconds, "memory": memory}


def serve(
    settings: CheckerSettings, what: str, answer: Callable[[bytes, Callable[[], None]], msgspec.Struct]
) -> NoReturn:
    """Answers questions. `answer` calls its second argument when it has read a program, before it compiles it."""
    line = take_line()
    bound_for_life(settings.parent)
    show_as(f"checker of {what} {settings.parent}")
    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    wake_lapack()
    jax.local_devices()
    write(line, READY)
    while (question := next_question(line)) is not None:
        limit(settings.seconds, settings.memory)
        write(line, msgspec.msgpack.encode(answer(question, lambda: write(line, COMPILING))))
    os._exit(0)


def take_line() -> BufferedIOBase:
    """Where questions come from and answers go; standard input and output are others from now on, so that libraries'
    output does not mix with answers."""
    line = socket.socket(fileno=os.dup(0))
    line.settimeout(IDLE_S)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return line.makefile("rwb")


def next_question(line: BufferedIOBase) -> bytes | None:
    """None: the parent has no more. Ends the process if none comes for long."""
    try:
        head = line.read(LENGTH.size)
    except TimeoutError:
        os._exit(TIRED)
    return line.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def write(line: BufferedIOBase, message: bytes) -> None:
    line.write(LENGTH.pack(len(message)))
    line.write(message)
    line.flush()


# --- limits -------------------------------------------------------------------------------------------------------


def bound_for_life(parent: int) -> None:
    """Makes this process end with the thread that started it, be the first victim when memory is short, and write no
    core file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with suppress(OSError, AttributeError):
        prctl: Any = ctypes.CDLL(None, use_errno=True).prctl
        prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
        prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def limit(seconds: float, memory: int) -> None:
    """Sets limits for the next question, beyond what has been used. The parent measures wall-clock time; the limit
    of CPU time is for a parent that does not."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cores = os.cpu_count() or 1
    until = int(used.ru_utime + used.ru_stime + seconds * cores) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        room = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
