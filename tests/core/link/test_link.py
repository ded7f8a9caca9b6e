"""A link delivers each message once and in order, whatever happens to connections, or says that the peer is gone."""

from collections import deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from core.link.link import ACK_EVERY, MOVES, Deliver, Frame, Link, LinkCommand, LinkEnded, Transmit
from core.model import ranges
from core.model.errors import Illegal
from core.protocol.messages import Release
from tests.laws import examples

LEASE = 1_000


def word(number: int) -> Release:
    return Release((number,))


def frames(commands: list[LinkCommand]) -> list[Frame]:
    return [command.frame for command in commands if isinstance(command, Transmit)]


def plain(commands: list[LinkCommand]) -> list[LinkCommand | Frame]:
    """The commands, with frames in place of Transmit and without their marks."""
    return [
        replace(command.frame, mark=0, heard=0) if isinstance(command, Transmit) else command for command in commands
    ]


def delivered(commands: list[LinkCommand]) -> list[int]:
    found = [command.message for command in commands if isinstance(command, Deliver)]
    return [number for message in found if isinstance(message, Release) for number in ranges.each(message.buffers)]


def up(now: int = 0, **options: int) -> Link:
    link = Link(now, LEASE, **options)
    [greeting] = frames(link.connected(now))
    link.frame_came(Frame(0, 0, heard=greeting.mark), now)
    return link


def test_messages_wait_until_the_peer_has_greeted() -> None:
    link = Link(0, LEASE)
    assert link.send(word(1), 0) == []
    assert plain(link.connected(5)) == [Frame(1, 0)]
    assert link.send(word(2), 6) == []
    assert plain(link.frame_came(Frame(0, 0), 7)) == [Frame(1, 0, word(1)), Frame(2, 0, word(2))]
    assert plain(link.send(word(3), 8)) == [Frame(3, 0, word(3))]


def test_an_acknowledgement_travels_with_the_next_frame() -> None:
    link = up()
    assert link.frame_came(Frame(1, 0, word(9)), 1) == [Deliver(word(9))]
    assert plain(link.send(word(1), 2)) == [Frame(1, 1, word(1))]


def test_an_acknowledgement_without_a_next_frame_is_sent_alone() -> None:
    link = up(ack_delay=50)
    link.frame_came(Frame(1, 0, word(9)), 10)
    assert link.next_wakeup() == 60
    assert link.wakeup(59) == []
    assert plain(link.wakeup(60)) == [Frame(0, 1)]


def test_many_messages_are_acknowledged_at_once() -> None:
    link = up()
    said = [each for n in range(1, ACK_EVERY + 1) for each in plain(link.frame_came(Frame(n, 0, word(n)), 1))]
    assert [each for each in said if isinstance(each, Frame)] == [Frame(0, ACK_EVERY)]


def test_a_gap_is_reported_once_and_the_peer_sends_again_from_there() -> None:
    link = up()
    assert plain(link.frame_came(Frame(2, 0, word(2)), 1)) == [Frame(0, 0, None, again=True)]
    assert link.frame_came(Frame(3, 0, word(3)), 1) == []
    peer = up()
    for number in (1, 2, 3):
        peer.send(word(number), 0)
    back = frames(peer.frame_came(Frame(0, 0, None, again=True), 2))
    assert [n for frame in back for n in delivered(link.frame_came(frame, 3))] == [1, 2, 3]


def test_a_silent_peer_is_gone_when_its_lease_ends() -> None:
    link = up()
    [bare] = frames(link.wakeup(250))
    link.frame_came(Frame(0, 0, heard=bare.mark), 400)
    assert not any(isinstance(command, LinkEnded) for command in link.wakeup(1399))
    [gone] = link.wakeup(1400)
    assert isinstance(gone, LinkEnded)
    assert gone.reason.startswith("nothing heard for")
    assert not gone.violation
    assert link.state == "gone"
    assert link.next_wakeup() is None
    assert link.wakeup(9999) == link.send(word(1), 9999) == link.frame_came(Frame(0, 0), 9999) == []
    link.disconnected(9999)
    with pytest.raises(Illegal):
        link.connected(9999)


def test_a_lease_runs_while_there_is_no_connection() -> None:
    link = Link(0, LEASE)
    assert link.next_wakeup() == LEASE
    assert isinstance(link.wakeup(LEASE)[0], LinkEnded)


def test_too_many_unacknowledged_messages_cause_back_pressure_and_then_the_end() -> None:
    link = up(window=2, limit=3)
    full = []
    link.send(word(1), 0)
    full.append(link.full)
    link.send(word(2), 0)
    full.append(link.full)
    link.frame_came(Frame(0, 1), 0)
    full.append(link.full)
    assert full == [False, True, False]
    link.send(word(3), 0)
    link.send(word(4), 0)
    assert link.send(word(5), 0) == [LinkEnded("3 messages are not acknowledged")]


@pytest.mark.parametrize(
    "frame", [Frame(0, 2), Frame(-1, 0), Frame(0, -1), Frame(0, 0, word(1))], ids=["ack", "seq", "neg", "zero"]
)
def test_an_invalid_frame_is_a_violation(frame: Frame) -> None:
    link = up()
    link.send(word(1), 0)
    [gone] = link.frame_came(frame, 1)
    assert isinstance(gone, LinkEnded)
    assert gone.violation


