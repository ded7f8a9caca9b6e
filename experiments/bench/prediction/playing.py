"""Runs one case of `prediction` in a process of its own, in a real or a simulated session, within a time limit.

`real(case, ...)` and `simulated(case, ..., file)` start the same process, which opens one session or the other and
gives it to the same function. A real case is measured several times, while only the process that tracks the machine's
speed runs beside it. A simulated case may be run at such a speed. A process that is not done in time is ended with its
children, and reported.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from backend.admin import Child, Children, end_with_parent
from seaway.tools.calibrating import Pace, paced
from sim.hardware import Profile, setups

from ..frame import processes
from .cases import Case
from .freezing import speed_of
from .measuring import Values, from_trace, gangs_so_far, measured
from .programs import Alone, at_speed, hop_ns

MODULE = "experiments.bench.prediction.playing"
LOOK = 0.02  # seconds between checks that the process is done
SHARING = "stride"  # the policy for cases of several clients with weights
SILENT = "it says nothing"


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
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        children, out = Children(folder), folder / "said"
        asking = folder / "asked"
        asking.write_bytes(msgspec.json.encode(asked))
        try:
            with out.open("wb") as file:
                child = children.start("case", MODULE, [str(asking)], stdout=file)
            over = _awaited(child, bound)
        finally:
            children.end_all(0.0 if sys.exc_info()[0] else 0.1)
        said = processes.lines(out)
        if not over:
            return Failed(f"it was not done within {bound:g} s: {_last(child.tail())}")
        if child.process.returncode != 0 or not said:
            return Failed(f"its process ended with {child.process.returncode}: {_last(child.tail())}")
        return msgspec.convert(said[-1], Played)


def _awaited(child: Child, bound: float) -> bool:
    until = time.monotonic() + bound
    while child.alive:
        if time.monotonic() > until:
            return False
        time.sleep(LOOK)
    return True


def _last(words: str) -> str:
    """The last line of a traceback, which has the error."""
    return words.splitlines()[-1].strip() if words else SILENT


# --- in the process -----------------------------------------------------------------------------------


def play(asked: Asked) -> Played:
    """Run the case in this process."""
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


def main(arguments: Sequence[str]) -> None:
    end_with_parent()
    asked = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Asked)
    processes.say(**msgspec.to_builtins(play(asked)))


if __name__ == "__main__":
    main(sys.argv[1:])
