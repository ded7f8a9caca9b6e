"""Laws of the server's end of HTTP/2: cuts mean nothing, nothing hostile raises or hangs, and what is sent arrives."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from backend.door.transport import http2_frames as frames
from backend.door.transport.http2 import Http2Connection
from backend.door.transport.http2_frames import ConnectionEnded, DataReceived, Http2Event, RequestReceived

from ..http2_rig import BEGIN, Wired, ask, data, said

OK = [(b":status", b"200")]


@st.composite
def frame_of_any_kind(draw: st.DrawFn) -> bytes:
    """A frame that may be right: few streams, true kinds, payloads that are often of the length they need."""
    kind = draw(st.integers(0, 10))
    stream = draw(st.sampled_from([0, 1, 1, 3, 5]))
    payload = draw(
        st.one_of(
            st.binary(max_size=12),
            st.just(bytes(8)),
            st.integers(0, 1 << 17).map(lambda n: n.to_bytes(4)),
            st.tuples(st.integers(0, 6), st.integers(0, 1 << 20)).map(lambda s: frames.settings(dict([s]))),
        )
    )
    return frames.frame(kind, draw(st.sampled_from([0, 1, 4, 5, 8, 13, 32, 255])), stream, payload)


right = st.one_of(
    st.sampled_from([1, 3, 5, 7]).flatmap(lambda n: st.sampled_from([ask(n), ask(n, True)])),
    st.tuples(st.sampled_from([1, 3, 5]), st.binary(max_size=40), st.booleans()).map(lambda drawn: data(*drawn)),
    st.just(frames.frame(frames.PING, 0, 0, b"12345678")),
)
peers = st.lists(st.one_of(right, right, frame_of_any_kind()), max_size=25).map(lambda parts: BEGIN + b"".join(parts))
hostile = st.one_of(st.binary(max_size=400), st.binary(max_size=400).map(lambda tail: BEGIN + tail), peers)


def answered(server: Http2Connection, events: list[Http2Event]) -> None:
    """What a server might do about events: answer requests, give back, end streams that the peer has ended."""
    for event in events:
        if isinstance(event, RequestReceived):
            server.respond(event.stream, OK)
        if isinstance(event, DataReceived):
            server.give_back(event.stream, event.nbytes)
            server.send(event.stream, event.data)
        if isinstance(event, RequestReceived | DataReceived) and event.ended:
            server.trailers(event.stream, [(b"grpc-status", b"0")])


@given(hostile, st.lists(st.integers(0, 500), max_size=12))
def test_cuts_mean_nothing(sent: bytes, cuts: list[int]) -> None:
    whole, cut = Http2Connection(), Http2Connection()
    expected = whole.receive(sent)
    edges = sorted({0, len(sent), *(at for at in cuts if at < len(sent))})
    events = [event for a, b in pairwise(edges) for event in cut.receive(sent[a:b])]
    assert events == expected
    assert cut.outgoing() == whole.outgoing()


@given(hostile)
def test_nothing_that_a_peer_sends_raises_and_an_end_is_the_end(sent: bytes) -> None:
    server = Http2Connection()
    ends = 0
    for at in range(0, len(sent), 7):
        events = server.receive(sent[at : at + 7])
        assert not ends or not events
        ends += sum(isinstance(event, ConnectionEnded) for event in events)
        answered(server, events)
    assert ends <= 1
    outgoing = server.outgoing()
    ours = {
        frames.DATA,
        frames.HEADERS,
        frames.RST_STREAM,
        frames.SETTINGS,
        frames.PING,
        frames.GOAWAY,
        frames.WINDOW_UPDATE,
    }
    assert {kind for kind, _, _, _ in said(outgoing)} <= ours
    assert sum(9 + len(payload) for _, _, _, payload in said(outgoing)) == len(outgoing)


@given(st.binary(min_size=1, max_size=60), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=6))
def test_a_true_clients_bytes_may_be_changed_anywhere(body: bytes, changes: list[tuple[int, int]]) -> None:
    wired = Wired()
    stream = wired.ask()
    wired.client.send_data(stream, body, end_stream=True)
    wired.pass_on()
    sent = bytearray(wired.to_server)
    for at, byte in changes:
        sent[at % len(sent)] = byte
    server = Http2Connection()
    answered(server, server.receive(bytes(sent)))
    assert list(said(server.outgoing()))


Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(st.sampled_from(["ask", "up", "down", "open", "end"]), st.integers(0, 3), st.integers(0, 30_000)),
    max_size=25,
)


@given(steps, st.integers(0, 40_000), st.integers(16384, 60_000))
def test_all_that_is_sent_arrives_in_order_within_the_windows(todo: list[Step], window: int, frame: int) -> None:
    """The client of another hand raises when a window is overrun, or a frame is not of the protocol."""
    play = Play(Wired(window, frame))
    for step in todo:
        play.act(*step)
        play.wired.pass_on()
    play.open_all(window)
    came = dict.fromkeys(play.asked, b"")
    for event in play.wired.server_events:
        if isinstance(event, DataReceived):
            came[event.stream] += event.data
    assert came == play.asked
    assert {stream: play.wired.received(stream) for stream in play.answered} == play.answered


class Play:
    """`asked`: what each stream's client has sent; `answered`: what we have."""

    def __init__(self, wired: Wired) -> None:
        self.wired = wired
        self.asked: dict[int, bytes] = {}
        self.answered: dict[int, bytes] = {}
        self.ended: set[int] = set()

    def act(self, what: str, which: int, size: int) -> None:
        client, server = self.wired.client, self.wired.server
        stream = list(self.asked)[which % len(self.asked)] if self.asked else 0
        if what == "ask" or not stream:
            stream = self.wired.ask()
            self.asked[stream] = self.answered[stream] = b""
            self.wired.pass_on()
            server.respond(stream, OK)
        elif stream in self.ended:
            return
        elif what == "up":
            part = bytes([which]) * min(size, client.local_flow_control_window(stream), client.max_outbound_frame_size)
            client.send_data(stream, part)
            self.asked[stream] += part
        elif what == "down":
            server.send(stream, bytes([which + 7]) * size)
            self.answered[stream] += bytes([which + 7]) * size
        elif what == "end":
            client.end_stream(stream)
            server.trailers(stream, [(b"grpc-status", b"0")])
            self.ended.add(stream)
        elif size:
            client.increment_flow_control_window(size, stream)
            client.increment_flow_control_window(size)

    def open_all(self, window: int) -> None:
        for stream in self.asked:
            if backlog := self.wired.server.backlog(stream):
                self.wired.client.increment_flow_control_window(backlog + window, stream)
                self.wired.client.increment_flow_control_window(backlog)
                self.wired.pass_on()
