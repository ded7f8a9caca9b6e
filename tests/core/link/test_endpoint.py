"""Tests two endpoints with a connection between them: no message is lost or doubled, unless the peer is gone."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import protocol as p
from core.link.endpoint import (
    ConnectionDown,
    ConnectionUp,
    Dial,
    Endpoint,
    Hand,
    HangUp,
    Hello,
    NearDown,
    NearUp,
    PacketReceived,
    PeerMoved,
    Reach,
    Write,
)
from core.link.link import Frame
from tests.laws import examples

LEASE = 10**9
SILENCE = "nothing heard for 1 s"


class SayNow(p.Event, frozen=True):
    effects: tuple[p.Command, ...]


class ScriptedMachine:
    """A machine that sends what the test tells it to, and records what it receives."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.wakes_at: int | None = None

    def handle(self, event: p.Event, now: int) -> list[p.Command]:
        if isinstance(event, SayNow):
            return list(event.effects)
        if isinstance(event, p.MessageReceived):
            assert isinstance(event.message, p.Cancel)
            self.heard.append(event.message.run)
        elif isinstance(event, p.Wakeup):
            self.heard.append("woke")
            self.wakes_at = None
        else:
            assert isinstance(event, p.Connected | p.Disconnected)
            self.heard.append("connected" if isinstance(event, p.Connected) else event.reason)
        return []

    def next_wakeup(self) -> int | None:
        return self.wakes_at


def always(reach: Reach) -> Any:
    return lambda peer: reach


class Pair:
    """Ends 0 and 1 with one connection. Packets stay on it until the test delivers them."""

    def __init__(self, reach: Reach = "dial") -> None:
        self.now = 0
        self.starts = [0, 0]
        self.reach = reach
        self.machines = [ScriptedMachine(), ScriptedMachine()]
        self.ends: list[Endpoint] = []
        self.up = False
        self.wires: list[deque[Any]] = [deque(), deque()]  # packets on their way to each end
        self.seen: list[list[p.Command]] = [[], []]  # the commands of each end to its driver, except Write
        for me in (0, 1):
            self.ends.append(self.fresh(me))

    def fresh(self, me: int) -> Endpoint:
        self.starts[me] += 1
        self.machines[me] = ScriptedMachine()
        return Endpoint(self.machines[me], me, self.starts[me], LEASE, reach=always(self.reach))

    def feed(self, me: int, event: p.Event) -> None:
        self.take(me, self.ends[me].handle(event, self.now))

    def take(self, me: int, effects: list[p.Command]) -> None:
        for effect in effects:
            if isinstance(effect, Write):
                if self.up:
                    self.wires[1 - me].append(effect.packet)
            else:
                self.seen[me].append(effect)

    def connect(self) -> None:
        self.up = True
        for me in (0, 1):
            self.wires[me].clear()
        for me in (0, 1):
            self.feed(me, ConnectionUp(1 - me))

    def cut(self) -> None:
        self.up = False
        for me in (0, 1):
            self.wires[me].clear()
        for me in (0, 1):
            self.feed(me, ConnectionDown(1 - me))

    def restart(self, me: int) -> None:
        if self.up:
            self.up = False
            self.feed(1 - me, ConnectionDown(me))
        self.wires = [deque(), deque()]
        self.ends[me] = self.fresh(me)

    def say(self, me: int, *numbers: int) -> None:
        for number in numbers:
            self.feed(me, SayNow((p.Send((1 - me,), p.Cancel(number)),)))

    def arrive(self, me: int) -> bool:
        if not self.wires[me]:
            return False
        self.feed(me, PacketReceived(1 - me, self.wires[me].popleft()))
        return True

    def flow(self) -> None:
        while self.arrive(0) or self.arrive(1):
            pass

    def wait(self, until: int) -> None:
        """Let time pass. Both ends get their wake-ups."""
        while True:
            due = [(at, me) for me in (0, 1) if (at := self.ends[me].next_wakeup()) is not None]
            if not due or min(due)[0] > until:
                self.now = until
                return
            at, me = min(due)
            self.now = max(self.now, at)
            self.feed(me, p.Wakeup())
            self.flow()


def joined() -> Pair:
    pair = Pair()
    pair.connect()
    pair.flow()
    return pair


def test_messages_sent_before_there_is_a_connection_arrive_on_it() -> None:
    pair = Pair()
    pair.say(0, 1, 2)
    assert pair.seen[0] == [Dial(1)]
    pair.connect()
    pair.flow()
    assert pair.machines[1].heard == ["connected", 1, 2]
    assert pair.machines[0].heard == ["connected"]


