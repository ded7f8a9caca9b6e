"""Tests the transfer machine: chunks travel on credit, each byte once, and each half that opens ends exactly once."""

import pytest

from core import protocol as p
from core.model.errors import Illegal
from core.protocol.dataplane import Chunk, Grant, Landed, Offer, Spoilt
from core.transfer.credits import Pool, SendAllowance
from core.transfer.pending import REMEMBERED
from core.transfer.transfer_machine import Transfer

BOOM = p.Blame("user", "boom", host=1)
T = 7  # a transfer


def machine(me: int = 0, pool: int = 400, chunk: int = 50, early: int = 8) -> Transfer:
    """Return a machine with a reserve of 100 bytes, early credits of 100 for each lane, and a window of 100."""
    return Transfer(me, pool, chunk, early)


def to(peer: int, *messages: Grant | Offer | Chunk | Spoilt | Landed) -> list[p.Command]:
    return [p.Send((peer,), message) for message in messages]


def receive(it: Transfer, peer: int, message: object) -> list[p.Command]:
    assert isinstance(message, Grant | Offer | Chunk | Spoilt | Landed | p.Heartbeat)
    return it.handle(p.MessageReceived(peer, message), 0)


def open_send(it: Transfer, *pieces: tuple[int, int, int], blame: p.Blame | None = None) -> list[p.Command]:
    return it.handle(p.OpenSend(T, (3,), pieces, blame, ()), 0)


def open_recv(
    it: Transfer, *pieces: tuple[int, int, int], transfer: int = T, seq: int = T, sparse: bool = False
) -> list[p.Command]:
    return it.handle(p.OpenRecv(transfer, seq, (4,), pieces, sparse, ()), 0)


def expect(it: Transfer, pieces: int) -> list[p.Command]:
    return it.handle(p.ExpectRecv(T, pieces, ()), 0)


def drop(it: Transfer) -> list[p.Command]:
    return it.handle(p.DropTransfer(T, BOOM, ()), 0)


def is_close(effects: list[p.Command], peer: int) -> bool:
    return len(effects) == 1 and isinstance(effects[0], p.Close) and effects[0].peer == peer


# --- sending ----------------------------------------------------------------------------------------------


def test_a_sender_with_contents_and_no_credits_offers_them() -> None:
    it = machine()
    assert open_send(it, (1, 0, 70), (1, 1, 0), (2, 2, 5)) == to(1, Offer(T, 0, 1, ((0, 70), (1, 0)))) + to(
        2, Offer(T, 0, 2, ((2, 5),))
    )


def test_a_sender_sends_only_what_is_granted_in_chunks() -> None:
    it = machine()
    open_send(it, (1, 0, 70), (1, 1, 0), (1, 2, 30))
    assert receive(it, 1, Grant(T, 0, 1, 60)) == to(1, Chunk(T, 0, 1, 0, 0, 50), Chunk(T, 0, 1, 0, 50, 10))
    assert receive(it, 1, Grant(T, 0, 1, 15)) == to(
        1, Chunk(T, 0, 1, 0, 60, 10), Chunk(T, 0, 1, 1, 0, 0), Chunk(T, 0, 1, 2, 0, 5)
    )


def test_early_credits_are_used_at_once_and_no_offer_is_needed() -> None:
    it = machine()
    assert receive(it, 1, Grant(T, 0, 1, 50)) == []
    assert open_send(it, (1, 0, 60)) == to(1, Chunk(T, 0, 1, 0, 0, 50))


def test_the_source_is_held_until_all_have_landed() -> None:
    it = machine()
    open_send(it, (1, 0, 10), (2, 1, 10))
    receive(it, 1, Grant(T, 0, 1, 10))
    receive(it, 2, Grant(T, 0, 2, 10))
    assert receive(it, 2, Landed(T, 0, 2)) == []
    assert receive(it, 1, Landed(T, 0, 1)) == [p.Sent(T)]


def test_a_poisoned_source_tells_all_receivers_and_is_not_held() -> None:
    it = machine()
    assert open_send(it, (1, 0, 10), (2, 1, 10), (2, 2, 10), blame=BOOM) == [
        *to(1, Spoilt(T, 0, 1, BOOM)),
        *to(2, Spoilt(T, 0, 2, BOOM)),
        p.Sent(T),
    ]
    assert receive(it, 1, Grant(T, 0, 1, 10)) == []


def test_a_send_of_nothing_is_sent_at_once() -> None:
    assert open_send(machine()) == [p.Sent(T)]