def test_a_peer_that_starts_anew_has_lost_its_end() -> None:
    for forgot in (Frame(0, 1), Frame(1, 0)):
        link = up()
        link.send(word(1), 0)
        link.frame_came(Frame(1, 1, word(1)), 0)
        link.connected(1)
        assert link.frame_came(forgot, 2) == [LinkEnded("the peer has lost its end of the link")]


@given(
    st.integers(1, LEASE // 4),
    st.lists(
        st.tuples(st.sampled_from(["send", "frame", "wakeup", "cut", "connect"]), st.integers(0, LEASE // 3)),
        max_size=12,
    ),
)
@example(LEASE // 4, [("wakeup", 250), ("wakeup", 250), ("wakeup", 250), ("frame", 50)])  # a frame that comes late
def test_a_wake_up_comes_earlier_only_if_the_link_says_that_it_may(
    ack_delay: int, steps: list[tuple[str, int]]
) -> None:
    """Whoever has set a timer need not ask again otherwise."""
    link, now, received = up(ack_delay=ack_delay), 0, 0
    timer = link.next_wakeup()
    for what, after in steps:
        now += after
        if link.state == "gone":
            return
        match what:
            case "send":
                link.send(word(1), now)
            case "frame":
                received += link.state in ("greeting", "up")
                link.frame_came(Frame(received, 0, word(9)), now)
            case "wakeup":
                link.wakeup(now)
            case "cut":
                link.disconnected(now)
            case _:
                link.connected(now)
        said, due = link.hastened, link.next_wakeup()
        assert said or due is None or timer is None or due >= timer, what
        timer = due
        assert not link.hastened


def test_every_state_but_the_last_has_a_way_out() -> None:
    states = {state for state, _ in MOVES} | set(MOVES.values())
    assert states == {"down", "greeting", "up", "gone"}
    assert all((state, "end") in MOVES for state in states - {"gone"})
    assert {MOVES[key] for key in MOVES if key[0] == "gone"} == {"gone"}


# --- an adversarial pipe -----------------------------------------------------------------------------------


class Pipe:
    """Two links with a connection that loses, doubles and swaps frames. It may break for one end before the other."""

    def __init__(self) -> None:
        self.now = 0
        self.links = [Link(0, LEASE), Link(0, LEASE)]
        self.connected = [False, False]
        self.wires: list[deque[Frame]] = [deque(), deque()]  # frames on their way to end 0, to end 1
        self.sent: list[list[int]] = [[], []]
        self.got: list[list[int]] = [[], []]

    def obey(self, end: int, commands: list[LinkCommand]) -> None:
        assert not any(isinstance(command, LinkEnded) for command in commands), commands
        self.got[end] += delivered(commands)
        if self.connected[end] and self.connected[1 - end]:
            self.wires[1 - end] += frames(commands)

    def send(self, end: int) -> None:
        self.sent[end].append(len(self.sent[end]))
        self.obey(end, self.links[end].send(word(self.sent[end][-1]), self.now))

    def carry(self, end: int) -> None:
        if self.wires[end] and self.connected[end]:
            self.obey(end, self.links[end].frame_came(self.wires[end].popleft(), self.now))

    def cut(self, end: int) -> None:
        if self.connected[end]:
            self.connected[end] = False
            self.obey(end, self.links[end].disconnected(self.now))
        self.wires[end].clear()

    def connect(self) -> None:
        for wire in self.wires:
            wire.clear()
        self.connected = [True, True]
        for end in (0, 1):
            self.obey(end, self.links[end].connected(self.now))

    def wait(self, nanoseconds: int) -> None:
        """Let time pass on a healthy pipe, so that leases hold. Each link gets its wake-ups."""
        until = self.now + nanoseconds
        self.drain()
        while (due := min(link.next_wakeup() or until for link in self.links)) <= until:
            self.now = due
            for end in (0, 1):
                self.obey(end, self.links[end].wakeup(self.now))
            self.drain()
        self.now = until

    def drain(self) -> None:
        while any(self.wires):
            self.carry(0)
            self.carry(1)


@examples(300)
@given(st.lists(st.tuples(st.sampled_from("sssccccldxbr"), st.integers(0, 1)), max_size=80))
def test_every_message_is_delivered_once_and_in_order(schedule: list[tuple[str, int]]) -> None:
    pipe = Pipe()
    for what, end in schedule:
        wire = pipe.wires[end]
        if what == "s":
            pipe.send(end)
        elif what == "c":
            pipe.carry(end)
        elif what == "l" and wire:
            wire.popleft()
        elif what == "d" and wire:
            wire.append(wire[0])
        elif what == "x" and wire:
            wire.rotate(1)
        elif what == "b":
            pipe.cut(end)
        elif what == "r":
            pipe.connect()
        assert pipe.got[end] == pipe.sent[1 - end][: len(pipe.got[end])]
    if not all(pipe.connected):
        pipe.connect()
    pipe.wait(3 * LEASE)
    assert pipe.got == [pipe.sent[1], pipe.sent[0]]
    assert not any(link._unacked for link in pipe.links)
