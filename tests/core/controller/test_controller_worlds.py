"""What becomes of an island whose collective world fails: before it has formed, while it runs, and afterwards."""

from __future__ import annotations

from typing import Any

import msgspec

from core import protocol as p
from core.controller.live_view import live_view
from core.controller.records import InFlight
from core.model.spans import items, one, overlap
from tests.core.build import Build

from .rig import CLIENT, HOST, Rig, S

DEAD = p.Blame("world", "its coordination process has died")


class World(Rig):
    """Two hosts, a client, and a program on both."""

    def __init__(self) -> None:
        super().__init__(2)
        self.say(CLIENT, p.Open("client"))
        self.register()

    def failed(self, epoch: int) -> None:
        self.feed(p.WorldFailed(0, epoch, DEAD))

    @property
    def said_aloud(self) -> list[str]:
        return [line.text for line in self.told]

    def running(self) -> p.GangStep:
        """A gang on both hosts, under way."""
        self.submit(1)
        (gang,) = self.gangs
        return gang


def test_an_idle_island_forms_again_at_once_when_its_world_has_failed() -> None:
    world = World()
    phase, epoch = world.state
    assert phase == "running"
    world.failed(epoch)
    assert world.state == ("running", epoch + 1)
    assert any("has failed" in text and "coordination process" in text for text in world.said_aloud)


def test_gangs_under_way_end_before_the_island_forms_again() -> None:
    world = World()
    _, epoch = world.state
    gang = world.running()
    world.failed(epoch)
    assert world.state == ("draining", epoch)
    for host in range(2):
        world.done(host, gang)
    assert world.state == ("running", epoch + 1)
    assert world.ended == {1: None}


def test_a_failure_of_an_older_epochs_world_changes_nothing() -> None:
    world = World()
    _, epoch = world.state
    world.failed(epoch)
    world.failed(epoch)
    assert world.state == ("running", epoch + 1)


# --- and again, and again -----------------------------------------------------------------------------------------

REFUSED = p.Blame("peer", "Gloo context initialization failed: timed out connecting: remote=[127.0.1.1]:4242", host=1)


class Broken(World):
    """Worlds that form, and in which no two hosts reach each other."""

    def __init__(self) -> None:
        self.forms: list[int] = []  # when epochs began
        self.dead = False  # whether worlds do not even form
        self.unable = False  # whether host 1 cannot join any
        super().__init__()

    def formed(self, world: p.FormWorld) -> p.Event:
        self.forms.append(self.now)
        return p.WorldFailed(0, world.epoch, DEAD) if self.dead else super().formed(world)

    def hear(self, peer: int, message: Any) -> list[p.Event]:
        answers = super().hear(peer, message)
        if self.unable and peer == HOST + 1 and isinstance(message, p.Seat) and message.epoch == self.state[1]:
            if self.state[0] == "reforming":
                why = p.Blame("world", "it could not join the world: no route to host", host=1)
                reports = p.Reports(0, message.epoch, message.tree, (p.HostFault(1, -1, why),))
                return [p.MessageReceived(peer, reports)]
        return answers

    def breaks(self, run: int) -> p.Blame:
        """A run whose gang breaks the connections."""
        self.submit(run)
        for host in range(2):
            self.done(host, self.gangs[-1], REFUSED)
        blame = self.ended[run]
        assert blame is not None
        return blame

    def goes_on(self) -> int:
        """To the next wake-up; returns the seconds until then."""
        due, before = self.controller.next_wakeup(), self.now
        assert due is not None
        self.now = due
        self.feed(p.Wakeup())
        return (due - before) // S

    @property
    def shown(self) -> str:
        line = live_view(self.controller).islands[0]
        (view,) = self.controller.snapshot().islands
        assert (line.broken, line.since) == (view.broken, view.since)
        return view.broken


