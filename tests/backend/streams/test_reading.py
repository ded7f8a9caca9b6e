"""What comes on a stream is heard when its owner wants it, and nonsense is told from frames."""

from __future__ import annotations

import asyncio

import pytest

from backend.wire import framing
from backend.wire.framing import PACKET, TooLarge
from core.link import Unreadable

from .rig import PATIENCE, both, packet, say


async def test_what_came_with_the_greeting_is_heard_when_the_stream_starts() -> None:
    async with both() as (left, right):
        sent = [packet(b"first"), packet(b"second", b"x" * 200_000), packet(b"third")]
        say(left, packet(b"greeting"), *sent)
        assert await right.connection.greeting() == packet(b"greeting")
        right.start()
        assert await right.got(3) == sent


async def test_a_greeting_may_come_in_small_pieces_but_not_be_large() -> None:
    async with both() as (left, right):
        greeting = asyncio.ensure_future(right.connection.greeting(20))
        for byte in framing.head(PACKET, b"m" * 20) + b"m" * 20:
            left.socket.send(bytes([byte]))
            await asyncio.sleep(0)
        assert await greeting == packet(b"m" * 20)
        say(left, packet(b"m" * 15, b"c" * 6))
        with pytest.raises(TooLarge, match="a frame of 21 bytes; 20 may come"):
            await right.connection.greeting(20)


async def test_a_caller_that_leaves_before_its_greeting_is_complete_is_noticed() -> None:
    async with both() as (left, right):
        greeting = asyncio.ensure_future(right.connection.greeting())
        left.socket.send(framing.head(PACKET, b"message"))
        await asyncio.sleep(0)
        left.close()
        with pytest.raises(ConnectionError, match="the other end has closed the connection"):
            await greeting


async def test_bytes_that_are_no_frame_are_unreadable_after_the_frames_before_them() -> None:
    async with both() as (left, right):
        right.start()
        say(left, packet(b"good"))
        left.socket.send(b"\xff" * 100)
        await right.until(lambda: right.wrong)
        assert right.frames == [packet(b"good")]
        with pytest.raises(Unreadable):
            right.connection.next()


async def test_others_have_a_turn_between_the_frames_of_a_talkative_peer() -> None:
    """An owner that has had enough of a stream for now hears the rest when others have had their turn."""
    async with both() as (left, right):
        turns: list[str] = []

        def arrived() -> None:
            frame = right.connection.next()
            if frame is not None:
                turns.append(frame.message.decode())
                asyncio.get_running_loop().call_soon(turns.append, "other")
                right.connection.rest_for_others()
            if turns.count("frame") == 3:
                over.set()

        over = asyncio.Event()
        say(left, *(packet(b"frame") for _ in range(3)))
        right.connection.start(arrived)
        async with asyncio.timeout(PATIENCE):
            await over.wait()
        assert turns[:5] == ["frame", "other", "frame", "other", "frame"]


@pytest.mark.parametrize("size", [10, 100_000])
async def test_what_comes_after_the_end_is_thrown_away(size: int) -> None:
    """The peer is not told that its frames are not wanted until it reads the end; so they must not pile up."""
    async with both() as (left, right):
        left.start()
        left.connection.end()
        for _ in range(50):
            say(right, packet(b"unwanted", bytes(size)))
        right.connection.end()
        right.start()
        await left.over()
        await right.over()
        assert not left.frames
