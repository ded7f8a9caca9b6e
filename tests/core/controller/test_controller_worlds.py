"""What becomes of an island whose collective world fails: before it has formed, while it runs, and afterwards."""

from __future__ import annotations

import msgspec

from core.controller.live_view import live_view
from core.controller.records import InFlight
from core.model.spans import items, one, overlap
from core.protocol.effects import (
    Close,
    Command,
    Disconnected,
    Event,
    FormWorld,
    LogLine,
    MessageReceived,
    Send,
    Wakeup,
    WorldFailed,
    WorldUp,
)
from core.protocol.messages import Blame, Dismiss, Done, GangStep, HostFault, Join, Open, Register, Seat, Submit
from tests.core.build import Build

from .test_controller import CLIENT, HOST, Rig

DEAD = Blame("world", "its coordination process has died")


class World(Rig):
    """A controller and its hosts. `failed` returns what the controller then does, carried out as in `Rig`."""

    def __init__(self, hosts: int) -> None:
        super().__init__(hosts)
        self.said: list[str] = []

    def failed(self, epoch: int) -> None:
        self._do(self.controller.handle(WorldFailed(0, epoch, DEAD), 0))

    def _do(self, effects: list[Command]) -> None:
        for effect in effects:
            if isinstance(effect, LogLine):
                self.said.append(effect.text)
            elif isinstance(effect, FormWorld):
                self._do(self.controller.handle(WorldUp(effect.island, effect.epoch), 0))
            elif isinstance(effect, Send):
                for to in effect.peers:
                    for answer in self.hear(to, effect.message):
                        self._do(self.controller.handle(answer, 0))

    @property
    def state(self) -> tuple[str, int]:
        island = self.controller.state.islands[0]
        return island.phase, island.epoch

    def running(self) -> GangStep:
        """A gang on both hosts, under way."""
        build = Build("work", s=2)
        made = build.call("make", "s", [build.arg("s", 4, split="0")])
        self.say(CLIENT, Open("client"))
        self.say(CLIENT, Register(1, build.program(made)))
        self.say(CLIENT, Submit(1, 1, (bytes(16),), (11,)))
        (gang,) = [step for step in self.steps if isinstance(step, GangStep)]
        return gang


def test_an_idle_island_forms_again_at_once_when_its_world_has_failed() -> None:
    world = World(2)
    phase, epoch = world.state
    assert phase == "running"
    world.failed(epoch)
    assert world.state == ("running", epoch + 1)
    assert any("has failed" in text and "coordination process" in text for text in world.said)


def test_gangs_under_way_end_before_the_island_forms_again() -> None:
    world = World(2)
    _, epoch = world.state
    gang = world.running()
    world.failed(epoch)
    assert world.state == ("draining", epoch)
    for host in range(2):
        for answer in world.controller.handle(_done(world, host, gang), 0):
            world._do([answer])
    assert world.state == ("running", epoch + 1)
    assert world.ended == {1: None}


def test_a_failure_of_an_older_epochs_world_changes_nothing() -> None:
    world = World(2)
    _, epoch = world.state
    world.failed(epoch)
    world.failed(epoch)
    assert world.state == ("running", epoch + 1)


def _done(world: World, host: int, gang: GangStep, blame: Blame | None = None) -> Event:
    return MessageReceived(HOST + host, world.reports(Done(gang.seq, one(host), blame)))


# --- and again, and again -----------------------------------------------------------------------------------------

SECOND = 1_000_000_000
REFUSED = Blame("peer", "Gloo context initialization failed: timed out connecting: remote=[127.0.1.1]:4242", host=1)


