"""gRPC's calls: messages come whole and in order, a blocked handler holds its client up, and how calls end."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.door.transport import http2
from backend.door.transport.grpc_calls import Call, RpcRefused

from ..grpc_rig import GrpcClient, Result, framed


class Echo:
    """Answers each message with itself. `log`: what it was told."""

    largest = 1 << 20

    def __init__(self, call: Call) -> None:
        self.call = call
        self.blocked = False
        self.log: list[object] = []

    def message(self, data: bytes) -> None:
        self.log.append(data)
        if data == b"refuse":
            raise RpcRefused(7, "no, 100 % no: äöü")
        if data == b"fail":
            raise ZeroDivisionError("a bug")
        if data == b"close":
            self.call.close(3, "enough")
        elif data == b"block":
            self.blocked = True
        else:
            self.call.send(data)

    def half_closed(self) -> None:
        self.log.append("half closed")
        self.call.close()

    def lost(self, why: str) -> None:
        self.log.append(("lost", why))


class Rig(GrpcClient):
    def __init__(self) -> None:
        self.echoes: list[Echo] = []
        super().__init__(self.begin)

    def begin(self, call: Call) -> Echo:
        self.echoes.append(Echo(call))
        return self.echoes[-1]


def test_messages_are_answered_and_the_call_ends_well() -> None:
    rig = Rig()
    stream = rig.call("/a/b", b"one", b"", b"two" * 10_000)
    assert rig.result(stream) == Result([b"one", b"", b"two" * 10_000], 0)
    assert rig.echoes[0].call.path == "/a/b"
    assert not rig.server.calls


@given(st.lists(st.binary(max_size=30), max_size=6), st.lists(st.integers(1, 12), max_size=30))
def test_how_messages_are_cut_into_frames_means_nothing(messages: list[bytes], sizes: list[int]) -> None:
    messages = [b"m" + message for message in messages]
    rig = Rig()
    stream = rig.call("/a/b", ends=False)
    data = b"".join(map(framed, messages))
    for size in sizes:
        rig.send(stream, data[:size])
        data = data[size:]
    rig.send(stream, data)
    rig.end(stream)
    assert rig.echoes[0].log == [*messages, "half closed"]
    assert rig.result(stream) == Result(messages, 0)


def test_a_blocked_handler_gets_nothing_until_it_asks() -> None:
    rig = Rig()
    stream = rig.call("/a/b", b"block", b"after")
    (echo,) = rig.echoes
    assert echo.log == [b"block"]
    echo.blocked = False
    echo.call.deliver()
    assert rig.woken
    rig.pass_on()
    assert echo.log == [b"block", b"after", "half closed"]
    assert rig.result(stream) == Result([b"after"], 0)


def test_the_client_of_a_blocked_handler_is_held_up_and_others_are_not() -> None:
    rig = Rig()
    held = rig.call("/a/b", b"block", ends=False)
    while room := min(rig.h2.local_flow_control_window(held), rig.h2.max_outbound_frame_size):
        rig.send(held, framed(bytes(room - 5)))
    assert rig.result(rig.call("/a/b", b"x")) == Result([b"x"], 0)
    rig.echoes[0].blocked = False
    rig.echoes[0].call.deliver()
    rig.pass_on()
    assert rig.h2.local_flow_control_window(held) > http2.STREAM_WINDOW // 2


@pytest.mark.parametrize(
    ("message", "status", "text"),
    [
        (b"refuse", 7, "no, 100 % no: äöü"), (b"fail", 13, "the door failed: ZeroDivisionError: a bug"),
        (b"close", 3, "enough"),
    ],
)  # fmt: skip
def test_a_refusal_a_bug_and_an_end_reach_the_client(
    message: bytes, status: int, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    with caplog.at_level(logging.CRITICAL if status == 7 else logging.ERROR):
        stream = rig.call("/a/b", message, b"late")
    assert rig.result(stream) == Result([], status, text)
    expected: list[object] = [message] if message == b"close" else [message, ("lost", text)]
    assert rig.echoes[0].log == expected
    assert ("ZeroDivisionError" in caplog.text) == (message == b"fail")


@pytest.mark.parametrize(
    ("data", "status", "text"),
    [
        (b"\x01\0\0\0\x01x", 12, "compressed"), (b"\0\x7f\0\0\0", 8, "at most 1048576"),
        (b"\0\0\0\0\x09x", 3, "cut off"), (b"\0\0", 3, "cut off"),
    ],
)  # fmt: skip
def test_a_message_that_cannot_be_is_refused(data: bytes, status: int, text: str) -> None:
    rig = Rig()
    stream = rig.call("/a/b", ends=False)
    rig.send(stream, data)
    if rig.result(stream).status is None:
        rig.end(stream)
    result = rig.result(stream)
    assert result.status == status
    assert text in result.text
    assert [name for name, _ in [entry for entry in rig.echoes[0].log if isinstance(entry, tuple)]] == ["lost"]


def test_a_client_that_resets_a_call_or_goes_loses_it() -> None:
    rig = Rig()
    stream, _ = rig.call("/a/b", ends=False), rig.call("/a/b", ends=False)
    rig.h2.reset_stream(stream)
    rig.pass_on()
    rig.server.lost("the client has gone")
    assert rig.echoes[0].log == [("lost", "the client has ended the call")]
    assert rig.echoes[1].log == [("lost", "the client has gone")]
    rig.echoes[0].call.send(b"nobody hears this")
    rig.echoes[0].call.close()


def test_a_call_that_is_refused_at_its_beginning() -> None:
    def begin(call: Call) -> Echo:
        raise RpcRefused(12, f"no {call.path}")

    client = GrpcClient(begin)
    assert client.result(client.call("/x", b"data")) == Result([], 12, "no /x")


def test_metadata_is_base64_with_or_without_padding() -> None:
    rig = Rig()
    rig.call("/a/b", metadata={"x-bin": b"\xff\xfe", "plain": b"x"})
    assert rig.echoes[0].call.metadata("x-bin") == b"\xff\xfe"
    with pytest.raises(RpcRefused, match="no metadata y-bin"):
        rig.echoes[0].call.metadata("y-bin")
    with pytest.raises(RpcRefused, match="not base64"):
        rig.echoes[0].call.metadata("plain")


@given(st.binary(max_size=300))
def test_nothing_that_a_client_sends_raises(data: bytes) -> None:
    rig = Rig()
    stream = rig.call("/a/b", ends=False)
    rig.echoes[0].largest = 50
    logging.disable(logging.CRITICAL)
    try:
        rig.send(stream, data)
    finally:
        logging.disable(logging.NOTSET)
