"""How a gang of several equal steps goes on: it ends with its last step, or with an earlier one if it is cut.

All its devices end with the same step, as they would if each step told all of them whether one had been told to stop:
the first word that comes to a device of the gang decides. A gang that is cut before it has begun does no step.

Neighbours: drivers keep one for each gang of several steps on their devices.
"""

from __future__ import annotations

import msgspec


class GangSteps(msgspec.Struct, eq=False):
    done: int  # after so many steps it ends
    each: int = 0  # nanoseconds that a step takes
    begun: int = -1  # when the first one began, or will

    def begin(self, now: int, each: int) -> int:
        """Returns how long the gang takes."""
        self.begun, self.each = now, each
        return self.done * each

    @property
    def ends(self) -> int:
        return self.begun + self.done * self.each

    def cut(self, now: int) -> None:
        """The word has come: it ends with the step that is under way, or with the one that has just ended."""
        if self.begun < 0:
            self.done = 0
        elif self.each:
            self.done = max(0, min(self.done, -((self.begun - now) // self.each)))
