"""Contents of buffers between clients and hosts: announced here, moved between the two, never through the controller.

A Put is a buffer that a client makes: bound and admitted like a run, then a receive on the hosts. A Get is a send from
the hosts that have distinct shards; it holds the buffer until the client has landed it.
"""

from __future__ import annotations

from ..memory import Buffers, Ledger
from ..model import (
    Atoms,
    Impossible,
    Layout,
    ProgramError,
    Shards,
    Spans,
    laid_out,
    shard_bytes,
    validate_put,
)
from ..protocol import (
    Blame,
    ContentsReady,
    Get,
    GetAccepted,
    LogLine,
    PoisonStep,
    Put,
    PutAccepted,
    RecvStep,
    Refused,
    SendStep,
    Waiting,
)
from ..slices import MustWait, Resources
from ..transfer import ALL, senders_to_client
from .admission import Admission, Waiter
from .buffer_names import BufferNames
from .buffer_refs import BufferRefs
from .in_flight import InFlightTable
from .outbox import TurnOutbox
from .plan_rows import ResultRow
from .records import BufferName, ClientRecord, InFlight
from .runs import Runs
from .state import State
from .trace_rows import Tracing
from .views import Views
from .watch import Watchdog

S = 1_000_000_000
KEPT = 64  # layouts whose senders are remembered: a loop reads arrays of a few kinds


