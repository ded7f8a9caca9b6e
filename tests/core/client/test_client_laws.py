"""Whatever a user calls and whatever breaks: the controller gets only valid messages, and each run ends once."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from core import protocol as p
from core.client.call_batching import MOST
from core.client.client_limits import Blocked, Submitted
from core.model import ranges
from tests.laws import examples

from .test_client import SLICE, WHERE, Session, X, program


class Play:
    """A user and a controller at random, and connections that break. The controller checks each message as the real one
    does, and answers in any order."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.session = Session(
            pipe=random.choice((1, 2, 4)), linger=50, batch=random.choice((1, 3, 100)), max_runs=5, max_requests=3
        )
        self.client = self.session.client
        # to the controller, unanswered
        self.known: dict[str, list[int]] = {"runs": [], "puts": [], "gets": []}
        self.names: set[int] = set()
        self.programs: set[int] = set()
        self.submitted: list[int] = []
        self.ended: list[int] = []
        self.held: list[int] = []
        self.up = True
        self.transfers = 0
        self.arrived: list[Any] = []
        name = self.client.register(program(donate=(0,) if random.random() < 0.5 else ()), 0)
        assert name == 1
        self.take(self.session.hear(p.CallsMade()))

    def step(self) -> None:
        random = self.random
        self.session.now += random.choice((0, 1, 20, 60))
        move = random.choice(("submit", "submit", "put", "get", "release", "cancel", "note", "note", "break", "wake"))
        getattr(self, "_" + move)()
        self.take(self.session.hear(p.Wakeup()))
        wake = self.client.next_wakeup()
        assert wake is None or self.session.now < wake <= self.session.now + 50 * MOST
        if self.up and wake is None:
            assert not self.client._batching.gathered
        # submits, their cancels, puts and gets, releases of what these have made one by one, and the program
        assert len(self.client._batching.gathered) <= 5 + 5 + 3 + (5 + 3) + 1

    # --- the user

    def _submit(self) -> None:
        choices: list[int | bytes] = [*self.held, b"x" * 16]
        arg = self.random.choice(choices)
        found = self.client.submit(1, (arg,), self.session.now)
        blocked = len(self.submitted) - len(self.ended) >= 5
        assert isinstance(found, Blocked) == blocked
        if isinstance(found, Submitted):
            self.submitted.append(found.run)
            if isinstance(arg, int) and self.client._state.programs[1].donates:
                self.held.remove(arg)
            self.held += found.results

    def _put(self) -> None:
        found = self.client.put(X, SLICE, self.session.now)
        if isinstance(found, int):
            self.held.append(found)

    def _get(self) -> None:
        if self.held:
            self.client.get(self.random.choice(self.held), self.session.now)

    def _release(self) -> None:
        if self.held:
            buffer = self.random.choice(self.held)
            self.held.remove(buffer)
            self.client.release((buffer,), self.session.now)

    def _cancel(self) -> None:
        if self.submitted:
            self.client.cancel(self.random.choice(self.submitted), self.session.now)

    def _wake(self) -> None:
        self.session.now += 50

    # --- the controller

    def _break(self) -> None:
        if self.random.random() < 0.3:
            event = p.Connected(p.CONTROLLER) if not self.up else p.Disconnected(p.CONTROLLER)
            self.up = not self.up
            self.known = {"runs": [], "puts": [], "gets": []}
            self.names, self.programs = set(), set()
            self.take(self.session.hear(event))

    def _note(self) -> None:
        if not self.up:
            return
        kind = self.random.choice(list(self.known))
        if self.known[kind]:
            name = self.known[kind].pop(self.random.randrange(len(self.known[kind])))
            self.transfers += 1
            moves = self.transfers, WHERE
            notes = {"runs": p.Ended(name), "puts": p.PutAccepted(name, *moves), "gets": p.GetAccepted(name, *moves)}
            self.take(self.session.note(notes[kind]))

    def take(self, effects: list[p.Command]) -> None:
        for effect in effects:
            match effect:
                case p.Send(message=message):
                    assert self.up
                    for call in message.calls if isinstance(message, p.Calls) else (message,):
                        self.hear(call)
                case p.RunEnded(run=run):
                    self.ended.append(run)
                case p.Close():
                    raise AssertionError(effect)
                case _:
                    pass

    def hear(self, call: Any) -> None:
        """Check a message as the real controller does: a client that names an unknown thing is closed."""
        match call:
            case p.Open(held=held, open_runs=runs):
                self.names = set(held)
                self.known["runs"] = list(runs)
            case p.Register(program=name):
                assert name not in self.programs
                self.programs.add(name)
            case p.Submit(run=run, program=name, args=names, results=made):
                args, results = ranges.each(names), ranges.each(made)
                assert name in self.programs
                assert all(arg in self.names for arg in args if isinstance(arg, int))
                if self.client._state.programs[name].donates:
                    self.names -= set(args)
                assert not self.names.intersection(results)
                self.names.update(results)
                self.known["runs"].append(run)
            case p.Put(buffer=buffer):
                assert buffer not in self.names
                self.names.add(buffer)
                self.known["puts"].append(buffer)
            case p.Get(request=request, buffer=buffer):
                assert buffer in self.names
                self.known["gets"].append(request)
            case p.Release(buffers=released):
                buffers = ranges.each(released)
                assert self.names.issuperset(buffers)
                self.names -= set(buffers)
            case _:
                pass


@examples(200)
@example(8736709)
@given(st.integers(0, 2**32))
def test_the_controller_gets_only_valid_messages_and_every_run_ends_once(seed: int) -> None:
    play = Play(Random(seed))
    for _ in range(60):
        play.step()
    while not play.up:
        play._break()
    for _ in range(30):
        play.session.now += 50 * MOST
        play.take(play.session.hear(p.Wakeup()))
        for kind in play.known:
            while play.known[kind]:
                play._note()
    assert sorted(play.ended) == sorted(play.submitted)
    assert play.names == set(play.held)
    assert not play.client._batching.gathered
    assert not play.client._state.requests
