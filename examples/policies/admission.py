"""Deadlines with admission: a run that would be late, or make an admitted one late, waits behind all that are not.

    seaway simulate examples/step.py --policy examples/policies/admission.py:DeadlineAdmission

Under plain earliest-deadline-first, one call too many makes everybody late, one after the other. Here gangs are
admitted in the order in which they came, each if a plan exists in which it and all admitted before it are on time. If
gangs take as long as they cost, an admitted gang is never late. The others, and runs without a deadline, use what is
left, and never at an admitted gang's expense: if need be, its devices are kept free.
"""

from __future__ import annotations

from collections.abc import Sequence

from seaway.policies import Policy, Ready, Reserve, Ticket


class DeadlineAdmission(Policy):
    """Earliest deadline first among the gangs that can be on time; then the others, as they came."""

    reserves = True

    def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
        gangs = sorted(ready.heads(), key=lambda gang: gang.age)
        admitted = self.admitted(ready)
        others = [gang for gang in gangs if gang not in admitted]
        for gang in [*(gang for gang in admitted if gang in gangs), *others]:
            rest = [other for other in admitted if other is not gang]
            if self.on_time([gang, *rest], admitted, ready):
                return gang
        return Reserve(admitted[0])

    def admitted(self, ready: Ready) -> list[Ticket]:
        """The gangs that can all be on time, by deadline."""
        found: list[Ticket] = []
        for gang in sorted([*ready.heads(), *ready.waiting()], key=lambda gang: gang.age):
            plan = sorted([*found, gang], key=lambda each: (each.deadline, each.age))
            if gang.deadline and self.on_time(plan, plan, ready):
                found = plan
        return found

    def on_time(self, plan: Sequence[Ticket], admitted: Sequence[Ticket], ready: Ready) -> bool:
        """Whether the admitted gangs meet their deadlines if gangs go in this order."""
        ends: list[tuple[Ticket, int]] = []
        for gang in plan:
            before = [end for other, end in ends if ready.overlap(gang, other)]
            end = max(ready.free_at(gang), *before, 0) + gang.cost
            if gang in admitted and end > gang.deadline:
                return False
            ends.append((gang, end))
        return True
