"""Gathers what one turn of the controller has to say, and sends it together: one message an island, one a client.

What only frees memory waits for the next order to its island, as long as something is under way there: whatever may use
that memory comes behind it in the same stream, and the end of what is under way is a turn, too. Otherwise each gang
whose result replaces another would take two messages to all hosts.

Neighbours: every module of the controller puts in; `Controller.handle` empties it at the end of the turn.
The functions that matter: `step`, `note`, `take`, `hurry`.
"""

import msgspec
from msgspec.structs import replace

from ..model import Plan, Spans, spans
from ..protocol import ClientMessages, Command, FreeStep, Note, Ordered, RunHeader, Send, Step
from .state import ControllerModule, IslandState, State


class IslandTurn(msgspec.Struct, eq=False):
    """The next `Ordered` of one island, as it is gathered."""

    plans: list[Plan] = []
    runs: list[RunHeader] = []
    steps: list[Step] = []
    hosts: Spans = ()  # of the first of them
    others: list[Spans] = []  # of those that have other hosts
    frees: bool = True  # and nothing else


class TurnOutbox(ControllerModule):
    _state: State
    _effects: list[Command] = []
    _closes: list[Command] = []  # last of all: a peer that is closed has been told why
    _turns: dict[int, IslandTurn] = {}
    _notes: dict[int, list[Note]] = {}

    def effect(self, effect: Command) -> None:
        self._effects.append(effect)

    def close(self, effect: Command) -> None:
        self._closes.append(effect)

    def note(self, peer: int, note: Note) -> None:
        """Tell a client. One that is gone (peer < 0) hears nothing."""
        if peer >= 0:
            notes = self._notes.get(peer)
            if notes is None:
                self._notes[peer] = [note]
            else:
                notes.append(note)

    def plan(self, island: int, plan: Plan, hosts: Spans) -> None:
        turn = self._turn(island, hosts)
        turn.frees = False
        turn.plans.append(plan)

    def run(self, island: int, header: RunHeader, hosts: Spans) -> None:
        """Its literals may take the memory of what steps before it free."""
        turn = self._turns.get(island)
        if turn is None:
            turn = self._turns[island] = IslandTurn(hosts=hosts)
        elif turn.hosts is not hosts:
            turn = self._turn(island, hosts)
        if header.literals and turn.steps:
            header = replace(header, at=len(turn.steps))
        turn.frees = False
        turn.runs.append(header)

    def step(self, island: int, step: Step, hosts: Spans) -> None:
        if hosts:
            turn = self._turns.get(island)
            if turn is None or turn.hosts is not hosts:
                turn = self._turn(island, hosts)
            if turn.frees and type(step) is not FreeStep:
                turn.frees = False
            turn.steps.append(step)

    def _turn(self, island: int, hosts: Spans) -> IslandTurn:
        turn = self._turns.get(island)
        if turn is None:
            turn = self._turns[island] = IslandTurn(hosts=hosts)
        elif hosts is not turn.hosts and hosts != turn.hosts:
            turn.others.append(hosts)
        return turn

    def hurry(self) -> None:
        """What waits leaves before the next event. It may change the members of an island."""
        if self._turns:
            self._number(all_of_them=True)

    # --- the end of a turn ---------------------------------------------------------------------------------------

    def send(self, island: IslandState, message: Ordered) -> None:
        """Down the island's tree, as it is now."""
        ways = island.ways.get(message.hosts)
        if ways is None:
            ways = island.ways_to(message.hosts)
        if ways:
            self._effects.append(Send(ways, message))

    def take(self) -> list[Command]:
        """Return all of this turn: commands, then one message an island and one a client, then the peers to close."""
        if self._turns:
            self._number()
        effects, self._effects = self._effects, []
        if self._notes:
            notes, self._notes = self._notes, {}
            for peer, said in notes.items():
                effects.append(Send((peer,), said[0] if len(said) == 1 else ClientMessages(tuple(said))))
        if self._closes:
            closes, self._closes = self._closes, []
            effects += closes
        return effects

    def _number(self, all_of_them: bool = False) -> None:
        """Number what this turn says to each island, and send it. While a tree forms, the stream keeps it."""
        turns, self._turns = self._turns, {}
        state = self._state
        if not all_of_them:
            islands = state.islands
            self._turns = {at: turn for at, turn in turns.items() if turn.frees and islands[at].in_flight}
            if self._turns:
                turns = {at: turn for at, turn in turns.items() if at not in self._turns}
        settled = next(iter(state.in_flight), state.next_seq)  # every seq below it is over on all its hosts
        for index in sorted(turns) if len(turns) > 1 else turns:
            island, turn = state.islands[index], turns[index]
            hosts = spans.union(turn.hosts, *turn.others) if turn.others else turn.hosts
            if hosts != island.members:
                hosts = spans.meet(hosts, island.members)
            if hosts:
                message = island.stream.append(tuple(turn.plans), tuple(turn.runs), tuple(turn.steps), hosts, settled)
                self.send(island, message)
