"""The receiving half of transfers: it grants credits, takes chunks, and confirms to each sender that all have arrived.

A receive ends when each of its senders has ended: all its pieces have arrived, it has reported a failure, or it is
lost. So no message for it can come later. If senders have failed, the receive fails with the blame of the lowest of
them, whatever the order in which they reported. A sparse receive learns of its senders only from their offers, so it
ends at the first failure; a sender that offers later gets `Landed` at once, so that it frees its source.
"""

import msgspec

from .. import protocol as p
from ..model import Illegal
from .credits import Pool, SendAllowance
from .pending import EarlyMessages, EndedTransfers

Outcome = list[p.Command]


class IncomingPieces(msgspec.Struct, eq=False):
    """The pieces of one sender."""

    lane: SendAllowance
    pool: Pool | None  # whence they have their credits; None: they are short, and need none
    sizes: dict[int, int]  # of each piece
    left: dict[int, int]  # how many of its bytes are still to come
    over: bool = False
    granted: bool = False  # whether any credits were granted, perhaps 0 for pieces without bytes


class Incoming:
    """A receive that is open."""

    def __init__(self, command: p.OpenRecv, expected: int | None) -> None:
        self.seq, self.sparse = command.seq, command.sparse
        self.ins: dict[int, IncomingPieces] = {}  # by sender, until it ends
        self.ended: dict[int, p.Blame | None] = {}  # senders that have ended
        self.expected = expected  # if sparse: the number of pieces in all, once it is known
        self.announced = 0  # if sparse: the number of pieces offered
        self.landed = 0  # the number of pieces that have arrived
        self.nbytes = sum([nbytes for _, _, nbytes in command.pieces])

    @property
    def over(self) -> bool:
        return not self.ins and (not self.sparse or self.landed == self.expected)

    def blame(self) -> p.Blame | None:
        blames = {sender: blame for sender, blame in self.ended.items() if blame is not None}
        return blames[min(blames)] if blames else None


