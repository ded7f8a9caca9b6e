"""The transfer machine of a host or a client: it moves the contents of buffers, in chunks and on credit.

    receiver                                              sender
    OpenRecv (memory is here) --Grant: so many bytes-->   OpenSend (contents are here)
                              <--Chunk, Chunk ...--       as far as the credits go
    all chunks are here       --Landed-->                 holds its source until all receivers have sent this
    Received                                              Sent

A sender sends an `Offer` if its contents exist before it has credits. In a sparse exchange it always does, because the
receiver does not know the pieces before. A sender whose source is poisoned sends `Spoilt` instead of chunks. Each half
that was opened ends exactly once, with `Received` or `Sent`: if it is complete, poisoned or dropped, or if its peer is
lost. A sender that has given up a receiver because their link was lost sends `Spoilt` if the receiver grants credits
later, so that neither end waits for the other for ever.

`credits` says how credits are shared, and why this cannot deadlock. `sending` and `receiving` are the two halves. Ends
are named as in the messages: a host by its number, client c by -c. A message that breaks the protocol closes its peer;
a message for a transfer that has ended is dropped. Nothing here depends on time.
"""

from collections.abc import Callable
from typing import Any

from .. import protocol as p
from ..model import Illegal
from .credits import Pool
from .receiving import Receiving
from .sending import SendMachine

POOL = 1 << 28
CHUNK = 1 << 20
EARLY = 1 << 16  # messages of one peer that may wait for their transfers to be opened


class Transfer:
    def __init__(self, me: int, pool: int = POOL, chunk: int = CHUNK, early: int = EARLY) -> None:
        """pool: bytes that may be under way to this machine, beside what is short. chunk: the most bytes in one
        message."""
        self.me = me
        self.pool = Pool(pool, chunk)
        self._sending = SendMachine(me, chunk, early)
        self._receiving = Receiving(me, self.pool, early)
        self._acts: dict[type, Callable[[Any], list[p.Command]]] = {
            p.MessageReceived: self._came, p.OpenSend: self._sending.open, p.OpenRecv: self._receiving.open,
            p.ExpectRecv: self._receiving.expect, p.DropTransfer: self._drop, p.Disconnected: self._lost,
        }  # fmt: skip

    def handle(self, event: p.Effect, now: int) -> list[p.Command]:
        act = self._acts.get(type(event))
        if act is None:
            raise Illegal(f"a transfer machine takes no {type(event).__name__}")
        return act(event)

    def end(self) -> list[p.Command]:
        """End all sends, because no receiver can be reached any more."""
        return self._sending.end()

    def _drop(self, event: p.DropTransfer) -> list[p.Command]:
        return self._sending.drop(event) + self._receiving.drop(event)

    def _came(self, event: p.MessageReceived) -> list[p.Command]:
        peer, message = event.peer, event.message
        if isinstance(message, p.Grant | p.Landed):
            if (message.receiver, message.sender) == (peer, self.me):
                return self._sending.came(peer, message)
        elif isinstance(message, p.Chunk | p.Offer | p.Spoilt):
            if (message.sender, message.receiver) == (peer, self.me):
                return self._receiving.came(peer, message)
        else:
            return [p.Close(peer, f"{type(message).__name__} is not a message of the data plane")]
        ends = f"{type(message).__name__} from {message.sender} to {message.receiver}"
        return [p.Close(peer, f"{peer} sends a message of other ends: {ends}")]

    def _lost(self, event: p.Disconnected) -> list[p.Command]:
        """The link to a peer is lost: end its halves of transfers.

        If a new link begins at once, a half whose peer had not sent anything yet goes on with the new link. It may
        have been opened for the restarted process, before this end learnt of the restart. If it was opened for the
        old process, the controller will have it dropped.
        """
        peer, low, high = event.peer, *sorted((self.me, event.peer))
        ends = f"hosts {low} and {high}" if low >= 0 else f"host {high} and the client of these contents"
        cause = f"{ends} lost each other: {event.reason or 'the connection broke'}"
        blame = p.Blame("host-lost", cause, host=peer) if peer >= 0 else p.Blame("client-lost", cause)
        return self._sending.lost(peer, blame, event.anew) + self._receiving.lost(peer, blame, event.anew)
