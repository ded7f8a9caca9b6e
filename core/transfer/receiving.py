"""The receiving half of transfers: credits to the senders, chunks taken, a word to each sender that all has
landed.

A transfer is over when each of its senders is: landed, spoilt or lost; so nothing can come for it
afterwards. One that is spoilt blames the lowest of the senders at fault, whatever the order in which they
spoke. A sparse one knows its senders only by their offers, and ends at once when it is spoilt: who offers
later is told to let go.
"""

from __future__ import annotations

from ..model import Illegal
from ..protocol import (
    Blame,
    Chunk,
    Close,
    DropTransfer,
    Effect,
    ExpectRecv,
    Fill,
    Grant,
    Landed,
    Offer,
    OpenRecv,
    Received,
    Send,
    Spoilt,
)
from .credits import Lane, Pool
from .pending import Early, Over

Outcome = list[Effect]


class In:
    """What one sender has for us: of each piece its size, and how much of it is still to come."""

    __slots__ = ("granted", "lane", "left", "sizes")

    def __init__(self, lane: Lane, sizes: dict[int, int]) -> None:
        self.lane = lane
        self.sizes = sizes
        self.left = dict(sizes)
        self.granted = False  # it may send pieces of no bytes


class Incoming:
    def __init__(self, said: OpenRecv, expected: int | None) -> None:
        self.seq, self.buffer, self.sparse = said.seq, said.buffer, said.sparse
        self.ins: dict[int, In] = {}  # by sender: those that are not over
        self.ended: dict[int, Blame | None] = {}  # senders that are
        self.expected = expected  # sparse: pieces in all, once that is known
        self.announced = 0  # sparse: pieces offered
        self.landed = 0  # pieces

    @property
    def over(self) -> bool:
        return not self.ins and (not self.sparse or self.landed == self.expected)

    def blame(self) -> Blame | None:
        blames = [(sender, blame) for sender, blame in self.ended.items() if blame is not None]
        return min(blames, key=_sender)[1] if blames else None


def _sender(pair: tuple[int, Blame]) -> int:
    return pair[0]


