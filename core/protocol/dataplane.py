"""The data plane's vocabulary: how contents of buffers travel, host to host and client to host.

`transfer` names the move; `sender` and `receiver` are ends (a host's number, or minus a client's). Contents never pass
through core: a driver attaches them to a `Chunk`, and writes them where a `Fill` says.
"""

from __future__ import annotations

from .messages import Blame, Wire


class Grant(Wire, frozen=True, tag="grant"):
    """Receiver -> sender: room for so many more bytes of this transfer."""

    transfer: int
    sender: int
    receiver: int
    nbytes: int


class Offer(Wire, frozen=True, tag="offer"):
    """Sender -> receiver: the contents exist, in these (piece, bytes), and I have no credits from you. Of a
    sparse exchange, it is how the receiver learns of them; it comes once, before anything else."""

    transfer: int
    sender: int
    receiver: int
    pieces: tuple[tuple[int, int], ...]


class Chunk(Wire, frozen=True, tag="chunk"):
    """Sender -> receiver: `nbytes` from `offset` of piece `piece`. The driver attaches the contents."""

    transfer: int
    sender: int
    receiver: int
    piece: int
    offset: int
    nbytes: int


class Spoilt(Wire, frozen=True, tag="spoilt"):
    """Sender -> receiver, instead of contents: the source is poisoned."""

    transfer: int
    sender: int
    receiver: int
    blame: Blame


class Landed(Wire, frozen=True, tag="landed"):
    """Receiver -> sender: I have all you had for me; you may let go."""

    transfer: int
    sender: int
    receiver: int


Data = Grant | Offer | Chunk | Spoilt | Landed
