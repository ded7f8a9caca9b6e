"""Frames come out of a stream as they went in, wherever it is cut, and no other bytes harm the reader."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backend.wire import framing
from backend.wire.framing import (
    ADDRESS,
    ANSWER,
    HEAD,
    KINDS,
    MESSAGE,
    OPENING,
    PACKET,
    PASS,
    REPLY,
    ROOM,
    Address,
    Answered,
    FrameReader,
    Opening,
    Pass,
    StreamFrame,
    TooLarge,
)
from core.link import Unreadable

Said = Address | Pass | Opening | Answered
SAID: list[Said] = [
    Address("host/3", "127.0.0.1:1"), Pass("client/5", "00ff"), Opening("1", "t", "host/3", "p", "Status"),
    Answered("1", "name", "no"),
]  # fmt: skip


def written(frame: StreamFrame) -> bytes:
    return framing.head(*frame) + frame.message + bytes(frame.contents)


def pieces(data: bytes, sizes: Callable[[], int], reader: FrameReader) -> Iterator[None]:
    """Receives `data` in pieces of these sizes, or of less where there is no more space."""
    left = memoryview(data)
    while left:
        space = reader.space()
        count = min(len(space), len(left), sizes())
        assert count > 0, "there is always space for more"
        space[:count] = left[:count]
        reader.came(count)
        left = left[count:]
        yield


def read(data: bytes, sizes: Callable[[], int] = lambda: ROOM, most: int = MESSAGE) -> list[StreamFrame]:
    reader, found = FrameReader(most), []
    for _ in pieces(data, sizes, reader):
        while (frame := reader.next()) is not None:
            found.append(StreamFrame(frame.kind, frame.message, bytes(frame.contents)))
    return found


# --- what goes in comes out ------------------------------------------------------------------------------------------

SIZES = st.one_of(st.integers(0, 40), st.sampled_from([ROOM - HEAD.size, ROOM, ROOM + 1, 3 * ROOM]))


@st.composite
def any_frame(draw: st.DrawFn) -> StreamFrame:
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    message, contents = (chance.randbytes(draw(SIZES)) for _ in range(2))
    return StreamFrame(draw(st.sampled_from(KINDS)), message, contents)


@st.composite
def cuts(draw: st.DrawFn) -> Callable[[], int]:
    """Sizes of pieces, drawn as they are needed: mostly small ones, mostly large ones, or both."""
    chance = random.Random(draw(st.integers(0, 1 << 30)))
    smallest, largest = sorted((draw(st.integers(0, 18)), draw(st.integers(7, 18))))
    return lambda: 1 << chance.randint(smallest, largest)


@given(st.lists(any_frame(), max_size=8), cuts())
@example([StreamFrame(PACKET, b"m" * (ROOM - HEAD.size), b""), StreamFrame(PACKET, b"", b"")], lambda: ROOM)
@example([StreamFrame(PACKET, b"m" * (ROOM - HEAD.size), b"c")], lambda: ROOM)
@example([StreamFrame(PACKET, b"", b"")] * (ROOM // HEAD.size + 1), lambda: ROOM)
def test_frames_come_out_as_they_went_in_wherever_the_stream_is_cut(
    sent: list[StreamFrame], sizes: Callable[[], int]
) -> None:
    assert read(b"".join(map(written, sent)), sizes) == sent


@given(st.lists(any_frame(), min_size=1, max_size=4))
def test_a_frame_comes_out_with_its_last_byte_and_not_before(sent: list[StreamFrame]) -> None:
    reader = FrameReader()
    for each in sent:
        data = written(each)
        for _ in pieces(data[:-1], lambda: ROOM, reader):
            assert reader.next() is None
        for _ in pieces(data[-1:], lambda: 1, reader):
            assert reader.next() == each
        assert reader.next() is None


@pytest.mark.parametrize("size", [ROOM - HEAD.size + 1, ROOM + 1, 10 * ROOM + 3, MESSAGE])
def test_a_message_larger_than_the_room_comes_whole_with_those_around_it(size: int) -> None:
    around = StreamFrame(ADDRESS, b"before and after", b"")
    sent = [around, StreamFrame(PACKET, bytes(range(256)) * (size // 256) + bytes(size % 256), b""), around]
    assert read(b"".join(map(written, sent)), lambda: 1 << 30) == sent


def test_the_room_for_a_large_message_is_given_back() -> None:
    reader, small = FrameReader(), written(StreamFrame(PACKET, bytes(1000), b""))
    for _ in pieces(written(StreamFrame(PACKET, bytes(MESSAGE), b"")), lambda: 1 << 30, reader):
        reader.next()
    largest = len(reader._room)
    assert largest > MESSAGE
    for _ in pieces(small * (2 * largest // len(small)), lambda: 1 << 30, reader):
        while reader.next() is not None:
            pass
    assert len(reader._room) == ROOM


# --- contents are received where they stay ---------------------------------------------------------------------------


def place(memory: memoryview | bytes) -> int:
    """Where this lies in memory."""
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


def test_large_contents_are_received_into_memory_of_their_own_and_not_copied_again() -> None:
    reader, contents = FrameReader(), random.Random(1).randbytes(5 * ROOM)
    sent = StreamFrame(PACKET, b"message", contents)
    where = []
    for _ in pieces(written(sent)[:-1], lambda: ROOM, reader):
        assert reader.next() is None
        assert reader.fills_contents
        where.append(place(reader.space()))
    space = reader.space()
    assert len(space) == 1, "what follows the contents is not received with them"
    space[:] = contents[-1:]
    reader.came(1)
    assert not reader.fills_contents
    frame = reader.next()
    assert frame == sent
    first, here = place(frame.contents), ROOM - HEAD.size - len(sent.message)
    assert where[:-1] == [first + here + number * ROOM for number in range(5)]


@pytest.mark.parametrize("number", [PACKET, REPLY])
def test_contents_of_packets_are_received_where_they_are_said_to_belong(number: int) -> None:
    reader, contents = FrameReader(), random.Random(1).randbytes(5 * ROOM)
    home, asked = memoryview(bytearray(5 * ROOM)), []

    def room_for(message: bytes, nbytes: int) -> memoryview:
        asked.append((message, nbytes))
        return home

    reader.room_for = room_for
    sent = StreamFrame(number, b"message", contents)
    (frame,) = [frame for _ in pieces(written(sent), lambda: ROOM, reader) for frame in iter(reader.next, None)]
    assert bytes(frame.contents) == contents
    assert (frame.contents is home) == (number == PACKET)
    assert asked == [(b"message", 5 * ROOM)][: number == PACKET]


def test_what_comes_later_does_not_change_contents_that_were_taken() -> None:
    reader, contents = FrameReader(), [bytes([number]) * 30_000 for number in range(20)]
    data = b"".join(written(StreamFrame(PACKET, b"", each)) for each in contents)
    taken = [frame for _ in pieces(data, lambda: ROOM, reader) for frame in iter(reader.next, None)]
    assert [bytes(frame.contents) for frame in taken] == contents


# --- bytes that are no frame -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("message", "contents"), [(0, 101), (101, 0), (60, 60), (0xFFFF_FFFF, 0xFFFF_FFFF)])
def test_a_frame_that_is_too_large_is_refused_by_its_head_before_memory_is_taken(message: int, contents: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=r"a frame of [\d,]+ bytes; 100 may come"):
            read(HEAD.pack(PACKET, message, contents), most=100)
        assert tracemalloc.get_traced_memory()[1] < 3 * ROOM
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("message", "contents"), [(0, 100), (100, 0), (60, 40)])
def test_a_frame_of_the_largest_size_comes(message: int, contents: int) -> None:
    sent = StreamFrame(PACKET, bytes(message), bytes(contents))
    assert read(written(sent), most=100) == [sent]


def test_a_large_message_gets_memory_as_it_comes_and_not_as_it_is_announced() -> None:
    tracemalloc.start()
    try:
        assert read(HEAD.pack(PACKET, MESSAGE, 0) + bytes(ROOM // 2)) == []
        assert tracemalloc.get_traced_memory()[1] < 3 * ROOM
    finally:
        tracemalloc.stop()


def test_an_unknown_kind_is_unreadable() -> None:
    for kind in sorted(set(range(256)) - set(KINDS)):
        with pytest.raises(Unreadable, match=f"no frame begins with {kind}"):
            read(HEAD.pack(kind, 0, 0))


def test_what_came_before_nonsense_comes_out() -> None:
    reader, first = FrameReader(), StreamFrame(PACKET, b"good", b"")
    for _ in pieces(written(first) + b"\xff" * HEAD.size, lambda: ROOM, reader):
        assert reader.next() == first
        for _ in range(2):
            with pytest.raises(Unreadable):
                reader.next()


@given(st.binary(max_size=200), cuts(), st.sampled_from([100, MESSAGE]))
@example(framing.MAGIC, lambda: ROOM, MESSAGE)
@example(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", lambda: ROOM, MESSAGE)
def test_random_bytes_are_unreadable_or_the_reader_waits_for_more(
    data: bytes, sizes: Callable[[], int], most: int
) -> None:
    with contextlib.suppress(Unreadable):
        for frame in read(data, sizes, most):
            assert frame.kind in KINDS
            assert len(frame.message) + len(frame.contents) <= most


@given(any_frame(), st.integers(0, 8), st.integers(0, 255), cuts())
def test_a_frame_whose_head_is_changed_is_unreadable_or_the_reader_waits_for_more(
    sent: StreamFrame, at: int, byte: int, sizes: Callable[[], int]
) -> None:
    data = bytearray(written(sent))
    data[at] = byte
    with contextlib.suppress(Unreadable):
        read(bytes(data), sizes)


# --- messages of drivers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", SAID, ids=lambda said: type(said).__name__)
def test_a_message_of_a_driver_comes_back(said: Said) -> None:
    (frame,) = read(framing.framed(said))
    assert framing.read(frame.kind, frame.message) == said


@given(st.sampled_from([ADDRESS, PASS, OPENING, ANSWER]), st.binary(max_size=100))
@example(OPENING, b"\x91" * 5000)
def test_other_bytes_are_no_message_of_a_driver(kind: int, data: bytes) -> None:
    with contextlib.suppress(Unreadable):
        found: Any = framing.read(kind, data)
        assert all(isinstance(each, str) for each in msgspec.structs.astuple(found))


def test_an_opening_of_another_version_with_more_or_fewer_fields_is_read() -> None:
    """So a caller of another version learns that this is the reason."""
    later = msgspec.msgpack.encode({"version": "9", "new": [1, 2], "name": "host/1"})
    assert framing.read(OPENING, later) == Opening(version="9", name="host/1")
    assert framing.read(OPENING, msgspec.msgpack.encode({})) == Opening()
    assert framing.read(ANSWER, msgspec.msgpack.encode({"refused": "new"})) == Answered(refused="new")
