"""The server's end of HTTP/2: against another hand's client, frame by frame, and what breaks the protocol."""

from __future__ import annotations

import h2.events
import pytest
from hpack import Encoder

from backend.door.transport import http2, http2_frames
from backend.door.transport import http2_frames as frames
from backend.door.transport.http2 import Http2Connection
from backend.door.transport.http2_frames import ConnectionEnded, DataReceived, RequestReceived, StreamReset

from ..http2_rig import BEGIN, SOME_HEADERS, Wired, ask, begun, data, kinds, said

OK = [(b":status", b"200")]
END = [(b"grpc-status", b"0")]


# --- with another hand's client -------------------------------------------------------------------------------------


def test_a_request_its_data_and_the_answer() -> None:
    wired = Wired()
    stream = wired.ask()
    wired.client.send_data(stream, b"question", end_stream=True)
    wired.pass_on()
    request, data_event = wired.server_events
    assert isinstance(request, RequestReceived)
    assert dict(request.headers)[b":path"] == b"/a/b"
    assert data_event == DataReceived(stream, b"question", 8, True)
    wired.server.respond(stream, OK)
    wired.server.send(stream, b"answer")
    wired.server.trailers(stream, END)
    wired.pass_on()
    assert wired.received(stream) == b"answer"
    assert isinstance(wired.client_events[-1], h2.events.StreamEnded)
    trailers = [event for event in wired.client_events if isinstance(event, h2.events.TrailersReceived)]
    assert [(str(name), str(value)) for name, value in trailers[0].headers or ()] == [("grpc-status", "0")]


def test_padding_is_not_data_but_counts_in_the_window() -> None:
    wired = Wired()
    stream = wired.ask()
    wired.client.send_data(stream, b"x", pad_length=9)
    wired.pass_on()
    assert wired.server_events[-1] == DataReceived(stream, b"x", 11, False)


def test_a_peer_whose_data_nobody_uses_comes_to_a_stop_and_goes_on_when_they_are_used() -> None:
    wired = Wired()
    stream = wired.ask()
    wired.pass_on()
    sent = 0
    while room := min(wired.client.local_flow_control_window(stream), wired.client.max_outbound_frame_size):
        wired.client.send_data(stream, bytes(room))
        sent += room
        wired.pass_on()
    assert sent == http2.STREAM_WINDOW
    wired.server.give_back(stream, sent)
    wired.pass_on()
    assert wired.client.local_flow_control_window(stream) == http2.STREAM_WINDOW


def test_headers_are_encoded_in_the_order_in_which_they_are_sent() -> None:
    """Trailers may wait behind data, while another stream's headers overtake them."""
    wired = Wired(window=10)
    slow, fast = wired.ask(ended=True), wired.ask(ended=True)
    wired.pass_on()
    wired.server.respond(slow, [*OK, (b"a", b"1")])
    wired.server.send(slow, bytes(20))
    wired.server.trailers(slow, [(b"grpc-status", b"0"), (b"b", b"2")])
    wired.server.respond(fast, [*OK, (b"c", b"3")])
    wired.server.trailers(fast, [(b"d", b"4")])
    wired.client.increment_flow_control_window(100, slow)
    wired.pass_on()
    found = {
        (event.stream_id, name, value)
        for event in wired.client_events
        if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived) and event.headers
        for name, value in event.headers
    }
    assert {(slow, "b", "2"), (slow, "a", "1"), (fast, "c", "3"), (fast, "d", "4")} <= found


def test_a_client_that_resets_a_stream_hears_no_more_of_it() -> None:
    wired = Wired()
    stream = wired.ask()
    wired.client.reset_stream(stream, frames.CANCEL)
    wired.pass_on()
    assert wired.server_events[-1] == StreamReset(stream, frames.CANCEL)
    wired.server.respond(stream, OK)
    wired.server.send(stream, b"late")
    wired.server.trailers(stream, END)
    assert wired.server.outgoing() == b""


