"""The passes in their order: the whole way from program to plan on one page."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Layout, Place, Plan, Program
from .bind import bind
from .codes import codes
from .fuse import fuse
from .lifetimes import lifetimes
from .moves import moves
from .number import number
from .order import order


def lower(
    program: Program, places: Sequence[Place], args: Sequence[Layout], *, ident: int, fused: bool = False
) -> Plan:
    """`places[i]`: where slice i is; `args[i]`: how argument i really lies. The program has been validated.

    Raises ProgramError if an argument's shape or type is not what the program takes.
    """
    draft = moves(bind(program, places, args))
    if fused:
        draft = fuse(draft)
    draft = codes(lifetimes(number(draft)))
    return Plan(ident, program.name, draft.codes, draft.slots, draft.steps, order(draft.steps), draft.results)
