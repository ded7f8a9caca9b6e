"""One host of a cohort, as its peers see it: contents that go host by host come to it.

Neighbours: `island` makes one for each host that is asked for; `commands` takes what comes.
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
        cost = self._island.sim.taking_contents(message)
        self._island.commands.come(self.name, sender, number, message, cost)

    def lose(self, sender: int, reason: str) -> None:
        self._island.commands.lose(self.name, sender, reason)