class Broken(World):
    """Worlds that form, and in which no two hosts reach each other. `now`: of all that happens."""

    def __init__(self) -> None:
        self.now = 0
        self.forms: list[int] = []  # when epochs began
        self.dead = False  # whether worlds do not even form
        self.unable = False  # whether host 1 cannot join any
        super().__init__(2)

    def _do(self, effects: list[Command]) -> None:
        for effect in effects:
            if isinstance(effect, FormWorld):
                self.forms.append(self.now)
                up, failed = WorldUp(0, effect.epoch), WorldFailed(0, effect.epoch, DEAD)
                self._do(self.controller.handle(failed if self.dead else up, self.now))
            elif isinstance(effect, LogLine):
                self.said.append(effect.text)
            elif isinstance(effect, Send):
                for to in effect.peers:
                    for answer in self.hear(to, effect.message):
                        self._do(self.controller.handle(answer, self.now))

    def hear(self, peer: int, message: msgspec.Struct) -> list[Event]:
        answers = super().hear(peer, message)
        if self.unable and peer == HOST + 1 and isinstance(message, Seat) and message.epoch == self.state[1]:
            if self.state[0] == "reforming":
                why = Blame("world", "it could not join the world: no route to host", host=1)
                return [MessageReceived(peer, self.reports(HostFault(1, -1, why)))]
        return answers

    def breaks(self, run: int) -> Blame:
        """A run whose gang breaks the connections."""
        self._do(self.controller.handle(MessageReceived(CLIENT, Submit(run, 1, (bytes(16),), (10 + run,))), self.now))
        gang = [step for step in self.steps if isinstance(step, GangStep)][-1]
        for host in range(2):
            self._do(self.controller.handle(_done(self, host, gang, REFUSED), self.now))
        blame = self.ended[run]
        assert blame is not None
        return blame

    def goes_on(self) -> int:
        """To the next wake-up; returns the seconds until then."""
        due = self.controller.next_wakeup()
        assert due is not None
        before, self.now = self.now, due
        self._do(self.controller.handle(Wakeup(), due))
        return (due - before) // SECOND

    @property
    def shown(self) -> str:
        line = live_view(self.controller).islands[0]
        (view,) = self.controller.snapshot().islands
        assert (line.broken, line.since) == (view.broken, view.since)
        return view.broken


def broken() -> Broken:
    world = Broken()
    build = Build("work", s=2)
    made = build.call("make", "s", [build.arg("s", 4, split="0")])
    world.say(CLIENT, Open("client"))
    world.say(CLIENT, Register(1, build.program(made)))
    return world


def test_an_island_that_breaks_again_and_again_says_so_and_pauses_longer_and_longer() -> None:
    world = broken()
    assert "in a row" not in world.breaks(1).cause
    assert world.state == ("running", 1), "the first is followed by the next at once"
    assert world.shown == ""
    blame = world.breaks(2)
    assert world.state == ("reforming", 2)
    assert world.shown.startswith(f"2 epochs in a row broke. host 1: {REFUSED.cause}. Each host must reach the others")
    assert blame.cause.endswith(world.shown)
    assert f"island 'i0': {world.shown}" in world.said
    pauses = []
    for run in range(3, 9):
        pauses.append(world.goes_on())
        assert world.state[0] == "running"
        world.breaks(run)
    assert pauses == [1, 2, 4, 8, 16, 30]


def test_a_computation_of_both_hosts_ends_the_row() -> None:
    world = broken()
    world.breaks(1)
    world.breaks(2)
    world.goes_on()
    world._do(world.controller.handle(MessageReceived(CLIENT, Submit(3, 1, (bytes(16),), (13,))), world.now))
    gang = [step for step in world.steps if isinstance(step, GangStep)][-1]
    assert world.shown != ""
    for host in range(2):
        world._do(world.controller.handle(_done(world, host, gang), world.now))
    assert world.shown == ""
    world.breaks(4)
    assert world.state[0] == "running"


