"""The sending half of transfers: it sends chunks as far as credits go, and holds the source until all have arrived.

Each receiver gets its pieces one after another. It grants credits for as many bytes as it can take. A receiver that
has granted none when the source is ready gets an `Offer`, so that it knows that the contents exist, and in which
pieces.
"""

import msgspec

from .. import protocol as p
from ..model import Illegal
from .pending import REMEMBERED, EarlyMessages, EndedTransfers

Outcome = list[p.Command]


class ReceiverProgress(msgspec.Struct, eq=False):
    """The pieces for one receiver, and how far they have been sent."""

    pieces: list[tuple[int, int]] = []  # (piece, bytes)
    total: int = 0  # bytes of all pieces
    at: int = 0  # index into pieces: the one that is being sent
    offset: int = 0  # bytes of it that have been sent
    credit: int = 0  # bytes that may be sent now
    granted: int = -1  # bytes granted in all; -1 if the receiver has granted none yet


class SendMachine:
    def __init__(self, me: int, chunk: int, limit: int) -> None:
        self._me, self._chunk = me, chunk
        self._open: dict[int, dict[int, ReceiverProgress]] = {}  # transfer -> receiver -> what it gets
        self._through: dict[int, set[int]] = {}  # open transfer -> receivers that have sent Landed
        self._early: EarlyMessages[p.Grant | p.Landed] = EarlyMessages(limit)
        self._over = EndedTransfers()
        self._given_up: dict[tuple[int, int], p.Blame] = {}  # (transfer, receiver) whose link was lost

    def open(self, command: p.OpenSend) -> Outcome:
        transfer = command.transfer
        if transfer in self._open or self._over.ended(transfer):
            raise Illegal(f"transfer {transfer} is sent already")
        outs: dict[int, ReceiverProgress] = {}
        for receiver, piece, nbytes in command.pieces:
            out = outs.setdefault(receiver, ReceiverProgress())
            out.pieces.append((piece, nbytes))
            out.total += nbytes
        blame = command.blame or self._over.dropped(transfer)
        if blame is not None:
            self._early.take(transfer)
            self._over.add(transfer)
            spoilt = [self._send(to, p.Spoilt(transfer, self._me, to, blame)) for to in outs]
            return [*spoilt, p.Sent(transfer)]
        self._open[transfer] = outs
        effects: Outcome = []
        early = self._early.take(transfer)
        for receiver, message in early:
            effects += (
                self._grant(receiver, message) if isinstance(message, p.Grant) else self._landed(receiver, message)
            )
        answered = {receiver for receiver, _ in early}
        for receiver, out in outs.items():
            if receiver not in answered:
                effects.append(self._offer(transfer, receiver, out))
        return effects + self._end_if_landed(transfer)

    def came(self, peer: int, message: p.Grant | p.Landed) -> Outcome:
        transfer = message.transfer
        if transfer not in self._open:
            if isinstance(message, p.Grant) and (transfer, peer) in self._given_up:
                return [self._spoilt(transfer, peer)]
            if self._over.knows(transfer):
                return []
            return self._early.keep(peer, transfer, message)
        if isinstance(message, p.Grant):
            return self._grant(peer, message)
        return self._landed(peer, message) + self._end_if_landed(transfer)

    def _grant(self, peer: int, grant: p.Grant) -> Outcome:
        transfer = grant.transfer
        out = self._open[transfer].get(peer)
        if out is None and (transfer, peer) in self._given_up:
            return [self._spoilt(transfer, peer)]
        if out is None:
            return [p.Close(peer, f"{peer} grants credits for transfer {transfer}, which has no pieces for it")]
        granted = max(out.granted, 0) + grant.nbytes
        if grant.nbytes < 0 or granted > out.total:
            text = f"{peer} grants {granted} bytes for transfer {transfer}, which has {out.total} for it"
            return [p.Close(peer, text)]
        out.granted = granted
        out.credit += grant.nbytes
        return self._pump(transfer, peer, out)

    def _pump(self, transfer: int, receiver: int, out: ReceiverProgress) -> Outcome:
        """Send as many chunks as the receiver's credits allow."""
        effects: Outcome = []
        while out.at < len(out.pieces):
            piece, size = out.pieces[out.at]
            nbytes = min(size - out.offset, out.credit, self._chunk)
            if nbytes == 0 and size > 0:
                break
            chunk = p.Chunk(transfer, self._me, receiver, piece, out.offset, nbytes)
            effects.append(self._send(receiver, chunk))
            out.credit -= nbytes
            out.offset += nbytes
            if out.offset == size:
                out.at, out.offset = out.at + 1, 0
        return effects

    def _landed(self, peer: int, landed: p.Landed) -> Outcome:
        """A receiver has all its pieces, or does not want the rest.

        It may send Landed a second time, if our Offer was under way when it sent the first one.
        """
        transfer = landed.transfer
        through = self._through.setdefault(transfer, set())
        known = peer in through or (transfer, peer) in self._given_up
        if self._open[transfer].pop(peer, None) is None and not known:
            return [p.Close(peer, f"{peer} confirms transfer {transfer}, which had no pieces for it")]
        through.add(peer)
        return []

    def _end_if_landed(self, transfer: int) -> Outcome:
        if self._open[transfer]:
            return []
        self._through.pop(transfer, None)
        del self._open[transfer]
        self._over.add(transfer)
        return [p.Sent(transfer)]

    def drop(self, command: p.DropTransfer) -> Outcome:
        """End the send. Receivers that have not been sent everything get `Spoilt`."""
        transfer, blame = command.transfer, command.blame
        outs = self._open.pop(transfer, None)
        self._through.pop(transfer, None)
        self._early.take(transfer)
        self._over.add(transfer, blame)
        if outs is None:
            return []
        effects: Outcome = [
            self._send(receiver, p.Spoilt(transfer, self._me, receiver, blame))
            for receiver, out in outs.items()
            if out.at < len(out.pieces)
        ]
        return [*effects, p.Sent(transfer)]

    def lost(self, peer: int, blame: p.Blame, anew: bool) -> Outcome:
        """The link to a receiver is lost: give up its pieces.

        If a new link begins at once (`anew`) and the receiver had not granted anything, offer them again instead.
        """
        self._early.forget(peer)
        effects: Outcome = []
        for transfer in [transfer for transfer, outs in self._open.items() if peer in outs]:
            out = self._open[transfer][peer]
            if anew and out.granted < 0:
                effects.append(self._offer(transfer, peer, out))
                continue
            del self._open[transfer][peer]
            self._given_up[transfer, peer] = blame
            if len(self._given_up) > REMEMBERED:
                del self._given_up[next(iter(self._given_up))]
            effects += self._end_if_landed(transfer)
        return effects

    def end(self) -> Outcome:
        """End all sends, without a message to receivers."""
        ended: Outcome = [p.Sent(transfer) for transfer in self._open]
        self._open.clear()
        return ended

    def _offer(self, transfer: int, receiver: int, out: ReceiverProgress) -> p.Send:
        return self._send(receiver, p.Offer(transfer, self._me, receiver, tuple(out.pieces)))

    def _spoilt(self, transfer: int, receiver: int) -> p.Send:
        return self._send(receiver, p.Spoilt(transfer, self._me, receiver, self._given_up[transfer, receiver]))

    def _send(self, receiver: int, message: p.Chunk | p.Offer | p.Spoilt) -> p.Send:
        return p.Send((receiver,), message)
