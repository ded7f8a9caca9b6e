"""A gRPC client in memory, on HTTP/2 of another hand (`h2`), connected to a `GrpcConnection`."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import unquote

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from backend.door.protocol.ifrt_messages import (
    GrpcHostBufferStoreMetadata,
    GrpcHostBufferStoreRequest,
    GrpcIfrtSessionMetadata,
    IfrtProxyVersion,
)
from backend.door.server.ifrt_service import SERVICE, SESSION_METADATA, STORE_METADATA, Sessions
from backend.door.transport.grpc_calls import PREFIX, Call, CallHandler, GrpcConnection

NEWEST = IfrtProxyVersion(protocol_version=25, ifrt_serdes_version_number=6)


class Result(NamedTuple):
    messages: list[bytes]
    status: int | None  # None: the call goes on
    text: str = ""


def framed(message: bytes) -> bytes:
    return PREFIX.pack(0, len(message)) + message


class GrpcClient:
    """`woken`: how often the server said that it has something to write."""

    def __init__(self, begin: Callable[[Call], CallHandler], window: int = (1 << 31) - 1) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.server = GrpcConnection(begin, self._wake)
        self.woken = 0
        self.events: list[h2.events.Event] = []
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.h2.increment_flow_control_window((1 << 31) - 1 - 65535)
        self.pass_on()

    def _wake(self) -> None:
        self.woken += 1

    def pass_on(self) -> None:
        while True:
            up, down = self.h2.data_to_send(), self.server.outgoing()
            if not up and not down:
                return
            self.server.receive(up)
            self.events += self.h2.receive_data(down)

    def call(self, path: str, *messages: bytes, metadata: dict[str, bytes] | None = None, ends: bool = True) -> int:
        stream = int(self.h2.get_next_available_stream_id())
        shown = [
            (name, b64encode(value).rstrip(b"=").decode() if name.endswith("-bin") else value.decode())
            for name, value in (metadata or {}).items()
        ]
        head = [(":method", "POST"), (":path", path), (":scheme", "http"), (":authority", "x"), ("te", "trailers")]
        self.h2.send_headers(stream, [*head, ("content-type", "application/grpc"), *shown])
        for message in messages:
            self.send(stream, framed(message))
        if ends:
            self.end(stream)
        self.pass_on()
        return stream

    def send(self, stream: int, data: bytes) -> None:
        size = self.h2.max_outbound_frame_size
        with suppress(h2.exceptions.StreamClosedError):  # the server has ended the call
            for at in range(0, len(data), size):
                self.h2.send_data(stream, data[at : at + size])
        self.pass_on()

    def end(self, stream: int) -> None:
        with suppress(h2.exceptions.StreamClosedError):
            self.h2.end_stream(stream)
        self.pass_on()

    def result(self, stream: int) -> Result:
        data, status, text = b"", None, ""
        for event in self.events:
            if getattr(event, "stream_id", None) != stream:
                continue
            if isinstance(event, h2.events.DataReceived) and event.data:
                data += event.data
            elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived) and event.headers:
                headers: dict[Any, Any] = dict(event.headers)
                if "grpc-status" in headers:
                    status, text = int(headers["grpc-status"]), unquote(headers.get("grpc-message", ""))
        messages = []
        while data:
            _, size = PREFIX.unpack_from(data)
            messages.append(data[5 : 5 + size])
            data = data[5 + size :]
        return Result(messages, status, text)


class ProxyClient(GrpcClient):
    """A client of the IFRT proxy's service."""

    def __init__(self, sessions: Sessions, peer: Hashable = "ann", window: int = (1 << 31) - 1) -> None:
        super().__init__(lambda call: sessions.begin(call, peer), window)

    def open_session(self, version: Any = NEWEST) -> int:
        shown = GrpcIfrtSessionMetadata(version=version)
        return self.call(SERVICE + "IfrtSession", metadata={SESSION_METADATA: shown.SerializeToString()}, ends=False)

    def begin_store(self, session_id: int, handle: int, size: int) -> int:
        shown = GrpcHostBufferStoreMetadata(session_id=session_id, handle=handle, buffer_size=size)
        return self.call(SERVICE + "HostBufferStore", metadata={STORE_METADATA: shown.SerializeToString()}, ends=False)

    def store(self, session_id: int, handle: int, data: bytes, piece: int = 1 << 20) -> Result:
        stream = self.begin_store(session_id, handle, len(data))
        for at in range(0, len(data), piece):
            self.send(stream, framed(GrpcHostBufferStoreRequest(data=data[at : at + piece]).SerializeToString()))
        self.end(stream)
        return self.result(stream)

    def ask(self, method: str, message: Any) -> Result:
        return self.result(self.call(SERVICE + method, message.SerializeToString()))
