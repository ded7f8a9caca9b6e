"""A server's end of an HTTP/2 connection as a state machine: bytes in, events out; what it says is kept until written.

    receive(bytes) -> [RequestReceived, DataReceived, StreamReset, ConnectionEnded ...]
    respond(), send(), trailers(), reset(), give_back(), end()      outgoing() -> bytes to write

http2_frames   frames, events, and the table of a stream's states
grpc_calls     what requests mean

It speaks what gRPC needs of RFC 9113: no pushes, no priorities, no upgrade from HTTP/1. It obeys the peer's windows.
It gives its own back when `give_back` says that data were used: whoever gives nothing back holds the peer up. Nothing
that a peer sends raises: what breaks the protocol ends the connection with GOAWAY and a `ConnectionEnded`, or one
stream with RST_STREAM and a `StreamReset`.
"""

from collections import deque
from collections.abc import Callable

from hpack import HPACKError

from . import http2_frames as frames
from .header_blocks import HeaderReader, HeaderWriter
from .http2_frames import (
    ConnectionEnded,
    DataReceived,
    Headers,
    Http2Event,
    ProtocolBreach,
    RequestReceived,
    Step,
    StreamReset,
    StreamState,
    expect,
)

STREAMS = 1000  # that the peer may have open
STREAM_WINDOW = 1 << 24  # bytes of one stream that may be under way to us
CONNECTION_WINDOW = 1 << 26  # bytes of all streams
# the largest frame that we take; larger ones cost more copies, for they come in several reads
FRAME_BYTES = 1 << 16
HEADER_BYTES = 1 << 16  # the most in the headers of one request
UNPAID = 10_000  # frames that a peer may send in a row while no data pass and no request comes


class _Stream:
    __slots__ = ("backlog", "credit", "due", "state", "trailers", "waiting", "window")

    def __init__(self, credit: int, ended: bool) -> None:
        self.state = StreamState.HALF_CLOSED if ended else StreamState.OPEN
        self.credit = credit  # bytes that we may send
        self.window = STREAM_WINDOW  # bytes that the peer may send
        self.due = 0  # bytes of its window that were used and are not given back yet
        self.waiting: deque[bytes | memoryview] = deque()  # data that wait for credit
        self.backlog = 0  # bytes of them
        self.trailers: Headers = []  # follow what waits

    def step(self, step: Step) -> bool:
        """Whether this may happen now; if so, it has."""
        after = frames.TRANSITIONS.get((self.state, step))
        if after is None:
            return False
        self.state = after
        return True


