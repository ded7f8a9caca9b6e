"""Checks that each byte of a transfer arrives once and in its place, within credits, and credits within the pool."""

from __future__ import annotations

from . import observations as o
from .checker_base import Checker

Side = tuple[int, int]  # (transfer, receiver)
Lane = tuple[int, int, int]  # (transfer, sender, receiver)


class TransferChecker(Checker):
    name = "transfers"
    sees = (
        o.TransferOpened, o.Granted, o.ChunkSent, o.ChunkArrived, o.TransferOver, o.HostLost, o.PeerLost,
        o.SpoiltReceived,
    )  # fmt: skip

    def __init__(self, pool: int = 0, short: int = -1) -> None:
        """`pool`: the most bytes that one receiver may have granted at a time; 0: do not check this. `short`: of
        receives that are longer than this (`transfer.at_once`)."""
        self._pool, self._short = pool, short
        self._open: dict[Side, o.TransferOpened] = {}
        self._over: dict[Side, None] = {}
        self._credit: dict[Lane, int] = {}  # bytes granted and not sent
        self._promised: dict[int, dict[Lane, int]] = {}  # receiver -> lane -> bytes granted and not arrived
        self._got: dict[Side, dict[tuple[int, int], int]] = {}  # (sender, piece) -> bytes that have arrived

    def saw(self, seen: o.Observation, now: int) -> None:
        match seen:
            case o.TransferOpened(transfer=transfer, receiver=receiver):
                if (transfer, receiver) in self._open or (transfer, receiver) in self._over:
                    self.fail(f"transfer {transfer} was opened twice at {receiver}")
                self._open[transfer, receiver] = seen
                self._got[transfer, receiver] = {}
            case o.Granted():
                self._grant(seen)
            case o.ChunkSent():
                self._sent(seen)
            case o.ChunkArrived():
                self._arrived(seen)
            case o.TransferOver():
                self._end(seen)
            case o.HostLost(host=host):
                for side in [side for side in self._open if side[1] == host]:
                    self._close(side)
                self._promised.pop(host, None)
            case o.PeerLost(receiver=receiver, sender=sender):
                promised = self._promised.get(receiver, {})
                for lane in [lane for lane in promised if lane[1] == sender]:
                    del promised[lane]
            case o.SpoiltReceived(transfer=transfer, sender=sender, receiver=receiver):
                self._promised.get(receiver, {}).pop((transfer, sender, receiver), None)
            case _:
                pass

    def _grant(self, seen: o.Granted) -> None:
        lane = (seen.transfer, seen.sender, seen.receiver)
        self._credit[lane] = self._credit.get(lane, 0) + seen.nbytes
        opened = self._open.get((seen.transfer, seen.receiver))
        if opened is not None and not opened.sparse and sum([nbytes for *_, nbytes in opened.pieces]) <= self._short:
            return
        promised = self._promised.setdefault(seen.receiver, {})
        promised[lane] = promised.get(lane, 0) + seen.nbytes
        if self._pool and sum(promised.values()) > self._pool:
            self.fail(f"{seen.receiver} has granted {sum(promised.values())} bytes of a pool of {self._pool}")

    def _sent(self, seen: o.ChunkSent) -> None:
        lane = (seen.transfer, seen.sender, seen.receiver)
        self._credit[lane] = self._credit.get(lane, 0) - seen.nbytes
        if self._credit[lane] < 0:
            self.fail(f"{seen}: {-self._credit[lane]} bytes were sent beyond the credit")

    def _arrived(self, seen: o.ChunkArrived) -> None:
        side, key = (seen.transfer, seen.receiver), (seen.sender, seen.piece)
        opened = self._open.get(side)
        if opened is None:
            self.fail(f"{seen} arrived, but the transfer is not open")
        got = self._got[side].get(key, 0)
        if seen.offset != got:
            self.fail(f"{seen} arrived at offset {seen.offset}, after {got} bytes")
        self._got[side][key] = got + seen.nbytes
        sizes = {(sender, piece): nbytes for sender, piece, nbytes in opened.pieces}
        if not opened.sparse and got + seen.nbytes > sizes.get(key, 0):
            self.fail(f"{seen} is more than the {sizes.get(key, 0)} bytes announced")
        promised = self._promised.get(seen.receiver, {})
        lane = (seen.transfer, seen.sender, seen.receiver)
        if lane in promised:
            promised[lane] = max(0, promised[lane] - seen.nbytes)

    def _end(self, seen: o.TransferOver) -> None:
        side = (seen.transfer, seen.receiver)
        opened = self._open.get(side)
        if opened is None:
            self.fail(f"transfer {seen.transfer} ended at {seen.receiver}, where it was not open")
        for sender, piece, nbytes in opened.pieces if seen.blame is None else ():
            got = self._got[side].get((sender, piece), 0)
            if got != nbytes:
                self.fail(f"{seen} is over, with {got} of {nbytes} bytes of piece {piece} from {sender}")
        self._close(side)

    def _close(self, side: Side) -> None:
        del self._open[side], self._got[side]
        self._over[side] = None
        promised = self._promised.get(side[1], {})
        for lane in [lane for lane in promised if lane[0] == side[0]]:
            del promised[lane]

    def at_rest(self, now: int) -> None:
        for transfer, receiver in self._open:
            self.fail(f"transfer {transfer} is still open at {receiver}")