def test_the_peers_smaller_window_applies_to_streams_that_have_begun() -> None:
    server = begun(ask(1, True))
    server.receive(frames.frame(frames.SETTINGS, 0, 0, frames.settings({frames.INITIAL_WINDOW: 3})))
    server.outgoing()
    server.send(1, b"abcdef")
    assert list(said(server.outgoing())) == [(frames.DATA, 0, 1, b"abc")]


# --- frame by frame -------------------------------------------------------------------------------------------------


def test_it_begins_with_settings_and_a_window_and_acknowledges_the_peers() -> None:
    server = Http2Connection()
    assert kinds(server.outgoing()) == [frames.SETTINGS, frames.WINDOW_UPDATE]
    server.receive(BEGIN)
    assert list(said(server.outgoing())) == [(frames.SETTINGS, frames.ACK, 0, b"")]


def test_a_ping_is_answered_with_its_bytes_and_an_answer_is_not() -> None:
    server = begun()
    server.receive(frames.frame(frames.PING, 0, 0, b"12345678"))
    assert list(said(server.outgoing())) == [(frames.PING, frames.ACK, 0, b"12345678")]
    server.receive(frames.frame(frames.PING, frames.ACK, 0, b"12345678"))
    assert server.outgoing() == b""


def test_headers_may_be_cut_over_frames() -> None:
    server = begun()
    first = frames.frame(frames.HEADERS, frames.END_STREAM, 1, SOME_HEADERS[:2])
    rest = frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, SOME_HEADERS[2:])
    assert server.receive(first) == []
    (request,) = server.receive(rest)
    assert isinstance(request, RequestReceived)
    assert request.ended
    assert (b":method", b"POST") in request.headers


def test_priorities_and_unknown_frames_mean_nothing() -> None:
    server = begun()
    padded = bytes([2]) + bytes(5) + SOME_HEADERS + bytes(2)
    flags = frames.END_HEADERS | frames.PADDED | frames.WITH_PRIORITY
    unknown = frames.frame(77, 255, 5, b"?")
    priority = frames.frame(frames.PRIORITY, 0, 1, bytes(5))
    events = server.receive(unknown + priority + frames.frame(frames.HEADERS, flags, 1, padded))
    assert [type(event) for event in events] == [RequestReceived]


def test_the_end_of_our_half_tells_a_peer_that_still_sends_to_stop() -> None:
    server = begun(ask(1))
    server.respond(1, OK)
    server.trailers(1, END)
    assert kinds(server.outgoing()) == [frames.HEADERS, frames.HEADERS, frames.RST_STREAM]
    assert server.receive(data(1, b"late")) == []  # it was under way


def test_a_goodbye_leaves_time_for_answers() -> None:
    server = begun(ask(1, True))
    assert server.receive(frames.frame(frames.GOAWAY, 0, 0, bytes(8))) == []
    server.respond(1, OK)
    server.trailers(1, END)
    assert kinds(server.outgoing()) == [frames.HEADERS, frames.HEADERS]


def test_a_goodbye_with_an_error_ends_the_connection_at_once() -> None:
    server = begun(ask(1))
    (ended,) = server.receive(frames.frame(frames.GOAWAY, 0, 0, bytes(7) + b"\x02why"))
    assert ended == ConnectionEnded("the client has ended the connection: error 2 why")
    assert server.receive(ask(3)) == []


def test_our_end_is_said_once_and_nothing_is_taken_afterwards() -> None:
    server = begun(ask(1))
    server.end(text="the server stops")
    server.end(text="again")
    assert [(kind, payload[8:]) for kind, _, _, payload in said(server.outgoing())] == [
        (frames.GOAWAY, b"the server stops")
    ]
    assert server.receive(ask(3)) == []


# --- what breaks the protocol ---------------------------------------------------------------------------------------