class Receiving:
    def __init__(self, me: int, pool: Pool, limit: int) -> None:
        self._me, self._pool = me, pool
        self._open: dict[int, Incoming] = {}
        self._expects: dict[int, int] = {}  # of sparse transfers that are not open yet
        self._early: Early[Offer | Spoilt] = Early(limit)
        self._over = Over()

    # --- local ----------------------------------------------------------------------------------------------

    def open(self, said: OpenRecv) -> Outcome:
        transfer, dropped = said.transfer, self._over.dropped(said.transfer)
        if transfer in self._open or self._over.ended(transfer):
            raise Illegal(f"transfer {transfer} is received already")
        if dropped is not None:
            return [Received(transfer, dropped)]
        sizes: dict[int, dict[int, int]] = {}
        for sender, piece, nbytes in said.pieces:
            if piece in sizes.setdefault(sender, {}):
                raise Illegal(f"transfer {transfer} gets piece {piece} from {sender} twice")
            sizes[sender][piece] = nbytes
        incoming = self._open[transfer] = Incoming(said, self._expects.pop(transfer, None))
        effects: Outcome = []
        for sender, pieces in sizes.items():
            effects += self._add(transfer, incoming, sender, pieces)
        for sender, word in self._early.take(transfer):
            if self._open.get(transfer) is incoming:
                effects += self._take(sender, incoming, word)
            elif isinstance(word, Offer):
                effects.append(self._let_go(transfer, sender))
        return effects + self._settle(transfer, incoming) + self._grants()

    def expect(self, said: ExpectRecv) -> Outcome:
        incoming = self._open.get(said.transfer)
        if incoming is None:
            if not self._over.knows(said.transfer):
                self._expects[said.transfer] = said.pieces
            return []
        incoming.expected = said.pieces
        if incoming.announced > said.pieces:
            text = f"{incoming.announced} pieces were offered, and only {said.pieces} counted"
            blame = Blame("protocol", text, host=self._me)
            return self._fail(said.transfer, incoming, blame) + self._grants()
        return self._settle(said.transfer, incoming)

    def drop(self, said: DropTransfer) -> Outcome:
        incoming = self._open.get(said.transfer)
        if incoming is not None:
            return self._fail(said.transfer, incoming, said.blame) + self._grants()
        self._expects.pop(said.transfer, None)
        self._over.add(said.transfer, said.blame)
        early = self._early.take(said.transfer)
        return [self._let_go(said.transfer, sender) for sender, word in early if isinstance(word, Offer)]

    # --- from senders ---------------------------------------------------------------------------------------

    def came(self, peer: int, word: Offer | Spoilt | Chunk) -> Outcome:
        incoming = self._open.get(word.transfer)
        if incoming is not None:
            effects = self._take(peer, incoming, word)
            return effects + self._settle(word.transfer, incoming) + self._grants()
        if self._over.knows(word.transfer):
            return [self._let_go(word.transfer, peer)] if isinstance(word, Offer) else []
        if isinstance(word, Chunk):
            return [Close(peer, f"{peer} sends bytes of transfer {word.transfer}, which granted none")]
        return self._early.keep(peer, word.transfer, word)

    def lost(self, peer: int, blame: Blame, anew: bool) -> Outcome:
        """What it has not landed will not come; but from one who is there anew, and had not said a word before, it may:
        what it was granted is said again."""
        self._early.forget(peer)
        effects: Outcome = []
        for transfer, incoming in list(self._open.items()):
            entry = incoming.ins.get(peer)
            if entry is not None and anew and not entry.lane.ready:
                if entry.granted:
                    effects.append(self._send(peer, Grant(transfer, peer, self._me, entry.lane.out)))
            elif entry is not None:
                effects += self._end(transfer, incoming, peer, blame)
                effects += self._settle(transfer, incoming)
        return effects + self._grants()

    def _take(self, peer: int, incoming: Incoming, word: Offer | Spoilt | Chunk) -> Outcome:
        if isinstance(word, Chunk):
            return self._chunk(peer, incoming, word)
        if isinstance(word, Offer):
            return self._offer(peer, incoming, word)
        if peer in incoming.ended or (peer not in incoming.ins and not incoming.sparse):
            return [Close(peer, f"{peer} spoils transfer {word.transfer}, to which it has nothing to give")]
        return self._end(word.transfer, incoming, peer, word.blame)

    def _offer(self, peer: int, incoming: Incoming, word: Offer) -> Outcome:
        pieces = dict(word.pieces)
        if len(pieces) != len(word.pieces) or any(nbytes < 0 for nbytes in pieces.values()):
            return [Close(peer, f"{peer} offers pieces of transfer {word.transfer} that cannot be")]
        entry = incoming.ins.get(peer)
        if not incoming.sparse:
            if entry is None or entry.sizes != pieces:
                return [Close(peer, f"{peer} offers transfer {word.transfer} what is not expected of it")]
            self._pool.ready(entry.lane)
            return []
        expected = incoming.expected
        announced = incoming.announced + len(pieces)
        if entry is not None or peer in incoming.ended or not pieces:
            return [Close(peer, f"{peer} offers transfer {word.transfer} nothing, or twice")]
        if expected is not None and announced > expected:
            return [Close(peer, f"{peer} offers more of transfer {word.transfer} than was counted")]
        incoming.announced = announced
        return self._add(word.transfer, incoming, peer, pieces)

    def _chunk(self, peer: int, incoming: Incoming, word: Chunk) -> Outcome:
        entry = incoming.ins.get(peer)
        left = None if entry is None else entry.left.get(word.piece)
        if entry is None or left is None or not entry.granted:
            return [
                Close(
                    peer, f"{peer} sends piece {word.piece} of transfer {word.transfer}, which has no place"
                )
            ]
        size, lane = entry.sizes[word.piece], entry.lane
        fits = 0 < word.nbytes <= min(left, lane.out) or word.nbytes == size == 0
        if word.offset != size - left or not fits:
            text = f"{word.nbytes} bytes at {word.offset} of piece {word.piece} of transfer {word.transfer}"
            return [Close(peer, f"{peer} sends {text}: {left} of {size} are to come, {lane.out} are granted")]
        self._pool.ready(lane)
        self._pool.arrived(lane, word.nbytes)
        entry.left[word.piece] = left - word.nbytes
        effects: Outcome = [Fill(incoming.buffer, word)]
        if left == word.nbytes:
            del entry.left[word.piece]
            incoming.landed += 1
            if not entry.left:
                effects += self._end(word.transfer, incoming, peer, None)
        return effects

    # --- what these share -----------------------------------------------------------------------------------

    def _add(self, transfer: int, incoming: Incoming, sender: int, pieces: dict[int, int]) -> Outcome:
        lane = Lane(incoming.seq, transfer, sender, sum(pieces.values()))
        lane.ready = incoming.sparse  # known by its offer only
        entry = incoming.ins[sender] = In(lane, pieces)
        self._pool.add(lane)
        if lane.want:
            return []
        entry.granted = True
        return [self._send(sender, Grant(transfer, sender, self._me, 0))]

    def _grants(self) -> Outcome:
        effects: Outcome = []
        for lane, nbytes in self._pool.grant():
            self._open[lane.transfer].ins[lane.sender].granted = True
            effects.append(self._send(lane.sender, Grant(lane.transfer, lane.sender, self._me, nbytes)))
        return effects

    def _end(self, transfer: int, incoming: Incoming, sender: int, blame: Blame | None) -> Outcome:
        """This sender has no more for us."""
        entry = incoming.ins.pop(sender, None)
        if entry is not None:
            self._pool.remove(entry.lane)
        incoming.ended[sender] = blame
        if blame is None:
            return [self._let_go(transfer, sender)]
        return self._fail(transfer, incoming, blame) if incoming.sparse else []

    def _settle(self, transfer: int, incoming: Incoming) -> Outcome:
        if not incoming.over or self._open.get(transfer) is not incoming:
            return []
        del self._open[transfer]
        self._over.add(transfer)
        return [Received(transfer, incoming.blame())]

    def _fail(self, transfer: int, incoming: Incoming, blame: Blame) -> Outcome:
        """End it now; who has more for it may let go."""
        effects: Outcome = []
        for sender, entry in incoming.ins.items():
            self._pool.remove(entry.lane)
            effects.append(self._let_go(transfer, sender))
        del self._open[transfer]
        self._over.add(transfer, blame)
        return [*effects, Received(transfer, blame)]

    def _let_go(self, transfer: int, sender: int) -> Send:
        return self._send(sender, Landed(transfer, sender, self._me))

    def _send(self, sender: int, message: Grant | Landed) -> Send:
        return Send((sender,), message)
