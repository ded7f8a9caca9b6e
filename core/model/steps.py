"""How a gang of several equal steps goes on, as drivers note it: to its last step, or to an earlier one if it is cut.

All its devices end with the same step, as if each step told them all whether one had been told to stop. So the first
word that comes to a device of the gang decides. If that comes before it has begun, it does no step.
"""

from __future__ import annotations

import msgspec


class GangSteps(msgspec.Struct, eq=False):
    number: int
    undone: int = 0  # it ends so many steps before the last
    each: int = 0  # nanoseconds that a step takes
    begun: int = -1  # when the first one began, or will

    def begin(self, now: int, each: int) -> int:
        """Returns how long the gang takes."""
        self.begun, self.each = now, each
        return self.ends - now

    @property
    def ends(self) -> int:
        return self.begun + (self.number - self.undone) * self.each

    def cut(self, now: int) -> None:
        """The word has come: it ends with the step that is under way, or with the one that has just ended."""
        if self.begun < 0:
            self.undone = self.number
        elif self.each:
            self.undone = max(self.undone, min(self.number, self.number + (self.begun - now) // self.each))