def test_a_host_that_comes_ends_the_pause() -> None:
    world = broken()
    world.breaks(1)
    world.breaks(2)
    phase, epoch = world.state
    assert phase == "reforming"
    world._do(world.controller.handle(Disconnected(HOST + 1, "it was restarted"), world.now))
    assert world.state == ("reforming", epoch + 1)
    world._do(world.controller.handle(MessageReceived(HOST + 1, Join(1, 1)), world.now))
    assert world.state == ("running", epoch + 2)


def test_runs_that_wait_for_an_island_that_never_forms_fail_with_the_reason() -> None:
    world = broken()
    world.dead = True
    _, epoch = world.state
    world._do(world.controller.handle(WorldFailed(0, epoch, DEAD), world.now))
    assert world.forms == [0, 0], "a second one at once"
    world._do(world.controller.handle(MessageReceived(CLIENT, Submit(1, 1, (bytes(16),), (11,))), world.now))
    while not world.ended and world.now < 20 * SECOND:
        world.goes_on()
    blame = world.ended[1]
    assert blame is not None
    assert (blame.code, blame.cause.partition("epochs")[0]) == ("world", "island 'i0' did not form: 5 ")
    assert blame.cause.endswith("its coordination process has died")
    assert world.now < 10 * SECOND
    world.dead = False
    while world.state[0] != "running":
        world.goes_on()
    assert world.shown == ""


def test_a_host_that_cannot_join_tells_why_and_the_next_epoch_begins() -> None:
    world = broken()
    _, epoch = world.state
    world.unable = True
    world._do(world.controller.handle(WorldFailed(0, epoch, DEAD), world.now))
    assert world.state == ("reforming", epoch + 3), "two that failed, and the next after a pause"
    assert world.shown == "2 epochs in a row broke. host 1: it could not join the world: no route to host"
    world.unable = False
    assert world.goes_on() == 1
    assert world.state == ("running", epoch + 3)
    assert world.shown == ""


# --- a collective fails because of a peer, once -------------------------------------------------------------------

PEER = Blame("peer", "Gloo all-reduce failed: Connection closed by peer\nat tcp/pair.cc")
BROKE = "the connections between hosts 0-1 of island 'i0' broke: Gloo all-reduce failed: Connection closed by peer"


def test_an_island_whose_hosts_are_alive_but_cannot_talk_forms_again_at_once() -> None:
    """What broke the connections stays broken: the next gang would fail as this one did."""
    world = World(2)
    _, epoch = world.state
    gang = world.running()
    for host in range(2):
        world._do(world.controller.handle(_done(world, host, gang, PEER), 0))
    assert world.state == ("running", epoch + 1)
    blame = world.ended[1]
    assert blame is not None
    assert (blame.code, blame.cause) == ("world", BROKE)
    assert f"{BROKE}; the island forms anew" in world.said


def test_a_dead_peer_is_known_after_its_lease_and_nothing_enters_until_then() -> None:
    world = World(2)
    gang = world.running()
    world._do(world.controller.handle(_done(world, 0, gang, PEER), 0))
    assert not world.ended
    world.say(CLIENT, Submit(2, 1, (bytes(16),), (12,)))
    assert [step for step in world.steps if isinstance(step, GangStep)] == [gang]
    world._do(world.controller.handle(Disconnected(HOST + 1, "nothing heard for 10 s"), 5))
    blame = world.ended[1]
    assert blame is not None
    assert (blame.code, blame.host) == ("host-lost", 1)


def test_a_blamed_peer_that_is_silent_ends_the_epoch_after_its_lease() -> None:
    world = World(2)
    _, epoch = world.state
    gang = world.running()
    world._do(world.controller.handle(_done(world, 0, gang, PEER), 0))
    lease = world.controller.config.lease
    world._do(world.controller.handle(Wakeup(), lease - 1))
    assert not world.ended
    world._do(world.controller.handle(Wakeup(), lease))
    assert world.state == ("running", epoch + 1)
    blame = world.ended[1]
    assert blame is not None
    assert blame.code == "world"


