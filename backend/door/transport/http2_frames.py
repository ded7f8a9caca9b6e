"""HTTP/2's frames (RFC 9113): numbers and limits, the events that a connection reports, and what breaks the protocol.

http2   the connection
"""

from enum import IntEnum, auto
from struct import Struct
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = Struct(">HBBBI")  # a frame's head: its length (16 bits, then 8), type, flags, stream
HEAD_BYTES = 9

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
ACK = END_STREAM = 1
END_HEADERS, PADDED, WITH_PRIORITY = 4, 8, 32
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED = range(6)
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = range(6, 10)
ENHANCE_YOUR_CALM = 11
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_STREAMS, INITIAL_WINDOW, MAX_FRAME = range(1, 6)

LARGEST_WINDOW = (1 << 31) - 1
STREAM_NUMBER = (1 << 31) - 1  # the highest bit is reserved

Headers = list[tuple[bytes, bytes]]


class RequestReceived(NamedTuple):
    stream: int
    headers: Headers
    ended: bool  # the peer sends nothing more on this stream


class DataReceived(NamedTuple):
    """`nbytes` is what the windows count: data and padding. It is to be given back (`give_back`) as data are used."""

    stream: int
    data: bytes
    nbytes: int
    ended: bool


class StreamReset(NamedTuple):
    """The stream is over, by the peer's will or because the peer broke the protocol on it."""

    stream: int
    code: int


class ConnectionEnded(NamedTuple):
    """Nothing more is received. What is outgoing is still to be written, then the connection is to be closed."""

    why: str


Http2Event = RequestReceived | DataReceived | StreamReset | ConnectionEnded


class StreamState(IntEnum):  # Enum's hash is slow
    OPEN = auto()
    HALF_CLOSED = auto()  # the peer has ended its half
    ENDING = auto()  # our trailers wait behind data that wait for the peer's window
    ENDING_HALF_CLOSED = auto()  # both
    CLOSED = auto()


class Step(IntEnum):
    """What happens to a stream."""

    DATA_CAME = auto()
    END_CAME = auto()
    DATA_GOES = auto()
    TRAILERS_WAIT = auto()
    TRAILERS_GO = auto()


# What may happen in which state, and the state afterwards. All else breaks the protocol if the peer does it, and is
# passed over if we do. After our trailers a stream is closed in any case: RST_STREAM tells a peer that has not ended
# its half to stop.
TRANSITIONS: dict[tuple[StreamState, Step], StreamState] = {
    (StreamState.OPEN, Step.DATA_CAME): StreamState.OPEN,
    (StreamState.OPEN, Step.END_CAME): StreamState.HALF_CLOSED,
    (StreamState.OPEN, Step.DATA_GOES): StreamState.OPEN,
    (StreamState.OPEN, Step.TRAILERS_WAIT): StreamState.ENDING,
    (StreamState.HALF_CLOSED, Step.DATA_GOES): StreamState.HALF_CLOSED,
    (StreamState.HALF_CLOSED, Step.TRAILERS_WAIT): StreamState.ENDING_HALF_CLOSED,
    (StreamState.ENDING, Step.DATA_CAME): StreamState.ENDING,
    (StreamState.ENDING, Step.END_CAME): StreamState.ENDING_HALF_CLOSED,
    (StreamState.ENDING, Step.TRAILERS_GO): StreamState.CLOSED,
    (StreamState.ENDING_HALF_CLOSED, Step.TRAILERS_GO): StreamState.CLOSED,
}


class ProtocolBreach(Exception):
    """The peer broke the protocol, so that the connection ends with this code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return HEAD.pack(len(payload) >> 8, len(payload) & 255, kind, flags, stream) + payload


def settings(values: dict[int, int]) -> bytes:
    return b"".join(name.to_bytes(2) + value.to_bytes(4) for name, value in values.items())


def expect(holds: bool, code: int, text: str) -> None:
    if not holds:
        raise ProtocolBreach(code, text)


def without_padding(payload: bytes) -> bytes:
    expect(bool(payload) and payload[0] < len(payload), PROTOCOL_ERROR, "padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]
