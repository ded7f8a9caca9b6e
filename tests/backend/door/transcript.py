"""What passes on a door's connections as text: each frame with its headers, and each message with its fields."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from google.protobuf import text_format
from hpack import Decoder

from backend.door.protocol import ifrt_messages
from backend.door.server.ifrt_service import SERVICE, SESSION_METADATA, STORE_METADATA
from backend.door.transport import http2_frames as frames
from backend.door.transport.grpc_calls import PREFIX

NAMES = {getattr(frames, name): name for name in (
    "DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PING", "GOAWAY", "WINDOW_UPDATE", "CONTINUATION"
)}  # fmt: skip
METHODS = {  # what a client sends, and what it is answered
    "GetVersion": ("GrpcGetVersionRequest", "GrpcGetVersionResponse"),
    "IfrtSession": ("IfrtRequest", "IfrtResponse"),
    "HostBufferStore": ("GrpcHostBufferStoreRequest", "GrpcHostBufferStoreResponse"),
    "HostBufferLookup": ("GrpcHostBufferLookupRequest", "GrpcHostBufferLookupResponse"),
    "HostBufferDelete": ("GrpcHostBufferDeleteRequest", "GrpcHostBufferDeleteResponse"),
}
METADATA = {SESSION_METADATA: "GrpcIfrtSessionMetadata", STORE_METADATA: "GrpcHostBufferStoreMetadata"}


class Transcript:
    """One direction of one connection. `paths`: of the streams, which both directions share."""

    def __init__(self, who: str, paths: dict[int, str]) -> None:
        self._who, self._paths = who, paths
        self._raw = b""
        self._begun = who.startswith("server")
        self._decoder = Decoder()
        self._messages: dict[int, bytes] = {}

    def lines(self, data: bytes) -> Iterator[str]:
        self._raw += data
        if not self._begun and len(self._raw) >= len(frames.PREFACE):
            self._begun, self._raw = True, self._raw[len(frames.PREFACE) :]
        while self._begun and len(self._raw) >= 9:
            high, low, kind, flags, stream = frames.HEAD.unpack_from(self._raw)
            end = 9 + (high << 8 | low)
            if len(self._raw) < end:
                return
            payload, self._raw = self._raw[9:end], self._raw[end:]
            ended = " END" if kind in (frames.DATA, frames.HEADERS) and flags & frames.END_STREAM else ""
            ended = " ACK" if kind in (frames.SETTINGS, frames.PING) and flags & frames.ACK else ended
            number = f" {stream}" if stream else ""
            yield f"{self._who}: {NAMES[kind]}{number}{ended}{self._rest(kind, payload)}"
            if kind == frames.HEADERS:
                yield from self._headers(stream, payload)
            elif kind == frames.DATA:
                yield from self._data(stream, payload)

    def _rest(self, kind: int, payload: bytes) -> str:
        if kind == frames.SETTINGS:
            pairs = (payload[at : at + 6] for at in range(0, len(payload), 6))
            return "".join(f" {int.from_bytes(pair[:2])}={int.from_bytes(pair[2:])}" for pair in pairs)
        if kind in (frames.WINDOW_UPDATE, frames.RST_STREAM):
            return f" {int.from_bytes(payload)}"
        return ""

    def _headers(self, stream: int, payload: bytes) -> Iterator[str]:
        for raw_name, raw_value in self._decoder.decode(payload, raw=True):
            name, value = bytes(raw_name).decode(), bytes(raw_value).decode()
            if name == ":path":
                self._paths[stream] = value.removeprefix(SERVICE)
            kind = METADATA.get(name)
            yield f"    {name}: {shown(kind, decoded(value)) if kind else value}"

    def _data(self, stream: int, payload: bytes) -> Iterator[str]:
        data = self._messages.get(stream, b"") + payload
        while len(data) >= 5 and len(data) >= 5 + PREFIX.unpack_from(data)[1]:
            end = 5 + PREFIX.unpack_from(data)[1]
            kind = METHODS[self._paths[stream]][self._who.startswith("server")]
            yield f"    {kind}: {shown(kind, data[5:end])}"
            data = data[end:]
        self._messages[stream] = data


def decoded(value: str) -> bytes:
    return b64decode(value + "=" * (-len(value) % 4))


def shown(kind: str, data: bytes) -> str:
    message: Any = getattr(ifrt_messages, kind).FromString(data)
    return str(text_format.MessageToString(message, as_one_line=True))