def test_a_receiver_that_drops_the_transfer_early_gets_no_more() -> None:
    it = machine()
    open_send(it, (1, 0, 100))
    assert receive(it, 1, Landed(T, 0, 1)) == [p.Sent(T)]
    assert receive(it, 1, Grant(T, 0, 1, 100)) == []
    other = machine()
    receive(other, 1, Landed(T, 0, 1))
    assert open_send(other, (1, 0, 100)) == [p.Sent(T)]


def test_a_receiver_may_confirm_twice_if_our_offer_was_under_way() -> None:
    sender, receiver = machine(0), machine(1)
    offers = open_send(sender, (1, 0, 70), (2, 1, 5))
    open_recv(receiver, (0, 0, 70))
    let_go, ended = drop(receiver)
    assert [let_go] == to(0, Landed(T, 0, 1))
    assert ended == p.Received(T, BOOM)
    assert receive(receiver, 0, offers[0].message) == [let_go]  # type: ignore[attr-defined]
    assert receive(sender, 1, Landed(T, 0, 1)) == []
    assert receive(sender, 1, Landed(T, 0, 1)) == []
    assert receive(sender, 2, Landed(T, 0, 2)) == [p.Sent(T)]
    assert receive(sender, 1, Landed(T, 0, 1)) == []
    assert not sender._sending._through


def test_a_dropped_send_spoils_receivers_that_have_not_been_sent_all() -> None:
    it = machine()
    open_send(it, (1, 0, 10), (2, 1, 10))
    receive(it, 1, Grant(T, 0, 1, 10))
    assert drop(it) == [*to(2, Spoilt(T, 0, 2, BOOM)), p.Sent(T)]
    assert receive(it, 1, Landed(T, 0, 1)) == []
    other = machine()
    assert drop(other) == []
    assert open_send(other, (1, 0, 10)) == [*to(1, Spoilt(T, 0, 1, BOOM)), p.Sent(T)]


# --- receiving --------------------------------------------------------------------------------------------


def test_credits_are_granted_before_the_source_exists_so_that_data_flow_at_once() -> None:
    it = machine()
    assert open_recv(it, (1, 0, 70), (2, 1, 500)) == to(1, Grant(T, 1, 0, 70)) + to(2, Grant(T, 2, 0, 100))
    assert receive(it, 2, Chunk(T, 2, 0, 1, 0, 50)) == [p.Fill(Chunk(T, 2, 0, 1, 0, 50)), *to(2, Grant(T, 2, 0, 50))]


def test_a_sender_has_landed_with_its_last_byte_and_the_transfer_when_all_senders_have() -> None:
    it = machine()
    open_recv(it, (1, 0, 50), (1, 1, 0), (2, 2, 10))
    receive(it, 1, Chunk(T, 1, 0, 1, 0, 0))
    assert receive(it, 1, Chunk(T, 1, 0, 0, 0, 50))[1:] == to(1, Landed(T, 1, 0))
    assert receive(it, 2, Chunk(T, 2, 0, 2, 0, 10))[1:] == [*to(2, Landed(T, 2, 0)), p.Received(T)]
    assert it.pool.out == 0


def test_a_spoilt_sender_spoils_the_transfer_when_the_others_are_over_and_the_lowest_is_blamed() -> None:
    other = p.Blame("user", "other", host=2)
    for first, second in ((1, 2), (2, 1)):
        it = machine()
        open_recv(it, (1, 0, 50), (2, 1, 50), (3, 2, 50))
        assert receive(it, first, Spoilt(T, first, 0, BOOM if first == 1 else other)) == []
        assert receive(it, 3, Chunk(T, 3, 0, 2, 0, 50))[1:] == to(3, Landed(T, 3, 0))
        last = receive(it, second, Spoilt(T, second, 0, BOOM if second == 1 else other))
        assert last == [p.Received(T, BOOM)]
        assert it.pool.out == 0


def test_a_dropped_receive_ends_and_its_senders_may_release_their_sources() -> None:
    it = machine()
    open_recv(it, (1, 0, 50))
    assert drop(it) == [*to(1, Landed(T, 1, 0)), p.Received(T, BOOM)]
    assert it.pool.out == 0
    assert receive(it, 1, Chunk(T, 1, 0, 0, 0, 50)) == []
    assert receive(it, 1, Spoilt(T, 1, 0, BOOM)) == []
    assert receive(it, 1, Offer(T, 1, 0, ((0, 50),))) == to(1, Landed(T, 1, 0))
    assert drop(it) == []