class Http2Connection:
    def __init__(self) -> None:
        self._in = bytearray()  # the beginning of a frame of which more is to come
        self._out: list[bytes | memoryview] = []
        self._streams: dict[int, _Stream] = {}
        self._newest = 0  # stream of the peer
        self._begun = False  # the preface has come
        self._settled = False  # and the peer's first SETTINGS
        self._over = False
        self._reader, self._writer = HeaderReader(HEADER_BYTES), HeaderWriter()
        self._block: tuple[int, bool, bytearray] | None = None  # headers of which more is to come
        self._credit, self._initial_credit, self._frame_bytes = (65535, 65535, 16384)  # the peer's, for what we send
        self._window, self._due = CONNECTION_WINDOW, 0
        self._unpaid = 0
        ours = {frames.MAX_STREAMS: STREAMS, frames.INITIAL_WINDOW: STREAM_WINDOW, frames.MAX_FRAME: FRAME_BYTES}
        self._say(frames.SETTINGS, 0, 0, frames.settings(ours))
        self._say(frames.WINDOW_UPDATE, 0, 0, (CONNECTION_WINDOW - 65535).to_bytes(4))

    # --- what is said ---------------------------------------------------------------------------------------------

    def outgoing(self) -> bytes:
        """What is to be written now. It counts as written."""
        said, self._out = b"".join(self._out), []
        return said

    def backlog(self, stream: int) -> int:
        """Bytes that wait for the peer to open its window."""
        found = self._streams.get(stream)
        return found.backlog if found is not None else 0

    def respond(self, stream: int, headers: Headers) -> None:
        if stream in self._streams:
            self._say(frames.HEADERS, frames.END_HEADERS, stream, self._writer.write(headers))

    def send(self, stream: int, data: bytes | memoryview) -> None:
        found = self._streams.get(stream)
        if found is None or not found.step(Step.DATA_GOES):
            return
        size = len(data)
        if not found.waiting and size <= found.credit and size <= self._credit and size <= self._frame_bytes:
            found.credit -= size
            self._credit -= size
            self._unpaid = 0
            self._say(frames.DATA, 0, stream, data)
        else:
            found.waiting.append(data)
            found.backlog += size
            self._drain(stream, found)

    def trailers(self, stream: int, headers: Headers) -> None:
        """Ends the stream, after what waits."""
        found = self._streams.get(stream)
        if found is not None and found.step(Step.TRAILERS_WAIT):
            found.trailers = headers
            self._drain(stream, found)

    def reset(self, stream: int, code: int) -> None:
        if self._streams.pop(stream, None) is not None:
            self._say(frames.RST_STREAM, 0, stream, code.to_bytes(4))

    def give_back(self, stream: int, nbytes: int) -> None:
        """These bytes were used, so that the peer may send as many more."""
        if not nbytes or self._over:
            return
        self._due += nbytes
        if self._due >= CONNECTION_WINDOW // 4:
            self._window += self._due
            self._say(frames.WINDOW_UPDATE, 0, 0, self._due.to_bytes(4))
            self._due = 0
        found = self._streams.get(stream)
        if found is None or (found.state, Step.DATA_CAME) not in frames.TRANSITIONS:
            return
        found.due += nbytes
        if found.due >= STREAM_WINDOW // 4:
            found.window += found.due
            self._say(frames.WINDOW_UPDATE, 0, stream, found.due.to_bytes(4))
            found.due = 0

    def end(self, code: int = frames.NO_ERROR, text: str = "") -> None:
        """Says that the connection is over."""
        if not self._over:
            self._over = True
            self._streams.clear()
            self._say(frames.GOAWAY, 0, 0, self._newest.to_bytes(4) + code.to_bytes(4) + text.encode()[:200])

    def _say(self, kind: int, flags: int, stream: int, payload: bytes | memoryview) -> None:
        size = len(payload)
        self._out.append(frames.HEAD.pack(size >> 8, size & 255, kind, flags, stream))
        if size:
            self._out.append(payload)

    def _drain(self, stream: int, found: _Stream) -> None:
        """Sends what waits, as far as the peer's windows reach."""
        while found.waiting:
            data = found.waiting[0]
            size = min(len(data), found.credit, self._credit, self._frame_bytes)
            if size <= 0 < len(data):
                return
            found.credit -= size
            self._credit -= size
            found.backlog -= size
            self._unpaid = 0
            if size == len(data):
                found.waiting.popleft()
                self._say(frames.DATA, 0, stream, data)
            else:
                view = memoryview(data)
                found.waiting[0] = view[size:]
                self._say(frames.DATA, 0, stream, view[:size])
        half_closed = found.state is StreamState.ENDING_HALF_CLOSED
        if found.step(Step.TRAILERS_GO):
            # Encoded now, not when they began to wait: the peer decodes all headers in the order in which they come.
            block = self._writer.write(found.trailers)
            self._say(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, block)
            del self._streams[stream]
            if not half_closed:
                self._say(frames.RST_STREAM, 0, stream, frames.NO_ERROR.to_bytes(4))

    def _drain_all(self) -> None:
        for stream, found in list(self._streams.items()):
            if found.waiting:
                self._drain(stream, found)

    # --- what is received -----------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Http2Event]:
        """What these bytes, after all earlier ones, amount to. The events do not depend on how the bytes are cut."""
        events: list[Http2Event] = []
        if self._over:
            return events
        buffer: bytes | bytearray = data
        if self._in:
            self._in += data
            buffer = self._in
        try:
            taken = self._frames(buffer, events)
        except ProtocolBreach as breach:
            self.end(breach.code, str(breach))
            events.append(ConnectionEnded(str(breach)))
            taken = len(buffer)
        if buffer is data:
            self._in = bytearray(memoryview(data)[taken:])
        elif taken == len(buffer):
            self._in = bytearray()
        else:
            del self._in[:taken]
        return events

    def _frames(self, buffer: bytes | bytearray, events: list[Http2Event]) -> int:
        """Takes all whole frames; returns the number of their bytes."""
        at = 0
        if not self._begun:
            if not frames.PREFACE.startswith(bytes(buffer[: len(frames.PREFACE)])):
                raise ProtocolBreach(frames.PROTOCOL_ERROR, "this is not HTTP/2 without TLS")
            if len(buffer) < len(frames.PREFACE):
                return 0
            self._begun, at = True, len(frames.PREFACE)
        view = buffer if isinstance(buffer, bytes) else memoryview(buffer)  # one copy of each payload
        unpack, size = frames.HEAD.unpack_from, len(buffer)
        while size - at >= frames.HEAD_BYTES and not self._over:
            high, low, kind, flags, stream = unpack(buffer, at)
            begin = at + frames.HEAD_BYTES
            end = begin + (high << 8 | low)
            if end - begin > FRAME_BYTES:
                raise ProtocolBreach(frames.FRAME_SIZE_ERROR, f"a frame of more than {FRAME_BYTES} bytes")
            if end > size:
                break
            at = end
            payload = bytes(view[begin:end])
            stream &= frames.STREAM_NUMBER
            if kind == frames.DATA and self._block is None and self._settled:
                self._data(flags, stream, payload, events)
            else:
                self._frame(kind, flags, stream, payload, events)
        return at

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes, events: list[Http2Event]) -> None:
        if self._block is not None:
            whole = kind == frames.CONTINUATION and stream == self._block[0]
            expect(whole, frames.PROTOCOL_ERROR, "headers are interrupted by another frame")
        if not self._settled and kind != frames.SETTINGS:
            raise ProtocolBreach(frames.PROTOCOL_ERROR, "the first frame is no SETTINGS")
        self._count_unpaid()
        receiver = RECEIVERS.get(kind)
        if receiver is not None:  # PRIORITY means nothing any more; frames of unknown kinds are to be ignored
            receiver(self, flags, stream, payload, events)

    def _count_unpaid(self) -> None:
        self._unpaid += 1
        if self._unpaid > UNPAID:
            raise ProtocolBreach(frames.ENHANCE_YOUR_CALM, f"{UNPAID} frames without data or a request")

    def _data(self, flags: int, stream: int, payload: bytes, events: list[Http2Event]) -> None:
        size = len(payload)
        self._window -= size
        if self._window < 0:
            raise ProtocolBreach(frames.FLOW_CONTROL_ERROR, "more data than the connection's window has room for")
        data = frames.without_padding(payload) if flags & frames.PADDED else payload
        if data:
            self._unpaid = 0
        else:
            self._count_unpaid()
        found = self._streams.get(stream)
        if found is None:
            expect(0 < stream <= self._newest, frames.PROTOCOL_ERROR, "data of a stream that has not begun")
            self.give_back(0, size)  # the stream has ended; nobody will use these
            return
        ended = bool(flags & frames.END_STREAM)
        found.window -= size
        if found.window < 0:
            self._break(stream, frames.FLOW_CONTROL_ERROR, size, events)
        elif not found.step(Step.DATA_CAME) or (ended and not found.step(Step.END_CAME)):
            self._break(stream, frames.STREAM_CLOSED, size, events)
        else:
            events.append(DataReceived(stream, data, size, ended))

    def _break(self, stream: int, code: int, unused: int, events: list[Http2Event]) -> None:
        self.reset(stream, code)
        self.give_back(0, unused)
        events.append(StreamReset(stream, code))

    def _headers(self, flags: int, stream: int, payload: bytes, events: list[Http2Event]) -> None:
        if flags & frames.PADDED:
            payload = frames.without_padding(payload)
        if flags & frames.WITH_PRIORITY:
            expect(len(payload) >= 5, frames.FRAME_SIZE_ERROR, "headers without the priority that they announce")
            payload = payload[5:]
        self._block = (stream, bool(flags & frames.END_STREAM), bytearray())
        self._continuation(flags, stream, payload, events)

    def _continuation(self, flags: int, stream: int, payload: bytes, events: list[Http2Event]) -> None:
        if self._block is None:
            raise ProtocolBreach(frames.PROTOCOL_ERROR, "headers continue that have not begun")
        _, ended, block = self._block
        block += payload
        expect(len(block) <= HEADER_BYTES, frames.ENHANCE_YOUR_CALM, f"headers of more than {HEADER_BYTES} bytes")
        if not flags & frames.END_HEADERS:
            return
        self._block = None
        try:
            headers = self._reader.read(bytes(block))
        except HPACKError as error:
            raise ProtocolBreach(frames.COMPRESSION_ERROR, f"headers that cannot be read: {error}") from None
        if stream > self._newest or stream == 0:
            self._request(stream, headers, ended, events)
        elif (found := self._streams.get(stream)) is not None:  # trailers; or else those of a stream that has ended
            if ended and found.step(Step.END_CAME):
                events.append(DataReceived(stream, b"", 0, True))
            else:
                self._break(stream, frames.PROTOCOL_ERROR if not ended else frames.STREAM_CLOSED, 0, events)

    def _request(self, stream: int, headers: Headers, ended: bool, events: list[Http2Event]) -> None:
        expect(stream % 2 == 1, frames.PROTOCOL_ERROR, f"a client begins no stream {stream}")
        self._newest = stream
        if len(self._streams) >= STREAMS:
            self._say(frames.RST_STREAM, 0, stream, frames.REFUSED_STREAM.to_bytes(4))
            return
        self._unpaid = 0
        self._streams[stream] = _Stream(self._initial_credit, ended)
        events.append(RequestReceived(stream, headers, ended))

    def _reset(self, flags: int, stream: int, payload: bytes, events: list[Http2Event]) -> None:
        expect(len(payload) == 4, frames.FRAME_SIZE_ERROR, "a RST_STREAM is 4 bytes")
        expect(0 < stream <= self._newest, frames.PROTOCOL_ERROR, "RST_STREAM of a stream that has not begun")
        if self._streams.pop(stream, None) is not None:
            events.append(StreamReset(stream, int.from_bytes(payload)))

    def _settings(self, flags: int, stream: int, payload: bytes, events: list[Http2Event]) -> None:
        expect(
            not stream and len(payload) % 6 == 0, frames.FRAME_SIZE_ERROR, "SETTINGS that are cut off, or of a stream"
        )
        self._settled = True
        if flags & frames.ACK:
            expect(not payload, frames.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS is empty")
            return
        for at in range(0, len(payload), 6):
            name, value = int.from_bytes(payload[at : at + 2]), int.from_bytes(payload[at + 2 : at + 6])
            if name == frames.INITIAL_WINDOW:
                self._initial_window(value)
            elif name == frames.MAX_FRAME:
                expect(16384 <= value < 1 << 24, frames.PROTOCOL_ERROR, f"frames of at most {value} bytes")
                self._frame_bytes = value
            elif name == frames.HEADER_TABLE_SIZE:
                self._writer.resize(min(value, 4096))
        self._say(frames.SETTINGS, frames.ACK, 0, b"")
        self._drain_all()

    def _initial_window(self, value: int) -> None:
        """Applies to all streams, also to those that have begun. A credit may become negative."""
        expect(value <= frames.LARGEST_WINDOW, frames.FLOW_CONTROL_ERROR, "an initial window that is too large")
        more, self._initial_credit = value - self._initial_credit, value
        for found in self._streams.values():
            found.credit += more
            expect(
                found.credit <= frames.LARGEST_WINDOW, frames.FLOW_CONTROL_ERROR, "a stream's window that is too large"
            )

    def _window_update(self, flags: int, stream: int, payload: bytes, events: list[Http2Event]) -> None:
        if len(payload) != 4:
            raise ProtocolBreach(frames.FRAME_SIZE_ERROR, "a WINDOW_UPDATE is 4 bytes")
        more = int.from_bytes(payload) & frames.LARGEST_WINDOW
        if not more:
            raise ProtocolBreach(frames.PROTOCOL_ERROR, "a WINDOW_UPDATE of nothing")
        if not stream:
            if more > frames.LARGEST_WINDOW - self._credit:
                raise ProtocolBreach(frames.FLOW_CONTROL_ERROR, "a window that is too large")
            self._credit += more
            self._drain_all()
            return
        if stream > self._newest:
            raise ProtocolBreach(frames.PROTOCOL_ERROR, "a window of a stream that has not begun")
        found = self._streams.get(stream)
        if found is not None:
            if more > frames.LARGEST_WINDOW - found.credit:
                raise ProtocolBreach(frames.FLOW_CONTROL_ERROR, "a stream's window that is too large")
            found.credit += more
            if found.waiting:
                self._drain(stream, found)

    def _ping(self, flags: int, stream: int, payload: bytes, events: list[Http2Event]) -> None:
        expect(len(payload) == 8 and not stream, frames.FRAME_SIZE_ERROR, "a PING is 8 bytes, and of no stream")
        if not flags & frames.ACK:
            self._say(frames.PING, frames.ACK, 0, payload)

    def _goaway(self, flags: int, stream: int, payload: bytes, events: list[Http2Event]) -> None:
        """With NO_ERROR the peer only takes no pushes, which we never send; it closes when all is answered."""
        expect(len(payload) >= 8 and not stream, frames.FRAME_SIZE_ERROR, "a GOAWAY that is too short, or of a stream")
        code = int.from_bytes(payload[4:8])
        if code != frames.NO_ERROR:
            self._over = True
            self._streams.clear()
            text = payload[8:208].decode(errors="replace")
            events.append(ConnectionEnded(f"the client has ended the connection: error {code} {text}".rstrip()))

    def _push_promise(self, flags: int, stream: int, payload: bytes, events: list[Http2Event]) -> None:
        raise ProtocolBreach(frames.PROTOCOL_ERROR, "a client pushes nothing")


RECEIVERS: dict[int, Callable[[Http2Connection, int, int, bytes, list[Http2Event]], None]] = {
    frames.HEADERS: Http2Connection._headers,
    frames.RST_STREAM: Http2Connection._reset,
    frames.SETTINGS: Http2Connection._settings,
    frames.PUSH_PROMISE: Http2Connection._push_promise,
    frames.PING: Http2Connection._ping,
    frames.GOAWAY: Http2Connection._goaway,
    frames.WINDOW_UPDATE: Http2Connection._window_update,
    frames.CONTINUATION: Http2Connection._continuation,
}