def test_an_island_that_breaks_again_and_again_says_so_and_pauses_longer_and_longer() -> None:
    world = Broken()
    assert "in a row" not in world.breaks(1).cause
    assert world.state == ("running", 1), "the first is followed by the next at once"
    assert world.shown == ""
    blame = world.breaks(2)
    assert world.state == ("reforming", 2)
    assert world.shown.startswith(f"2 epochs in a row broke. host 1: {REFUSED.cause}. Each host must reach the others")
    assert blame.cause.endswith(world.shown)
    assert f"island 'i0': {world.shown}" in world.said_aloud
    pauses = []
    for run in range(3, 9):
        pauses.append(world.goes_on())
        assert world.state[0] == "running"
        world.breaks(run)
    assert pauses == [1, 2, 4, 8, 16, 30]


def test_a_computation_of_both_hosts_ends_the_row() -> None:
    world = Broken()
    world.breaks(1)
    world.breaks(2)
    world.goes_on()
    world.submit(3)
    gang = world.gangs[-1]
    assert world.shown != ""
    for host in range(2):
        world.done(host, gang)
    assert world.shown == ""
    world.breaks(4)
    assert world.state[0] == "running"


def test_a_host_that_comes_ends_the_pause() -> None:
    world = Broken()
    world.breaks(1)
    world.breaks(2)
    phase, epoch = world.state
    assert phase == "reforming"
    world.feed(p.Disconnected(HOST + 1, "it was restarted"))
    assert world.state == ("reforming", epoch + 1)
    world.say(HOST + 1, p.Join(1, 1))
    assert world.state == ("running", epoch + 2)


def test_runs_that_wait_for_an_island_that_never_forms_fail_with_the_reason() -> None:
    world = Broken()
    world.dead = True
    _, epoch = world.state
    world.failed(epoch)
    assert world.forms == [0, 0, 0], "one more at once"
    world.submit(1)
    while not world.ended and world.now < 20 * S:
        world.goes_on()
    blame = world.ended[1]
    assert blame is not None
    assert (blame.code, blame.cause.partition("epochs")[0]) == ("world", "island 'i0' did not form: 5 ")
    assert blame.cause.endswith("its coordination process has died")
    assert world.now < 10 * S
    world.dead = False
    while world.state[0] != "running":
        world.goes_on()
    assert world.shown == ""


def test_a_host_that_cannot_join_tells_why_and_the_next_epoch_begins() -> None:
    world = Broken()
    _, epoch = world.state
    world.unable = True
    world.failed(epoch)
    assert world.state == ("reforming", epoch + 3), "two that failed, and the next after a pause"
    assert world.shown == "2 epochs in a row broke. host 1: it could not join the world: no route to host"
    world.unable = False
    assert world.goes_on() == 1
    assert world.state == ("running", epoch + 3)
    assert world.shown == ""


# --- a collective fails because of a peer, once -------------------------------------------------------------------

PEER = p.Blame("peer", "Gloo all-reduce failed: Connection closed by peer\nat tcp/pair.cc")
BROKE = "the connections between hosts 0-1 of island 'i0' broke: Gloo all-reduce failed: Connection closed by peer"


def test_an_island_whose_hosts_are_alive_but_cannot_talk_forms_again_at_once() -> None:
    """What broke the connections stays broken: the next gang would fail as this one did."""
    world = World()
    _, epoch = world.state
    gang = world.running()
    for host in range(2):
        world.done(host, gang, PEER)
    assert world.state == ("running", epoch + 1)
    assert world.blame(1) == ("world", BROKE)
    assert f"{BROKE}; the island forms anew" in world.said_aloud


def test_a_dead_peer_is_known_after_its_lease_and_nothing_enters_until_then() -> None:
    world = World()
    gang = world.running()
    world.done(0, gang, PEER)
    assert not world.ended
    world.submit(2)
    assert world.gangs == [gang]
    world.feed(p.Disconnected(HOST + 1, "nothing heard for 10 s"))
    blame = world.ended[1]
    assert blame is not None
    assert (blame.code, blame.host) == ("host-lost", 1)


