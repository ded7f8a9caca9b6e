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
        self.sources: dict[int, None] = {}  # of a view: whose memory it shares
        self.counted = False  # in the ledger, if it takes memory
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
            known = is_layout(held.layout, self._state.cluster)
            known = known and all(0 < source < held.buffer for source in held.sources)
            if not 0 < held.buffer < self._state.base or not known:
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
            claim.sources.update(dict.fromkeys(held.sources))
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
        wanted = self._wanted()
        for claim in self._latest_first():
            if claim.buffer in wanted:
                claim.counted = claim.spilled or bool(claim.sources) or self._fits(claim)
            else:
                self._free(claim)
        self._outbox.effect(LogLine(f"recovered: {len(self._claims)} buffers found on hosts"))
        early, self._early = self._early, []
        for peer, message in early:
            self.deliver(peer, message, now)
        self._watch.begin_for("claims", now, self._state.config.recovery, self._free_unclaimed)

    def _wanted(self) -> set[int]:
        """Buffers that belong to clients, and those that their views share."""
        found: set[int] = set()
        for claim in self._latest_first():
            if claim.owners or claim.buffer in found:
                found |= {claim.buffer, *claim.sources}
        return found

    def _latest_first(self) -> list[Claim]:
        """A view before what it shares: that is how hosts are to free them."""
        return [self._claims[buffer] for buffer in sorted(self._claims, reverse=True)]

    def _fits(self, claim: Claim) -> bool:
        return self._ledger.admit(-claim.buffer, None, (self._amount(claim),)) is None

    def client_opened(self, session: ClientRecord, opening: Open) -> None:
        why = self.clients.why_lost(opening.client)
        freed, cut_short = (_apart(why, "freed"), _apart(why, "cut short")) if why else (LOST, CUT_SHORT)
        lost: list[int] = []
        for name in sorted(opening.held, key=lambda name: self._is_view((opening.client, name))):
            named = session.names[name] = BufferName(session, name)
            session.top = max(session.top, name)
            if not self._give(named, (opening.client, name)):
                named.blame = freed
                lost.append(name)
        lost.sort()
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
        claim = self._claim_of(owner)
        if claim is None or not self._is_whole(claim):
            return False
        if claim.taken is None:
            if not self._adopt(claim, named):
                return False
            self._refs.dropped(claim.buffer)
            return True
        if claim.taken.buffer not in self._buffers:
            return False
        self._refs.alias(named, claim.taken)
        return True

    def _claim_of(self, owner: tuple[int, int]) -> Claim | None:
        return next((claim for claim in self._claims.values() if owner in claim.owners), None)

    def _is_view(self, owner: tuple[int, int]) -> bool:
        claim = self._claim_of(owner)
        return claim is not None and bool(claim.sources)

    def _is_whole(self, claim: Claim) -> bool:
        """Whether all its hosts have it, and its memory is counted."""
        return claim.counted and claim.ready == self._state.hosts_of(claim.layout.place)

    def _adopt(self, claim: Claim, named: BufferName) -> bool:
        """Its own again, and held until `dropped`. A view needs all that it shares, whether or not its client still has
        names for that."""
        kept: list[int] = []
        for source in [self._claims.get(each) for each in claim.sources]:
            if source is None or not self._is_whole(source):
                break
            if source.taken is None:
                if not self._adopt(source, BufferName(named.session, 0, released=True)):
                    break
            elif source.buffer in self._buffers:
                self._buffers.hold(source.buffer)
            else:
                break
            kept.append(source.buffer)
        whole = len(kept) == len(claim.sources)
        if whole:
            claim.taken = named
            key, nbytes = self._amount(claim)
            self._refs.adopt(named, claim.buffer, claim.layout, nbytes, key, tuple(kept))
            if claim.spilled:
                self._spill.found_spilled(self._buffers[claim.buffer])
        for buffer in kept:
            self._refs.dropped(buffer)
        return whole

    def _amount(self, claim: Claim) -> tuple[int, int]:
        """A view takes no memory of its own."""
        key = self._atoms.intern(claim.layout.place)
        return key, 0 if claim.sources else shard_bytes(claim.layout)

    def host_lost(self, host: int) -> None:
        for claim in self._claims.values():
            claim.ready = spans.minus(claim.ready, spans.one(host))

    def _free_unclaimed(self, now: int) -> None:
        for claim in self._latest_first():
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