WRONG = {
    "another protocol": (b"GET / HTTP/1.1\r\n", frames.PROTOCOL_ERROR, "not HTTP/2"),
    "TLS": (b"\x16\x03\x01\x02\x00", frames.PROTOCOL_ERROR, "not HTTP/2"),
    "no settings": (frames.PREFACE + ask(1), frames.PROTOCOL_ERROR, "no SETTINGS"),
    "large frame": (BEGIN + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01", frames.FRAME_SIZE_ERROR, "a frame of more"),
    "even stream": (BEGIN + ask(2), frames.PROTOCOL_ERROR, "no stream 2"),
    "stream 0": (BEGIN + ask(0), frames.PROTOCOL_ERROR, "no stream 0"),
    "data of nothing": (BEGIN + data(1, b"x"), frames.PROTOCOL_ERROR, "has not begun"),
    "padding": (
        BEGIN + ask(1) + frames.frame(frames.DATA, frames.PADDED, 1, b"\x05ab"), frames.PROTOCOL_ERROR, "padding",
    ),
    "interrupted": (
        BEGIN + frames.frame(frames.HEADERS, 0, 1, b"") + data(1, b""), frames.PROTOCOL_ERROR, "interrupted",
    ),
    "continuation": (BEGIN + frames.frame(frames.CONTINUATION, 4, 1, b""), frames.PROTOCOL_ERROR, "continue"),
    "bad hpack": (
        BEGIN + frames.frame(frames.HEADERS, 4, 1, b"\xff\xff\xff"), frames.COMPRESSION_ERROR, "cannot be read",
    ),
    "short priority": (BEGIN + frames.frame(frames.HEADERS, 36, 1, b"ab"), frames.FRAME_SIZE_ERROR, "priority"),
    "push": (BEGIN + frames.frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), frames.PROTOCOL_ERROR, "pushes"),
    "settings cut": (BEGIN + frames.frame(frames.SETTINGS, 0, 0, bytes(5)), frames.FRAME_SIZE_ERROR, "SETTINGS"),
    "ack with payload": (BEGIN + frames.frame(frames.SETTINGS, 1, 0, bytes(6)), frames.FRAME_SIZE_ERROR, "empty"),
    "huge window": (
        BEGIN + frames.frame(frames.SETTINGS, 0, 0, frames.settings({4: 1 << 31})), frames.FLOW_CONTROL_ERROR, "window",
    ),
    "tiny frames": (
        BEGIN + frames.frame(frames.SETTINGS, 0, 0, frames.settings({5: 100})), frames.PROTOCOL_ERROR, "100 bytes",
    ),
    "window overflow": (
        BEGIN + frames.frame(frames.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), frames.FLOW_CONTROL_ERROR, "too large",
    ),
    "stream window overflow": (
        BEGIN + ask(1) + frames.frame(frames.WINDOW_UPDATE, 0, 1, b"\x7f\xff\xff\xff"),
        frames.FLOW_CONTROL_ERROR, "too large",
    ),
    "no window": (BEGIN + frames.frame(frames.WINDOW_UPDATE, 0, 0, bytes(4)), frames.PROTOCOL_ERROR, "of nothing"),
    "short window": (BEGIN + frames.frame(frames.WINDOW_UPDATE, 0, 0, b"x"), frames.FRAME_SIZE_ERROR, "4 bytes"),
    "window of nothing": (
        BEGIN + frames.frame(frames.WINDOW_UPDATE, 0, 9, b"\0\0\0\1"), frames.PROTOCOL_ERROR, "not begun",
    ),
    "short reset": (BEGIN + ask(1) + frames.frame(frames.RST_STREAM, 0, 1, b""), frames.FRAME_SIZE_ERROR, "4 bytes"),
    "reset of nothing": (BEGIN + frames.frame(frames.RST_STREAM, 0, 7, bytes(4)), frames.PROTOCOL_ERROR, "not begun"),
    "short ping": (BEGIN + frames.frame(frames.PING, 0, 0, b"x"), frames.FRAME_SIZE_ERROR, "PING"),
    "short goaway": (BEGIN + frames.frame(frames.GOAWAY, 0, 0, b"x"), frames.FRAME_SIZE_ERROR, "GOAWAY"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_breaks_the_protocol_ends_the_connection_with_its_code(name: str) -> None:
    sent, code, text = WRONG[name]
    server = Http2Connection()
    server.outgoing()
    ended = server.receive(sent)[-1]
    assert isinstance(ended, ConnectionEnded)
    assert text in ended.why
    kind, _, _, payload = list(said(server.outgoing()))[-1]
    assert (kind, int.from_bytes(payload[4:8])) == (frames.GOAWAY, code)
    assert server.receive(BEGIN) == []


def test_data_after_the_end_of_a_half_cost_the_stream_only() -> None:
    server = begun(ask(1, True))
    assert server.receive(data(1, b"x")) == [StreamReset(1, frames.STREAM_CLOSED)]
    assert kinds(server.outgoing()) == [frames.RST_STREAM]
    assert [type(event) for event in server.receive(ask(3))] == [RequestReceived]


def test_trailers_of_a_client_end_its_half_and_other_headers_cost_the_stream() -> None:
    server = begun(ask(1), ask(3))
    assert server.receive(ask(1, True)) == [DataReceived(1, b"", 0, True)]
    assert server.receive(ask(3)) == [StreamReset(3, frames.PROTOCOL_ERROR)]


def test_more_streams_than_allowed_are_refused_one_by_one() -> None:
    server = begun(*(ask(2 * n + 1) for n in range(http2.STREAMS)))
    number = 2 * http2.STREAMS + 1
    assert server.receive(ask(number)) == []
    assert list(said(server.outgoing())) == [(frames.RST_STREAM, 0, number, frames.REFUSED_STREAM.to_bytes(4))]


def test_a_stream_that_sends_beyond_its_window_is_reset_and_a_connection_ended() -> None:
    server = begun(ask(1), ask(3), ask(5), ask(7), ask(9))
    full = bytes(http2.FRAME_BYTES)
    for stream in (1, 3, 5):
        for _ in range(http2.STREAM_WINDOW // len(full)):
            assert server.receive(data(stream, full)) == [DataReceived(stream, full, len(full), False)]
    assert server.receive(data(1, b"x")) == [StreamReset(1, frames.FLOW_CONTROL_ERROR)]
    room = http2.STREAM_WINDOW // len(full)  # of the connection, less the byte above
    events = [event for _ in range(room + 2) for event in server.receive(data(7, full))]
    assert [type(event) for event in events] == [DataReceived] * (room - 1) + [ConnectionEnded]


def test_headers_without_end_and_headers_that_unpack_to_much_are_refused() -> None:
    server = begun(frames.frame(frames.HEADERS, 0, 1, b""))
    more = frames.frame(frames.CONTINUATION, 0, 1, bytes(16384))
    events = [event for _ in range(5) for event in server.receive(more)]
    assert [type(event) for event in events] == [ConnectionEnded]
    encoder = Encoder()
    first = encoder.encode([(b"x", bytes(4000))])
    bomb = first + encoder.encode([(b"x", bytes(4000))]) * 100
    (ended,) = begun().receive(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, bomb))
    assert isinstance(ended, ConnectionEnded)


@pytest.mark.parametrize(
    "flood",
    [
        frames.frame(frames.PING, 0, 0, bytes(8)), frames.frame(frames.SETTINGS, 0, 0, b""), data(1, b""),
        frames.frame(frames.PRIORITY, 0, 1, bytes(5)), frames.frame(frames.WINDOW_UPDATE, 0, 1, b"\0\0\0\1"),
    ],
)  # fmt: skip
def test_a_flood_of_frames_that_bring_nothing_ends_the_connection(flood: bytes) -> None:
    server = begun(ask(1))
    events = server.receive(flood * (http2.UNPAID + 2))
    assert isinstance(events[-1], ConnectionEnded)
    payload = list(said(server.outgoing()))[-1][3]
    assert int.from_bytes(payload[4:8]) == http2_frames.ENHANCE_YOUR_CALM
