"""One client as a machine: its session with the controller, and its share of the data plane.

    the user --calls--> client --Calls--> controller          PutWanted, GetComing --> transfer
    the user <--RunEnded ...-- client <--Notes-- controller   transfer <--Grant, Chunk ...--> hosts

The user (or the driver, in the user's name) calls `client`'s methods and then handles `Called`. What is to
be done with contents is told as a host is told it: OpenSend (of the buffer that was put), OpenRecv
(`buffer` is then the request), Fill, Sent, Received. Peers are numbered as in `peers`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ..model import Hosts
from ..protocol import (
    CONTROLLER,
    Blame,
    BuffersReady,
    Called,
    CallRefused,
    Came,
    Chunk,
    Close,
    Disconnected,
    DropTransfer,
    Effect,
    GetAgain,
    GetComing,
    Grant,
    Landed,
    Offer,
    OpenRecv,
    OpenSend,
    PutWanted,
    Received,
    Send,
    Sent,
    Spoilt,
    end_of,
    peer_of,
)
from ..transfer import CHUNK, POOL, Transfer, from_client, hosts_of, to_client
from .client import Client

DATA = frozenset((Grant, Chunk, Offer, Spoilt, Landed))
# What concerns our share of the data plane; all else goes to the user as it is.
CONTENTS = frozenset((PutWanted, GetComing, CallRefused, Received, BuffersReady))


class ClientSide:
    """`hosts`: which devices each host of the cluster has. `pool`, `chunk`: see `transfer`."""

    def __init__(self, client: Client, hosts: Hosts, *, pool: int = POOL, chunk: int = CHUNK) -> None:
        self.client = client
        self._hosts = hosts
        self._pool, self._chunk = pool, chunk
        self._number = 0
        self._transfer: Transfer | None = None  # made when the controller has given us a number
        self._gets: dict[int, int] = {}  # transfer -> request, while it comes
        self._puts: dict[int, int] = {}  # transfer -> buffer, while it goes
        self._hosts_met: dict[int, None] = {}  # hosts that know us, by the number that we have
        self._said: deque[Effect] = deque()

    def handle(self, event: Effect, now: int) -> list[Effect]:
        if isinstance(event, Came) and type(event.message) in DATA:
            if self._transfer is not None:
                self._to_transfer(Came(end_of(event.peer), event.message), now)
        elif isinstance(event, Disconnected):
            if event.peer != CONTROLLER:
                self._to_transfer(Disconnected(end_of(event.peer), event.reason, event.anew), now)
            self._said += self.client.handle(event, now)
            if event.peer == CONTROLLER:
                self._drop_gets(now)
        else:
            self._said += self.client.handle(event, now)
        if self._number not in (0, self.client.number):
            self._renumbered()
        out: list[Effect] = []
        while self._said:
            effect = self._said.popleft()
            if type(effect) not in CONTENTS:
                out.append(effect)
                continue
            effect = self._received(effect, now)
            if not (isinstance(effect, CallRefused) and effect.what == "sending"):  # Received will tell, once
                out.append(effect)
            self._follow(effect, now)
        return out

    def next_wakeup(self) -> int | None:
        return self.client.next_wakeup()

    def _follow(self, effect: Any, now: int) -> None:
        match effect:
            case PutWanted(buffer=buffer, transfer=transfer, layout=layout):
                self._numbered()
                pieces = tuple(
                    (host, piece, nbytes)
                    for host in hosts_of(layout.place, self._hosts)
                    for _, piece, nbytes in from_client(layout, self._number, host, self._hosts)
                )
                self._give_up_puts((buffer,), Blame("restart", "it is put again"), now)
                self._puts[transfer] = buffer
                self._to_transfer(OpenSend(transfer, buffer, pieces, None, (), layout), now, show=True)
            case BuffersReady(buffers=buffers, blame=blame) if blame is not None and self._puts:
                self._give_up_puts(buffers, blame, now)
            case CallRefused(what="put", name=buffer, blame=blame):
                self._give_up_puts((buffer,), blame, now)
            case GetComing(request=request, transfer=transfer, layout=layout):
                self._numbered()
                self._gets[transfer] = request
                pieces = tuple(
                    (host, piece, nbytes)
                    for host in hosts_of(layout.place, self._hosts)
                    for _, piece, nbytes in to_client(layout, self._number, host, self._hosts)
                )
                self._to_transfer(
                    OpenRecv(transfer, transfer, request, pieces, False, (), None, layout), now, show=True
                )
            case CallRefused(what="get" | "sending", name=request, blame=blame):
                for transfer in [each for each, known in self._gets.items() if known == request]:
                    self._to_transfer(DropTransfer(transfer, blame, ()), now)
            case _:
                pass

    def _received(self, effect: Effect, now: int) -> Effect:
        """What has come of a get; one that broke off may be asked for again."""
        if not isinstance(effect, Received) or effect.transfer not in self._gets:
            return effect
        request, blame = self._gets.pop(effect.transfer), effect.blame
        if not self.client.landed(request, blame):
            return effect
        assert blame is not None, "what has come is not asked for again"
        self._said += self.client.handle(Called(), now)
        return GetAgain(request, effect.transfer, blame)

    def _drop_gets(self, now: int) -> None:
        """They die with the session: whether all hosts have been told to send, and go on, nobody knows any more."""
        blame = Blame("client-lost", "the connection to the controller was lost meanwhile")
        for transfer in list(self._gets):
            self._to_transfer(DropTransfer(transfer, blame, ()), now)

    def _give_up_puts(self, buffers: tuple[int, ...], blame: Blame, now: int) -> None:
        """The controller has said that they failed, so no host wants the rest of their contents."""
        for transfer in [transfer for transfer, buffer in self._puts.items() if buffer in buffers]:
            self._to_transfer(DropTransfer(transfer, blame, ()), now)

    def _numbered(self) -> None:
        """The first transfer since we were given this number."""
        if self._transfer is None:
            self._number = self.client.number
            self._transfer = Transfer(-self._number, self._pool, self._chunk)

    def _renumbered(self) -> None:
        """The session is another one. Hosts know us by the number of the old one: what goes on the links to them would
        be taken for its own, so these end, and the next word begins others."""
        if self._transfer is not None:
            self._said += self._transfer.end()
        self._said += [Close(host, "this client has another number now", "") for host in self._hosts_met]
        self._transfer, self._number = None, 0
        self._hosts_met, self._puts = {}, {}

    def _to_transfer(self, event: Effect, now: int, show: bool = False) -> None:
        if show:
            self._said.append(event)
        if self._transfer is None:
            return
        for effect in self._transfer.handle(event, now):
            if isinstance(effect, Send):
                effect = Send(tuple(map(peer_of, effect.peers)), effect.message, effect.causes)
                self._hosts_met.update(dict.fromkeys(effect.peers))
            elif isinstance(effect, Sent):
                self._puts.pop(effect.transfer, None)
            elif isinstance(effect, Close):
                effect = Close(peer_of(effect.peer), effect.reason)
            self._said.append(effect)
