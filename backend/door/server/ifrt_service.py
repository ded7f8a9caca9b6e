"""The calls of the IFRT proxy's service: versions, sessions, and the host buffers beside them.

grpc_calls     the calls as such
session_port   the session above: one for each IfrtSession call
door_server    sockets

A client opens two connections: one for its session, one for host buffers. `Sessions` is above connections, and ties
them by the session's id. An id is random, and only good for the peer whose session it is: they are a buffer's key.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from ...contents import CallbackFault, callbacks, shard_io
from ..protocol import (
    GrpcGetVersionRequest,
    GrpcGetVersionResponse,
    GrpcHostBufferDeleteRequest,
    GrpcHostBufferLookupRequest,
    GrpcHostBufferStoreMetadata,
    GrpcHostBufferStoreRequest,
    GrpcIfrtSessionMetadata,
    IfrtProxyVersion,
)
from ..session import Opening, SessionPort, Version
from ..transport import INVALID_ARGUMENT, OK, RESOURCE_EXHAUSTED, UNIMPLEMENTED, Call, CallHandler, RpcRefused

SERVICE = "/xla.ifrt.proxy.GrpcIfrtService/"
SESSION_METADATA = "ifrt-proxy-grpc-ifrt-session-metadata-bin"
STORE_METADATA = "ifrt-proxy-grpc-host-buffer-store-metadata-bin"
CALLBACKS_METADATA = "seaway-session-bin"  # of a call that is ours, not the protocol's
PROTOCOL_VERSIONS = 16, 25  # that we speak
SERDES_VERSIONS = 0, 6  # of shardings, layouts and programs inside messages
NOT_FOUND, FAILED_PRECONDITION = 5, 9
PIECE = 1 << 20  # bytes of a host buffer in one message
BACKLOG = 1 << 26  # bytes of responses that a client has not taken, beyond which its requests wait
EMPTY = b""  # a response without fields
NOTHING = memoryview(EMPTY)


class TransportLimits(NamedTuple):
    request_bytes: int = 1 << 30  # of one IfrtRequest: programs carry their constants
    arriving_bytes: int = 1 << 34  # of a session's host buffers that have not come whole
    sessions: int = 256
    connections: int = 1024


DEFAULT_LIMITS = TransportLimits()


class Sessions:
    """The open sessions of all connections. `draw` makes session ids."""

    def __init__(
        self, opening: Opening, limits: TransportLimits = DEFAULT_LIMITS,
        draw: Callable[[], int] = lambda: secrets.randbits(63),
    ) -> None:  # fmt: skip
        self.opening, self.limits, self._draw = opening, limits, draw
        self.open: dict[int, _Session] = {}

    def begin(self, call: Call, peer: Hashable) -> CallHandler:
        """The handler of a new call of this peer. Raises RpcRefused."""
        method = call.path.removeprefix(SERVICE)
        if method == "HostBufferReadFromDisk":
            raise RpcRefused(UNIMPLEMENTED, "this server shares no disk with its clients; unset IFRT_PROXY_GRPC_LARGE_"
                              "TRANSFER_OPTIMIZATION_DIRECTORY in the client's environment")  # fmt: skip
        kind = METHODS.get(method)
        if kind is None or not call.path.startswith(SERVICE):
            raise RpcRefused(UNIMPLEMENTED, f"there is no {call.path} here")
        return kind(self, call, peer)

    def find(self, session_id: int, peer: Hashable) -> _Session:
        found = self.open.get(session_id)
        if found is None or found.peer != peer:
            raise RpcRefused(NOT_FOUND, "this client has no such session; it may have ended")
        return found

    def new_id(self) -> int:
        while (drawn := self._draw()) in self.open or not drawn:
            pass
        return drawn


def agreed_version(least: Version, most: Version) -> Version:
    """The newest version that the client and we know. Raises RpcRefused."""
    return Version(
        _newest_common("protocol version", least.protocol_version, most.protocol_version, PROTOCOL_VERSIONS),
        _newest_common("serdes version", least.serdes_version, most.serdes_version, SERDES_VERSIONS),
    )


def _newest_common(name: str, least: int, most: int, ours: tuple[int, int]) -> int:
    newest = min(most, ours[1])
    if newest < max(least, ours[0]):
        raise RpcRefused(FAILED_PRECONDITION, f"the client speaks {name} {least} to {most}, this server {ours[0]} to "
                          f"{ours[1]}: use a jaxlib that this version of Seaway supports")  # fmt: skip
    return newest


class _Unary:
    """A call with one message, which `answer` answers."""

    largest = PIECE
    blocked = False

    def __init__(self, sessions: Sessions, call: Call, peer: Hashable) -> None:
        self.sessions, self.call, self.peer = sessions, call, peer
        self._asked: bytes | None = None

    def message(self, data: bytes) -> None:
        if self._asked is not None:
            raise RpcRefused(INVALID_ARGUMENT, "two messages where one is expected")
        self._asked = data

    def half_closed(self) -> None:
        if self._asked is None:
            raise RpcRefused(INVALID_ARGUMENT, "no message where one is expected")
        try:
            self.answer(self._asked)
        except DecodeError:
            raise RpcRefused(INVALID_ARGUMENT, "the message cannot be read") from None
        self.call.close(OK)

    def answer(self, data: bytes) -> None:
        raise NotImplementedError

    def lost(self, why: str) -> None:
        pass


class _GetVersion(_Unary):
    def answer(self, data: bytes) -> None:
        asked = GrpcGetVersionRequest.FromString(data)
        agreed = agreed_version(_version(asked.min_version), _version(asked.max_version))
        version = IfrtProxyVersion(
            protocol_version=agreed.protocol_version, ifrt_serdes_version_number=agreed.serdes_version
        )
        self.call.send(GrpcGetVersionResponse(version=version).SerializeToString())


class _Lookup(_Unary):
    def answer(self, data: bytes) -> None:
        asked = GrpcHostBufferLookupRequest.FromString(data)
        session = self.sessions.find(asked.session_id, self.peer)
        found = session.port.lookup(asked.handle)
        if found is None:
            raise RpcRefused(NOT_FOUND, f"there is no host buffer {asked.handle}")
        contents = memoryview(found).cast("B")
        for at in range(0, len(contents) or 1, PIECE):
            piece = contents[at : at + PIECE]
            # GrpcHostBufferLookupResponse, without a copy
            self.call.send(b"\x0a" + _varint(len(piece)), piece)


class _Delete(_Unary):
    def answer(self, data: bytes) -> None:
        asked = GrpcHostBufferDeleteRequest.FromString(data)
        self.sessions.find(asked.session_id, self.peer).port.forget(asked.handle)
        self.call.send(EMPTY)


class _Store:
    """A host buffer on its way to a session."""

    largest = PIECE + 64  # a piece and its field
    blocked = False

    def __init__(self, sessions: Sessions, call: Call, peer: Hashable) -> None:
        metadata = _decoded(GrpcHostBufferStoreMetadata, call.metadata(STORE_METADATA))
        self.call, self.handle, self.size = call, metadata.handle, metadata.buffer_size
        self.session = sessions.find(metadata.session_id, peer)
        if not 0 <= self.size <= sessions.limits.arriving_bytes - self.session.arriving:
            raise RpcRefused(RESOURCE_EXHAUSTED, f"a host buffer of {self.size} bytes, while {self.session.arriving} "
                              f"arrive; at most {sessions.limits.arriving_bytes} may")  # fmt: skip
        try:  # aligned, so that CPU devices use it as it is; the system gives pages only as they are filled
            self.data = shard_io.raw_bytes(shard_io.empty((self.size,), "uint8"))
        except MemoryError:
            raise RpcRefused(RESOURCE_EXHAUSTED, f"there is no memory for a host buffer of {self.size} bytes") from None
        self.came = 0
        self.session.arriving += self.size
        self.session.stores.add(self)

    def message(self, data: bytes) -> None:
        piece = _piece(data)
        begin, self.came = self.came, self.came + len(piece)
        if self.came > self.size:
            raise RpcRefused(INVALID_ARGUMENT, f"more than the {self.size} bytes that were announced")
        self.data[begin : self.came] = piece

    def half_closed(self) -> None:
        if self.came != self.size:
            raise RpcRefused(INVALID_ARGUMENT, f"{self.came} bytes of {self.size} that were announced")
        self._leave()
        data, self.data = (self.data, NOTHING)  # call and handler know each other, so both last longer than this
        self.session.port.store(self.handle, data)
        self.call.send(EMPTY)
        self.call.close(OK)

    def lost(self, why: str) -> None:
        self._leave()
        self.data = NOTHING

    def _leave(self) -> None:
        if self in self.session.stores:
            self.session.stores.remove(self)
            self.session.arriving -= self.size

    def end(self, why: str) -> None:
        self._leave()
        self.data = NOTHING
        self.call.close(NOT_FOUND, why)


class _Session:
    """An IfrtSession call, and what the session above knows of it: its SessionLink."""

    def __init__(self, sessions: Sessions, call: Call, peer: Hashable) -> None:
        metadata = _decoded(GrpcIfrtSessionMetadata, call.metadata(SESSION_METADATA))
        version = _version(metadata.version)
        if agreed_version(version, version) != version:
            raise RpcRefused(FAILED_PRECONDITION, f"{version} was not agreed on")
        if len(sessions.open) >= sessions.limits.sessions:
            raise RpcRefused(RESOURCE_EXHAUSTED, f"there are {len(sessions.open)} sessions, as many as may be")
        self.largest = sessions.limits.request_bytes
        self.peer, self.session_id = peer, sessions.new_id()
        self.arriving = 0  # bytes of `stores`
        self.stores: set[_Store] = set()
        self._sessions, self._call = sessions, call
        sessions.open[self.session_id] = self
        try:
            self.port: SessionPort = sessions.opening(version, self)
        except Exception:
            self._leave("the session could not be opened")
            raise
        call.respond()

    # --- for the session ------------------------------------------------------------------------------------------

    def send(self, response: bytes) -> None:
        self._call.send(response)

    def close(self, code: int, text: str) -> None:
        self._leave(text)
        self._call.close(code, text)

    def resume(self) -> None:
        self._call.deliver()

    # --- a CallHandler --------------------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        return self.port.busy or self._call.backlog > BACKLOG

    def message(self, data: bytes) -> None:
        self.port.receive(data)

    def half_closed(self) -> None:
        self._end("the client has ended the session")
        self._call.close(OK)

    def lost(self, why: str) -> None:
        self._end(why)

    def _end(self, why: str) -> None:
        if self._leave(why):
            self.port.ended(why)

    def _leave(self, why: str) -> bool:
        """Whether the session was open until now."""
        if self._sessions.open.pop(self.session_id, None) is None:
            return False
        for store in list(self.stores):
            store.end(f"the session has ended: {why}")
        return True


class _Callbacks:
    """The stream on which a session's programs call functions of its client's process."""

    largest = callbacks.LARGEST
    blocked = False

    def __init__(self, sessions: Sessions, call: Call, peer: Hashable) -> None:
        try:
            session_id = int(call.metadata(CALLBACKS_METADATA), 16)
        except ValueError:
            raise RpcRefused(INVALID_ARGUMENT, "the call does not name its session") from None
        self._callbacks = sessions.find(session_id, peer).port.callbacks
        if self._callbacks.open:
            raise RpcRefused(FAILED_PRECONDITION, "the session's callbacks are answered already")
        self._callbacks.begin(call.send)
        self._call = call
        call.respond()

    def message(self, data: bytes) -> None:
        try:
            self._callbacks.answer(data)
        except CallbackFault as fault:
            raise RpcRefused(INVALID_ARGUMENT, str(fault)) from None

    def half_closed(self) -> None:
        self._callbacks.end()
        self._call.close(OK)

    def lost(self, why: str) -> None:
        self._callbacks.end()


def _version(message: Any) -> Version:
    return Version(message.protocol_version, message.ifrt_serdes_version_number)


def _decoded(kind: Any, data: bytes) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise RpcRefused(INVALID_ARGUMENT, "the call's metadata cannot be read") from None


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def _piece(data: bytes) -> bytes | memoryview:
    """The bytes in a GrpcHostBufferStoreRequest: without a copy, if it is written as all clients write it."""
    for digits in range(1, 4):  # of the length
        head = b"\x0a" + _varint(max(0, len(data) - 1 - digits))
        if len(head) == 1 + digits and data.startswith(head):
            return memoryview(data)[len(head) :]
    try:
        return bytes(GrpcHostBufferStoreRequest.FromString(data).data)
    except DecodeError:
        raise RpcRefused(INVALID_ARGUMENT, "a piece of a host buffer cannot be read") from None


METHODS: dict[str, Callable[[Sessions, Call, Hashable], CallHandler]] = {
    "GetVersion": _GetVersion,
    "IfrtSession": _Session,
    "HostBufferStore": _Store,
    "HostBufferLookup": _Lookup,
    "HostBufferDelete": _Delete,
    "Callbacks": _Callbacks,
}