def test_a_restarted_peer_is_a_new_one() -> None:
    pair = joined()
    pair.say(0, 1)
    pair.flow()
    pair.say(0, 2)  # it never arrives: it was for the process that died
    pair.restart(1)
    pair.say(1, 10)
    pair.connect()
    pair.flow()
    assert pair.machines[0].heard == ["connected", "it began anew", "connected", 10]
    assert pair.machines[1].heard == ["connected"]
    pair.say(0, 3)
    pair.flow()
    assert pair.machines[1].heard == ["connected", 3]


def test_a_message_to_a_process_that_died_does_not_reach_its_successor() -> None:
    class Mourner(ScriptedMachine):
        def handle(self, event: p.Event, now: int) -> list[p.Command]:
            if isinstance(event, p.Disconnected):
                return [p.Send((event.peer,), p.Cancel(99))]
            return super().handle(event, now)

    pair = Pair("drop")
    pair.connect()
    pair.flow()
    pair.ends[0].machine = Mourner()
    pair.restart(1)
    pair.connect()
    pair.flow()
    assert pair.machines[1].heard == ["connected"]


def test_a_silence_as_long_as_a_lease_ends_the_link_and_both_ends_can_begin_again() -> None:
    pair = joined()
    pair.cut()
    pair.wait(LEASE)
    assert pair.machines[0].heard == ["connected", SILENCE]
    assert HangUp(1, SILENCE) in pair.seen[0]
    pair.say(0, 7)
    pair.connect()
    pair.flow()
    assert pair.machines[1].heard[2:] == ["connected", 7]


def test_a_process_that_was_stopped_does_not_take_its_own_pause_for_silence() -> None:
    pair = joined()
    due = pair.ends[0].next_wakeup()
    assert due is not None
    assert due <= LEASE // 4
    pair.now = 3 * LEASE  # this process was stopped; its peer was not, and sends nothing now
    pair.feed(0, p.Wakeup())
    assert pair.machines[0].heard == ["connected"]
    assert pair.ends[0].next_wakeup() is not None
    pair.now += LEASE // 10
    pair.feed(0, p.Wakeup())
    assert pair.machines[0].heard == ["connected"]
    while pair.now < 4 * LEASE and (at := pair.ends[0].next_wakeup()) is not None:
        pair.now = at
        pair.feed(0, p.Wakeup())
    assert len(pair.machines[0].heard) == 2, "a silence that it has listened to ends the link"
    assert 3 * LEASE < pair.now <= 4 * LEASE


def test_one_end_may_think_the_other_lost_while_the_other_does_not() -> None:
    pair = joined()
    pair.cut()
    pair.now = LEASE
    pair.feed(0, p.Wakeup())  # end 1 does not run when its own lease ends
    pair.say(1, 5)
    pair.connect()
    pair.flow()
    assert pair.machines[0].heard == ["connected", SILENCE, "connected"]
    assert pair.machines[1].heard == ["connected", "it began anew", "connected"]
    pair.say(0, 1)
    pair.say(1, 6)
    pair.flow()
    assert pair.machines[0].heard[-1] == 6
    assert pair.machines[1].heard[-1] == 1


def test_a_quiet_connection_is_kept_alive() -> None:
    pair = joined()
    pair.wait(10 * LEASE)
    assert pair.machines[0].heard == pair.machines[1].heard == ["connected"]


@pytest.mark.parametrize(("reach", "said"), [("dial", [Dial(1)]), ("await", []), ("drop", [])])
def test_the_driver_says_which_peers_can_be_reached(reach: Reach, said: list[p.Command]) -> None:
    pair = Pair(reach)
    pair.say(0, 1)
    assert pair.seen[0] == said
    assert pair.ends[0].linked(1) == (reach != "drop")
    pair.connect()
    pair.flow()
    assert pair.machines[1].heard == (["connected"] if reach == "drop" else ["connected", 1])


def test_a_home_peer_is_always_linked() -> None:
    machine = ScriptedMachine()
    end = Endpoint(machine, 0, 1, LEASE, homes=(1,))
    assert end.start(0) == [Dial(1)]
    assert end.handle(p.Wakeup(), LEASE) == [HangUp(1, SILENCE), Dial(1)]
    assert end.handle(SayNow((p.Close(1, "enough"),)), LEASE) == [HangUp(1, "enough", "protocol"), Dial(1)]


def greeted(end: Endpoint, now: int) -> None:
    for event in (ConnectionUp(1), PacketReceived(1, Hello(7, 0)), PacketReceived(1, Frame(0, 0))):
        end.handle(event, now)
    end.next_wakeup()


