"""An HTTP/2 client of another hand (`h2`) wired to our server's end in memory, and frames written by hand."""

from __future__ import annotations

from collections.abc import Iterator

import h2.config
import h2.connection
import h2.events
import h2.settings

from backend.door.transport import http2_frames as frames
from backend.door.transport.http2 import Http2Connection
from backend.door.transport.http2_frames import Http2Event

ASK = [(":method", "POST"), (":path", "/a/b"), (":scheme", "http"), (":authority", "x"), ("te", "trailers")]
BEGIN = frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, b"")
SOME_HEADERS = b"\x83\x86\x84\x41\x01\x78"  # POST, http, /, authority x: of the static table


def ask(stream: int, ended: bool = False) -> bytes:
    flags = frames.END_HEADERS | (frames.END_STREAM if ended else 0)
    return frames.frame(frames.HEADERS, flags, stream, SOME_HEADERS)


def data(stream: int, payload: bytes, ended: bool = False) -> bytes:
    return frames.frame(frames.DATA, frames.END_STREAM if ended else 0, stream, payload)


def begun(*more: bytes) -> Http2Connection:
    """A connection that has received its beginning and these frames, and has said what it says to them."""
    server = Http2Connection()
    server.receive(b"".join((BEGIN, *more)))
    server.outgoing()
    return server


def said(raw: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """(kind, flags, stream, payload) of each frame."""
    at = 0
    while at < len(raw):
        high, low, kind, flags, stream = frames.HEAD.unpack_from(raw, at)
        size = high << 8 | low
        yield kind, flags, stream, raw[at + 9 : at + 9 + size]
        at += 9 + size


def kinds(raw: bytes) -> list[int]:
    return [kind for kind, _, _, _ in said(raw)]


class Wired:
    """`client` and `server`; `pass_on` carries bytes to and fro until both are silent."""

    def __init__(self, window: int = 65535, frame: int = 16384) -> None:
        self.client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.server = Http2Connection()
        self.to_server = bytearray()  # all bytes so far
        self.client_events: list[h2.events.Event] = []
        self.server_events: list[Http2Event] = []
        self.client.initiate_connection()
        names = h2.settings.SettingCodes
        self.client.update_settings({names.INITIAL_WINDOW_SIZE: window, names.MAX_FRAME_SIZE: frame})
        self.pass_on()

    def pass_on(self) -> None:
        while True:
            up, down = self.client.data_to_send(), self.server.outgoing()
            if not up and not down:
                return
            self.to_server += up
            self.server_events += self.server.receive(up)
            if down:
                self.client_events += self.client.receive_data(down)

    def ask(self, ended: bool = False) -> int:
        stream = self.client.get_next_available_stream_id()
        self.client.send_headers(stream, ASK, end_stream=ended)
        return int(stream)

    def received(self, stream: int) -> bytes:
        """What the client has of this stream."""
        return b"".join(
            event.data
            for event in self.client_events
            if isinstance(event, h2.events.DataReceived) and event.stream_id == stream and event.data
        )
