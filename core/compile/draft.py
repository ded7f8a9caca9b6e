"""A plan in the making, handed from pass to pass; and what several passes ask of one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..model import Code, Gang, Layout, Move, Program, Slot, Value

Step = Gang | Move


class Draft(msgspec.Struct, frozen=True):
    """Until `number`, a slot's `maker` says nothing; until `codes`, a code may stand for several places."""

    program: Program
    layouts: dict[Value, Layout]  # every value of the program, bound
    codes: tuple[Code, ...]
    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]  # slots


def reads(step: Step) -> tuple[int, ...]:
    return step.inputs if isinstance(step, Gang) else (step.source,)


def makes(step: Step) -> tuple[int, ...]:
    return step.outputs if isinstance(step, Gang) else (step.target,)


def makers(steps: Sequence[Step], slots: int) -> list[int]:
    """By slot: the step that makes it, or -1."""
    found = [-1] * slots
    for index, step in enumerate(steps):
        for slot in makes(step):
            found[slot] = index
    return found


def readers(steps: Sequence[Step], slots: int) -> list[list[int]]:
    """By slot: the steps that read it, each once, ascending."""
    found: list[list[int]] = [[] for _ in range(slots)]
    for index, step in enumerate(steps):
        for slot in reads(step):
            if not found[slot] or found[slot][-1] != index:
                found[slot].append(index)
    return found
