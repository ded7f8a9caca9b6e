"""A controller that was restarted: its state is rebuilt from the hosts and clients that reconnect.

Hosts say what they still have and to whom it was promised (`Join.held`), clients what they believe to hold and which
of their runs have not ended (`Open`). A buffer that its client claims and that all its hosts still have, ready, is
the client's again. Everything else is reported: a buffer that cannot be rebuilt by `ContentsReady` with a blame, a
run that was under way by `Ended` with one. Nothing is silently dropped. What a client does not claim when it opens is
nobody's, and freed at once; so no array goes while a view of it is left. What belongs to clients that do not come is
freed once the grace is over.

Until the islands have formed again, or the grace is over, clients' messages are kept and not answered. Then the
controller takes them as if they had come now (`State.kept`). Hosts that the last start did not have are not waited for.
"""

from collections import deque

import msgspec

from ..memory import Buffers, Ledger, Spill
from ..model import Atoms, Island, Layout, Spans, is_layout, shard_bytes, spans, virtual_index
from ..protocol import Blame, ContentsReady, Ended, Held, HostsJoined, HostsKnown, Join, LogLine, Open
from .admission import Admission
from .buffer_refs import BufferRefs
from .outbox import TurnOutbox
from .records import BufferName, ClientRecord
from .state import ControllerModule, State
from .watch import Watchdog

# To a client that comes from before a restart:
LOST = Blame("restart", "the controller was restarted, and not all hosts of this buffer still have it")
SPOILT = Blame("lost", "it was lost, or what was to make it had failed, before the controller was restarted")
CUT_SHORT = Blame("restart", "the controller was restarted while this ran")
# To one that this controller has given up itself:
EACH_OTHER = "this client and the controller, which was not restarted, lost each other"


class Claim:
    """A buffer of an earlier time, as its hosts tell of it."""

    def __init__(self, held: Held) -> None:
        self.buffer = held.buffer
        self.layout: Layout = held.layout
        self.owners: list[tuple[int, int]] = []  # (client, its name for it); nobody's: left behind by a run
        self.spilled = held.spilled  # or some host has; of a view: folded
        self.on_disk = held.on_disk  # or some host has it there
        self.mixed = False  # not all hosts have
        self.ready: Spans = spans.EMPTY
        self.shards: dict[int, int] = {}  # of a view: by device of its place, the buffer whose memory it shares there
        self.views = 0  # how many views share its memory
        self.counted = False  # in the ledger, if it takes memory
        self.taken: BufferName | None = None

    @property
    def is_spilled(self) -> bool:
        return self.spilled and not self.mixed

    @property
    def sources(self) -> tuple[int, ...]:
        """Of a view: whose memory it shares."""
        return tuple(dict.fromkeys(self.shards.values()))


