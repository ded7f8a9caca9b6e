"""Puts: a client makes a buffer. Its contents move from the client to the hosts, never through the controller.

A put is bound and admitted like a run, and is then a receive on the hosts.

Neighbours: `clients` brings calls; `runs` says that slices have changed; `completion` takes puts to their end.
The functions that matter: `put`, `take_back`, `client_gone`.
"""

from .. import protocol as p
from ..memory import Buffers, Ledger
from ..model import Atoms, Impossible, Layout, ProgramError, laid_out, shard_bytes, validate_put
from ..slices import MustWait, Resources
from .accounts import Accounts
from .admission import Admission
from .buffer_refs import BufferRefs
from .in_flight import InFlightTable
from .outbox import TurnOutbox
from .outcomes import Outcomes
from .plan_rows import ResultRow
from .records import BufferName, ClientRecord, InFlight, Waiter
from .state import ControllerModule, State
from .trace_rows import Tracing
from .views import Views
from .watch import Watchdog

S = 1_000_000_000


class Puts(ControllerModule):
    _state: State
    _accounts: Accounts
    _admission: Admission
    _atoms: Atoms
    _buffers: Buffers
    _in_flight: InFlightTable
    _ledger: Ledger
    _outbox: TurnOutbox
    _outcomes: Outcomes
    _refs: BufferRefs
    _resources: Resources
    _tracing: Tracing | None
    _views: Views
    _watch: Watchdog
    _waiting: dict[tuple[int, str], list[tuple[BufferName, p.Put]]] = {}  # (session, slice) -> puts
    _lines: dict[BufferName, tuple[int, p.Put]] = {}  # puts in the line for memory
    _moved: list[tuple[BufferName, p.Put]] = []  # taken out of it, to be bound anew

    # --- put -----------------------------------------------------------------------------------------------------

    def put(self, session: ClientRecord, call: p.Put, now: int) -> str | None:
        if call.buffer <= 0 or session.names.find(call.buffer) is not None:
            return f"it puts buffer {call.buffer}, a name that is in use"
        if session.names.names() >= self._state.config.max_buffers:
            return f"it holds {session.names.names()} buffers, which is the limit"
        self._bind(session.enter(BufferName(session, call.buffer)), call, now)
        return None

    def _bind(self, named: BufferName, call: p.Put, now: int) -> None:
        session = named.session
        try:
            validate_put(call.value, call.slice)
            found = self._resources.bind(session.number, call.slice)
        except (Impossible, ProgramError) as impossible:
            self._refuse(named, p.Blame("refused", str(impossible)))
            return
        if isinstance(found, MustWait) and found.fails:
            self._refuse(named, p.Blame("host-lost", f"slice {call.slice.name!r} {found.reason}"))
        elif isinstance(found, MustWait):
            waiting = self._waiting.setdefault((session.number, call.slice.name), [])
            if not waiting:  # the arguments of one call may be thousands of puts
                line = f"a put of client {session.name!r} waits: slice {call.slice.name!r} {found.reason}"
                self._outbox.effect(p.LogLine(line, passing=True))
            waiting.append((named, call))
            self._tell(named, call, found.reason)
            if not self._watch.waits_for(("put", named)):
                self._bound_wait(named, call, now)
        else:
            self._watch.end(("put", named))
            self._bound(named, call, now)

    def _bound_wait(self, named: BufferName, call: p.Put, now: int) -> None:
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
            self._refuse(named, p.Blame("timeout", f"slice {where!r} {reason}, for {bound // S} s"))

        self._watch.begin_for(("put", named), now, bound, over)

    def _tell(self, named: BufferName, call: p.Put, reason: str) -> None:
        self._outbox.note(named.session.peer, p.Waiting(-named.name, f"slice {call.slice.name!r} {reason}"))

    def renew_reasons(self, reasons: dict[tuple[int, str], str]) -> None:
        """Why these slices wait is another now."""
        for key, reason in reasons.items():
            for named, call in self._waiting.get(key, ()):
                self._tell(named, call, reason)

    def slice_bound(self, session: int, name: str, now: int) -> None:
        for named, call in self._waiting.pop((session, name), ()):
            if not named.session.gone:
                self._bind(named, call, now)

    def _refuse(self, named: BufferName, blame: p.Blame) -> None:
        self._watch.end(("put", named))
        named.spoil(blame)
        self._outbox.note(named.session.peer, p.Refused("put", named.name, blame))
        self._refs.refuse_gets(named, blame)
        self._outcomes.fail_views(named, blame)
        for run in list(named.readers.values()):
            self._outcomes.fail(run, blame, self._state.now)

    def _bound(self, named: BufferName, call: p.Put, now: int) -> None:
        place = self._resources.place(named.session.number, call.slice.name)
        if place is None:
            self._refuse(named, p.Blame("refused", f"slice {call.slice.name!r} was released before the put"))
            return
        layout = laid_out(call.value, call.slice, place)
        key, nbytes = self._atoms.intern(place), shard_bytes(layout)
        try:
            self._accounts.check_memory(named.session, nbytes * place.size)
        except Impossible as refused:
            self._refuse(named, p.Blame("refused", str(refused)))
            return
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
            held = resources.is_held(session, call.slice.of or call.slice.name)
            if resources.place(session, call.slice.name) == old and not held:
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
                self._refuse(named, p.Blame("host-lost", gone))

    def _never(self, named: BufferName, ident: int, blame: p.Blame) -> None:
        self._lines.pop(named, None)
        self._refs.never(ident, blame)
        self._refuse(named, blame)
        for other in named.others:
            self._outbox.note(other.session.peer, p.ContentsReady((other.name,), blame))
        if ident in self._buffers:
            self._outcomes.spoil(ident, blame)  # for clients that have it by another name

    def _admitted(self, named: BufferName, ident: int, layout: Layout, key: int, now: int) -> None:
        self._lines.pop(named, None)
        seq = self._state.next_seq
        self._state.next_seq += 1
        hosts, island, session = self._state.hosts_of(layout.place), layout.place.island, named.session
        after = self._ledger.after(key)
        self._outbox.step(
            island, p.RecvStep(seq, -1, ident, hosts, seq, after, session.number, named.name, layout), hosts
        )
        entry = InFlight(
            seq, "put", island, hosts, hosts, hosts, now, now,
            buffer=ident, transfer=seq, cost=self._buffers.all[ident].nbytes * self._state.config.bounds.byte,
            session=session, request=named.name,
        )  # fmt: skip
        if self._tracing is not None:
            self._tracing.with_client(entry, session, layout)
        self._in_flight.add(entry, now)
        self._refs.hold_for_transfer(ident)  # a put that its client gives up ends all the same
        self._refs.entered(ident, seq)
        self._views.work()
        self._outbox.note(session.peer, p.PutAccepted(named.name, seq, layout))

    # --- clients die ---------------------------------------------------------------------------------------------

    def client_gone(self, session: ClientRecord) -> None:
        """End the puts and gets of a client that is gone, so that they hold nothing for ever."""
        blame = p.Blame("client-lost", f"client {session.name!r} is gone")
        for entry in list(self._state.in_flight.values()):
            if entry.session is session and entry.kind in ("put", "get"):
                self._outbox.step(entry.island, p.PoisonStep(entry.transfer, blame), entry.hosts)
        for named in [named for named in self._lines if named.session is session]:
            self._admission.leave(self._lines.pop(named)[0])
            self._refs.never(named.buffer, blame)
        for named in session.names.values():
            named.take_gets()
        for key in [key for key in self._waiting if key[0] == session.number]:
            for named, _ in self._waiting.pop(key):
                self._watch.end(("put", named))