class Contents:
    def __init__(
        self,
        state: State,
        *,
        admission: Admission,
        atoms: Atoms,
        buffers: Buffers,
        in_flight: InFlightTable,
        tracing: Tracing | None,
        names: BufferNames,
        refs: BufferRefs,
        ledger: Ledger,
        outbox: TurnOutbox,
        resources: Resources,
        runs: Runs,
        views: Views,
        watch: Watchdog,
    ) -> None:
        self._state = state
        self._admission = admission
        self._atoms = atoms
        self._buffers = buffers
        self._in_flight = in_flight
        self._tracing = tracing
        self._names = names
        self._refs = refs
        self._ledger = ledger
        self._outbox = outbox
        self._resources = resources
        self._runs = runs
        self._views = views
        self._watch = watch
        self._waiting: dict[tuple[int, str], list[tuple[BufferName, Put]]] = {}  # (session, slice) -> puts
        self._lines: dict[BufferName, tuple[int, Put]] = {}  # puts in the line for memory
        self._moved: list[tuple[BufferName, Put]] = []  # taken out of it, to be bound anew
        self._senders: dict[Layout, Spans] = {}

    # --- put -----------------------------------------------------------------------------------------------------

    def put(self, session: ClientRecord, call: Put, now: int) -> str | None:
        if call.buffer <= 0 or session.names.find(call.buffer) is not None:
            return f"it puts buffer {call.buffer}, a name that is in use"
        if session.names.names() >= self._state.config.max_buffers:
            return f"it holds {session.names.names()} buffers, which is the limit"
        session.top = max(session.top, call.buffer)
        self._bind(session.names.setdefault(call.buffer, BufferName(session, call.buffer)), call, now)
        return None

    def _bind(self, named: BufferName, call: Put, now: int) -> None:
        session = named.session
        try:
            validate_put(call.value, call.slice)
            found = self._resources.bind(session.number, call.slice)
        except (Impossible, ProgramError) as impossible:
            self._refuse(named, Blame("refused", str(impossible)))
            return
        if isinstance(found, MustWait):
            waiting = self._waiting.setdefault((session.number, call.slice.name), [])
            if not waiting:  # the arguments of one call may be thousands of puts
                line = f"a put of client {session.name!r} waits: slice {call.slice.name!r} {found.reason}"
                self._outbox.effect(LogLine(line, passing=True))
            waiting.append((named, call))
            self._tell(named, call, found.reason)
            if not self._watch.waits_for(("put", named)):
                self._bound_wait(named, call, now)
        else:
            self._watch.end(("put", named))
            self._bound(named, call, now)

    def _bound_wait(self, named: BufferName, call: Put, now: int) -> None:
        """Hosts that are not there may never come."""
        bound = self._state.config.bounds.absent

        def over(at: int) -> None:
            session, where = named.session.number, call.slice.name
            if not self._resources.lacks_hosts(session, where):
                self._bound_wait(named, call, at)
                return
            self._waiting[session, where].remove((named, call))
            found = self._resources.bind(session, call.slice)
            reason = found.reason if isinstance(found, MustWait) else ""
            self._refuse(named, Blame("timeout", f"slice {where!r} {reason}, for {bound // S} s"))

        self._watch.begin_for(("put", named), now, bound, over)

    def _tell(self, named: BufferName, call: Put, reason: str) -> None:
        self._outbox.note(named.session.peer, Waiting(-named.name, f"slice {call.slice.name!r} {reason}"))

    def renew_reasons(self, reasons: dict[tuple[int, str], str]) -> None:
        """Why these slices wait is another now."""
        for key, reason in reasons.items():
            for named, call in self._waiting.get(key, ()):
                self._tell(named, call, reason)

    def slice_bound(self, session: int, name: str, now: int) -> None:
        for named, call in self._waiting.pop((session, name), ()):
            if not named.session.gone:
                self._bind(named, call, now)

    def _refuse(self, named: BufferName, blame: Blame) -> None:
        self._watch.end(("put", named))
        named.blame = blame
        self._outbox.note(named.session.peer, Refused("put", named.name, blame))
        self.refuse_gets(named, blame)
        self._views.failed(named, blame)
        for run in list(named.readers.values()):
            self._runs.fail(run, blame, self._state.now)

    def _bound(self, named: BufferName, call: Put, now: int) -> None:
        place = self._resources.place(named.session.number, call.slice.name)
        if place is None:
            self._refuse(named, Blame("refused", f"slice {call.slice.name!r} was released before the put"))
            return
        layout = laid_out(call.value, call.slice, place)
        key, nbytes = self._atoms.intern(place), shard_bytes(layout)
        ident = self._state.next_buffer
        self._state.next_buffer += 1
        hosts = self._state.hosts_of(place)
        waiter = Waiter(
            None, (place.island,), ((key, nbytes),), session=named.session,
            admitted=lambda at: self._admitted(named, ident, layout, key, at),
            refused=lambda blame, at: self._never(named, ident, blame),
        )  # fmt: skip
        self._lines[named] = self._admission.join(waiter), call
        self._refs.promise(named, ident, ResultRow(0, -1, -1, layout, nbytes, key, hosts, exact=True))

    def take_back(self) -> None:
        """The device map has changed. Puts that wait for memory on devices that their slices have left are bound anew:
        the hosts of the old ones may be gone."""
        resources, refs = self._resources, self._refs
        for named, (number, call) in reversed(self._lines.copy().items()):
            session, old = named.session.number, refs.layout(named.buffer).place
            if resources.place(session, call.slice.name) == old:
                continue
            if not resources.knows(session, call.slice.name) and all(map(resources.usable, old.devices())):
                continue  # the client has released the slice, and the devices are there
            self._admission.leave(number)
            del self._lines[named]
            refs.take_back(named)
            self._moved.insert(0, (named, call))

    def bind_again(self, now: int) -> None:
        moved, self._moved = self._moved, []
        for named, call in moved:
            if self._resources.knows(named.session.number, call.slice.name):
                self._bind(named, call, now)
            else:
                gone = f"slice {call.slice.name!r} was released, and its devices were lost before the put"
                self._refuse(named, Blame("host-lost", gone))

    def _never(self, named: BufferName, ident: int, blame: Blame) -> None:
        self._lines.pop(named, None)
        self._refs.never(ident, blame)
        self._refuse(named, blame)
        for other in named.others:
            self._outbox.note(other.session.peer, ContentsReady((other.name,), blame))
        if ident in self._buffers:
            self._refs.spoil(ident, blame)  # for clients that have it by another name

    def _admitted(self, named: BufferName, ident: int, layout: Layout, key: int, now: int) -> None:
        self._lines.pop(named, None)
        seq = self._state.next_seq
        self._state.next_seq += 1
        hosts, island, session = self._state.hosts_of(layout.place), layout.place.island, named.session
        after = self._ledger.after(key)
        self._outbox.step(
            island, RecvStep(seq, -1, ident, hosts, seq, after, session.number, named.name, layout), hosts
        )
        entry = InFlight(
            seq, "put", island, hosts, hosts, hosts, now, now,
            buffer=ident, transfer=seq, cost=self._buffers.all[ident].nbytes * self._state.config.bounds.byte,
            session=session,
        )  # fmt: skip
        if self._tracing is not None:
            self._tracing.with_client(entry, session, layout)
        self._in_flight.add(entry, now)
        self._refs.hold_for_transfer(ident)  # a put that its client gives up ends all the same
        self._refs.entered(ident, seq)
        self._outbox.note(session.peer, PutAccepted(named.name, seq, layout))

    def put_over(self, entry: InFlight) -> None:
        for named in self._refs.settled(entry.buffer, entry.blame):
            if not named.released:
                self._outbox.note(named.session.peer, ContentsReady((named.name,), entry.blame))
            self.ready(named, self._state.now)
        self._refs.transfer_over(entry.buffer)

    # --- get -----------------------------------------------------------------------------------------------------

    def get(self, session: ClientRecord, call: Get, now: int) -> str | None:
        found = self._names.called(session, call.buffer)
        named = found[0] if found is not None else None
        if named is None or named.released:
            return f"it gets buffer {call.buffer}, which it does not hold"
        if named.blame is not None:
            self._outbox.note(session.peer, Refused("get", call.request, named.blame))
        elif named.buffer >= 0 and named.ready:
            self._send(session, call, named, now)
        else:
            named.gets.append((session, call))
        return None

    def ready(self, named: BufferName, now: int) -> None:
        """Answer the gets that waited for a buffer: it has contents now, or never will."""
        if named.blame is not None:
            self.refuse_gets(named, named.blame)
        gets, named.gets = named.gets, []
        for session, call in gets:
            self._send(session, call, named, now)
        if gets and named.released and not named.gets:
            self._refs.drop(named)

    def _send(self, session: ClientRecord, call: Get, named: BufferName, now: int) -> None:
        buffer = named.buffer
        record = self._buffers.all[buffer]
        layout = record.layout
        assert layout is not None
        if record.state in ("spilling", "spilled", "restoring"):
            named.gets.append((session, call))
            self._admission.bring_back(named, now)
            return
        if call.shard != ALL and not 0 <= call.shard < Shards(layout).count:
            text = f"buffer {call.buffer} has no shard {call.shard}: it has {Shards(layout).count}, numbered from 0"
            self._outbox.note(session.peer, Refused("get", call.request, Blame("refused", text)))
            return
        hosts, seq = self._senders_of(layout, call.shard), self._state.next_seq
        self._state.next_seq += 1
        self._refs.hold_for_transfer(buffer)
        self._buffers.touch(buffer, seq)
        step = SendStep(seq, -1, buffer, hosts, seq, session.number, call.shard)
        self._outbox.step(layout.place.island, step, hosts)
        entry = InFlight(
            seq, "get", layout.place.island, hosts, hosts, hosts, now, now,
            buffer=buffer, transfer=seq, cost=record.nbytes * self._state.config.bounds.byte, session=session,
            request=call.request,
        )  # fmt: skip
        if self._tracing is not None:
            self._tracing.with_client(entry, session, layout, one_shard=call.shard != ALL)
        self._in_flight.add(entry, now)
        self._outbox.note(session.peer, GetAccepted(call.request, seq, layout, record.rows, call.shard))

    def _senders_of(self, layout: Layout, shard: int) -> Spans:
        if shard != ALL:
            return senders_to_client(layout, self._state.cluster, shard)
        found = self._senders.get(layout)
        if found is None:
            if len(self._senders) >= KEPT:
                self._senders.clear()
            found = self._senders[layout] = senders_to_client(layout, self._state.cluster)
        return found

    def copied(self, buffer: int, now: int) -> None:
        self._views.there(buffer)
        named = self._refs.named(buffer)
        for each in (named, *named.others) if named is not None else ():
            if each.gets:
                self.ready(each, now)

    def stays_away(self, named: BufferName, blame: Blame) -> None:
        """There is no room on the devices for what was spilled."""
        self._views.failed(named, blame)
        self.refuse_gets(named, blame)

    def refuse_gets(self, named: BufferName, blame: Blame) -> None:
        gets, named.gets = named.gets, []
        for session, call in gets:
            self._outbox.note(session.peer, Refused("get", call.request, blame))
        if gets and named.released:
            self._refs.drop(named)

    def get_over(self, entry: InFlight) -> None:
        if entry.blame is not None and entry.session is not None:
            self._outbox.note(entry.session.peer, Refused("sending", entry.request, entry.blame))
        self._refs.transfer_over(entry.buffer)

    # --- clients die ---------------------------------------------------------------------------------------------

    def client_gone(self, session: ClientRecord, now: int) -> None:
        """End the puts, gets and waiting views of a client that is gone, so that they hold nothing for ever."""
        self._views.client_gone(session)
        blame = Blame("client-lost", f"client {session.name!r} is gone")
        for entry in list(self._state.in_flight.values()):
            if entry.session is session and entry.kind in ("put", "get"):
                self._outbox.step(entry.island, PoisonStep(entry.transfer, blame), entry.hosts)
        for named in [named for named in self._lines if named.session is session]:
            self._admission.leave(self._lines.pop(named)[0])
            self._refs.never(named.buffer, blame)
        for named in session.names.values():
            named.gets.clear()
        for key in [key for key in self._waiting if key[0] == session.number]:
            for named, _ in self._waiting.pop(key):
                self._watch.end(("put", named))
