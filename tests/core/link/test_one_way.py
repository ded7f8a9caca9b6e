"""Links of which one direction, or both, lose frames for a while, though their connection stays.

The lease holds both ways: an end that hears nothing for a lease gives up, and so does one that is not heard, although
it hears. An outage of half a lease does no harm, and none of this takes frames of its own.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

from hypothesis import example, given
from hypothesis import strategies as st

from core.link.link import ACK_EVERY, Deliver, Frame, Link, LinkCommand, LinkEnded, Transmit
from core.protocol import Chunk
from core.protocol.messages import Release
from tests.laws import examples

LEASE, IDLE, LATENCY = 1_000, 250, 3
Outage = tuple[int, int, int]  # the end whose frames are lost; from when, until when


class LossyPair:
    """Two links and one connection with a latency. `outages`: when the frames of which end are lost."""

    def __init__(self, outages: list[Outage]) -> None:
        self.outages = outages
        self.now = 0
        self.links = [Link(0, LEASE), Link(0, LEASE)]
        self.heard_at = [0, 0]  # when this end last received a frame
        self.reached_at = [0, 0]  # when this end sent the last frame that arrived
        self.ended: list[str | None] = [None, None]
        self.ended_at = [0, 0]
        self.got = [0, 0]
        self.bare = [0, 0]  # frames without a message that this end has sent
        self._wire: list[tuple[int, int, int, int, Frame]] = []  # arrival, order, receiver, when it was sent, frame
        self._order = count()
        for end in (0, 1):
            self.obey(end, self.links[end].connected(0))

    def obey(self, end: int, commands: list[LinkCommand]) -> None:
        for command in commands:
            match command:
                case Transmit(frame):
                    self.bare[end] += frame.message is None
                    if not any(who == end and begin <= self.now < over for who, begin, over in self.outages):
                        entry = (self.now + LATENCY, next(self._order), 1 - end, self.now, frame)
                        heappush(self._wire, entry)
                case Deliver():
                    self.got[end] += 1
                case LinkEnded(reason):
                    self.ended[end], self.ended_at[end] = reason, self.now

    def send(self, end: int) -> None:
        self.obey(end, self.links[end].send(Release((1,)), self.now))

    def until(self, when: int) -> None:
        while True:
            due = [(at, 1, end) for end in (0, 1) if (at := self.links[end].next_wakeup()) is not None]
            if self._wire:
                due.append((self._wire[0][0], 0, self._wire[0][2]))
            if not due or min(due)[0] > when:
                self.now = when
                return
            at, kind, end = min(due)
            self.now = max(self.now, at)
            if kind:
                self.obey(end, self.links[end].wakeup(self.now))
            else:
                _, _, _, sent_at, frame = heappop(self._wire)
                if self.ended[end] is None:
                    self.heard_at[end] = self.now
                    self.reached_at[1 - end] = sent_at
                self.obey(end, self.links[end].frame_came(frame, self.now))
            self.check()

    def check(self) -> None:
        """An end goes on only if it has heard something within the lease, and was heard within that, a heartbeat and
        the time that an acknowledgement takes."""
        for end in (0, 1):
            if self.ended[end] is None:
                assert self.now <= self.heard_at[end] + LEASE
                assert self.now <= self.reached_at[end] + LEASE + IDLE + 2 * LATENCY


TIMES = st.integers(0, 6 * LEASE)
OUTAGES = st.lists(st.tuples(st.integers(0, 1), TIMES, TIMES), max_size=12)
SENDS = st.lists(st.tuples(TIMES, st.integers(0, 1)), max_size=40)


# an acknowledgement half a lease late is old news
@example(outages=[(0, 1, 501), (1, 4, 1004)], sends=[(0, 1)])
@examples(200)
@given(OUTAGES, SENDS)
def test_law_an_end_that_hears_nothing_or_is_not_heard_ends_in_time(
    outages: list[Outage], sends: list[tuple[int, int]]
) -> None:
    pair = LossyPair(outages)
    for at, end in sorted(sends):
        pair.until(at)
        pair.send(end)
    pair.until(9 * LEASE)


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, LEASE), st.integers(1, LEASE // 2)), max_size=5), SENDS)
def test_law_an_outage_of_half_a_lease_ends_nothing_and_loses_nothing(
    drawn: list[tuple[int, int, int]], sends: list[tuple[int, int]]
) -> None:
    outages: list[Outage] = []
    over = IDLE
    for who, calm, length in drawn:  # who: one end, or both
        begin = over + LEASE + calm
        over = begin + length
        outages += [(end, begin, over) for end in ((who,) if who < 2 else (0, 1))]
    pair = LossyPair(outages)
    for at, end in sorted(sends):
        pair.until(at)
        pair.send(end)
    pair.until(over + 9 * LEASE)
    assert pair.ended == [None, None]
    assert pair.got == [sum(end == who for _, end in sends) for who in (1, 0)]


def test_an_end_that_sends_into_a_void_learns_of_it_although_it_hears() -> None:
    for mute in (0, 1):
        pair = LossyPair([(mute, 5 * IDLE + 7, 10**9)])
        pair.until(20 * LEASE)
        assert (pair.ended[1 - mute] or "").startswith("nothing heard for")
        assert pair.ended[mute] == "nothing that was sent arrived for 1.25e-06 s"
        assert max(pair.ended_at) <= 5 * IDLE + 7 + LEASE + IDLE


def test_contents_on_a_slow_network_take_longer_than_a_lease_and_end_nothing() -> None:
    """A hundred chunks leave at once, and one arrives each tenth of a lease; marks and acknowledgements of their sender
    wait behind them."""
    sender, receiver = Link(0, LEASE), Link(0, LEASE)
    greetings = [link.connected(0)[0] for link in (sender, receiver)]
    for link, greeting in zip((receiver, sender), greetings, strict=True):
        assert isinstance(greeting, Transmit)
        link.frame_came(greeting.frame, 1)
    wire = [
        each.frame for n in range(100) for each in sender.send(Chunk(1, 0, 1, 0, n, 1), 2) if isinstance(each, Transmit)
    ]
    for at in range(2, 10 * LEASE, IDLE // 5):
        if at % (LEASE // 10) < IDLE // 5 and wire:
            receiver.frame_came(wire.pop(0), at)
        wire += [each.frame for each in sender.wakeup(at) if isinstance(each, Transmit)]
        for said in receiver.wakeup(at):
            assert isinstance(said, Transmit)
            sender.frame_came(said.frame, at)
        assert (sender.state, receiver.state) == ("up", "up"), at
    assert receiver._received > 90


def test_a_process_that_stood_still_says_at_once_that_it_hears() -> None:
    pair = LossyPair([])
    pair.until(LEASE)
    stopped = pair.links[1]
    pair.until(pair.now + 1)
    stopped.excuse(LEASE // 2, pair.now)
    stopped.frame_came(Frame(0, 0, mark=3, heard=stopped._mark), pair.now)
    assert stopped.next_wakeup() == pair.now
    [said] = stopped.wakeup(pair.now)
    assert isinstance(said, Transmit)
    assert said.frame.heard == 3


def test_the_frames_of_a_quiet_link_are_one_each_quarter_of_a_lease() -> None:
    pair = LossyPair([])
    pair.until(10 * LEASE)
    assert pair.ended == [None, None]
    assert all(40 <= bare <= 42 for bare in pair.bare)


def test_a_busy_link_carries_no_frames_besides_its_messages() -> None:
    pair = LossyPair([])
    for at in range(10, 10 * LEASE, 10):
        pair.until(at)
        pair.send(0)
        pair.send(1)
    pair.until(10 * LEASE)
    assert pair.bare == [1, 1]  # the greetings
    assert pair.got == [999, 999]


def test_one_who_only_listens_acknowledges_and_nothing_more() -> None:
    pair = LossyPair([])
    number = 10 * LEASE
    for at in range(1, number):
        pair.until(at)
        pair.send(0)
    assert pair.bare[0] == 1
    assert pair.bare[1] <= 2 + number // ACK_EVERY