class Recovery(ControllerModule):
    _state: State
    _admission: Admission
    _atoms: Atoms
    _buffers: Buffers
    _ledger: Ledger
    _outbox: TurnOutbox
    _refs: BufferRefs
    _spill: Spill
    _watch: Watchdog
    under_way: bool = False
    _had: Spans = spans.EMPTY  # hosts that may have something of this start or an earlier one
    _claims: dict[int, Claim] = {}  # by buffer
    # By client, and its name for the buffer; two while its arrays are being copied elsewhere
    _owned: dict[int, dict[int, list[Claim]]] = {}
    _mixed: list[int] = []  # buffers that some of their hosts have spilled: the others are to
    _opened: set[int] = set()  # clients that have said what they hold
    _early: deque[tuple[int, msgspec.Struct]] = msgspec.field(default_factory=deque)  # what clients said meanwhile

    def __post_init__(self) -> None:
        self.under_way = self._state.incarnation > 0
        if self.under_way:
            self._had = ((0, self._state.cluster.hosts),)

    def begin(self, now: int) -> None:
        self._watch.begin_for("recovery", now, self._state.config.recovery, self.end)

    def hosts_known(self, event: HostsKnown, now: int) -> None:
        if spans.is_normal(event.hosts):  # it comes from a file
            self._had = event.hosts

    def awaited(self, island: Island) -> Spans:
        """The hosts of an island that are waited for: while this goes on, those that earlier starts have had."""
        return spans.meet(self._had, island.host_span) if self.under_way else island.host_span

    def keep(self, peer: int, message: msgspec.Struct) -> None:
        self._early.append((peer, message))

    def nonsense(self, join: Join) -> str:
        """What is wrong with the buffers that a host says it has, if they cannot be on this cluster."""
        for held in join.held:
            known = is_layout(held.layout, self._state.cluster)
            known = known and all(0 < source < held.buffer for source in held.sources)
            known = known and len(held.sources) in (0, len(self._devices(join.host, held.layout)))
            if not 0 < held.buffer < self._state.base or not known:
                return f"has a buffer {held.buffer} that cannot be" if self.under_way else ""
        return ""

    def forget(self, peer: int) -> None:
        """Drop the messages that were kept for a peer that is gone."""
        for messages in (self._early, self._state.kept):
            for each in [each for each in messages if each[0] == peer]:
                messages.remove(each)

    def reported(self, join: Join) -> None:
        for held in join.held if self.under_way else ():
            claim = self._claims.setdefault(held.buffer, Claim(held))
            host = spans.one(join.host)
            if claim.spilled != held.spilled:  # hosts that have not heard that it is spilled or folded will
                claim.spilled, claim.mixed = True, True
            claim.on_disk |= held.on_disk
            if held.ready and claim.layout == held.layout:
                claim.ready = spans.union(claim.ready, host)
            owner = (held.client, held.name)
            claim.shards.update(zip(self._devices(join.host, held.layout), held.sources, strict=False))
            if held.client and owner not in claim.owners:
                claim.owners.append(owner)
                self._owned.setdefault(held.client, {}).setdefault(held.name, []).append(claim)

    def _devices(self, host: int, layout: Layout) -> list[int]:
        """Those of a host on which an array lies, by their order in its place."""
        devices = self._state.cluster.devices_of(host)
        return [index for device in devices if (index := virtual_index(layout.place, device)) >= 0]

    def island_formed(self, members: Spans, now: int) -> None:
        if not spans.within(members, self._had):
            self._had = spans.union(self._had, members)
            self._outbox.effect(HostsJoined(self._had))
        awaited = [island for island in self._state.islands if self.awaited(island.island)]
        if self.under_way and all(island.formed == island.epoch for island in awaited):
            self.end(now)

    def end(self, now: int) -> None:
        """Wait no longer for hosts and clients. Clients are answered; buffers that no client claims are freed later,
        when the grace is over for them too."""
        if not self.under_way:
            return
        self.under_way = False
        self._watch.end("recovery")
        # What others have had is freed: the next start need not wait for them, nor for all, if this one knew of none.
        here = spans.of([h for each in self._state.islands for h in (*spans.items(each.members), *each.coming)])
        if here != self._had:
            self._had = here
            self._outbox.effect(HostsJoined(here))
        for claim in self._claims.values():
            for source in claim.sources:
                if source in self._claims:
                    self._claims[source].views += 1
        self._free_unwanted(self._latest_first()[::-1])
        for claim in self._latest_first():
            claim.counted = (claim.is_spilled and not claim.shards) or self._fits(claim)
        self._outbox.effect(LogLine(f"recovered: {len(self._claims)} buffers found on hosts"))
        self._state.kept.extend(self._early)
        self._early.clear()
        self._watch.begin_for("claims", now, self._state.config.recovery, self._free_unclaimed)

    def _free_unwanted(self, claims: list[Claim]) -> None:
        """Free those of these that belong to no client which may still come, and that no view shares, and then what
        they alone have shared."""
        while claims:
            claim = claims.pop()
            to_come = any(client not in self._opened for client, _ in claim.owners)
            if claim.taken is not None or claim.views or to_come or claim.buffer not in self._claims:
                continue
            self._free(claim)
            for source in [self._claims[each] for each in claim.sources if each in self._claims]:
                source.views -= 1
                claims.append(source)

    def _latest_first(self) -> list[Claim]:
        """A view before what it shares: that is how hosts are to free them."""
        return [self._claims[buffer] for buffer in sorted(self._claims, reverse=True)]

    def _fits(self, claim: Claim) -> bool:
        return self._ledger.admit(-claim.buffer, None, (self._amount(claim),)) is None

    def client_opened(self, session: ClientRecord, opening: Open, why: str) -> None:
        """`why`: why this controller gave up the client; "" if that comes from an earlier start."""
        freed, cut_short = (_apart(why, "freed"), _apart(why, "cut short")) if why else (LOST, CUT_SHORT)
        lost: dict[int, Blame] = {}
        spoilt = set(opening.spoilt)  # its host may still have what a run that failed has made
        owned = self._owned.get(opening.client, {})
        for name in sorted(opening.held, key=lambda name: name in owned and bool(owned[name][0].shards)):
            named = session.enter(BufferName(session, name))
            if name in spoilt or not any(self._give(named, claim) for claim in owned.get(name, ())):
                lost[name] = SPOILT if name in spoilt and name in owned else freed
                named.spoil(lost[name])
        found = tuple(name for name in opening.held if name not in lost)
        if found:  # it may not have heard that they are ready
            self._outbox.note(session.peer, ContentsReady(found))
        for blame in (freed, SPOILT):
            if names := sorted(name for name, each in lost.items() if each is blame):
                self._outbox.note(session.peer, ContentsReady(tuple(names), blame))
        for run in opening.open_runs:
            session.ran(run)
            self._outbox.note(session.peer, Ended(run, cut_short))
        mixed = [self._buffers[ident] for ident in self._mixed if ident in self._buffers]
        self._admission.spill(tuple(filter(self._spill.is_idle, mixed)), self._state.now)
        self._mixed.clear()
        self._opened.add(opening.client)
        self._free_unwanted([claim for claims in owned.values() for claim in claims])

    def _give(self, named: BufferName, claim: Claim) -> bool:
        """Its own again, if all its hosts have it; a second name for one buffer becomes an alias. A view holds all that
        it shares, whether or not its client still has names for that."""
        parts = self._whole(claim)
        if parts and claim.taken is not None:
            self._refs.alias(named, claim.taken)
            return True
        fresh = [part for part in parts if part.taken is None]
        for part in fresh:
            name = max((name for _, name in part.owners), default=0)
            part.taken = named if part is claim else BufferName(named.session, name, released=True)
            key, nbytes = self._amount(part)
            shards = tuple(source for _, source in sorted(part.shards.items()))
            self._refs.adopt(part.taken, part.buffer, part.layout, nbytes, key, shards)
            if part.spilled and part.shards:
                self._refs.fold(self._buffers[part.buffer])
            elif part.spilled:
                self._spill.found_spilled(self._buffers[part.buffer], part.on_disk, part.mixed)
                self._mixed += [part.buffer] if part.mixed else []
        for part in fresh:  # each was held until all were there
            self._refs.dropped(part.buffer)
        return bool(parts)

    def _whole(self, claim: Claim) -> list[Claim]:
        """This buffer behind all that it shares. Nothing, if one of these is not counted, or not on all its hosts."""
        found, todo = {claim.buffer: claim}, [claim]
        while todo:
            part = todo.pop()
            if part.taken is not None:
                there = part.buffer in self._buffers
            else:
                there = part.counted and part.ready == self._state.hosts_of(part.layout.place)
                there = there and all(each in self._claims for each in (part.buffer, *part.sources))
            if not there:
                return []
            for source in part.sources:
                if source not in found:
                    found[source] = self._claims[source]
                    todo.append(found[source])
        return [found[buffer] for buffer in sorted(found)]

    def _amount(self, claim: Claim) -> tuple[int, int]:
        """A view takes no memory of its own."""
        key = self._atoms.intern(claim.layout.place)
        return key, 0 if claim.shards else shard_bytes(claim.layout)

    def host_lost(self, host: int) -> None:
        for claim in self._claims.values():
            claim.ready = spans.minus(claim.ready, spans.one(host))

    def _free_unclaimed(self, now: int) -> None:
        for claim in self._latest_first():
            if claim.taken is None:
                self._free(claim)
        self._claims.clear()
        self._owned.clear()

    def _free(self, claim: Claim) -> None:
        """On all its hosts: one that joined before it heard of the buffer has it by now."""
        del self._claims[claim.buffer]
        self._refs.free_on_hosts(claim.buffer, claim.layout, self._state.hosts_of(claim.layout.place))
        if claim.counted and not claim.is_spilled:
            self._ledger.free(*self._amount(claim))


def _apart(why: str, what: str) -> Blame:
    return Blame("client-lost", f"{EACH_OTHER} ({why}): it was {what}")