# --- sparse -----------------------------------------------------------------------------------------------


def test_a_sparse_receiver_learns_of_senders_by_their_offers_and_of_the_end_by_a_count() -> None:
    it = machine()
    assert open_recv(it, sparse=True) == []
    assert receive(it, 5, Offer(T, 5, 0, ((9, 10), (8, 0)))) == to(5, Grant(T, 5, 0, 10))
    receive(it, 5, Chunk(T, 5, 0, 9, 0, 10))
    assert receive(it, 5, Chunk(T, 5, 0, 8, 0, 0))[1:] == to(5, Landed(T, 5, 0))
    assert expect(it, 3) == []
    receive(it, 6, Offer(T, 6, 0, ((1, 20),)))
    assert receive(it, 6, Chunk(T, 6, 0, 1, 0, 20))[1:] == [*to(6, Landed(T, 6, 0)), p.Received(T)]


def test_a_spoilt_sparse_exchange_ends_at_once_and_releases_all_others() -> None:
    it = machine()
    open_recv(it, sparse=True)
    receive(it, 5, Offer(T, 5, 0, ((9, 10),)))
    assert receive(it, 6, Spoilt(T, 6, 0, BOOM)) == [*to(5, Landed(T, 5, 0)), p.Received(T, BOOM)]
    assert receive(it, 8, Offer(T, 8, 0, ((1, 10),))) == to(8, Landed(T, 8, 0))
    early = machine()
    receive(early, 6, Spoilt(T, 6, 0, BOOM))
    receive(early, 8, Offer(T, 8, 0, ((1, 10),)))
    assert open_recv(early, sparse=True) == [p.Received(T, BOOM), *to(8, Landed(T, 8, 0))]


def test_more_pieces_offered_than_counted_is_an_error() -> None:
    it = machine()
    open_recv(it, sparse=True)
    receive(it, 5, Offer(T, 5, 0, ((9, 10), (8, 10))))
    [landed, received] = expect(it, 1)
    assert landed == to(5, Landed(T, 5, 0))[0]
    assert isinstance(received, p.Received)
    assert received.blame is not None
    assert received.blame.code == "protocol"
    other = machine()
    open_recv(other, sparse=True)
    expect(other, 1)
    assert is_close(receive(other, 5, Offer(T, 5, 0, ((9, 10), (8, 10)))), 5)


# --- credits ----------------------------------------------------------------------------------------------


def test_credits_are_granted_in_the_global_order() -> None:
    it = machine()
    for transfer in (9, 8, 7):
        open_recv(it, (1, 0, 1000), transfer=transfer, seq=transfer)
        receive(it, 1, Offer(transfer, 1, 0, ((0, 1000),)))
    assert open_recv(it, (2, 0, 1000), transfer=6, seq=6) == to(2, Grant(6, 2, 0, 100))
    assert open_recv(it, (3, 0, 1000), transfer=5, seq=5) == []
    assert it.pool.out == 400
    assert receive(it, 1, Chunk(9, 1, 0, 0, 0, 50))[1:] == to(3, Grant(5, 3, 0, 50))
    assert receive(it, 1, Chunk(9, 1, 0, 0, 50, 50))[1:] == to(1, Grant(9, 1, 0, 50))
    assert receive(it, 1, Chunk(8, 1, 0, 0, 0, 50))[1:] == to(1, Grant(8, 1, 0, 50))


def test_what_is_short_is_granted_at_once() -> None:
    """It does not wait for long contents, nor they for it."""
    it = machine()
    for transfer in (1, 2, 3, 4):
        open_recv(it, (1, 0, 1000), transfer=transfer, seq=transfer)
        receive(it, 1, Offer(transfer, 1, 0, ((0, 1000),)))
    assert it.pool.out == 400  # all there is
    for transfer in range(9, 20):
        assert open_recv(it, (2, 0, 100), transfer=transfer, seq=transfer) == to(2, Grant(transfer, 2, 0, 100))
    assert open_recv(it, (2, 0, 101), transfer=20, seq=20) == []  # too long: it waits with the others
    assert it.pool.out == 400
    assert receive(it, 2, Chunk(9, 2, 0, 0, 0, 50))[1:] == []
    assert receive(it, 2, Chunk(9, 2, 0, 0, 50, 50))[1:] == [*to(2, Landed(9, 2, 0)), p.Received(9, None)]
    assert it.pool.out == 400


