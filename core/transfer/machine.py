"""The data plane's machine, one a host, and one a client: what moves from buffer to buffer, in chunks and
on credit.

    receiver                                              sender
    OpenRecv (memory is here) --Grant: so many bytes-->   OpenSend (contents are here)
                              <--Chunk, Chunk ...--       as far as credits go
    all is here               --Landed-->                 holds its source until all receivers say so
    Received                                              Sent

A sender whose contents exist before it is granted anything says so (`Offer`): a sparse one always, for
nobody knows its pieces before. One whose source is poisoned says `Spoilt` instead. Every half that was
opened ends exactly once, with `Received` or `Sent`, whether it is complete, spoilt, dropped, or its peer is
lost. A sender that has given a receiver up, because their link was lost, says `Spoilt` if that one
grants it credits later: so neither end waits for the other for ever.

Who gets credits when, and why that cannot deadlock, is `credits`; the two halves are `sending` and
`receiving`. Ends are named as the messages name them: a host by its number, client c by -c. A peer's word
that makes no sense closes that peer; one for a transfer that has ended meanwhile is dropped. Nothing here
looks at the clock.
"""

from __future__ import annotations

from typing import Any

from ..model import Illegal
from ..protocol import (
    Blame,
    Came,
    Chunk,
    Close,
    Disconnected,
    DropTransfer,
    Effect,
    ExpectRecv,
    Grant,
    Landed,
    Offer,
    OpenRecv,
    OpenSend,
    Spoilt,
    Wakeup,
)
from .credits import Pool
from .receiving import Receiving
from .sending import Sending

POOL = 1 << 28
CHUNK = 1 << 20
EARLY = 1 << 16  # words of one peer about transfers that are not open


class Transfer:
    def __init__(self, me: int, pool: int = POOL, chunk: int = CHUNK, early: int = EARLY) -> None:
        """pool: bytes that may be under way to us. chunk: the most that one message carries."""
        self.me = me
        self.pool = Pool(pool, chunk)
        self._sending = Sending(me, chunk, early)
        self._receiving = Receiving(me, self.pool, early)

    def handle(self, event: Effect, now: int) -> list[Effect]:
        match event:
            case Came():
                return self._came(event.peer, event.message)
            case OpenSend():
                return self._sending.open(event)
            case OpenRecv():
                return self._receiving.open(event)
            case ExpectRecv():
                return self._receiving.expect(event)
            case DropTransfer():
                return self._sending.drop(event) + self._receiving.drop(event)
            case Disconnected():
                return self._lost(event)
            case Wakeup():
                return []
            case _:
                raise Illegal(f"a transfer machine takes no {type(event).__name__}")

    def next_wakeup(self) -> int | None:
        return None

    def end(self) -> list[Effect]:
        """Whatever is still sent ends: there is nobody any more who could land it."""
        return self._sending.end()

    def _came(self, peer: int, word: Any) -> list[Effect]:
        if isinstance(word, Grant | Landed):
            if (word.receiver, word.sender) == (peer, self.me):
                return self._sending.came(peer, word)
        elif isinstance(word, Chunk | Offer | Spoilt):
            if (word.sender, word.receiver) == (peer, self.me):
                return self._receiving.came(peer, word)
        else:
            return [Close(peer, f"{type(word).__name__} is no word of the data plane")]
        return [
            Close(peer, f"{peer} speaks for others: {type(word).__name__} {word.sender} -> {word.receiver}")
        ]

    def _lost(self, event: Disconnected) -> list[Effect]:
        """The link to a peer. Where it begins anew, a half whose peer had not said a word yet goes on with the new
        link: it may have been opened for the process that has begun anew, before this end heard of that. If it was
        for the old one, the controller has it dropped."""
        peer, reason = event.peer, event.reason
        if peer >= 0:
            blame = Blame("host-lost", reason or "its connection is lost", host=peer)
        else:
            blame = Blame("client-lost", reason or f"client {-peer} is gone")
        return self._sending.lost(peer, blame, event.anew) + self._receiving.lost(peer, blame, event.anew)
