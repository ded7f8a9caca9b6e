"""What is put on a stream, from any thread, arrives once, whole and in order, until the stream ends."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from backend.streams import connection
from backend.wire import framing
from backend.wire.framing import PACKET, Address, Contents

from .rig import PATIENCE, End, both, either_loop, in_threads, joined, packet, pair, say, talk

# --- threads ----------------------------------------------------------------------------------------------------------


async def test_frames_of_several_threads_arrive_whole_and_in_the_order_of_each_thread() -> None:
    threads, each_says = 6, 300
    chances = [random.Random(number) for number in range(threads)]
    sent = [
        [
            packet(bytes([number]) + chance.randbytes(chance.choice([0, 10, 3000])),
                   chance.randbytes(chance.choice([0, 0, 10, 70_000])))
            for _ in range(each_says)
        ]
        for number, chance in enumerate(chances)
    ]  # fmt: skip
    async with both() as (left, right):
        right.start()
        left.start()
        await joined(in_threads(threads, lambda number: talk(left, sent[number])))
        found = await right.got(threads * each_says)
        for number in range(threads):
            assert [each for each in found if each.message[0] == number] == sent[number]


async def test_a_message_of_a_driver_arrives_between_the_packets_around_it() -> None:
    async with both() as (left, right):
        right.start()
        left.connection.put(PACKET, b"before")
        left.connection.mention(Address("host/1", "127.0.0.1:1"))
        left.connection.put(PACKET, b"after")
        assert not right.frames
        left.connection.flush()
        found = await right.got(3)
        assert [each.kind for each in found] == [PACKET, framing.ADDRESS, PACKET]
        assert framing.read(*found[1][:2]) == Address("host/1", "127.0.0.1:1")


# --- a peer that does not read ----------------------------------------------------------------------------------------


async def test_a_peer_that_reads_late_loses_nothing_and_nobody_waits_for_it() -> None:
    sent = [packet(str(number).encode(), bytes([number % 256]) * 100_000) for number in range(200)]
    async with both() as (left, right):
        begun = sent[:100]
        say(left, *begun)  # returns, though most of it cannot be written
        await joined(in_threads(1, lambda number: say(left, *sent[100:])))
        right.start()
        assert await right.got(len(sent)) == sent


@either_loop
async def test_large_contents_cross_both_ways_at_once(loop: str) -> None:
    """32 MiB each way: more than any buffer of the system between them holds."""
    chance = random.Random(1)
    there, back = ([packet(b"%d" % at, chance.randbytes(16 << 20)) for at in range(2)] for _ in range(2))
    async with both() as (left, right):
        left.start()
        right.start()
        await joined(in_threads(2, lambda number: say((left, right)[number], *(there, back)[number])))
        assert await right.got(2) == there
        assert await left.got(2) == back


# --- contents that are loaded -----------------------------------------------------------------------------------------


def put_later(end: End, message: bytes, load: Callable[[], Contents]) -> None:
    end.connection.put(PACKET, message, load)
    end.connection.flush()


async def test_contents_that_are_loaded_keep_the_order_of_frames() -> None:
    async with both() as (left, right):
        at_hand = threading.Event()

        def load() -> Contents:
            assert at_hand.wait(PATIENCE)
            return memoryview(b"contents")

        right.start()
        say(left, packet(b"first"))
        put_later(left, b"second", load)
        say(left, packet(b"third"))
        put_later(left, b"fourth", lambda: b"more")
        say(left, packet(b"fifth", b"x"))
        await right.got(1)
        assert len(right.frames) == 1, "what is put behind contents waits for them"
        at_hand.set()
        assert await right.got(5) == [
            packet(b"first"), packet(b"second", b"contents"), packet(b"third"), packet(b"fourth", b"more"),
            packet(b"fifth", b"x"),
        ]  # fmt: skip


async def test_a_load_that_fails_sends_no_contents_and_the_stream_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def load() -> Contents:
        raise ValueError("the gang was abandoned")

    async with both() as (left, right):
        right.start()
        put_later(left, b"lost", load)
        put_later(left, b"next", lambda: b"x")
        assert await right.got(2) == [packet(b"lost"), packet(b"next", b"x")]
    assert "cannot be had: the gang was abandoned" in caplog.text


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_an_end_delivers_all_that_was_put_before_it() -> None:
    sent = [packet(b"%d" % number, bytes(100_000)) for number in range(100)]
    async with both() as (left, right):
        left.start()
        for each in sent:
            left.connection.put(*each)
        left.connection.put(PACKET, b"last", lambda: b"loaded")
        left.connection.end()
        right.start()
        assert await right.over() == "the other end has closed the connection"
        assert right.frames == [*sent, packet(b"last", b"loaded")]
        right.close()
        assert await left.over() == "the other end has closed the connection"


async def test_an_end_waits_for_contents_that_are_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that ends the stream hands the contents to a copying thread, which is at work at once."""
    async with both() as (left, right):
        loading, at_hand = threading.Event(), threading.Event()

        class Copying:
            def submit(self, act: Callable[[], None]) -> Future[None]:
                in_threads(1, lambda number: act())
                assert loading.wait(PATIENCE)
                return Future()

        def load() -> Contents:
            loading.set()
            assert at_hand.wait(PATIENCE)
            return b"loaded"

        monkeypatch.setattr(connection, "_copying", Copying)
        right.start()
        left.connection.put(PACKET, b"last", load)
        left.connection.end()
        at_hand.set()
        await right.over()
        assert right.frames == [packet(b"last", b"loaded")]