def test_a_blamed_peer_that_is_silent_ends_the_epoch_after_its_lease() -> None:
    world = World()
    _, epoch = world.state
    gang = world.running()
    world.done(0, gang, PEER)
    lease = world.controller.config.lease
    world.until(lease - 1)
    assert not world.ended
    world.until(lease)
    assert world.state == ("running", epoch + 1)
    assert world.blame(1)[0] == "world"


def made_and_read(hosts: int, **slices: int) -> tuple[Rig, list[InFlight]]:
    """A run of a gang on hosts 0 and 1 and of one that reads its result, and all that is under way."""
    rig = Rig(hosts)
    build = Build("work", **slices)
    made = build.call("make", "s", [build.arg("s", 4, split="0")])
    program = build.program(build.call("read", "t", [made]))
    rig.say(CLIENT, p.Open("client"), p.Register(1, program), p.Submit(1, 1, (bytes(16),), (11,)))
    return rig, [flight for flight in rig.controller.state.in_flight.values() if flight.kind != "put"]


def all_say(rig: Rig, flight: InFlight, blame: p.Blame) -> None:
    for host in items(flight.hosts):
        rig.report(host, p.Done(flight.seq, one(host), blame))


def fails_with_its_world(rig: Rig, epoch: int) -> None:
    assert rig.state == ("running", epoch + 1)
    assert rig.blame(1)[0] == "world"
    assert not len(rig.controller.state.in_flight)
    assert not rig.controller.state.runs


def test_readers_of_a_failed_gang_wait_for_its_reason_and_end_no_epoch_by_themselves() -> None:
    """Transfers and gangs behind it are over at once, poisoned. Hosts report that again each time they take a seat."""
    rig, (first, *behind) = made_and_read(2, s=2, t=1)
    _, epoch = rig.state
    assert {flight.kind for flight in behind} == {"send", "recv", "gang"}
    for _ in range(2):
        for flight in behind:
            all_say(rig, flight, msgspec.structs.replace(PEER, program="work", node="make", host=1))
    assert (rig.state, rig.ended) == (("running", epoch), {})
    all_say(rig, first, msgspec.structs.replace(PEER, program="work", node="make", host=0))
    fails_with_its_world(rig, epoch)


def test_a_poisoned_gang_of_other_hosts_ends_no_epoch() -> None:
    """Several hosts run it together, and report "peer"; but they did not lose each other."""
    rig, (first, *behind) = made_and_read(4, s=2, t=2)
    _, epoch = rig.state
    (last,) = [flight for flight in behind if flight.kind == "gang"]
    assert not overlap(first.hosts, last.hosts)
    (lost, *_) = items(first.hosts)
    poisoned = msgspec.structs.replace(PEER, program="work", node="make", host=lost)
    for flight in behind:
        all_say(rig, flight, poisoned)
    assert (rig.state, rig.ended) == (("running", epoch), {})
    all_say(rig, first, poisoned)
    fails_with_its_world(rig, epoch)


# --- a host that comes too late -----------------------------------------------------------------------------------


def test_a_host_that_paused_too_long_is_turned_away_without_an_accusation() -> None:
    world = World()
    world.controller.handle(p.Disconnected(HOST + 0, "nothing heard for 10 s"), 0)
    again = HOST + 50  # its next connection
    effects = world.controller.handle(p.MessageReceived(again, p.Join(0, 0, epoch=1)), 0)
    assert [each for each in effects if isinstance(each, p.Send | p.Close)] == [
        p.Send((again,), p.Dismiss(0, "incarnation 0 was given up")),
        p.Close(again, "host 0: incarnation 0 was given up", breach=""),
    ]


def test_a_host_that_joins_again_as_an_older_process_breaks_the_protocol() -> None:
    world = World()
    world.say(HOST, p.Join(0, 5))
    effects = world.controller.handle(p.MessageReceived(HOST, p.Join(0, 4)), 0)
    closed = [each for each in effects if isinstance(each, p.Close)]
    assert closed == [p.Close(HOST, "host 0: incarnation 4 is older than 5", breach="protocol")]