def _all_say(world: World, flight: InFlight, blame: Blame) -> None:
    for host in items(flight.hosts):
        report = world.reports(Done(flight.seq, one(host), blame))
        world._do(world.controller.handle(MessageReceived(HOST + host, report), 0))


def test_readers_of_a_failed_gang_wait_for_its_reason_and_end_no_epoch_by_themselves() -> None:
    """Transfers and gangs behind it are over at once, poisoned. Hosts report that again each time they take a seat."""
    world = World(2)
    _, epoch = world.state
    build = Build("work", s=2, one=1)
    made = build.call("make", "s", [build.arg("s", 4, split="0")])
    read = build.call("read", "one", [made])
    world.say(CLIENT, Open("client"))
    world.say(CLIENT, Register(1, build.program(read)))
    world.say(CLIENT, Submit(1, 1, (bytes(16),), (11,)))
    state = world.controller.state
    first, *behind = [flight for flight in state.in_flight.values() if flight.kind != "put"]
    assert {flight.kind for flight in behind} == {"send", "recv", "gang"}
    poisoned = msgspec.structs.replace(PEER, program="work", node="make", host=1)
    for _ in range(2):
        for flight in behind:
            _all_say(world, flight, poisoned)
    assert world.state == ("running", epoch)
    assert not world.ended
    own = msgspec.structs.replace(PEER, program="work", node="make", host=0)
    _all_say(world, first, own)
    assert world.state == ("running", epoch + 1)
    assert world.ended[1] is not None
    assert world.ended[1].code == "world"
    assert not len(state.in_flight)
    assert not world.controller.state.runs


def test_a_poisoned_gang_of_other_hosts_ends_no_epoch() -> None:
    """Several hosts run it together, and report "peer"; but they did not lose each other."""
    world = World(4)
    _, epoch = world.state
    build = Build("work", s=2, t=2)
    made = build.call("make", "s", [build.arg("s", 4, split="0")])
    read = build.call("read", "t", [made])
    world.say(CLIENT, Open("client"))
    world.say(CLIENT, Register(1, build.program(read)))
    world.say(CLIENT, Submit(1, 1, (bytes(16),), (11,)))
    state = world.controller.state
    first, last = [flight for flight in state.in_flight.values() if flight.kind == "gang"]
    assert not overlap(first.hosts, last.hosts)
    (lost, *_) = items(first.hosts)
    poisoned = msgspec.structs.replace(PEER, program="work", node="make", host=lost)
    for flight in list(state.in_flight.values()):
        if flight is not first:
            _all_say(world, flight, poisoned)
    assert world.state == ("running", epoch)
    assert not world.ended
    _all_say(world, first, poisoned)
    assert world.state == ("running", epoch + 1)
    assert world.ended[1] is not None
    assert world.ended[1].code == "world"
    assert not len(state.in_flight)


# --- a host that comes too late -----------------------------------------------------------------------------------


def test_a_host_that_paused_too_long_is_turned_away_without_an_accusation() -> None:
    world = World(2)
    world.controller.handle(Disconnected(HOST + 0, "nothing heard for 10 s"), 0)
    again = HOST + 50  # its next connection
    effects = world.controller.handle(MessageReceived(again, Join(0, 0, epoch=1)), 0)
    assert [each for each in effects if isinstance(each, Send | Close)] == [
        Send((again,), Dismiss(0, "incarnation 0 was given up")),
        Close(again, "host 0: incarnation 0 was given up", breach=""),
    ]


def test_a_host_that_joins_again_as_an_older_process_breaks_the_protocol() -> None:
    world = World(2)
    world.controller.handle(MessageReceived(HOST + 0, Join(0, 5)), 0)
    (closed,) = [
        each for each in world.controller.handle(MessageReceived(HOST + 0, Join(0, 4)), 0) if isinstance(each, Close)
    ]
    assert closed == Close(HOST + 0, "host 0: incarnation 4 is older than 5", breach="protocol")
