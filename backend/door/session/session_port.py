"""What the transport and the session above it know of each other.

All calls are made on one asyncio loop's thread.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from .session_callbacks import SessionCallbacks


class Version(NamedTuple):
    """What client and server agreed on when the client connected."""

    protocol_version: int
    serdes_version: int


class SessionPort(Protocol):
    """One client's session, as the transport sees it."""

    callbacks: SessionCallbacks

    def receive(self, request: bytes) -> None:
        """One serialized IfrtRequest has come. Requests are handed over in order of arrival."""

    def store(self, handle: int, data: bytes | bytearray | memoryview) -> None:
        """A host buffer has come whole."""

    def lookup(self, handle: int) -> bytes | memoryview | None:
        """The contents of a host buffer that the client reads; None if the handle is unknown."""

    def forget(self, handle: int) -> None:
        """The client has read a host buffer (HostBufferDelete)."""

    def ended(self, why: str) -> None:
        """The client has gone, or was refused. Nothing is called afterwards."""

    @property
    def busy(self) -> bool:
        """Whether the transport must read no further until `SessionLink.resume()` is called."""


class SessionLink(Protocol):
    """What a session needs of its stream."""

    session_id: int

    def send(self, response: bytes) -> None:
        """Sends one serialized IfrtResponse. May be called at any time."""

    def close(self, code: int, text: str) -> None:
        """Ends the stream with this grpc-status."""

    def resume(self) -> None:
        """The session is no longer busy: reading goes on."""


Opening = Callable[[Version, SessionLink], SessionPort]  # what makes sessions
