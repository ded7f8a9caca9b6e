"""An island's stream: messages are numbered, kept until seen, and taken once and in order, also in a new tree."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from core.fanout.relay import StreamReceiver
from core.fanout.stream import Stream
from core.fanout.tree import tree
from core.model import Illegal, spans
from core.model.spans import Spans
from core.protocol.messages import FreeStep, Ordered, Seat
from tests.laws import examples

ALL = ((0, 4),)


def append(stream: Stream, what: int, hosts: Spans = ALL) -> Ordered:
    return stream.append((), (), (FreeStep((what,)),), hosts, 0)


def payload(message: Ordered) -> int:
    step = message.steps[0]
    assert isinstance(step, FreeStep)
    (buffer,) = step.buffers
    assert isinstance(buffer, int)
    return buffer


def is_full(stream: Stream) -> bool:
    return len(stream.log) >= stream.limit


def formed(members: Spans = ALL, fanout: int = 2) -> Stream:
    """Return a stream with roots 0 and 2; 1 is below 0, and 3 below 2."""
    stream = Stream(island=0, limit=3)
    stream.refence(1, 1, tree(members, fanout))
    for host in spans.items(members):
        assert stream.rejoin(host, 0) == ()
    return stream


def test_messages_are_numbered_and_go_to_the_roots_above_their_hosts() -> None:
    stream = formed()
    first, second = append(stream, 10), append(stream, 11, ((3, 4),))
    assert (first.number, first.epoch, first.tree) == (1, 1, 1)
    assert second.number == 2
    assert stream.targets(first.hosts) == (0, 2)
    assert stream.targets(second.hosts) == (2,)


def test_the_log_keeps_messages_that_some_host_may_not_have_seen() -> None:
    stream = formed()
    for what in range(3):
        append(stream, what)
    assert stream.backlog == 3
    assert is_full(stream)
    stream.seen(((0, 2),), 3)
    assert stream.backlog == 3
    stream.seen(((2, 4),), 2)
    assert stream.backlog == 1
    assert not is_full(stream)
    stream.seen(((2, 4),), 3)
    assert stream.backlog == 0


def test_a_beat_for_all_counts_for_every_root_and_one_for_part_of_a_subtree_for_none() -> None:
    stream = formed()
    append(stream, 1)
    stream.seen(((0, 1),), 1)
    stream.seen(((2, 3),), 1)
    assert stream.backlog == 1
    stream.seen(ALL, 1)
    assert stream.backlog == 0


def test_a_subtree_without_new_messages_holds_nothing_back() -> None:
    stream = formed()
    append(stream, 1, ((0, 1),))
    append(stream, 2, ((1, 2),))
    stream.seen(((0, 2),), 2)  # hosts 2 and 3 have still seen 0
    assert stream.backlog == 0


def test_no_message_is_written_while_a_tree_forms() -> None:
    stream = formed()
    stream.refence(1, 2, tree(ALL, 4))
    message = append(stream, 1)
    assert stream.targets(message.hosts) == ()
    stream.rejoin(1, 0)
    assert stream.missing == ((0, 1), (2, 4))
    stream.rejoin(0, 0)
    stream.rejoin(2, 0)
    again = stream.rejoin(3, 0)
    assert not stream.forming
    assert stream.missing == spans.EMPTY
    assert [payload(sent) for sent in again] == [1]
    assert again[0].tree == 2
    assert stream.targets(again[0].hosts) == (0, 1, 2, 3)


def test_messages_that_hosts_lack_are_sent_again_to_them_in_order_under_new_numbers() -> None:
    stream = formed()
    for what in (1, 2, 3):
        append(stream, what)
    stream.refence(1, 2, tree(ALL, 4))
    late = append(stream, 4)
    for host, last in enumerate((3, 1, 3)):
        stream.rejoin(host, last)
    again = stream.rejoin(3, 2)
    assert [(payload(sent), sent.hosts) for sent in again] == [(2, ((1, 2),)), (3, ((1, 2), (3, 4))), (4, ALL)]
    assert [sent.number for sent in again] == [5, 6, 7]
    assert late.number < 5


def test_messages_for_lost_hosts_are_dropped() -> None:
    stream = formed()
    append(stream, 1, ((3, 4),))
    stream.refence(2, 3, tree(((0, 3),), 4))
    assert [stream.rejoin(host, 0) for host in range(3)] == [(), (), ()]
    assert stream.backlog == 0
    assert stream.rejoin(3, 0) == ()


def test_an_island_without_members_forms_at_once() -> None:
    stream = formed()
    append(stream, 1)
    stream.refence(2, 3, tree((), 4))
    assert not stream.forming
    assert stream.backlog == 0


def seat_for(host: int, stream: Stream) -> Seat:
    return stream.seat(host)


def test_an_inlet_takes_the_next_message_on_its_path_and_says_why_it_refuses_others() -> None:
    stream, inlet = formed(), StreamReceiver()
    first, second = append(stream, 1), append(stream, 2)
    assert "before any seat" in inlet.refuses(first)
    inlet.take_seat(seat_for(0, stream))
    assert inlet.refuses(first) == ""
    assert inlet.refuses(second) == ""
    assert "not above 2" in inlet.refuses(first)
    assert "not above 2" in inlet.refuses(second)
    assert "epoch 0" in inlet.refuses(replace(second, number=9, epoch=0))
    assert "tree 7" in inlet.refuses(replace(second, number=9, tree=7))
    assert "island 5" in inlet.refuses(replace(second, number=9, island=5))
    assert (inlet.seen, inlet.last) == (2, 2)


def test_a_seat_refuses_the_old_path_but_keeps_what_was_seen() -> None:
    stream, inlet = formed(), StreamReceiver()
    first, second = append(stream, 1), append(stream, 2)
    assert inlet.take_seat(Seat(0, 1, 1, 0, -1, (), ALL, 0)) == 0
    assert inlet.refuses(first) == ""
    assert inlet.take_seat(Seat(0, 1, 2, 0, -1, (), ALL, 2)) == 1
    assert "tree 1" in inlet.refuses(second)
    assert "not above 2" in inlet.refuses(replace(second, tree=2))
    assert (
        inlet.take_seat(Seat(0, 1, 3, 0, -1, (), ALL, 2)) == 1
    )  # a seat is not a message: the host has still not seen 2


def test_a_new_host_gets_no_messages_from_before() -> None:
    assert StreamReceiver().take_seat(Seat(0, 1, 2, 0, -1, (), ALL, 17)) == 17


# --- a whole island ---------------------------------------------------------------------------------------


class Island:
    """A stream and its hosts, with FIFO pipes between them. Old pipes go on delivering."""

    def __init__(self, hosts: int) -> None:
        self.stream = Stream(0)
        self.inlets = {host: StreamReceiver() for host in range(hosts)}
        self.pipes: dict[tuple[int, int], deque[Ordered | Seat]] = {}
        self.taken: dict[int, list[int]] = {host: [] for host in range(hosts)}
        self.owed: dict[int, list[int]] = {host: [] for host in range(hosts)}
        self.said = 0
        self.trees = 0

    def write(self, sender: int, host: int, message: Ordered | Seat) -> None:
        self.pipes.setdefault((sender, host), deque()).append(message)

    def say(self, hosts: Spans) -> None:
        self.said += 1
        for host in spans.items(hosts):
            self.owed[host].append(self.said)
        message = append(self.stream, self.said, hosts)
        for root in self.stream.targets(hosts):
            self.write(-1, root, message)

    def plant(self, fanout: int) -> None:
        self.trees += 1
        self.stream.refence(1, self.trees, tree(spans.of(self.inlets), fanout))
        for host in self.inlets:
            self.write(-1, host, self.stream.seat(host))

    def step(self, at: int) -> None:
        """Deliver one message of one of the pipes that have any."""
        full = [pair for pair, pipe in self.pipes.items() if pipe]
        if not full:
            return
        sender, host = full[at % len(full)]
        message, inlet = self.pipes[sender, host].popleft(), self.inlets[host]
        if isinstance(message, Seat):
            seen = inlet.take_seat(message)
            if message.tree == self.stream.tree:
                for again in self.stream.rejoin(host, seen):
                    for root in self.stream.targets(again.hosts):
                        self.write(-1, root, again)
        elif not inlet.refuses(message) and inlet.seat is not None:
            if spans.contains(message.hosts, host):
                self.taken[host].append(payload(message))
            for child, below in inlet.seat.children:
                if spans.overlap(below, message.hosts):
                    self.write(host, child, message)

    def run(self) -> None:
        while any(self.pipes.values()):
            self.step(0)


@examples(70)
@given(st.integers(1, 9), st.data())
def test_every_host_takes_each_message_for_it_once_and_in_order_whatever_the_trees(
    hosts: int, data: st.DataObject
) -> None:
    island = Island(hosts)
    island.plant(2)
    for _ in range(data.draw(st.integers(1, 60))):
        what = data.draw(st.sampled_from(("say", "step", "step", "step", "plant")))
        if what == "say":
            island.say(spans.of(data.draw(st.sets(st.integers(0, hosts - 1), min_size=1))))
        elif what == "plant":
            island.plant(data.draw(st.integers(1, 4)))
        else:
            island.step(data.draw(st.integers(0, 20)))
    island.run()
    assert island.taken == island.owed
    for root in island.stream.shape.roots:
        island.stream.seen(island.stream.shape.below(root), island.stream.number)
    assert island.stream.backlog == 0


def test_the_same_hosts_can_be_written_to_through_other_roots() -> None:
    """What the one root before had not seen, is kept until the roots that have those hosts now have seen it."""
    stream = formed(fanout=1)
    append(stream, 10)
    last = append(stream, 11, ((2, 4),))
    stream.reshape(tree(ALL, 2))
    assert stream.targets(ALL) == (0, 2)
    assert append(stream, 12, ((3, 4),)).tree == last.tree
    stream.seen(((0, 2),), 1)
    assert stream.backlog == 3
    stream.seen(((2, 4),), 3)
    assert stream.backlog == 0


def test_other_hosts_need_new_seats() -> None:
    stream = formed()
    with pytest.raises(Illegal, match="another shape"):
        stream.reshape(tree(((0, 3),), 2))
    stream.refence(1, 2, tree(ALL, 2))
    with pytest.raises(Illegal, match="while it stands"):
        stream.reshape(tree(ALL, 1))
