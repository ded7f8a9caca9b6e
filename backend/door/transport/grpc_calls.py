"""gRPC's calls on one HTTP/2 connection, without sockets: messages in, messages out, and how calls end.

http2          the connection below
ifrt_service   what the door does about each call: a `CallHandler`

    GrpcConnection(begin, wake)     receive(bytes)   outgoing() -> bytes   lost(why)

`begin(call)` makes the handler of a new call. A handler gets each message whole, in order. While its `blocked` is true
it gets none, and the client's window is not given back, so that the client stops sending; `Call.deliver` goes on. What
is to be written without anything having been received is announced by `wake()`. A handler may raise `RpcRefused` to
end its call with a status; any other exception is a bug of ours: it is logged, and the client gets INTERNAL.
"""

from __future__ import annotations

import binascii
import logging
from base64 import b64decode
from collections.abc import Callable
from struct import Struct
from typing import Protocol
from urllib.parse import quote

from .http2 import Http2Connection
from .http2_frames import ConnectionEnded, DataReceived, Headers, RequestReceived, StreamReset

OK, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL = 0, 3, 8, 12, 13
PREFIX = Struct(">BI")  # of a message: whether it is compressed, and its length
SMALL = 1 << 14  # bytes of a message that travels in one frame with its prefix
RESPONSE: Headers = [(b":status", b"200"), (b"content-type", b"application/grpc")]
log = logging.getLogger("seaway.door")


