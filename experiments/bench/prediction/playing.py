"""Runs one case of `prediction` in a process of its own, in a real or a simulated session, within a time limit.

`real(case, ...)` and `simulated(case, ..., file)` start the same process, which opens one session or the other and
gives it to the same function. A real case is measured several times, while only the process that tracks the machine's
speed runs beside it. A simulated case may be run at such a speed. A process that is not done in time is ended and
reported.
"""

import gc
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seaway.tools.calibrating import Pace, paced
from sim.hardware import Profile, setups

from ..frame import processes
from .cases import Case
from .freezing import speed_of
from .measuring import Values, from_trace, gangs_so_far, measured
from .programs import Alone, at_speed, hop_ns

SHARING = "stride"  # the policy for cases of several clients with weights


class Asked(msgspec.Struct, frozen=True):
    """A request to the process. file: a calibrated cluster to simulate; "": run for real. spell: seconds of a
    measurement. reference: nanoseconds of the speed reference to simulate at; 0: the speed at calibration."""

    case: Case
    alone: Alone
    file: str
    repeats: int
    spell: float
    reference: float = 0.0


class Played(msgspec.Struct, frozen=True):
    """values: the quantities of each measurement. references: nanoseconds of the speed reference during each."""

    values: list[Values]
    references: list[float] = []


class Failed(NamedTuple):
    why: str


def real(case: Case, alone: Alone, repeats: int, spell: float, bound: float) -> Played | Failed:
    return _played(Asked(case, alone, "", repeats, spell), bound)


def simulated(
    case: Case, alone: Alone, file: Path, spell: float, bound: float, reference: float = 0.0
) -> Played | Failed:
    """Simulate the case once, since the same arguments give the same run."""
    return _played(Asked(case, alone, str(file), 1, spell, reference), bound)


def _played(asked: Asked, bound: float) -> Played | Failed:
    try:
        return msgspec.convert(processes.answer(one_case, msgspec.to_builtins(asked), bound=bound), Played)
    except RuntimeError as error:
        first, *_, last = str(error).splitlines() * 2  # the last line of a traceback has the error
        return Failed(f"{first} ... {last}")


# --- in the process -----------------------------------------------------------------------------------


def one_case(asked: dict[str, Any]) -> object:
    return msgspec.to_builtins(play(msgspec.convert(asked, Asked)))


def play(asked: Asked) -> Played:
    case, alone = asked.case, asked.alone
    with ExitStack() as stack:
        pace = None if asked.file else stack.enter_context(_paced())
        session = stack.enter_context(_opened(asked))
        rounds = measured(case, session, then(asked), asked.spell)
        next(rounds)  # warm up: the first measurement does not count
        values, references = [], []
        for _ in range(asked.repeats):
            gc.collect()
            seen, moment = gangs_so_far(session), time.monotonic_ns()
            found = next(rounds)
            if pace is not None:
                references.append(pace.between(moment, time.monotonic_ns()))
            values.append({**found, **from_trace(case, session, alone, seen)})
        return Played(values, references)


def _opened(asked: Asked) -> Any:
    import seaway as sw

    case = asked.case
    policy = SHARING if case.kind == "clients" else "fifo"
    if asked.file:
        table = cluster_of(Path(asked.file), case, then(asked))
        return sw.simulate(
            table,
            profile=_profile(table, asked),
            hosts=case.hosts,
            policy=policy,
            dispatch=case.dispatch,
            progress=False,
        )
    return sw.local(case.hosts, platform=case.platform, policy=policy, dispatch=case.dispatch)


def cluster_of(file: Path, case: Case, alone: Alone) -> dict[str, Any]:
    """The file's cluster, with the latency of sums over all hosts replaced by that measured alone on as many hosts.

    The calibration measured sums on fewer hosts only.
    """
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    sums = [work for work in case.works if work.op == "reduce" and case.hosts > 1]
    fused = case.chain if case.kind == "Fused" else 1
    for work in sums:
        kind = table["island"][0]["kind"]
        latency = f"{hop_ns(work, case.hosts, alone, fused, table['shared'][0]['cores'])} ns"
        chip = table.setdefault("chip", {}).setdefault(kind, {})
        chip["network_latency"] = {"value": latency, "source": f"measured by itself over {case.hosts} hosts"}
    return table


def then(asked: Asked) -> Alone:
    """Times of computations alone, at the requested speed."""
    return at_speed(asked.alone, asked.reference) if asked.reference else asked.alone


def _profile(table: dict[str, Any], asked: Asked) -> Profile:
    """The cluster's profile, at the requested speed."""
    found = setups.load(table).profile
    assert found is not None
    return found.slower(asked.reference / speed_of(Path(asked.file))) if asked.reference else found


@contextmanager
def _paced() -> Iterator[Pace]:
    with tempfile.TemporaryDirectory() as folder, paced(Path(folder)) as pace:
        yield pace