async def test_what_is_put_behind_the_end_is_not_sent_and_spoils_nothing() -> None:
    sent = [packet(b"%d" % number, bytes(100_000)) for number in range(50)]
    async with both() as (left, right):
        left.start()
        say(left, *sent)
        left.connection.end()
        say(left, packet(b"too late"))
        right.start()
        say(right, *(packet(b"unread") for _ in range(10)))
        await right.over()
        assert right.frames == sent
        say(left, packet(b"much too late"))
        await left.over()
        assert not left.frames, "nothing is heard behind the end"


@pytest.mark.parametrize("attempt", range(10))
async def test_frames_put_by_threads_while_the_stream_ends_do_not_cut_it_short(attempt: int) -> None:
    async with both() as (left, right):
        left.start()
        going = threading.Barrier(5)

        def talk(number: int) -> None:
            going.wait(PATIENCE)
            for at in range(200):
                say(left, packet(bytes([number, at])))

        threads = in_threads(4, talk)
        say(left, packet(b"first"))
        going.wait(PATIENCE)
        left.connection.end()
        right.start()
        assert await right.over() == "the other end has closed the connection"
        right.close()
        await joined(threads)
        assert right.frames[0] == packet(b"first")
        for number in range(4):
            said = [each.message[1] for each in right.frames[1:] if each.message[0] == number]
            assert said == list(range(len(said)))


@pytest.mark.parametrize("from_the_left", [True, False])
@either_loop
async def test_a_stream_that_is_closed_at_one_end_is_over_at_both_and_says_so_once(
    loop: str, from_the_left: bool
) -> None:
    async with both() as (left, right):
        ended: list[str] = []
        left.connection.ended = lambda: ended.append("left")
        right.connection.ended = lambda: ended.append("right")
        left.start()
        right.start()
        first, second = (left, right) if from_the_left else (right, left)
        first.connection.close("enough")
        first.connection.close("again")
        assert await second.over() == "the other end has closed the connection"
        assert await first.over() == "enough"
        assert sorted(ended) == ["left", "right"]
        say(left, packet(b"too late"))
        assert left.connection.next() is None


@either_loop
async def test_a_peer_that_has_gone_ends_the_stream_of_an_end_that_only_writes(loop: str) -> None:
    async with both() as (left, right):
        right.close()
        say(left, packet(b"to nobody"))
        assert "Broken pipe" in await left.over()
        say(left, packet(b"to nobody"))


@either_loop
async def test_closing_a_stream_while_threads_write_harms_no_other_socket(loop: str) -> None:
    """The number of the closed socket is given to the next one that is opened: no thread may still write to it."""
    for _ in range(20):
        left, right = pair()
        right.start()
        left.start()
        number, over = left.socket.fileno(), threading.Event()

        def talk(_: int, left: End = left, over: threading.Event = over) -> None:
            while not over.is_set():
                say(left, packet(b"x" * 1000, b"y" * 100_000))
                if len(left.connection._items) > 50:
                    over.wait(0.001)

        threads = in_threads(3, talk)
        await right.got(3)
        left.close()
        others = socket.socketpair()
        for each in others:
            each.setblocking(False)
        assert number in (each.fileno() for each in others), "its number is used again"
        await right.over()
        over.set()
        await joined(threads)
        for each in others:
            with pytest.raises(BlockingIOError):
                each.recv(1)
        for each in others:
            each.close()
        right.close()


@either_loop
async def test_a_stream_that_is_closed_while_it_waits_to_write_leaves_its_socket_to_others(loop: str) -> None:
    for _ in range(3):
        left, right = pair()
        say(left, *(packet(b"", bytes(1 << 20)) for _ in range(10)))
        await asyncio.sleep(0)  # the loop waits for room now
        left.close()
        right.close()
        again, other = pair()  # with the same numbers
        again.start()
        other.start()
        say(again, *(packet(b"", bytes(1 << 20)) for _ in range(3)))
        assert len(await other.got(3)) == 3
        again.close()
        other.close()
