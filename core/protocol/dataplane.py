"""The messages of the data plane: they move the contents of buffers from host to host, and between client and host.

`transfer` is the id of the transfer. `sender` and `receiver` are its ends: a host by its number, a client by its
negative number. Contents never pass through core: a driver attaches them to a `Chunk`, and the receiving driver
writes them where a `Fill` says.
"""

from __future__ import annotations

from .wire import Blame, Wire


class Grant(Wire, frozen=True, tag="grant"):
    """Receiver to sender: there is room for so many more bytes of this transfer."""

    transfer: int
    sender: int
    receiver: int
    nbytes: int


class Offer(Wire, frozen=True, tag="offer"):
    """Sender to receiver: the contents exist, as these (piece, bytes), but the sender has no credits.

    In a sparse exchange the receiver learns of its pieces from this message. It comes once, before any other.
    """

    transfer: int
    sender: int
    receiver: int
    pieces: tuple[tuple[int, int], ...]


class Chunk(Wire, frozen=True, tag="chunk"):
    """Sender to receiver: `nbytes` bytes of a piece, from `offset` on. The driver attaches the contents."""

    transfer: int
    sender: int
    receiver: int
    piece: int
    offset: int
    nbytes: int


class Spoilt(Wire, frozen=True, tag="spoilt"):
    """Sender to receiver, instead of contents: the source is poisoned."""

    transfer: int
    sender: int
    receiver: int
    blame: Blame


class Landed(Wire, frozen=True, tag="landed"):
    """Receiver to sender: all pieces have arrived; the sender may free the source."""

    transfer: int
    sender: int
    receiver: int


Data = Grant | Offer | Chunk | Spoilt | Landed
