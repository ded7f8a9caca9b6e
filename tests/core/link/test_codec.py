"""Each message decodes to what was encoded, and all other bytes raise the same error."""

import contextlib
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.link import codec as wire
from core.link.endpoint import Hello
from core.link.link import MARKS, Frame
from core.protocol import MESSAGES
from core.protocol.messages import Done, Ended, GangStep, Heartbeat, Ordered, Reports, Submit, Wire
from tests.core import structs
from tests.laws import examples

TOP = get_args(wire.Message)
EVERY = [
    found for module in MESSAGES for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, msgspec.Struct)
    and found.__module__ == module.__name__ and found is not Wire
]  # fmt: skip

any_message = structs.of(wire.Message)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
@given(data=st.data())
@examples(10)
def test_every_struct_comes_back(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    sent = data.draw(structs.of(kind))
    if kind in TOP:
        assert wire.decode(wire.encode(sent)) == sent
    else:
        assert msgspec.msgpack.decode(wire.encode(sent), type=kind) == sent


def test_every_struct_is_in_the_union_of_messages() -> None:
    """A message that is missing from the union could be sent but not decoded."""
    assert [kind.__name__ for kind in EVERY if kind not in structs.reachable(wire.Message)] == []


def test_tags_are_unique() -> None:
    tagged = [kind for kind in EVERY if kind.__struct_config__.tag is not None]
    assert len({kind.__struct_config__.tag for kind in tagged}) == len(tagged)
    assert all(kind in tagged for kind in TOP)


def test_a_message_to_many_hosts_is_small() -> None:
    hosts = ((0, 512),)
    step = GangStep(1000, 17, 3, hosts)
    ordered = Ordered(0, 1, 1, 1000, hosts, 990, (), (), (step,))
    assert len(wire.encode(ordered)) < 80
    assert len(wire.encode(Reports(0, 1, 1, (Done(1000, hosts), Heartbeat(hosts, 7))))) < 60


# --- bytes that are no message ----------------------------------------------------------------------------


def is_read_or_refused(data: bytes) -> None:
    for read in (wire.decode, wire.decode_frame, wire.decode_packet):
        with contextlib.suppress(wire.Unreadable):
            read(data)


@given(st.binary(max_size=60))
@examples(300)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    is_read_or_refused(data)


@given(any_message, st.data())
@examples(150)
def test_a_damaged_message_is_read_or_refused(message: msgspec.Struct, data: st.DataObject) -> None:
    damaged = bytearray(wire.encode(message))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    is_read_or_refused(bytes(damaged))


@given(any_message)
@examples(50)
def test_a_message_cut_short_or_too_long_is_refused(message: msgspec.Struct) -> None:
    data = wire.encode(message)
    for end in range(len(data)):
        with pytest.raises(wire.Unreadable):
            wire.decode(data[:end])
    with pytest.raises(wire.Unreadable):
        wire.decode(data + b"\xc0")


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xdd\xff\xff\xff\xff", id="four thousand million elements"),
        pytest.param(b"\xc6\xff\xff\xff\xff", id="four gigabytes"),
        pytest.param(b"\x91" * 100_000 + b"\xc0", id="very deep"),
        pytest.param(b"\x92\xa7goodbye\xa1\xff", id="no UTF-8"),
        pytest.param(msgspec.msgpack.encode(["nobody", 1]), id="an unknown tag"),
        pytest.param(msgspec.msgpack.encode(["ended", "1", None]), id="a wrong type"),
        pytest.param(msgspec.msgpack.encode(["ended"]), id="a field too few"),
        pytest.param(msgspec.msgpack.encode(["gang", 1, 1, 1, []]), id="a part that does not travel alone"),
    ],
)
def test_examples_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(wire.Unreadable):
        wire.decode(data)
    with pytest.raises(wire.Unreadable):
        wire.decode_frame(msgspec.msgpack.encode([1, 2, 0, msgspec.Raw(data)]))


# --- frames -----------------------------------------------------------------------------------------------


NUMBERS, SIGNS = st.integers(0, 2**62), st.integers(0, MARKS - 1)


@given(NUMBERS, NUMBERS, st.none() | any_message, st.booleans(), SIGNS, SIGNS)
@examples(50)
def test_a_frame_comes_back(seq: int, ack: int, message: Any, again: bool, mark: int, heard: int) -> None:
    frame = Frame(seq, ack, message, again, mark, heard)
    assert wire.decode_frame(wire.encode_frame(frame)) == frame


def test_a_message_is_encoded_once_for_many_frames() -> None:
    message = Ended(7)
    encoded = wire.encode(message)
    for seq in range(3):
        frame = Frame(seq, 0, message)
        assert wire.encode_frame(frame, encoded) == wire.encode_frame(frame)


def test_a_frame_adds_a_few_bytes() -> None:
    submit = Submit(1, 1, (5,), (6,))
    frame = Frame(100, 99, submit, False, MARKS - 1, MARKS - 1)
    assert len(wire.encode_frame(frame)) <= len(wire.encode(submit)) + 5


@pytest.mark.parametrize("packet", [Hello(3, 0), Hello(1 << 40, 7), Frame(1, 2, None), Frame(5, 4, Ended(9))])
def test_a_packet_comes_back(packet: Hello | Frame) -> None:
    assert wire.decode_packet(wire.encode_packet(packet)) == packet
