"""Computes from a record how long computations took on their devices, without waits for peers, inputs or messages.

A controller hears when a gang has ended, but not when it started. `core.record.durations` chooses the gangs whose times
can be known. The mean is used, not the median: if one report is late, the next gang's sample is shorter by as much.
Samples of more than `STALL` times the median are left out. A computation that was never queued behind another gets its
stated cost, but no more than its shortest time from entering the order to its end. One of several steps may have been
cut, so it gets its stated cost; its kernel is one step.

A computation is identified by its key and by the number of devices it ran on.
"""

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import msgspec

from core.model import Computation, Node, Program, spans
from core.protocol import Register, Submit
from core.record import FAILED, PLACEHOLDER
from core.record import durations as spacing
from sim.hardware import Kernel

from .workload import Workload

STALL = 100
Which = tuple[str, int]  # a computation's key, and devices


class ComputationTime(NamedTuple):
    name: str
    devices: int
    nanoseconds: int
    samples: int  # 0 if the time is the stated cost
    runs: int  # executions in the record


Gang = spacing.EndedGang[Which]


def measured(recorded: Workload) -> dict[Which, ComputationTime]:
    """The time of every computation in the workload, in the order of programs."""
    gangs = list(_gangs(recorded))
    seen = spacing.taken(gangs, recorded.trace.places)
    counts = executions(recorded)
    fastest: dict[Which, int] = {}
    for gang in gangs:
        if gang.what is not None and not gang.failed:
            took = gang.ended - gang.entered
            fastest[gang.what] = min(took, fastest.get(gang.what, took))
    found: dict[Which, ComputationTime] = {}
    for person in recorded.people:
        for _, program in person.programs():
            for which, does in computations(program):
                if which in found:
                    continue
                mine = seen.get(which, []) if does.steps == 1 else []
                stated = min(does.cost, fastest.get(which, does.cost)) if does.steps == 1 else does.cost // does.steps
                cost = _mean(mine) if mine else stated
                found[which] = ComputationTime(does.name, which[1], cost, len(mine), counts.get(which, 0))
    return found


def executions(recorded: Workload) -> dict[Which, int]:
    """How often each computation was executed, without failed executions."""
    counts: dict[Which, int] = {}
    for gang in _gangs(recorded):
        if gang.what is not None and not gang.failed:
            counts[gang.what] = counts.get(gang.what, 0) + 1
    return counts


def computations(program: Program) -> Iterator[tuple[Which, Computation]]:
    """The computation of each node that has one."""
    for node in program.nodes:
        if isinstance(node, Node):
            does = program.computations[node.computation]
            yield (does.key, program.slices[node.slice].devices), does


def told_apart(program: Program, alone: bool = False) -> Program:
    """The program with keys that include the number of devices, so that a simulation prices each number separately.
    `alone`: and no computation waits for other hosts."""
    index: dict[tuple[int, int], int] = {}
    made: list[Computation] = []
    nodes = []
    for node in program.nodes:
        if isinstance(node, Node):
            devices = program.slices[node.slice].devices
            if (node.computation, devices) not in index:
                index[node.computation, devices] = len(made)
                does = program.computations[node.computation]
                waits = does.collective and not alone
                made.append(msgspec.structs.replace(does, key=key_of((does.key, devices)), collective=waits))
            node = msgspec.structs.replace(node, computation=index[node.computation, devices])
        nodes.append(node)
    return msgspec.structs.replace(program, computations=tuple(made), nodes=tuple(nodes))


def key_of(which: Which) -> str:
    return f"{which[0]}@{which[1]}"


def kernels(found: dict[Which, ComputationTime]) -> dict[str, Kernel]:
    """The simulator's kernels for programs from `told_apart`."""
    return {
        key_of(which): Kernel(took.name, took.nanoseconds, source="recorded" if took.samples else "stated")
        for which, took in found.items()
    }


def _mean(samples: list[int]) -> int:
    kept = [each for each in samples if each <= STALL * median(samples)]
    return round(sum(kept) / len(kept))


def _gangs(recorded: Workload) -> Iterator[Gang]:
    """All gangs of the record that have ended."""
    trace = recorded.trace
    words = trace.strings.words
    by_run = _steps_by_run(recorded)
    for row in trace.gangs.rows():
        place = trace.places.get(row["place"])
        if row["ended"] < 0 or place is None:
            continue
        names = by_run[row["run"]] if row["run"] >= 0 else {}
        which = names.get((words[row["step"]], spans.count(place.devices)))
        failed = bool(row["flags"] & (FAILED | PLACEHOLDER))
        yield Gang(row["ended"], row["entered"], row["place"], which, failed)


def _steps_by_run(recorded: Workload) -> list[dict[tuple[str, int], Which | None]]:
    """For each row of runs: (step's name, its devices) -> computation; None if two have the same name."""
    programs: dict[tuple[int, int], dict[tuple[str, int], Which | None]] = {}
    called: dict[tuple[int, int], tuple[int, int]] = {}  # (client, run) -> (client, program)
    for person in recorded.people:
        for made in person.calls:
            if isinstance(made.call, Register):
                programs[person.number, made.call.program] = _steps(made.call.ir)
            elif isinstance(made.call, Submit):
                called[person.number, made.call.run] = (person.number, made.call.program)
    return [
        programs[called[row["client"], row["call"]]] if (row["client"], row["call"]) in called else {}
        for row in recorded.trace.runs.rows()
    ]


def _steps(program: Program) -> dict[tuple[str, int], Which | None]:
    found: dict[tuple[str, int], Which | None] = {}
    nodes = [node for node in program.nodes if isinstance(node, Node)]
    for node, (which, _) in zip(nodes, computations(program), strict=True):
        step = (node.name, which[1])
        found[step] = which if found.get(step, which) == which else None
    return found
