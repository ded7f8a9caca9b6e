"""How long computations took on their devices, from a record: without waits for peers, inputs, messages or an order.

A controller hears when a gang has ended, and not when it began: which gangs show what they took, and how, is
`core.record.durations`. The mean counts, not the median: what a report was late, the next gang's sample lacks. Samples
of more than `STALL` times the median are stalls, and left out. A computation that never stood behind another has its
stated cost, but no more than the shortest time in which it was ever over.

A computation is known by its key and by how many devices it ran on.
"""

from __future__ import annotations

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


class Took(NamedTuple):
    name: str
    devices: int
    nanoseconds: int
    samples: int  # 0: it is the stated cost
    runs: int  # executions in the record


Gang = spacing.Over[Which]


def measured(recorded: Workload) -> dict[Which, Took]:
    """Of every computation that any program of the workload has, in the order of programs."""
    gangs = list(_gangs(recorded))
    seen = spacing.taken(gangs, recorded.trace.places)
    counts = executions(recorded)
    fastest: dict[Which, int] = {}
    for gang in gangs:
        if gang.what is not None and not gang.failed:
            took = gang.ended - gang.entered
            fastest[gang.what] = min(took, fastest.get(gang.what, took))
    found: dict[Which, Took] = {}
    for person in recorded.people:
        for _, program in person.programs():
            for which, does in computations(program):
                if which in found:
                    continue
                mine = seen.get(which, [])
                cost = _mean(mine) if mine else min(does.cost, fastest.get(which, does.cost))
                found[which] = Took(does.name, which[1], cost, len(mine), counts.get(which, 0))
    return found


def executions(recorded: Workload) -> dict[Which, int]:
    """How often each was executed; those that failed do not count."""
    counts: dict[Which, int] = {}
    for gang in _gangs(recorded):
        if gang.what is not None and not gang.failed:
            counts[gang.what] = counts.get(gang.what, 0) + 1
    return counts


def computations(program: Program) -> Iterator[tuple[Which, Computation]]:
    """By node that runs one."""
    for node in program.nodes:
        if isinstance(node, Node):
            does = program.computations[node.computation]
            yield (does.key, program.slices[node.slice].devices), does


def told_apart(program: Program) -> Program:
    """With a key for each size that a computation runs on: so a simulation prices each by its own time."""
    index: dict[tuple[int, int], int] = {}
    made: list[Computation] = []
    nodes = []
    for node in program.nodes:
        if isinstance(node, Node):
            devices = program.slices[node.slice].devices
            if (node.computation, devices) not in index:
                index[node.computation, devices] = len(made)
                does = program.computations[node.computation]
                made.append(msgspec.structs.replace(does, key=key_of((does.key, devices))))
            node = msgspec.structs.replace(node, computation=index[node.computation, devices])
        nodes.append(node)
    return msgspec.structs.replace(program, computations=tuple(made), nodes=tuple(nodes))


def key_of(which: Which) -> str:
    return f"{which[0]}@{which[1]}"


def kernels(found: dict[Which, Took]) -> dict[str, Kernel]:
    """As a simulation takes them, for programs that are `told_apart`."""
    return {
        key_of(which): Kernel(took.name, took.nanoseconds, source="recorded" if took.samples else "stated")
        for which, took in found.items()
    }


def _mean(samples: list[int]) -> int:
    kept = [each for each in samples if each <= STALL * median(samples)]
    return round(sum(kept) / len(kept))


def _gangs(recorded: Workload) -> Iterator[Gang]:
    """All that have ended."""
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
    """By row of a run: (step's name, its devices) -> which computation; None where two have one name."""
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
