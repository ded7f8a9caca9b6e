"""The unfinished plan that is handed from pass to pass, and functions on it that several passes use."""

from collections.abc import Sequence

import msgspec

from ..model import Code, Gang, Layout, Move, Program, Slot, Value

Step = Gang | Move


class Draft(msgspec.Struct, frozen=True):
    """An unfinished plan.

    `Slot.maker` is valid after pass `number`. Before pass `codes`, gangs of different places may share a code.
    """

    program: Program
    layouts: dict[Value, Layout]  # the layout of every value in the program
    codes: tuple[Code, ...]
    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]  # slots


def reads(step: Step) -> tuple[int, ...]:
    return step.inputs if isinstance(step, Gang) else step.sources


def makes(step: Step) -> tuple[int, ...]:
    return step.outputs if isinstance(step, Gang) else step.targets


def readers(steps: Sequence[Step], slots: int) -> list[list[int]]:
    """Return, for each slot, the steps that read it, each once, ascending."""
    found: list[list[int]] = [[] for _ in range(slots)]
    for index, step in enumerate(steps):
        for slot in reads(step):
            if not found[slot] or found[slot][-1] != index:
                found[slot].append(index)
    return found
