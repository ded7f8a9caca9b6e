"""One host of a cohort as its peers see it: they call it as they call any process.

Neighbours: `island` makes members when peers ask for them; `commands` does what comes to them; `history` remembers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.protocol import messages as m

if TYPE_CHECKING:
    from .island import CohortIsland


class Member:
    """One host of a cohort, with the methods of a process that its peers call."""

    alive = True

    def __init__(self, island: CohortIsland, host: int) -> None:
        self._island, self.name = island, host

    def come(self, sender: int, number: int, message: Any) -> None:
        """Takes in messages about contents; all others come down the tree. A new seat means that hosts re-form,
        which a cohort cannot do."""
        if isinstance(message, m.Seat):
            self._island.must_re_form()
        if self._island.history is not None:
            self._island.history.came(self.name, sender, number, message)
        cost = self._island.sim.taking_contents(message)
        self._island.commands.come(self.name, sender, number, message, cost)

    def lose(self, sender: int, reason: str) -> None:
        if self._island.history is not None:
            self._island.history.lost(self.name, sender, reason)
        self._island.commands.lose(self.name, sender, reason)