class Receiving:
    def __init__(self, me: int, pool: Pool, limit: int) -> None:
        self._me, self._pool = me, pool
        self._short: list[IncomingPieces] = []  # what is short, and is still to be granted
        self._open: dict[int, Incoming] = {}
        self._expects: dict[int, int] = {}  # sparse transfer that is not open yet -> number of its pieces
        self._early: EarlyMessages[p.Offer | p.Spoilt] = EarlyMessages(limit)
        self._over = EndedTransfers()

    # --- from this host's executor, or from the client ------------------------------------------------------

    def open(self, command: p.OpenRecv) -> Outcome:
        transfer, dropped = command.transfer, self._over.dropped(command.transfer)
        if transfer in self._open or self._over.ended(transfer):
            raise Illegal(f"transfer {transfer} is received already")
        if dropped is not None:
            return [p.Received(transfer, dropped)]
        sizes: dict[int, dict[int, int]] = {}
        for sender, piece, nbytes in command.pieces:
            if piece in sizes.setdefault(sender, {}):
                raise Illegal(f"transfer {transfer} gets piece {piece} from {sender} twice")
            sizes[sender][piece] = nbytes
        incoming = self._open[transfer] = Incoming(command, self._expects.pop(transfer, None))
        effects: Outcome = []
        for sender, pieces in sizes.items():
            effects += self._add(transfer, incoming, sender, pieces)
        for sender, message in self._early.take(transfer):
            if self._open.get(transfer) is incoming:
                effects += self._take(sender, incoming, message)
            elif isinstance(message, p.Offer):
                effects.append(self._confirm(transfer, sender))
        return effects + self._end_if_over(transfer, incoming) + self._grants()

    def expect(self, command: p.ExpectRecv) -> Outcome:
        incoming = self._open.get(command.transfer)
        if incoming is None:
            if not self._over.knows(command.transfer):
                self._expects[command.transfer] = command.pieces
            return []
        incoming.expected = command.pieces
        if incoming.announced > command.pieces:
            text = f"{incoming.announced} pieces were offered, but only {command.pieces} were counted"
            blame = p.Blame("protocol", text, host=self._me)
            return self._fail(command.transfer, incoming, blame) + self._grants()
        return self._end_if_over(command.transfer, incoming)

    def drop(self, command: p.DropTransfer) -> Outcome:
        incoming = self._open.get(command.transfer)
        if incoming is not None:
            return self._fail(command.transfer, incoming, command.blame) + self._grants()
        self._expects.pop(command.transfer, None)
        self._over.add(command.transfer, command.blame)
        early = self._early.take(command.transfer)
        return [self._confirm(command.transfer, sender) for sender, message in early if isinstance(message, p.Offer)]

    # --- from senders ---------------------------------------------------------------------------------------

    def came(self, peer: int, message: p.Offer | p.Spoilt | p.Chunk) -> Outcome:
        incoming = self._open.get(message.transfer)
        if incoming is not None:
            effects = self._take(peer, incoming, message)
            return effects + self._end_if_over(message.transfer, incoming) + self._grants()
        if self._over.knows(message.transfer):
            return [self._confirm(message.transfer, peer)] if isinstance(message, p.Offer) else []
        if isinstance(message, p.Chunk):
            text = f"{peer} sends bytes of transfer {message.transfer}, which has granted no credits"
            return [p.Close(peer, text)]
        return self._early.keep(peer, message.transfer, message)

    def lost(self, peer: int, blame: p.Blame, anew: bool) -> Outcome:
        """The link to a sender is lost: its missing pieces will not come.

        If a new link begins at once (`anew`) and the sender had not sent anything, its pieces may still come. It is
        granted its credits again.
        """
        self._early.forget(peer)
        effects: Outcome = []
        for transfer, incoming in list(self._open.items()):
            entry = incoming.ins.get(peer)
            if entry is not None and anew and not entry.lane.ready:
                if entry.granted:
                    effects.append(self._send(peer, p.Grant(transfer, peer, self._me, entry.lane.out)))
            elif entry is not None:
                effects += self._end(transfer, incoming, peer, blame)
                effects += self._end_if_over(transfer, incoming)
        return effects + self._grants()

    def _take(self, peer: int, incoming: Incoming, message: p.Offer | p.Spoilt | p.Chunk) -> Outcome:
        if isinstance(message, p.Chunk):
            return self._chunk(peer, incoming, message)
        if isinstance(message, p.Offer):
            return self._offer(peer, incoming, message)
        if peer in incoming.ended or (peer not in incoming.ins and not incoming.sparse):
            text = f"{peer} reports a failure of transfer {message.transfer}, in which it has no pieces left"
            return [p.Close(peer, text)]
        return self._end(message.transfer, incoming, peer, message.blame)

    def _offer(self, peer: int, incoming: Incoming, message: p.Offer) -> Outcome:
        pieces = dict(message.pieces)
        if len(pieces) != len(message.pieces) or any(nbytes < 0 for nbytes in pieces.values()):
            text = f"{peer} offers a piece of transfer {message.transfer} twice, or one of negative size"
            return [p.Close(peer, text)]
        entry = incoming.ins.get(peer)
        if not incoming.sparse:
            if entry is None or entry.sizes != pieces:
                return [p.Close(peer, f"{peer} offers other pieces of transfer {message.transfer} than expected")]
            self._ready(entry)
            return []
        expected = incoming.expected
        announced = incoming.announced + len(pieces)
        if entry is not None or peer in incoming.ended or not pieces:
            return [p.Close(peer, f"{peer} offers no pieces of transfer {message.transfer}, or offers twice")]
        if expected is not None and announced > expected:
            return [p.Close(peer, f"{peer} offers more pieces of transfer {message.transfer} than were counted")]
        incoming.announced = announced
        return self._add(message.transfer, incoming, peer, pieces)

    def _chunk(self, peer: int, incoming: Incoming, chunk: p.Chunk) -> Outcome:
        entry = incoming.ins.get(peer)
        left = None if entry is None else entry.left.get(chunk.piece)
        if entry is None or left is None or not entry.granted:
            text = f"{peer} sends piece {chunk.piece} of transfer {chunk.transfer}, for which it has no credits"
            return [p.Close(peer, text)]
        size, lane = entry.sizes[chunk.piece], entry.lane
        fits = 0 < chunk.nbytes <= min(left, lane.out) or chunk.nbytes == size == 0
        if chunk.offset != size - left or not fits:
            text = f"{chunk.nbytes} bytes at {chunk.offset} of piece {chunk.piece} of transfer {chunk.transfer}"
            return [p.Close(peer, f"{peer} sends {text}: {left} of {size} are to come, {lane.out} are granted")]
        self._ready(entry)
        if entry.pool is None:
            lane.out -= chunk.nbytes
        else:
            entry.pool.arrived(lane, chunk.nbytes)
        entry.left[chunk.piece] = left - chunk.nbytes
        effects: Outcome = [p.Fill(chunk)]
        if left == chunk.nbytes:
            del entry.left[chunk.piece]
            incoming.landed += 1
            if not entry.left:
                effects += self._end(chunk.transfer, incoming, peer, None)
        return effects

    # --- shared by these ------------------------------------------------------------------------------------

    def _add(self, transfer: int, incoming: Incoming, sender: int, pieces: dict[int, int]) -> Outcome:
        lane = SendAllowance(incoming.seq, transfer, sender, sum(pieces.values()))
        lane.ready = incoming.sparse  # a sparse sender is known only by its offer, so its contents exist
        short = not incoming.sparse and incoming.nbytes <= self._pool.at_once
        entry = incoming.ins[sender] = IncomingPieces(lane, None if short else self._pool, pieces, pieces.copy())
        if entry.pool is not None:
            entry.pool.add(lane)
        elif lane.want:
            self._short.append(entry)
        if lane.want:
            return []
        entry.granted = True
        return [self._send(sender, p.Grant(transfer, sender, self._me, 0))]

    def _ready(self, entry: IncomingPieces) -> None:
        if entry.pool is None:
            entry.lane.ready = True
        else:
            entry.pool.ready(entry.lane)

    def _remove(self, entry: IncomingPieces) -> None:
        entry.over = True
        if entry.pool is not None:
            entry.pool.remove(entry.lane)

    def _grants(self) -> Outcome:
        effects: Outcome = []
        granted = self._pool.grant()
        if self._short:
            granted += [(entry.lane, entry.lane.grant_all()) for entry in self._short if not entry.over]
            self._short.clear()
        for lane, nbytes in granted:
            self._open[lane.transfer].ins[lane.sender].granted = True
            effects.append(self._send(lane.sender, p.Grant(lane.transfer, lane.sender, self._me, nbytes)))
        return effects

    def _end(self, transfer: int, incoming: Incoming, sender: int, blame: p.Blame | None) -> Outcome:
        """End one sender: all its pieces have arrived, or it has failed (`blame`)."""
        entry = incoming.ins.pop(sender, None)
        if entry is not None:
            self._remove(entry)
        incoming.ended[sender] = blame
        if blame is None:
            return [self._confirm(transfer, sender)]
        return self._fail(transfer, incoming, blame) if incoming.sparse else []

    def _end_if_over(self, transfer: int, incoming: Incoming) -> Outcome:
        if not incoming.over or self._open.get(transfer) is not incoming:
            return []
        del self._open[transfer]
        self._over.add(transfer)
        return [p.Received(transfer, incoming.blame())]

    def _fail(self, transfer: int, incoming: Incoming, blame: p.Blame) -> Outcome:
        """End the receive now, and let its senders free their sources."""
        effects: Outcome = []
        for sender, entry in incoming.ins.items():
            self._remove(entry)
            effects.append(self._confirm(transfer, sender))
        del self._open[transfer]
        self._over.add(transfer, blame)
        return [*effects, p.Received(transfer, blame)]

    def _confirm(self, transfer: int, sender: int) -> p.Send:
        return self._send(sender, p.Landed(transfer, sender, self._me))

    def _send(self, sender: int, message: p.Grant | p.Landed) -> p.Send:
        return p.Send((sender,), message)
