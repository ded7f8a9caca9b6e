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

    from .api import Pipeline, Program, Stage, jit, pipeline, pmap, program, put, route, stage, synthetic
    from .api.checkpoints import checkpoint
    from .costs import Cost, roofline_costs, tpu_costs
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
    from .sessions import (
        Array,
        Run,
        Session,
        Task,
        block_until_ready,
        client,
        current_session,
        deadline,
        get,
        now,
        now_ns,
        sleep,
        spawn,
    )
    from .sessions.connected import NotReady, Unreachable, connect, local
    from .sessions.simulated import simulate
    from .specs import Slice, slice  # noqa: A004 - as the paper's users say it
    from .trace import Trace

# Where it lives. Each is imported when it is first used: `import seaway` is fast.
_PUBLIC = {
    "api": (
        "Pipeline", "Program", "Stage", "jit", "pipeline", "pmap", "program", "put", "route", "stage", "synthetic",
    ),
    "api.checkpoints": ("checkpoint",),
    "sessions": (
        "Array", "Run", "Session", "Task", "block_until_ready", "client", "current_session", "deadline", "get", "now",
        "now_ns", "sleep", "spawn",
    ),
    "sessions.simulated": ("simulate",),
    "sessions.connected": ("NotReady", "Unreachable", "connect", "local"),
    "costs": ("Cost", "roofline_costs", "tpu_costs"),
    "errors": (
        "Cancelled", "Impossible", "NoContents", "NoSession", "NotNow", "ProgramError", "RunError", "SeawayError",
        "SessionClosed", "Stalled", "TracedValueError",
    ),
    "specs": ("Slice", "slice"),
    "trace": ("Trace",),
    "core.schedule.policy": ("Deadline", "Fifo", "Policy", "Priority", "RoundRobin", "Shortest", "Stride"),
    "sim.engine": ("Noise",),
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
    if room not in ("core.schedule.policy", "errors", "specs"):
        _house.check("sim")  # which all the others need
    if room == "sessions.connected":
        _house.check("backend")
    outside = room.startswith(("core.", "sim."))
    found = getattr(import_module(room if outside else f".{room}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
