"""Runs the passes in their order: from program to plan."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Layout, Place, Plan, Program
from .bind import bind
from .codes import codes
from .lifetimes import lifetimes
from .moves import moves
from .number import number
from .order import order


def lower(program: Program, places: Sequence[Place], args: Sequence[Layout], *, ident: int) -> Plan:
    """Lower a validated program. `places[i]` is the place of slice i, `args[i]` the actual layout of argument i.

    Raise ProgramError if an argument's shape or dtype differs from the program's.
    """
    draft = codes(lifetimes(number(moves(bind(program, places, args)))))
    return Plan(ident, program.name, draft.codes, draft.slots, draft.steps, order(draft.steps), draft.results)
