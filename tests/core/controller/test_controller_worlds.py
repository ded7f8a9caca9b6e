"""What becomes of an island whose collective world fails: before it has formed, while it runs, and afterwards."""

from __future__ import annotations

import msgspec

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
from core.protocol.messages import Blame, Dismiss, Done, GangStep, Join, Open, Register, Submit
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


# --- a collective fails because of a peer -------------------------------------------------------------------------

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
        each
        for each in world.controller.handle(MessageReceived(HOST + 0, Join(0, 4)), 0)
        if isinstance(each, Close)
    ]
    assert closed == Close(HOST + 0, "host 0: incarnation 4 is older than 5", breach="protocol")
