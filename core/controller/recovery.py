"""A controller that was restarted: its state is rebuilt from the hosts and clients that reconnect.

Hosts say what they still have and to whom it was promised (`Join.held`), clients what they believe to hold and which
of their runs have not ended (`Open`). A buffer that its client claims and that all its hosts still have, ready, is
the client's again. Everything else is reported: a buffer that cannot be rebuilt by `Ready` with a blame, a run that
was under way by `Ended` with one. Nothing is silently dropped. What nobody claims is freed once the grace is over.

Until the islands have formed again, or the grace is over, clients' messages are kept and not answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .. import spans
from ..effects import Tell
from ..messages import Blame, Ended, FreeStep, Held, Join, Open, Ready
from ..plan import Layout
from ..resharding import shard_bytes
from ..spans import Spans
from .records import Named, Session

if TYPE_CHECKING:
    from .books import Books

LOST = Blame("restart", "the controller was restarted, and not all hosts of this buffer still have it")
CUT_SHORT = Blame("restart", "the controller was restarted while this ran")


class Claim:
    """A buffer of an earlier time, as its hosts tell of it."""

    def __init__(self, held: Held) -> None:
        self.buffer = held.buffer
        self.layout: Layout = held.layout
        self.owner = (held.client, held.name)
        self.hosts: Spans = spans.EMPTY


class Recovery:
    def __init__(self, books: Books) -> None:
        self._books = books
        self.under_way = books.incarnation > 0
        self._claims: dict[int, Claim] = {}  # by buffer
        self._early: list[tuple[int, msgspec.Struct]] = []  # what clients said meanwhile

    def begin(self, now: int) -> None:
        self._books.watch.begin_for("recovery", now, self._books.config.recovery, self.end)

    def keep(self, peer: int, message: msgspec.Struct) -> None:
        self._early.append((peer, message))

    def reported(self, join: Join) -> None:
        for held in join.held:
            claim = self._claims.setdefault(held.buffer, Claim(held))
            if held.ready and claim.layout == held.layout:
                claim.hosts = spans.union(claim.hosts, spans.one(join.host))

    def island_formed(self, now: int) -> None:
        if self.under_way and all(book.formed == book.epoch for book in self._books.islands):
            self.end(now)

    def end(self, now: int) -> None:
        """Whoever is not here by now is not waited for. Clients are answered; what nobody claims is freed later,
        when the grace is over for them too."""
        if not self.under_way:
            return
        self.under_way = False
        self._books.watch.end("recovery")
        self._books.outbox.effect(Tell(f"recovered: {len(self._claims)} buffers found on hosts"))
        early, self._early = self._early, []
        for peer, message in early:
            self._books.deliver(peer, message, now)
        self._books.watch.begin_for("claims", now, self._books.config.recovery, self._free_unclaimed)

    def client_opened(self, session: Session, opening: Open) -> None:
        lost: list[int] = []
        for name in opening.held:
            named = session.names[name] = Named(session, name)
            claim = self._take(opening.client, name)
            if claim is None:
                named.blame = LOST
                lost.append(name)
            else:
                nbytes = shard_bytes(claim.layout)
                self._books.holdings.adopt(named, claim.buffer, claim.layout, nbytes)
        if lost:
            self._books.outbox.note(session.peer, Ready(tuple(lost), LOST))
        for run in opening.open_runs:
            session.last_run = max(session.last_run, run)
            self._books.outbox.note(session.peer, Ended(run, CUT_SHORT))

    def _take(self, client: int, name: int) -> Claim | None:
        for claim in self._claims.values():
            if claim.owner == (client, name) and claim.hosts == self._books.hosts_of(claim.layout.place):
                return self._claims.pop(claim.buffer)
        return None

    def host_lost(self, host: int) -> None:
        for claim in self._claims.values():
            claim.hosts = spans.minus(claim.hosts, spans.one(host))

    def _free_unclaimed(self, now: int) -> None:
        for claim in self._claims.values():
            self._books.outbox.step(claim.layout.place.island, FreeStep((claim.buffer,)), claim.hosts)
        self._claims.clear()
