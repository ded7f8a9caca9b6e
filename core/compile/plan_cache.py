"""Runs the passes in their order, from program to plan, and keeps plans: the second run of a program is a look-up."""

from collections.abc import Callable, Sequence

from ..model import Layout, Place, Plan, Program
from .bind import KindOf, bind
from .codes import codes
from .lifetimes import lifetimes
from .moves import moves
from .number import number
from .order import order

Key = tuple[Program, tuple[Place, ...], tuple[Layout, ...]]


def lower(
    program: Program, places: Sequence[Place], args: Sequence[Layout], *, ident: int, kind_of: KindOf | None = None
) -> Plan:
    """Lower a validated program. `places[i]` is the place of slice i, `args[i]` the actual layout of argument i,
    `kind_of(i)` the kind of island i.

    Raise ProgramError if an argument's shape or dtype differs from the program's, or a computation has no cost there.
    """
    draft = codes(lifetimes(number(moves(bind(program, places, args, kind_of)))))
    return Plan(ident, program.name, draft.codes, draft.slots, draft.steps, order(draft.steps), draft.results)


class Lowerings:
    """Lowers programs and keeps the plans. A full cache drops the least recently used plan.

    Plan ids count up and are never used again.
    """

    def __init__(self, capacity: int = 1024, first: int = 0, kind_of: KindOf | None = None) -> None:
        self._capacity = capacity
        self._kind_of = kind_of
        self._plans: dict[Key, Plan] = {}  # least recently used first
        self._next = first
        self.dropped: list[int] = []  # plans dropped since the last call of `forgotten`
        # grows whenever a plan is dropped: callers must not use plans that they kept from before
        self.version = 0
        # plans that callers kept, and used again since the last call of `_make_room`
        self.recent: set[int] = set()

    def lower(self, program: Program, places: Sequence[Place], args: Sequence[Layout]) -> Plan:
        key: Key = (program, tuple(places), tuple(args))
        plan = self._plans.pop(key, None)
        if plan is None:
            plan = lower(program, places, args, ident=self._next, kind_of=self._kind_of)
            self._next += 1
        self._plans[key] = plan
        if len(self._plans) > self._capacity:
            self._make_room()
        return plan

    def _make_room(self) -> None:
        """Drop the least recently used plan. A plan in `recent` counts as used just now, once."""
        for key in list(self._plans)[:-1]:
            if self._plans[key].id not in self.recent:
                self._drop(key)
                return
            self.recent.discard(self._plans[key].id)
            self._plans[key] = self._plans.pop(key)
        self._drop(next(iter(self._plans)))

    def forget_program(self, program: Program) -> None:
        self._drop_if(lambda key: key[0] == program)

    def forget_place(self, place: Place) -> None:
        """Drop all plans with this place, because its slice has moved or was released."""
        self._drop_if(lambda key: place in _places(key))

    def forgotten(self) -> tuple[int, ...]:
        forgotten, self.dropped = tuple(self.dropped), []
        return forgotten

    def __len__(self) -> int:
        return len(self._plans)

    def _drop_if(self, condition: Callable[[Key], bool]) -> None:
        for key in [key for key in self._plans if condition(key)]:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        self.version += 1
        self.dropped.append(self._plans.pop(key).id)


def _places(key: Key) -> list[Place]:
    return [*key[1], *(layout.place for layout in key[2])]
