"""A client's Python thread on a machine with too few cores: each call waits for a core, and keeps it while it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .cores import Share

if TYPE_CHECKING:
    from ..hosts import SimClient


class ThreadTurn:
    """The next call of a client."""

    def __init__(self, client: SimClient, share: Share) -> None:
        self._client, self._share = client, share
        self._begun = -1  # when it got its core; -1: it waits for one
        self._calls = 0
        self.under_way = False
        self._due = False  # its time has been paid, and the user has not made the call yet
        self.come = client.sim.env.event()

    def begin(self) -> None:
        if not self.under_way and not self._due:
            self.under_way, self._begun = True, -1
            self.come = self._client.sim.env.event()
            self._calls += 1
            self._share.ask((0, self._calls), self._have_core)

    @property
    def soonest(self) -> int:
        """When the call is due, or a lower bound while the thread waits for a core."""
        sim = self._client.sim
        if not self.under_way:
            return sim.now
        return (self._begun if self._begun >= 0 else sim.now) + sim.profile.client_call

    def _have_core(self) -> None:
        sim = self._client.sim
        self._begun = sim.now
        sim.clock.at(sim.now + sim.profile.client_call, self._is_due)

    def _is_due(self) -> None:
        self._share.give_back(self._client.sim.now)
        self.under_way, self._due = False, True
        self.come.succeed()

    def take(self) -> None:
        """Marks the call as made."""
        self._due = False
