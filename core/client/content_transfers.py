"""The contents of a client's puts and gets, which travel directly between the client and the hosts.

    PutStarted, GetStarted --> transfer <--Grant, Chunk ...--> hosts

The driver is told what to do with contents as a host's driver is told it: OpenSend (of the buffer that was put),
OpenRecv (`buffer` is then the request), Fill, Sent, Received. Peers are numbered as in `peers`.

Neighbours: `client_session` notes in `said` what the controller has said of contents, and `client` has it followed at
the end of a turn; `retries` decides whether a get that broke off is asked again; `transfer` moves the chunks.
"""

from collections.abc import Callable
from typing import Any

from .. import protocol as p
from ..model import Hosts, KnownHosts, Layout, ranges
from ..transfer import ALL, Piece, Transfer, from_client, from_hosts, hosts_of
from .client_state import ClientState
from .retries import Retries

KEPT = 64  # layouts whose pieces are remembered
DATA: frozenset[type] = frozenset((p.Grant, p.Chunk, p.Offer, p.Spoilt, p.Landed))


class ContentTransfers:
    """`hosts`: which devices each host of the cluster has. `pool`, `chunk`: see `transfer`. `make`: makes its
    machine."""

    def __init__(
        self, state: ClientState, retries: Retries, hosts: Hosts, pool: int, chunk: int,
        make: Callable[[int, int, int], Transfer],
    ) -> None:  # fmt: skip
        self._state, self._retries, self._hosts = state, retries, KnownHosts(hosts)
        self.learn = self._hosts.learn
        self._out = state.out
        self._pool, self._chunk, self._make = pool, chunk, make
        # of puts and gets: an array at each call has the same ones
        self._pieces: dict[tuple[Layout, bool], tuple[Piece, ...]] = {}
        self._number = 0  # the client's, with which `_transfer` was made
        # made for the first contents; the controller has numbered us then
        self._transfer: Transfer | None = None
        self._gets: dict[int, p.GetStarted] = {}  # by transfer, while its contents come
        # of these, the early ones: what has become of the transfer, until the controller says what that is worth
        self._early: dict[int, p.Received | None] = {}
        self._puts: dict[int, int] = {}  # transfer -> buffer, while its contents go
        self._hosts_met: dict[int, None] = {}  # hosts that know us by that number
        self.said: list[Any] = []  # in this turn, of contents
        self._acts: dict[type, Callable[[Any, int], None]] = {
            p.PutStarted: self._send, p.GetStarted: self._receive, p.CallRefused: self._refused,
            p.BuffersReady: self._spoilt, p.Opened: self._numbered, p.Disconnected: self._session_lost,
            p.GetSettled: self._settled,
        }  # fmt: skip

    def came(self, event: p.MessageReceived, now: int) -> None:
        """A host's word about contents."""
        self._tell(p.MessageReceived(p.end_of(event.peer), event.message), now)

    def host_lost(self, event: p.Disconnected, now: int) -> None:
        self._tell(p.Disconnected(p.end_of(event.peer), event.reason, event.anew), now, again=event.anew)

    def follow(self, now: int) -> None:
        """Do what follows from `said`."""
        said, self.said = self.said, []
        for each in said:
            self._acts[type(each)](each, now)

    # --- what follows -----------------------------------------------------------------------------------------

    def _send(self, wanted: p.PutStarted, now: int) -> None:
        if self._transfer is None:
            self._begin()
        layout = wanted.layout
        pieces = self._pieces_of(layout, getting=False)
        self._drop_puts((wanted.buffer,), p.Blame("restart", "it is put again"), now)
        self._puts[wanted.transfer] = wanted.buffer
        opening = p.OpenSend(wanted.transfer, (wanted.buffer,), pieces, None, (), (layout,))
        self._out.append(opening)
        self._tell(opening, now)

    def _pieces_of(self, layout: Layout, getting: bool) -> tuple[Piece, ...]:
        found = self._pieces.get((layout, getting))
        if found is None:
            if len(self._pieces) >= KEPT:
                self._pieces.clear()
            made = from_hosts(layout, self._hosts) if getting else self._put_pieces(layout)
            found = self._pieces[layout, getting] = made
        return found

    def _put_pieces(self, layout: Layout) -> tuple[Piece, ...]:
        return tuple(
            [
                (host, piece, nbytes)
                for host in hosts_of(layout.place, self._hosts)
                for _, piece, nbytes in from_client(layout, self._number, host, self._hosts)
            ]
        )

    def _receive(self, coming: p.GetStarted, now: int) -> None:
        if self._transfer is None:
            self._begin()
        layout = coming.layout
        if coming.shard == ALL:
            pieces = self._pieces_of(layout, getting=True)
        else:
            pieces = from_hosts(layout, self._hosts, coming.shard)
        self._gets[coming.transfer] = coming
        transfer = coming.transfer
        if coming.early:
            self._early[transfer] = None
        opening = p.OpenRecv(transfer, transfer, (coming.request,), pieces, False, (), (), (layout,))
        self._out.append(opening)
        self._tell(opening, now)

    def _refused(self, refused: p.CallRefused, now: int) -> None:
        if refused.what == "put":
            self._drop_puts((refused.name,), refused.blame, now)
        elif refused.what in ("get", "sending"):
            for transfer in [each for each, coming in self._gets.items() if coming.request == refused.name]:
                self._drop_get(transfer, refused.blame, now)

    def _settled(self, note: p.GetSettled, now: int) -> None:
        if note.transfer not in self._early:
            return  # it broke off meanwhile
        if note.blame is not None:
            self._drop_get(note.transfer, note.blame, now)
        elif (received := self._early.pop(note.transfer)) is not None:
            self._do(received)

    def _drop_get(self, transfer: int, blame: p.Blame, now: int, again: bool = True) -> None:
        if self._early.pop(transfer, None) is None:
            self._tell(p.DropTransfer(transfer, blame, ()), now, again)
        else:  # all has come, or will not
            self._do(p.Received(transfer, blame), again)

    def _spoilt(self, told: p.BuffersReady, now: int) -> None:
        if told.blame is not None:
            self._drop_puts(tuple(ranges.each(told.buffers)), told.blame, now)

    def _drop_puts(self, buffers: tuple[int, ...], blame: p.Blame, now: int) -> None:
        """They have failed, or go anew, so no host wants the rest of what was on its way."""
        for transfer in [transfer for transfer, buffer in self._puts.items() if buffer in buffers]:
            self._tell(p.DropTransfer(transfer, blame, ()), now)

    def _session_lost(self, event: p.Disconnected, now: int) -> None:
        """Gets end with the session: nobody knows any more whether all hosts have been told to send."""
        blame = p.Blame("client-lost", "the connection to the controller was lost meanwhile")
        if not event.anew:
            blame = p.Blame("client-lost", f"the controller is unreachable: {self._state.why_away}")
        for transfer in list(self._gets):
            self._drop_get(transfer, blame, now, again=event.anew)

    def _numbered(self, note: p.Opened, now: int) -> None:
        """The controller has given this client a number. If it had another, the session is another one. Hosts would
        take words on the old links for words of the old session, so these links end, and the next word begins others.
        """
        if self._number in (0, note.client):
            return
        if self._transfer is not None:
            for effect in self._transfer.end():
                self._do(effect)
        self._out += [p.Close(host, "this client has another number now", "") for host in self._hosts_met]
        self._transfer, self._number = None, 0
        self._hosts_met, self._puts = {}, {}

    # --- the transfer machine ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._number = self._state.number
        self._transfer = self._make(-self._number, self._pool, self._chunk)

    def _tell(self, event: p.Effect, now: int, again: bool = True) -> None:
        """`again`: a get that ends may be asked again."""
        if self._transfer is not None:
            for effect in self._transfer.handle(event, now):
                self._do(effect, again)

    def _do(self, effect: p.Command, again: bool = True) -> None:
        if isinstance(effect, p.Send):
            effect = p.Send(tuple(map(p.peer_of, effect.peers)), effect.message, effect.causes)
            self._hosts_met.update(dict.fromkeys(effect.peers))
        elif isinstance(effect, p.Sent):
            self._puts.pop(effect.transfer, None)
        elif isinstance(effect, p.Close):
            effect = p.Close(p.peer_of(effect.peer), effect.reason)
        elif isinstance(effect, p.Received) and effect.transfer in self._gets:
            if effect.transfer in self._early:
                self._early[effect.transfer] = effect
                return
            coming, blame = self._gets.pop(effect.transfer), effect.blame
            if self._retries.get_ended(coming.request, blame, again) and blame is not None:
                effect = p.GetAgain(coming.request, effect.transfer, blame)
            else:
                effect = p.Received(effect.transfer, blame, coming.request, coming.rows)
        self._out.append(effect)