def test_what_all_senders_send_counts_together() -> None:
    it = machine()
    assert open_recv(it, (1, 0, 60), (2, 1, 40)) == [*to(1, Grant(T, 1, 0, 60)), *to(2, Grant(T, 2, 0, 40))]
    open_recv(it, *[(host, host, 60) for host in range(9)], transfer=8, seq=8)
    assert it.pool.out == 300  # the reserve is left


def test_a_sparse_exchange_is_never_short() -> None:
    it = machine()
    open_recv(it, sparse=True)
    receive(it, 5, Offer(T, 5, 0, ((9, 10),)))
    assert it.pool.out == 10


def test_a_lane_that_is_not_ready_never_holds_the_reserve() -> None:
    it = machine()
    granted = [
        effect for transfer in range(1, 9) for effect in open_recv(it, (1, 0, 500), transfer=transfer, seq=transfer)
    ]
    assert granted == [*to(1, *(Grant(transfer, 1, 0, 100) for transfer in (1, 2, 3)))]
    assert receive(it, 1, Offer(8, 1, 0, ((0, 500),))) == to(1, Grant(8, 1, 0, 100))
    assert it.pool.out == 400


def test_early_credits_are_granted_in_the_global_order_and_freed_when_a_source_is_ready() -> None:
    it = machine()
    for transfer in (1, 2, 3, 9, 8):
        open_recv(it, (1, 0, 150), transfer=transfer, seq=transfer)
    assert it.pool.out == 300
    assert receive(it, 1, Offer(2, 1, 0, ((0, 150),))) == to(1, Grant(8, 1, 0, 100))
    # early lanes hold 300 again, so nothing is granted to another
    assert receive(it, 1, Chunk(2, 1, 0, 0, 0, 50))[1:] == to(1, Grant(2, 1, 0, 50))
    assert receive(it, 1, Chunk(2, 1, 0, 0, 50, 50))[1:] == []
    assert receive(it, 1, Offer(1, 1, 0, ((0, 150),))) == to(1, Grant(9, 1, 0, 50))


def test_a_ready_lane_has_a_window() -> None:
    pool = Pool(1000, 50)
    lane = SendAllowance(1, 1, 1, 5000)
    lane.ready = True
    pool.add(lane)
    assert pool.grant() == [(lane, 250)]
    pool.arrived(lane, 30)
    assert pool.grant() == []
    pool.arrived(lane, 20)
    assert pool.grant() == [(lane, 50)]


def test_a_pool_holds_two_chunks_at_least() -> None:
    with pytest.raises(Illegal):
        Transfer(0, pool=99, chunk=50)


# --- invalid messages -------------------------------------------------------------------------------------


def receiving() -> Transfer:
    it = machine()
    open_recv(it, (1, 0, 120), (1, 1, 0))
    receive(it, 1, Chunk(T, 1, 0, 0, 0, 20))
    return it


@pytest.mark.parametrize(
    "word",
    [
        Chunk(T, 1, 0, 0, 0, 20),  # again
        Chunk(T, 1, 0, 0, 30, 20),  # a gap
        Chunk(T, 1, 0, 0, 20, 101),  # more than is granted
        Chunk(T, 1, 0, 0, 20, 0),  # nothing
        Chunk(T, 1, 0, 0, 20, -5),
        Chunk(T, 1, 0, 1, 0, 5),  # more than there is
        Chunk(T, 1, 0, 2, 0, 5),  # no such piece
        Chunk(99, 1, 0, 0, 0, 5),  # no such transfer
        Chunk(T, 2, 0, 0, 20, 20),  # in the name of another sender
        Chunk(T, 1, 3, 0, 20, 20),  # to another receiver
        Offer(T, 1, 0, ((0, 119),)),  # not the expected sizes
        p.Heartbeat((), 0),
    ],
    ids=str,
)
def test_a_sender_that_breaks_the_protocol_is_closed(word: object) -> None:
    assert is_close(receive(receiving(), 1, word), 1)


def test_a_sender_that_has_no_part_in_the_transfer_is_closed() -> None:
    for word in (Chunk(T, 2, 0, 0, 20, 20), Spoilt(T, 2, 0, BOOM), Offer(T, 2, 0, ((0, 20),))):
        assert is_close(receive(receiving(), 2, word), 2)


@pytest.mark.parametrize("word", [Grant(T, 0, 1, 101), Grant(T, 0, 1, -1), Grant(T, 0, 2, 1)], ids=str)
def test_a_receiver_that_breaks_the_protocol_is_closed(word: Grant) -> None:
    it = machine()
    open_send(it, (1, 0, 100))
    assert is_close(receive(it, 1, word), 1)