def wait(end: Endpoint, until: int) -> list[p.Command]:
    """Let time pass, with all wake-ups."""
    said: list[p.Command] = []
    while (due := end.next_wakeup()) is not None and due <= until:
        said += end.handle(p.Wakeup(), due)
    return said


def test_a_home_is_away_from_the_start_and_from_the_end_of_its_connection_until_it_greets() -> None:
    end = Endpoint(ScriptedMachine(), 0, 1, LEASE, homes=(1,))
    end.start(0)
    assert end.away(1, 30) == 30
    greeted(end, 40)
    assert end.away(1, 50) == 0
    end.handle(ConnectionDown(1), 60)
    assert end.away(1, 100) == 40
    end.handle(ConnectionUp(1), 110)
    assert end.away(1, 120) == 60, "somebody is there, but has not said who"
    end.handle(ConnectionDown(1), 130)
    assert HangUp(1, SILENCE) in wait(end, LEASE + 50)
    assert end.away(1, LEASE + 60) == LEASE, "a lease that ends is not a new beginning"
    greeted(end, LEASE + 70)
    assert end.away(1, LEASE + 80) == 0


def test_a_home_that_says_nothing_for_half_a_lease_is_away_since_it_was_heard_last() -> None:
    end = Endpoint(ScriptedMachine(), 0, 1, LEASE, homes=(1,))
    end.start(0)
    greeted(end, 40)
    wait(end, LEASE // 2 + 50)
    assert end.away(1, LEASE // 2 + 40) == 0
    assert end.away(1, LEASE // 2 + 50) == LEASE // 2 + 10
    end.handle(ConnectionDown(1), LEASE // 2 + 60)
    assert end.away(1, LEASE // 2 + 70) == LEASE // 2 + 30
    greeted(end, LEASE // 2 + 80)
    assert end.away(1, LEASE // 2 + 90) == 0


def test_silence_in_which_this_process_did_not_run_makes_no_home_away() -> None:
    end = Endpoint(ScriptedMachine(), 0, 1, LEASE, homes=(1,))
    end.start(0)
    greeted(end, 0)
    assert end.away(1, LEASE) == 0
    end.handle(p.Wakeup(), LEASE)
    assert end.away(1, LEASE) == 0
    end.next_wakeup()
    assert end.away(1, LEASE + 1) == 0


def test_a_home_that_breaks_the_rules_is_away_from_then_on_and_one_nearby_never_is() -> None:
    end = Endpoint(ScriptedMachine(), 0, 1, LEASE, homes=(1,))
    end.start(0)
    greeted(end, 10)
    end.handle(p.Malformed(1, "gibberish"), 20)
    assert end.away(1, 50) == 30
    end.handle(NearUp(1), 60)
    assert end.away(1, 70) == 0
    end.handle(NearDown(1), 80)
    assert end.away(1, 90) == 10


def test_one_message_to_many_is_one_object_in_all_their_frames() -> None:
    end = Endpoint(ScriptedMachine(), 0, 1, LEASE)
    for peer in (1, 2, 3):
        end.handle(ConnectionUp(peer), 0)
        end.handle(PacketReceived(peer, Hello(7, 0)), 0)
        end.handle(PacketReceived(peer, Frame(0, 0)), 0)
    message = p.Cancel(5)
    writes = end.handle(SayNow((p.Send((1, 2, 3), message),)), 0)
    assert [write.peer for write in writes if isinstance(write, Write)] == [1, 2, 3]
    for write in writes:
        assert isinstance(write, Write)
        assert isinstance(write.packet, Frame)
        assert write.packet.message is message


def test_a_message_to_itself_is_delivered_and_shown() -> None:
    machine = ScriptedMachine()
    end = Endpoint(machine, 0, 1, LEASE)
    assert end.handle(SayNow((p.Send((0,), p.Cancel(3)),)), 0) == [p.Send((0,), p.Cancel(3))]
    assert machine.heard == [3]


def test_a_link_to_a_process_that_was_restarted_elsewhere_ends_at_once() -> None:
    pair = joined()
    pair.feed(0, PeerMoved(1))
    assert pair.machines[0].heard == ["connected", "it began anew elsewhere"]
    assert not pair.ends[0].linked(1)
    pair.feed(0, PeerMoved(1))
    assert len(pair.machines[0].heard) == 2, "for a peer that is not linked it is no news"


def test_both_ends_keep_the_same_one_of_two_connections() -> None:
    first, second = Endpoint(ScriptedMachine(), 3, 1, LEASE), Endpoint(ScriptedMachine(), 7, 2, LEASE)
    assert first.keeps_ours(7) != second.keeps_ours(3)


def test_a_peer_that_breaks_the_rules_is_disconnected() -> None:
    pair = joined()
    pair.feed(0, PacketReceived(1, Frame(1, 77, p.Cancel(1))))
    assert pair.machines[0].heard == ["connected", "the peer acknowledges message 77, the last one sent is 0"]
    assert isinstance(pair.seen[0][-1], HangUp)
    pair.feed(1, p.Malformed(0, "gibberish"))
    assert pair.machines[1].heard == ["connected", "gibberish"]


def test_an_endpoint_wakes_for_its_machine_and_for_its_links() -> None:
    machine = ScriptedMachine()
    end = Endpoint(machine, 0, 1, LEASE, homes=(1,))
    end.start(0)
    assert end.next_wakeup() == LEASE
    machine.wakes_at = 20
    assert end.next_wakeup() == 20
    assert end.handle(p.Wakeup(), 20) == []
    assert machine.heard == ["woke"]


STEPS = st.lists(
    st.sampled_from(["say 0", "say 1", "arrive 0", "arrive 1", "cut", "connect", "flow", "pass"]), max_size=60
)


@given(STEPS)
@examples(150)
def test_law_each_message_once_and_in_order_whatever_connections_do(steps: list[str]) -> None:
    pair = Pair()
    said: list[list[int]] = [[], []]
    for at, step in enumerate(steps):
        what, _, who = step.partition(" ")
        if what == "say":
            said[int(who)].append(at)
            pair.say(int(who), at)
        elif what == "arrive":
            pair.arrive(int(who))
        elif what == "cut" and pair.up:
            pair.cut()
        elif what == "connect":
            pair.connect()
        elif what == "flow":
            pair.flow()
        elif what == "pass":
            pair.now += 1
    pair.connect()
    pair.flow()
    for me in (0, 1):
        assert pair.machines[me].heard == ["connected", *said[1 - me]]


def handed(effects: list[p.Command]) -> list[int]:
    return [each.message.run for each in effects if isinstance(each, Hand) and isinstance(each.message, p.Cancel)]


def test_messages_to_a_near_peer_are_handed_over_without_a_link() -> None:
    pair = Pair()
    pair.say(0, 1)  # there is a link meanwhile
    pair.feed(0, NearUp(1))
    pair.say(0, 2, 3)
    pair.feed(0, p.MessageReceived(1, p.Cancel(4)))
    assert handed(pair.seen[0]) == [1, 2, 3]
    assert pair.machines[0].heard == ["connected", 4]
    assert pair.ends[0].linked(1)
    pair.wait(20 * LEASE)
    assert pair.machines[0].heard == ["connected", 4]  # there is no lease


def test_a_near_peer_that_ends_is_gone_and_may_come_again() -> None:
    pair = Pair("drop")
    pair.feed(0, NearUp(1))
    pair.feed(0, NearDown(1))
    pair.feed(0, NearDown(1))
    pair.say(0, 1)
    pair.feed(0, NearUp(1))
    pair.feed(0, NearUp(1))  # by another way: what was said on the one before may be lost
    pair.say(0, 2)
    assert pair.machines[0].heard == ["connected", "it has ended", "connected", "it began anew", "connected"]
    assert handed(pair.seen[0]) == [2]


def test_a_near_peer_that_the_machine_closes_is_hung_up() -> None:
    pair = Pair("drop")
    pair.feed(0, NearUp(1))
    pair.feed(0, SayNow((p.Close(1, "enough", ""),)))
    assert pair.seen[0] == [HangUp(1, "enough")]
    assert not pair.ends[0].linked(1)


@given(STEPS, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 1)), max_size=4))
@examples(150)
def test_law_a_restarted_process_gets_messages_without_gaps(steps: list[str], restarts: list[tuple[int, int]]) -> None:
    """Between two `connected`, a process gets messages without gaps and repeats. In the end all are connected."""
    pair = Pair()
    for at, step in enumerate(steps):
        for _, me in [each for each in restarts if each[0] == at]:
            pair.restart(me)
        what, _, who = step.partition(" ")
        if what == "say":
            pair.say(int(who), at)
        elif what == "arrive":
            pair.arrive(int(who))
        elif what == "cut" and pair.up:
            pair.cut()
        elif what in ("connect", "flow"):
            getattr(pair, what)()
    pair.connect()
    pair.flow()
    pair.say(0, 1000)
    pair.say(1, 1000)
    pair.flow()
    for me in (0, 1):
        heard = pair.machines[me].heard
        assert heard[-1] == 1000
        numbers = [each for each in heard if isinstance(each, int)]
        assert numbers == sorted(set(numbers))
