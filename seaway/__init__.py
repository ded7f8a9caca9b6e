"""Seaway: one controller for islands of accelerators, and a simulator of it that runs the same scheduler."""

from . import _house

_house.check("core")  # before anything is imported from it

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from core.model import Impossible, ProgramError
    from core.schedule.policy import Deadline, Fifo, Policy, Priority, RoundRobin, Shortest, Stride
    from sim.engine import Noise

    from .arrays import Array, Run, block_until_ready, get
    from .checkpoints import checkpoint
    from .connected.connect import connect
    from .connected.errors import NotReady, Unreachable
    from .connected.local import local
    from .costs import Cost, roofline_costs, tpu_costs
    from .deadlines import deadline
    from .errors import (
        Cancelled,
        NoContents,
        NoSession,
        NotNow,
        RunError,
        SeawayError,
        SessionClosed,
        Stalled,
        TracedValueError,
    )
    from .jitted import jit, pmap
    from .pipelining import Pipeline, Stage, pipeline, stage
    from .programs import Program, program
    from .putting import put
    from .routing import route
    from .session import Session, Task, client, current_session, now, now_ns, sleep, spawn
    from .simulating import simulate
    from .slices import Slice, slice  # noqa: A004 - as the paper's users say it
    from .synthetics import synthetic
    from .trace import Trace

# Where it lives. Each is imported when it is first used: `import seaway` is fast.
_PUBLIC = {
    "arrays": ("Array", "Run", "block_until_ready", "get"),
    "checkpoints": ("checkpoint",),
    "connected.connect": ("connect",),
    "connected.errors": ("NotReady", "Unreachable"),
    "connected.local": ("local",),
    "deadlines": ("deadline",),
    "costs": ("Cost", "roofline_costs", "tpu_costs"),
    "errors": (
        "Cancelled", "Impossible", "NoContents", "NoSession", "NotNow", "ProgramError", "RunError", "SeawayError",
        "SessionClosed", "Stalled", "TracedValueError",
    ),
    "jitted": ("jit", "pmap"),
    "pipelining": ("Pipeline", "Stage", "pipeline", "stage"),
    "programs": ("Program", "program"),
    "putting": ("put",),
    "routing": ("route",),
    "session": ("Session", "Task", "client", "current_session", "now", "now_ns", "sleep", "spawn"),
    "simulating": ("simulate",),
    "slices": ("Slice", "slice"),
    "synthetics": ("synthetic",),
    "trace": ("Trace",),
    "core.schedule.policy": ("Deadline", "Fifo", "Policy", "Priority", "RoundRobin", "Shortest", "Stride"),
    "sim.engine.jitter": ("Noise",),
}  # fmt: skip
_HOME = {name: room for room, names in _PUBLIC.items() for name in names}

__all__ = [  # what a user sees
    "Array", "Cancelled", "Cost", "Deadline", "Fifo", "Impossible", "NoContents", "NoSession", "Noise",
    "NotNow", "NotReady", "Pipeline", "Policy", "Priority", "Program", "ProgramError", "RoundRobin", "Run", "RunError",
    "SeawayError", "Session", "SessionClosed", "Shortest", "Slice", "Stage", "Stalled", "Stride", "Task", "Trace",
    "TracedValueError", "Unreachable", "__version__", "block_until_ready", "checkpoint", "client", "connect",
    "current_session", "deadline", "get", "jit", "local", "now", "now_ns", "pipeline", "pmap", "program", "put",
    "roofline_costs", "route", "simulate", "sleep", "slice", "spawn", "stage", "synthetic", "tpu_costs",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    room = _HOME.get(name)
    if room is None:
        from difflib import get_close_matches

        close = get_close_matches(name, _HOME, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"module 'seaway' has no attribute {name!r}{hint}")
    if room not in ("core.schedule.policy", "errors", "slices"):
        _house.check("sim")  # which all the others need
    if room.startswith("connected."):
        _house.check("backend")
    outside = room.startswith(("core.", "sim."))
    found = getattr(import_module(room if outside else f".{room}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