def test_a_receiver_that_has_no_pieces_is_closed() -> None:
    it = machine()
    open_send(it, (1, 0, 100))
    for word in (Grant(T, 0, 2, 1), Landed(T, 0, 2)):
        assert is_close(receive(it, 2, word), 2)
    assert is_close(receive(it, 1, Grant(T, 0, 1, 101)), 1)


def test_a_sparse_sender_offers_once_and_never_nothing() -> None:
    it = machine()
    open_recv(it, sparse=True)
    receive(it, 5, Offer(T, 5, 0, ((9, 10),)))
    for pieces in ((), ((1, 1),), ((2, 2), (2, 3)), ((1, -1),)):
        assert is_close(receive(it, 5, Offer(T, 5, 0, pieces)), 5)


def test_early_messages_are_bounded_for_each_peer() -> None:
    it = machine()
    for transfer in range(8):
        assert receive(it, 1, Grant(transfer, 0, 1, 5)) == []
        assert receive(it, 1, Offer(transfer, 1, 0, ((0, 5),))) == []
    assert is_close(receive(it, 1, Grant(8, 0, 1, 5)), 1)
    assert is_close(receive(it, 1, Spoilt(8, 1, 0, BOOM)), 1)
    assert receive(it, 2, Grant(8, 0, 2, 5)) == []
    it.handle(p.OpenRecv(0, 0, (4,), ((1, 0, 5),), False, ()), 0)
    assert receive(it, 1, Spoilt(8, 1, 0, BOOM)) == []  # one message has been used, so there is room for another
    it.handle(p.Disconnected(1), 0)
    assert receive(it, 1, Grant(8, 0, 1, 5)) == []


def test_an_error_of_the_local_caller_is_raised_and_changes_nothing() -> None:
    it = machine()
    open_send(it, (1, 0, 10))
    open_recv(it, (1, 0, 10))
    for wrong in (p.OpenSend(T, (3,), (), None, ()), p.OpenRecv(T, 7, (4,), (), False, ()), p.Finished(1)):
        with pytest.raises(Illegal):
            it.handle(wrong, 0)
    with pytest.raises(Illegal):
        open_recv(it, (1, 0, 10), (1, 0, 10), transfer=8)
    assert receive(it, 1, Chunk(T, 1, 0, 0, 0, 10))[-1] == p.Received(T)
    with pytest.raises(Illegal):
        open_recv(it, (1, 0, 10))


def test_only_the_last_ends_are_remembered() -> None:
    it = machine()
    for transfer in range(REMEMBERED + 10):
        it.handle(p.OpenRecv(transfer, transfer, (4,), (), False, ()), 0)
    assert receive(it, 1, Chunk(REMEMBERED, 1, 0, 0, 0, 5)) == []
    assert is_close(receive(it, 1, Chunk(3, 1, 0, 0, 0, 5)), 1)


# --- a lost peer ------------------------------------------------------------------------------------------


def test_a_lost_peer_spoils_what_it_was_to_send_and_needs_nothing_any_more() -> None:
    it = machine()
    open_send(it, (1, 0, 10))
    open_recv(it, (1, 0, 10), (2, 1, 10))
    open_recv(it, transfer=8, seq=8, sparse=True)
    receive(it, 1, Offer(8, 1, 0, ((0, 10),)))
    effects = it.handle(p.Disconnected(1, "silent"), 0)
    blame = p.Blame("host-lost", "hosts 0 and 1 lost each other: silent", host=1)
    expected: list[p.Command] = [p.Sent(T), p.Received(8, blame)]
    assert effects == expected
    assert receive(it, 2, Chunk(T, 2, 0, 1, 0, 10))[1:] == [*to(2, Landed(T, 2, 0)), p.Received(T, blame)]
    assert it.pool.out == 0


def test_a_client_is_a_peer_like_any_other() -> None:
    it = machine()
    assert open_recv(it, (-3, 0, 10)) == to(-3, Grant(T, -3, 0, 10))
    [received] = it.handle(p.Disconnected(-3, "nothing heard for 3 s"), 0)
    cause = "host 0 and the client of these contents lost each other: nothing heard for 3 s"
    assert received == p.Received(T, p.Blame("client-lost", cause))
    assert open_recv(it, (-3, 0, 10), transfer=8) == to(-3, Grant(8, -3, 0, 10))
    [received] = it.handle(p.Disconnected(-3), 0)
    assert received == p.Received(
        8, p.Blame("client-lost", cause.replace("nothing heard for 3 s", "the connection broke"))
    )
