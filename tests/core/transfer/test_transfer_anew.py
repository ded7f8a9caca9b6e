"""Tests transfers over a link that is replaced by a new one: neither end waits for ever.

A peer that begins a new link from the same address is a restarted process, or the same process with a new end of the
link. The other end may have opened a transfer for the new process before it learns of the new link. The messages that
it sent then are lost with the old link.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import protocol as p
from core.link.endpoint import ConnectionDown, ConnectionUp, Endpoint, HangUp, Packet, PacketReceived, Write
from core.protocol.dataplane import Chunk, Grant, Landed, Offer, Spoilt
from core.transfer.transfer_machine import Transfer

T, SIZE, LEASE = 7, 40, 1000
SENDER, RECEIVER = 0, 1
SILENT = "hosts 0 and 1 lost each other: silent"
ANEW = "it began anew"


def opened_sender() -> Transfer:
    it = Transfer(SENDER, 400, 50)
    it.handle(p.OpenSend(T, (3,), ((RECEIVER, 0, SIZE),), None, ()), 0)
    return it


def opened_receiver() -> Transfer:
    it = Transfer(RECEIVER, 400, 50)
    it.handle(p.OpenRecv(T, T, (4,), ((SENDER, 0, SIZE),), False, ()), 0)
    return it


def messages_of(effects: list[p.Command]) -> list[Any]:
    return [effect.message if isinstance(effect, p.Send) else effect for effect in effects]


def test_a_send_to_a_receiver_that_restarted_is_offered_again() -> None:
    it = opened_sender()
    assert messages_of(it.handle(p.Disconnected(RECEIVER, ANEW, True), 0)) == [Offer(T, SENDER, RECEIVER, ((0, SIZE),))]
    assert messages_of(it.handle(p.MessageReceived(RECEIVER, Grant(T, SENDER, RECEIVER, SIZE)), 0)) == [
        Chunk(T, SENDER, RECEIVER, 0, 0, SIZE)
    ]
    assert messages_of(it.handle(p.MessageReceived(RECEIVER, Landed(T, SENDER, RECEIVER)), 0)) == [p.Sent(T)]


@pytest.mark.parametrize("anew", [False, True])
def test_a_sender_that_has_given_up_a_receiver_says_so_when_that_one_asks(anew: bool) -> None:
    it = opened_sender()
    it.handle(p.MessageReceived(RECEIVER, Grant(T, SENDER, RECEIVER, 10)), 0)
    assert messages_of(it.handle(p.Disconnected(RECEIVER, "silent", anew), 0)) == [p.Sent(T)]
    spoilt = Spoilt(T, SENDER, RECEIVER, p.Blame("host-lost", SILENT, host=RECEIVER))
    assert messages_of(it.handle(p.MessageReceived(RECEIVER, Grant(T, SENDER, RECEIVER, SIZE)), 0)) == [spoilt]
    assert messages_of(it.handle(p.MessageReceived(RECEIVER, Landed(T, SENDER, RECEIVER)), 0)) == []


def test_a_lost_receiver_does_not_affect_the_others() -> None:
    it = Transfer(SENDER, 400, 50)
    it.handle(p.OpenSend(T, (3,), ((1, 0, SIZE), (2, 1, SIZE)), None, ()), 0)
    it.handle(p.Disconnected(1, "silent"), 0)
    assert [type(word) for word in messages_of(it.handle(p.MessageReceived(1, Grant(T, SENDER, 1, SIZE)), 0))] == [
        Spoilt
    ]
    assert messages_of(it.handle(p.MessageReceived(1, Landed(T, SENDER, 1)), 0)) == []
    assert messages_of(it.handle(p.MessageReceived(2, Grant(T, SENDER, 2, SIZE)), 0)) == [
        Chunk(T, SENDER, 2, 1, 0, SIZE)
    ]
    assert messages_of(it.handle(p.MessageReceived(2, Landed(T, SENDER, 2)), 0)) == [p.Sent(T)]


def test_a_receiver_grants_again_to_a_sender_that_has_restarted() -> None:
    it = opened_receiver()
    assert messages_of(it.handle(p.Disconnected(SENDER, ANEW, True), 0)) == [Grant(T, SENDER, RECEIVER, SIZE)]
    done = messages_of(it.handle(p.MessageReceived(SENDER, Chunk(T, SENDER, RECEIVER, 0, 0, SIZE)), 0))
    assert done[-2:] == [Landed(T, SENDER, RECEIVER), p.Received(T, None)]


@pytest.mark.parametrize("anew", [False, True])
def test_a_half_sent_piece_is_lost_with_the_link(anew: bool) -> None:
    it = opened_receiver()
    it.handle(p.MessageReceived(SENDER, Chunk(T, SENDER, RECEIVER, 0, 0, 10)), 0)
    lost = p.Received(T, p.Blame("host-lost", SILENT, host=SENDER))
    assert messages_of(it.handle(p.Disconnected(SENDER, "silent", anew), 0)) == [lost]


class TransferEnd:
    """A transfer machine in its endpoint, with a clock of its own."""

    def __init__(self, me: int) -> None:
        self.me, self.now = me, 0
        self.transfer = Transfer(me, 400, 50)
        self.endpoint = Endpoint(self, me, me + 1, LEASE)
        self.out: deque[Packet] = deque()  # packets on their way to the other end
        self.open = False
        self.over = 0

    def handle(self, event: Any, now: int) -> list[p.Command]:
        if isinstance(event, p.Connected | p.Wakeup):
            return []
        effects = self.transfer.handle(event, now)
        self.over += sum(isinstance(effect, p.Sent | p.Received) for effect in effects)
        return effects

    def next_wakeup(self) -> int | None:
        return None

    def tell(self, event: Any) -> bool:
        """Give the endpoint an event. Return whether it has closed the connection."""
        effects = self.endpoint.handle(event, self.now)
        self.endpoint.next_wakeup()
        self.out.extend(effect.packet for effect in effects if isinstance(effect, Write))
        return any(isinstance(effect, HangUp) for effect in effects)

    def begin(self) -> bool:
        opened, self.open = self.open, True
        if opened:
            return False
        if self.me == SENDER:
            return self.tell(p.OpenSend(T, (3,), ((RECEIVER, 0, SIZE),), None, ()))
        return self.tell(p.OpenRecv(T, T, (4,), ((SENDER, 0, SIZE),), False, ()))


class Pair:
    def __init__(self) -> None:
        self.ends = (TransferEnd(SENDER), TransferEnd(RECEIVER))
        self.up = False

    def do(self, step: str, number: int) -> None:
        end, other = self.ends[number], self.ends[1 - number]
        if step == "connect" and not self.up:
            self.up = True
            for each, far in (self.ends, self.ends[::-1]):
                each.tell(ConnectionUp(far.me))
        elif step == "cut" and self.up:
            self.hang_up()
        elif step == "deliver" and end.out:
            packet = end.out.popleft()
            self.after(other.tell(PacketReceived(end.me, packet)) if self.up else False)
        elif step == "lease":  # only this end: the other end sees a silence
            end.now += LEASE
            self.after(end.tell(p.Wakeup()))
        elif step == "begin":
            self.after(end.begin())

    def after(self, hung: bool) -> None:
        if hung and self.up:
            self.hang_up()

    def hang_up(self) -> None:
        self.up = False
        for each, far in (self.ends, self.ends[::-1]):
            each.out.clear()
            each.tell(ConnectionDown(far.me))


STEPS = st.sampled_from(("deliver", "deliver", "connect", "cut", "lease", "begin"))


@given(st.lists(st.tuples(STEPS, st.integers(0, 1)), max_size=60))
def test_both_halves_end_whatever_becomes_of_their_link(steps: list[tuple[str, int]]) -> None:
    pair = Pair()
    for step, number in steps:
        pair.do(step, number)
    for _ in range(60):  # no more faults from here on
        for number in (0, 1):
            pair.do("begin", number)
            pair.do("connect", number)
            pair.do("deliver", number)
    assert [end.over for end in pair.ends] == [1, 1]
