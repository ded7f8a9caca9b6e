"""Seaway: one controller for islands of accelerators, and a simulator of it that runs the same scheduler.

A program is Python that calls computations. It runs in a session: simulated, or on real devices.

    >>> double = sw.jit(lambda x: x * 2, devices=2)
    >>> with sw.simulate("B", hosts=2, values="compute") as s:
    ...     print(double(np.array([1.0, 2.0])))
    [2. 4.]

open a session   `simulate` (with a `fault`), `local`, `connect`
declare          `slice`, `jit`, `pmap`, `program`, `synthetic`, `pipeline` and `stage`
in a program     `put`, `route`, `checkpoint`
read and wait    `get`, `block_until_ready`
clients, time    `client`, `spawn`, `current_session`; `now`, `sleep`, `deadline`
classes          `Array`, `Run`, `Session`, `Slice`, `ElasticSlice`
modules          `errors`, `policies`, `costs`, `trace`, `workload`

`help(sw.NAME)` has an example of each.
"""

from . import own_packages

own_packages.check("core")  # before anything is imported from it

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import costs, errors, policies, trace, workload
    from .api import jit, pipeline, pmap, program, put, route, stage, synthetic
    from .api.checkpoints import checkpoint
    from .sessions import (
        Array,
        Run,
        Session,
        block_until_ready,
        client,
        current_session,
        deadline,
        get,
        now,
        sleep,
        spawn,
    )
    from .sessions.connected import connect, local
    from .sessions.simulated import fault, simulate
    from .specs import ElasticSlice, Slice, slice  # noqa: A004 - as the paper's users say it

# The package of each name. It is imported when the name is first used, so that `import seaway` is fast.
_PUBLIC = {
    "api": ("jit", "pipeline", "pmap", "program", "put", "route", "stage", "synthetic"),
    "api.checkpoints": ("checkpoint",),
    "sessions": (
        "Array", "Run", "Session", "block_until_ready", "client", "current_session", "deadline", "get", "now", "sleep",
        "spawn",
    ),
    "sessions.simulated": ("fault", "simulate"),
    "sessions.connected": ("connect", "local"),
    "specs": ("ElasticSlice", "Slice", "slice"),
}  # fmt: skip
_HOME = {name: package for package, names in _PUBLIC.items() for name in names}
_MODULES = ("costs", "errors", "policies", "trace", "workload")

# Names that people look for here, and that are elsewhere.
_ELSEWHERE = {
    "errors": (
        "Cancelled", "CostError", "Impossible", "NoCompiler", "NoContents", "NoSession", "NotATrace", "NotNow",
        "NotReady", "ProgramError", "RunError", "SeawayError", "SessionClosed", "Stalled", "TooBig",
        "TracedValueError", "Unreachable", "WrongPolicy",
    ),
    "policies": (
        "BestFit", "BestKind", "ClusterView", "Deadline", "Fifo", "FirstFit", "InTurn", "IslandUse", "Placement",
        "Policy", "Priority", "Ready", "Reserve", "RoundRobin", "RunningGang", "Shortest", "SliceUse", "Spread",
        "Stride", "Ticket",
    ),
    "costs": ("Cost", "roofline_costs", "tpu_costs"),
    "trace": ("Trace",),
    "workload": (
        "Arrival", "Arrivals", "Job", "JobReport", "Jobs", "LoadReport", "failures", "failures_of", "helios", "load",
        "pai", "philly", "poisson", "poisson_jobs", "stragglers",
    ),
}  # fmt: skip
_PLACE = {name: f"sw.{module}.{name}" for module, names in _ELSEWHERE.items() for name in names} | {
    "Noise": "sim.engine.Noise",
    "Fault": "sw.fault",
    "Pipeline": "seaway.api.Pipeline",
    "Program": "seaway.api.Program",
    "Stage": "seaway.api.Stage",
    "Task": "seaway.sessions.Task",
    "now_ns": "sw.now, in seconds",
}

__all__ = [
    "Array", "ElasticSlice", "Run", "Session", "Slice", "__version__", "block_until_ready", "checkpoint", "client",
    "connect", "costs", "current_session", "deadline", "errors", "fault", "get", "jit", "local", "now", "pipeline",
    "pmap", "policies", "program", "put", "route", "simulate", "sleep", "slice", "spawn", "stage", "synthetic", "trace",
    "workload",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        _check_drivers(name)
        return import_module(f".{name}", __name__)
    package = _HOME.get(name)
    if package is None:
        raise AttributeError(f"module 'seaway' has no attribute {name!r}{_hint(name)}")
    _check_drivers(package)
    found = globals()[name] = _with_hints(getattr(import_module(f".{package}", __name__), name))
    return found


def _with_hints(found: Any) -> Any:
    """The same function, which names the nearest option if it is called with one that it does not have."""
    from functools import wraps
    from inspect import Parameter, isfunction, signature

    if not isfunction(found):
        return found
    known = signature(found).parameters
    if any(each.kind is Parameter.VAR_KEYWORD for each in known.values()):
        return found
    title = f"sw.{found.__name__}"

    @wraps(found)
    def called(*args: Any, **options: Any) -> Any:
        if not options.keys() <= known.keys():
            from .errors import nearest

            name = next(each for each in options if each not in known)
            raise TypeError(f"{title} has no option {name!r}{nearest(name, known)}")
        return found(*args, **options)

    called.__module__ = __name__
    return called


def _check_drivers(package: str) -> None:
    """Make sure that the drivers which this package imports are ours."""
    if package not in ("errors", "policies", "specs"):
        own_packages.check("sim")
    if package in ("sessions.connected", "costs"):
        own_packages.check("backend")


def _hint(name: str) -> str:
    if name in _PLACE:
        return f"; it is {_PLACE[name]}"
    from difflib import get_close_matches

    close = get_close_matches(name, [*_HOME, *_MODULES], 1)
    if close:
        return f"; did you mean {close[0]!r}?"
    close = get_close_matches(name, _PLACE, 1)
    return f"; did you mean {_PLACE[close[0]]}?" if close else ""


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_MODULES})
