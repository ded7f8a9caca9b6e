"""An island's stream: messages are numbered, kept until seen, and taken once and in order, also in a new tree."""

import pytest
from msgspec.structs import replace

from core.fanout.relay import StreamReceiver
from core.fanout.stream import Stream
from core.fanout.tree import tree
from core.model import Illegal, spans
from core.model.spans import Spans
from core.protocol.messages import FreeStep, Ordered, Seat

ALL = ((0, 4),)


def append(stream: Stream, what: int, hosts: Spans = ALL) -> Ordered:
    return stream.append((), (), (FreeStep((what,)),), hosts, 0)


def payload(message: Ordered) -> int:
    step = message.steps[0]
    assert isinstance(step, FreeStep)
    (buffer,) = step.buffers
    assert isinstance(buffer, int)
    return buffer


def formed(members: Spans = ALL, fanout: int = 2) -> Stream:
    """Return a stream with roots 0 and 2; 1 is below 0, and 3 below 2."""
    stream = Stream(island=0)
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
    stream.seen(((0, 2),), 3)
    assert stream.backlog == 3
    stream.seen(((2, 4),), 2)
    assert stream.backlog == 1
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


def test_an_inlet_takes_the_next_message_on_its_path_and_says_why_it_refuses_others() -> None:
    stream, inlet = formed(), StreamReceiver()
    first, second = append(stream, 1), append(stream, 2)
    assert "before any seat" in inlet.refuses(first)
    inlet.take_seat(stream.seat(0))
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
