"""A controller that was restarted: its state is rebuilt from the hosts and clients that reconnect.

Hosts say what they still have and to whom it was promised (`Join.held`), clients what they believe to hold and which
of their runs have not ended (`Open`). A buffer that its client claims and that all its hosts still have, ready, is
the client's again. Everything else is reported: a buffer that cannot be rebuilt by `ContentsReady` with a blame, a
run that was under way by `Ended` with one. Nothing is silently dropped. What nobody claims is freed once the grace is
over.

Until the islands have formed again, or the grace is over, clients' messages are kept and not answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..memory import Buffers, Ledger, Spill
from ..model import Atoms, Layout, Spans, is_layout, shard_bytes, spans
from ..protocol import Blame, ContentsReady, Ended, Held, Join, LogLine, Open
from .buffer_refs import BufferRefs
from .outbox import TurnOutbox
from .records import BufferName, ClientRecord
from .state import State
from .watch import Watchdog

if TYPE_CHECKING:
    from .clients import Clients

# To a client that comes from before a restart:
LOST = Blame("restart", "the controller was restarted, and not all hosts of this buffer still have it")
CUT_SHORT = Blame("restart", "the controller was restarted while this ran")
# To one that this controller has given up itself:
EACH_OTHER = "this client and the controller, which was not restarted, lost each other"


class Claim:
    """A buffer of an earlier time, as its hosts tell of it."""

    def __init__(self, held: Held) -> None:
        self.buffer = held.buffer
        self.layout: Layout = held.layout
        self.owners: list[tuple[int, int]] = []  # (client, its name for it); nobody's: left behind by a run
        self.spilled = held.spilled
        self.ready: Spans = spans.EMPTY
        self.counted = False  # in the ledger, since it takes memory
        self.taken: BufferName | None = None


class Recovery:
    clients: Clients
    deliver: Callable[[int, msgspec.Struct, int], None]  # a client's message, as if it had come now

    def __init__(
        self,
        state: State,
        *,
        atoms: Atoms,
        buffers: Buffers,
        refs: BufferRefs,
        ledger: Ledger,
        outbox: TurnOutbox,
        spill: Spill,
        watch: Watchdog,
    ) -> None:
        self._state = state
        self._atoms = atoms
        self._buffers = buffers
        self._refs = refs
        self._ledger = ledger
        self._outbox = outbox
        self._spill = spill
        self._watch = watch
        self.under_way = self._state.incarnation > 0
        self._claims: dict[int, Claim] = {}  # by buffer
        self._early: list[tuple[int, msgspec.Struct]] = []  # what clients said meanwhile

    def begin(self, now: int) -> None:
        self._watch.begin_for("recovery", now, self._state.config.recovery, self.end)

    def keep(self, peer: int, message: msgspec.Struct) -> None:
        self._early.append((peer, message))

    def nonsense(self, join: Join) -> str:
        """What is wrong with the buffers that a host says it has, if they cannot be on this cluster."""
        for held in join.held:
            if not 0 < held.buffer < self._state.base or not is_layout(held.layout, self._state.cluster):
                return f"has a buffer {held.buffer} that cannot be" if self.under_way else ""
        return ""

    def forget(self, peer: int) -> None:
        """Drop the messages that were kept for a peer that is gone."""
        self._early = [(who, message) for who, message in self._early if who != peer]

    def reported(self, join: Join) -> None:
        for held in join.held if self.under_way else ():
            claim = self._claims.setdefault(held.buffer, Claim(held))
            host = spans.one(join.host)
            if held.ready and (claim.layout, claim.spilled) == (held.layout, held.spilled):
                claim.ready = spans.union(claim.ready, host)
            owner = (held.client, held.name)
            if held.client and owner not in claim.owners:
                claim.owners.append(owner)

    def island_formed(self, now: int) -> None:
        if self.under_way and all(island.formed == island.epoch for island in self._state.islands):
            self.end(now)

    def end(self, now: int) -> None:
        """Wait no longer for hosts and clients. Clients are answered; buffers that no client claims are freed later,
        when the grace is over for them too."""
        if not self.under_way:
            return
        self.under_way = False
        self._watch.end("recovery")
        for claim in list(self._claims.values()):
            if claim.owners:
                claim.counted = claim.spilled or self._fits(claim)
            else:
                self._free(claim)
        self._outbox.effect(LogLine(f"recovered: {len(self._claims)} buffers found on hosts"))
        early, self._early = self._early, []
        for peer, message in early:
            self.deliver(peer, message, now)
        self._watch.begin_for("claims", now, self._state.config.recovery, self._free_unclaimed)

    def _fits(self, claim: Claim) -> bool:
        return self._ledger.admit(-claim.buffer, None, (self._amount(claim),)) is None

    def client_opened(self, session: ClientRecord, opening: Open) -> None:
        why = self.clients.why_lost(opening.client)
        freed, cut_short = (_apart(why, "freed"), _apart(why, "cut short")) if why else (LOST, CUT_SHORT)
        lost: list[int] = []
        for name in opening.held:
            named = session.names[name] = BufferName(session, name)
            session.top = max(session.top, name)
            if not self._give(named, (opening.client, name)):
                named.blame = freed
                lost.append(name)
        found = tuple(name for name in opening.held if name not in lost)
        if found:  # it may not have heard that they are ready
            self._outbox.note(session.peer, ContentsReady(found))
        if lost:
            self._outbox.note(session.peer, ContentsReady(tuple(lost), freed))
        for run in opening.open_runs:
            session.last_run = max(session.last_run, run)
            self._outbox.note(session.peer, Ended(run, cut_short))

    def _give(self, named: BufferName, owner: tuple[int, int]) -> bool:
        """Its own again, if all its hosts have it; a second name for one buffer becomes an alias."""
        claim = next((claim for claim in self._claims.values() if owner in claim.owners), None)
        if claim is None or not claim.counted or claim.ready != self._state.hosts_of(claim.layout.place):
            return False
        if claim.taken is None:
            claim.taken = named
            key, nbytes = self._amount(claim)
            self._refs.adopt(named, claim.buffer, claim.layout, nbytes, key)
            if claim.spilled:
                self._spill.found_spilled(self._buffers[claim.buffer])
        elif claim.taken.buffer in self._buffers:
            self._refs.alias(named, claim.taken)
        else:
            return False
        return True

    def _amount(self, claim: Claim) -> tuple[int, int]:
        return self._atoms.intern(claim.layout.place), shard_bytes(claim.layout)

    def host_lost(self, host: int) -> None:
        for claim in self._claims.values():
            claim.ready = spans.minus(claim.ready, spans.one(host))

    def _free_unclaimed(self, now: int) -> None:
        for claim in list(self._claims.values()):
            if claim.taken is None:
                self._free(claim)
                if claim.counted and not claim.spilled:
                    self._ledger.free(*self._amount(claim))
        self._claims.clear()

    def _free(self, claim: Claim) -> None:
        """On all its hosts: one that joined before it heard of the buffer has it by now."""
        del self._claims[claim.buffer]
        self._refs.free_on_hosts(claim.buffer, claim.layout, self._state.hosts_of(claim.layout.place))


def _apart(why: str, what: str) -> Blame:
    return Blame("client-lost", f"{EACH_OTHER} ({why}): it was {what}")