class RpcRefused(Exception):
    """Ends a call with this grpc-status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class CallHandler(Protocol):
    largest: int
    """bytes that a message may have"""

    def message(self, data: bytes) -> None:
        """A message of the client has come whole."""

    def half_closed(self) -> None:
        """The client sends no more messages."""

    def lost(self, why: str) -> None:
        """The call is over, though we did not end it. Nothing can be sent any more."""

    @property
    def blocked(self) -> bool:
        """Whether no message is to be handed over now."""


class Call:
    """One call of the client's."""

    def __init__(self, connection: GrpcConnection, stream: int, headers: Headers) -> None:
        self._connection, self._stream = connection, stream
        self.path = dict(headers).get(b":path", b"").decode("ascii", "replace")
        self._headers = headers
        self._handler: CallHandler | None = None
        self._buffer = bytearray()  # messages that are not handed over
        self._owed = 0  # bytes of the client's window
        self._no_more = False  # the client sends no more messages
        self._responded = self._delivering = False

    # --- for handlers ---------------------------------------------------------------------------------------------

    def metadata(self, name: str) -> bytes:
        """The bytes of a `-bin` header. Raises RpcRefused."""
        wanted = name.encode()
        for key, value in self._headers:
            if key == wanted:
                try:
                    return b64decode(value + b"=" * (-len(value) % 4), validate=True)
                except (binascii.Error, ValueError):
                    raise RpcRefused(INVALID_ARGUMENT, f"the metadata {name} is not base64") from None
        raise RpcRefused(INVALID_ARGUMENT, f"the call has no metadata {name}")

    @property
    def open(self) -> bool:
        return self._stream in self._connection.calls

    @property
    def backlog(self) -> int:
        """Bytes that wait for the client to take them."""
        return self._connection.http2.backlog(self._stream)

    def respond(self) -> None:
        """Sends the headers now, before any message."""
        if not self._responded and self.open:
            self._responded = True
            self._connection.http2.respond(self._stream, RESPONSE)
            self._connection.written()

    def send(self, *parts: bytes | memoryview) -> None:
        """Sends one message, whose bytes may come in parts."""
        if not self._responded:
            self.respond()
        size = sum(map(len, parts))
        prefix = PREFIX.pack(0, size)
        if size <= SMALL:
            parts = (b"".join((prefix, *parts)),)
        else:
            parts = (prefix, *parts)
        for part in parts:
            self._connection.http2.send(self._stream, part)
        self._connection.written()

    def close(self, code: int = OK, text: str = "") -> None:
        """Ends the call. Its handler hears nothing more."""
        if not self.open:
            return
        del self._connection.calls[self._stream]
        status = [(b"grpc-status", str(code).encode())]
        if text:
            status.append((b"grpc-message", quote(text[:2000], safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}").encode()))
        self._connection.http2.trailers(self._stream, status if self._responded else RESPONSE + status)
        self._connection.http2.give_back(0, self._owed)
        self._connection.written()

    def deliver(self) -> None:
        """Hands over what has come, until the handler is blocked."""
        if self._delivering or self._handler is None:
            return
        self._delivering = True
        try:
            self._hand_over(self._handler)
        except RpcRefused as refused:
            self._fail(self._handler, refused.code, str(refused))
        except Exception as error:
            log.exception("a call of %s failed", self.path)
            self._fail(self._handler, INTERNAL, f"the door failed: {type(error).__name__}: {error}")
        finally:
            self._delivering = False

    # --- for the connection ---------------------------------------------------------------------------------------

    def begin(self, handler: CallHandler) -> None:
        self._handler = handler

    @property
    def held(self) -> bool:
        """Whether something has come that was not handed over."""
        return self._owed > 0 or self._no_more

    def take(self, event: DataReceived) -> None:
        self._buffer += event.data
        self._owed += event.nbytes
        self._no_more = event.ended
        self.deliver()

    def end_input(self) -> None:
        self._no_more = True
        self.deliver()

    def lost(self, why: str) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            _tell_lost(handler, why)

    def _hand_over(self, handler: CallHandler) -> None:
        at = 0
        buffer = self._buffer
        blocked = handler.blocked
        try:
            while at < len(buffer) and self.open and not blocked:
                end = self._message_end(at, handler.largest)
                if end > len(buffer):
                    break
                begin, at = at + PREFIX.size, end
                handler.message(bytes(memoryview(buffer)[begin:end]))
                blocked = handler.blocked
        finally:
            del buffer[:at]
        if blocked or not self.open:
            return
        self._connection.http2.give_back(self._stream, self._owed)
        self._owed = 0
        if self._no_more:
            self._no_more = False
            if buffer:
                raise RpcRefused(INVALID_ARGUMENT, "the last message is cut off")
            handler.half_closed()

    def _message_end(self, at: int, largest: int) -> int:
        """Where the message that begins here ends; beyond the buffer if that is not known yet."""
        if len(self._buffer) < at + PREFIX.size:
            return len(self._buffer) + 1
        compressed, size = PREFIX.unpack_from(self._buffer, at)
        if compressed:
            raise RpcRefused(UNIMPLEMENTED, "the message is compressed; send it as it is")
        if size > largest:
            raise RpcRefused(RESOURCE_EXHAUSTED, f"a message of {size} bytes; at most {largest} are taken")
        return int(at + PREFIX.size + size)

    def _fail(self, handler: CallHandler, code: int, text: str) -> None:
        self.close(code, text)
        self._handler = None
        _tell_lost(handler, text)


class GrpcConnection:
    def __init__(self, begin: Callable[[Call], CallHandler], wake: Callable[[], None]) -> None:
        self.http2 = Http2Connection()
        self.calls: dict[int, Call] = {}  # those that are open, by stream
        self.over = False  # nothing more is received; the connection is to be closed
        self._begin, self._wake = begin, wake
        self._receiving = False

    def receive(self, data: bytes) -> None:
        self._receiving = True
        try:
            for event in self.http2.receive(data):
                if isinstance(event, DataReceived):
                    if (call := self.calls.get(event.stream)) is not None:
                        call.take(event)
                    else:
                        self.http2.give_back(event.stream, event.nbytes)
                elif isinstance(event, RequestReceived):
                    self._request(event)
                elif isinstance(event, StreamReset):
                    self._lose(event.stream, "the client has ended the call")
                elif isinstance(event, ConnectionEnded):
                    self.lost(event.why)
            for call in [call for call in self.calls.values() if call.held]:
                call.deliver()  # the client may have taken what waited for it
        finally:
            self._receiving = False

    def outgoing(self) -> bytes:
        return self.http2.outgoing()

    def lost(self, why: str) -> None:
        """The connection is over."""
        self.over = True
        for stream in list(self.calls):
            self._lose(stream, why)

    def end(self, text: str) -> None:
        """Says goodbye, and ends all calls."""
        self.lost(text)
        self.http2.end(text=text)

    def written(self) -> None:
        """There is something to write."""
        if not self._receiving:
            self._wake()

    def _request(self, event: RequestReceived) -> None:
        call = self.calls[event.stream] = Call(self, event.stream, event.headers)
        try:
            call.begin(self._begin(call))
        except RpcRefused as refused:
            call.close(refused.code, str(refused))
        except Exception as error:
            log.exception("a call of %s failed", call.path)
            call.close(INTERNAL, f"the door failed: {type(error).__name__}: {error}")
        if event.ended:
            call.end_input()

    def _lose(self, stream: int, why: str) -> None:
        call = self.calls.pop(stream, None)
        if call is not None:
            self.http2.give_back(0, call._owed)
            call.lost(why)


def _tell_lost(handler: CallHandler, why: str) -> None:
    try:
        handler.lost(why)
    except Exception:
        log.exception("the end of a call failed")
