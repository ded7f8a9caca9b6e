"""The sending half of transfers: chunks as far as the receivers' credits go, and the source held until all
landed.

Each receiver gets its pieces one after another. It says how many bytes may come; one whose grant is not
here when the source is ready is sent an `Offer` instead, so that it knows that the contents exist, and
which.
"""

from __future__ import annotations

from ..model import Illegal
from ..protocol import (
    Blame,
    Chunk,
    Close,
    DropTransfer,
    Effect,
    Grant,
    Landed,
    Offer,
    OpenSend,
    Send,
    Sent,
    Spoilt,
)
from .pending import REMEMBERED, Early, Over

Outcome = list[Effect]


class Out:
    """What one receiver gets."""

    __slots__ = ("at", "credit", "granted", "offset", "pieces", "total")

    def __init__(self) -> None:
        self.pieces: list[tuple[int, int]] = []
        self.total = 0
        self.at = 0  # index into pieces
        self.offset = 0
        self.credit = 0
        self.granted = -1  # bytes in all; -1: the receiver has not spoken yet

    @property
    def all_sent(self) -> bool:
        return self.at == len(self.pieces)


class Sending:
    def __init__(self, me: int, chunk: int, limit: int) -> None:
        self._me, self._chunk = me, chunk
        self._open: dict[int, dict[int, Out]] = {}  # transfer -> receiver -> what it gets
        self._through: dict[int, set[int]] = {}  # transfer that is open -> receivers that have landed it
        self._early: Early[Grant | Landed] = Early(limit)
        self._over = Over()
        self._cut_off: dict[
            tuple[int, int], Blame
        ] = {}  # (transfer, receiver) given up with the link between them

    def open(self, said: OpenSend) -> Outcome:
        transfer = said.transfer
        if transfer in self._open or self._over.ended(transfer):
            raise Illegal(f"transfer {transfer} is sent already")
        outs: dict[int, Out] = {}
        for receiver, piece, nbytes in said.pieces:
            out = outs.setdefault(receiver, Out())
            out.pieces.append((piece, nbytes))
            out.total += nbytes
        blame = said.blame or self._over.dropped(transfer)
        if blame is not None:
            self._early.take(transfer)
            self._over.add(transfer)
            spoilt = [self._send(to, Spoilt(transfer, self._me, to, blame)) for to in outs]
            return [*spoilt, Sent(transfer)]
        self._open[transfer] = outs
        effects: Outcome = []
        heard = self._early.take(transfer)
        for receiver, word in heard:
            effects += (
                self._grant(receiver, word) if isinstance(word, Grant) else self._landed(receiver, word)
            )
        spoke = {receiver for receiver, _ in heard}
        for receiver, out in outs.items():
            if receiver not in spoke:
                effects.append(self._offer(transfer, receiver, out))
        return effects + self._end_if_landed(transfer)

    def came(self, peer: int, word: Grant | Landed) -> Outcome:
        if word.transfer not in self._open:
            if isinstance(word, Grant) and (word.transfer, peer) in self._cut_off:
                return [self._spoilt(word.transfer, peer)]
            if self._over.knows(word.transfer):
                return []
            return self._early.keep(peer, word.transfer, word)
        if isinstance(word, Grant):
            return self._grant(peer, word)
        return self._landed(peer, word) + self._end_if_landed(word.transfer)

    def _grant(self, peer: int, word: Grant) -> Outcome:
        outs = self._open[word.transfer]
        out = outs.get(peer)
        if out is None and (word.transfer, peer) in self._cut_off:
            return [self._spoilt(word.transfer, peer)]
        if out is None:
            return [
                Close(peer, f"transfer {word.transfer} has nothing for {peer}, which grants credits for it")
            ]
        granted = max(out.granted, 0) + word.nbytes
        if word.nbytes < 0 or granted > out.total:
            return [
                Close(peer, f"{peer} grants {granted} bytes of the {out.total} of transfer {word.transfer}")
            ]
        out.granted = granted
        out.credit += word.nbytes
        return self._pump(word.transfer, peer, out)

    def _pump(self, transfer: int, receiver: int, out: Out) -> Outcome:
        effects: Outcome = []
        while out.at < len(out.pieces):
            piece, size = out.pieces[out.at]
            nbytes = min(size - out.offset, out.credit, self._chunk)
            if nbytes == 0 and size > 0:
                break
            chunk = Chunk(transfer, self._me, receiver, piece, out.offset, nbytes)
            effects.append(self._send(receiver, chunk))
            out.credit -= nbytes
            out.offset += nbytes
            if out.offset == size:
                out.at, out.offset = out.at + 1, 0
        return effects

    def _landed(self, peer: int, word: Landed) -> Outcome:
        """Also one that has not got all: it does not want the rest. It says so again if our Offer was on its way
        when it let go."""
        through = self._through.setdefault(word.transfer, set())
        known = peer in through or (word.transfer, peer) in self._cut_off
        if self._open[word.transfer].pop(peer, None) is None and not known:
            return [Close(peer, f"{peer} has landed transfer {word.transfer}, which had nothing for it")]
        through.add(peer)
        return []

    def _end_if_landed(self, transfer: int) -> Outcome:
        if self._open[transfer]:
            return []
        self._through.pop(transfer, None)
        del self._open[transfer]
        self._over.add(transfer)
        return [Sent(transfer)]

    def drop(self, said: DropTransfer) -> Outcome:
        """Receivers that have not been sent everything will not be."""
        outs = self._open.pop(said.transfer, None)
        self._through.pop(said.transfer, None)
        self._early.take(said.transfer)
        self._over.add(said.transfer, said.blame)
        if outs is None:
            return []
        effects: Outcome = [
            self._send(receiver, Spoilt(said.transfer, self._me, receiver, said.blame))
            for receiver, out in outs.items()
            if not out.all_sent
        ]
        return [*effects, Sent(said.transfer)]

    def lost(self, peer: int, blame: Blame, anew: bool) -> Outcome:
        """Nobody is there to land anything; but for one who is there anew, and had not granted anything before."""
        self._early.forget(peer)
        effects: Outcome = []
        for transfer in [transfer for transfer, outs in self._open.items() if peer in outs]:
            out = self._open[transfer][peer]
            if anew and out.granted < 0:
                effects.append(self._offer(transfer, peer, out))
                continue
            del self._open[transfer][peer]
            self._cut_off[transfer, peer] = blame
            if len(self._cut_off) > REMEMBERED:
                del self._cut_off[next(iter(self._cut_off))]
            effects += self._end_if_landed(transfer)
        return effects

    def end(self) -> Outcome:
        """Whatever is open ends; nobody is told."""
        ended: Outcome = [Sent(transfer) for transfer in self._open]
        self._open.clear()
        return ended

    def _offer(self, transfer: int, receiver: int, out: Out) -> Send:
        return self._send(receiver, Offer(transfer, self._me, receiver, tuple(out.pieces)))

    def _spoilt(self, transfer: int, receiver: int) -> Send:
        return self._send(receiver, Spoilt(transfer, self._me, receiver, self._cut_off[transfer, receiver]))

    def _send(self, receiver: int, message: Chunk | Offer | Spoilt) -> Send:
        return Send((receiver,), message)
