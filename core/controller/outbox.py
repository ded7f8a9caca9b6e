"""What one turn of the controller has to say, gathered and sent together: one message an island, one a client.

Neighbours: every room of the controller puts in; `controller.handle` empties it at the end of the turn.
"""

from __future__ import annotations

from msgspec.structs import replace

from ..model import Plan, Spans, spans
from ..protocol import Effect, Note, Notes, RunHeader, Send, Step


class Turn:
    """For one island: what its next `Ordered` will say, and to whom."""

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.runs: list[RunHeader] = []
        self.steps: list[Step] = []
        self.hosts: list[Spans] = []

    def target(self) -> Spans:
        first = self.hosts[0]
        for hosts in self.hosts:
            if hosts is not first and hosts != first:
                return spans.union(*self.hosts)
        return first


class Outbox:
    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self._closes: list[Effect] = []  # last of all: who is closed has been told why
        self.turns: dict[int, Turn] = {}
        self._notes: dict[int, list[Note]] = {}

    def effect(self, effect: Effect) -> None:
        self.effects.append(effect)

    def close(self, effect: Effect) -> None:
        self._closes.append(effect)

    def note(self, peer: int, note: Note) -> None:
        """To a client; one that is gone (peer < 0) hears nothing."""
        if peer >= 0:
            self._notes.setdefault(peer, []).append(note)

    def _turn(self, island: int, hosts: Spans) -> Turn:
        turn = self.turns.get(island)
        if turn is None:
            turn = self.turns[island] = Turn()
        turn.hosts.append(hosts)
        return turn

    def plan(self, island: int, plan: Plan, hosts: Spans) -> None:
        self._turn(island, hosts).plans.append(plan)

    def run(self, island: int, header: RunHeader, hosts: Spans) -> None:
        """Its literals may take the memory of what steps before it free."""
        turn = self._turn(island, hosts)
        if header.literals and turn.steps:
            header = replace(header, at=len(turn.steps))
        turn.runs.append(header)

    def step(self, island: int, step: Step, hosts: Spans) -> None:
        if hosts:
            self._turn(island, hosts).steps.append(step)

    def take(self) -> list[Effect]:
        """Notes and effects of this turn; the turns of islands are taken by `Islands.flush`."""
        effects, self.effects = self.effects, []
        notes, self._notes = self._notes, {}
        for peer, said in notes.items():
            effects.append(Send((peer,), said[0] if len(said) == 1 else Notes(tuple(said))))
        closes, self._closes = self._closes, []
        return effects + closes
