"""Contents of buffers between clients and hosts: announced here, moved between the two, never through the controller.

A Put is a buffer that a client makes: bound and admitted like a run, then a receive on the hosts. A Get is a send from
the hosts that have distinct shards; it holds the buffer until the client has landed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import Impossible, Layout, ProgramError, Slot, shard_bytes, validate_put
from ..protocol import (
    Blame,
    Get,
    PoisonStep,
    Put,
    Ready,
    RecvStep,
    Refused,
    Sending,
    SendStep,
    Taking,
    Tell,
    Waiting,
)
from ..slices import Waits
from .admission import Waiter
from .records import Flight, Named, Session

if TYPE_CHECKING:
    from .books import Books

S = 1_000_000_000


class Contents:
    def __init__(self, books: Books) -> None:
        self._books = books
        self._waiting: dict[tuple[int, str], list[tuple[Named, Put]]] = {}  # (session, slice) -> puts
        self._lines: dict[Named, tuple[int, Put]] = {}  # puts in the line for memory
        self._moved: list[tuple[Named, Put]] = []  # taken out of it, to be bound anew

    # --- put -----------------------------------------------------------------------------------------------------

    def put(self, session: Session, call: Put, now: int) -> str | None:
        if call.buffer in session.names or call.buffer <= 0:
            return f"it puts buffer {call.buffer}, a name that is in use"
        if len(session.names) >= self._books.config.max_buffers:
            return f"it holds {len(session.names)} buffers, which is the limit"
        self._bind(session.names.setdefault(call.buffer, Named(session, call.buffer)), call, now)
        return None

    def _bind(self, named: Named, call: Put, now: int) -> None:
        session = named.session
        try:
            validate_put(call.value, call.slice)
            found = self._books.resources.bind(session.number, call.slice)
        except (Impossible, ProgramError) as impossible:
            self._refuse(named, Blame("refused", str(impossible)))
            return
        if isinstance(found, Waits):
            self._waiting.setdefault((session.number, call.slice.name), []).append((named, call))
            self._books.outbox.effect(
                Tell(f"a put of client {session.name!r} waits: {found.reason}", passing=True)
            )
            self._tell(named, call, found.reason)
            if not self._books.watch.waits_for(("put", named)):
                self._watch(named, call, now)
        else:
            self._books.watch.end(("put", named))
            self._bound(named, call, now)

    def _watch(self, named: Named, call: Put, now: int) -> None:
        """Hosts that are not there may never come."""
        bound = self._books.config.bounds.absent

        def over(at: int) -> None:
            session, where = named.session.number, call.slice.name
            if not self._books.resources.lacks_hosts(session, where):
                self._watch(named, call, at)
                return
            self._waiting[session, where].remove((named, call))
            found = self._books.resources.bind(session, call.slice)
            reason = found.reason if isinstance(found, Waits) else ""
            self._refuse(named, Blame("timeout", f"slice {where!r} {reason}, for {bound // S} s"))

        self._books.watch.begin_for(("put", named), now, bound, over)

    def _tell(self, named: Named, call: Put, reason: str) -> None:
        self._books.outbox.note(
            named.session.peer, Waiting(-named.name, f"slice {call.slice.name!r} {reason}")
        )

    def renew_reasons(self, reasons: dict[tuple[int, str], str]) -> None:
        """Why these slices wait is another now."""
        for key, reason in reasons.items():
            for named, call in self._waiting.get(key, ()):
                self._tell(named, call, reason)

    def slice_bound(self, session: int, name: str, now: int) -> None:
        for named, call in self._waiting.pop((session, name), ()):
            if not named.session.gone:
                self._bind(named, call, now)

    def _refuse(self, named: Named, blame: Blame) -> None:
        self._books.watch.end(("put", named))
        named.blame = blame
        self._books.outbox.note(named.session.peer, Refused("put", named.name, blame))
        self.refuse_gets(named, blame)
        for run in list(named.readers.values()):
            self._books.runs_room.fail(run, blame, self._books.now)

    def _bound(self, named: Named, call: Put, now: int) -> None:
        books = self._books
        place = books.resources.place(named.session.number, call.slice.name)
        if place is None:
            self._refuse(named, Blame("refused", f"slice {call.slice.name!r} was released before the put"))
            return
        value = call.value
        layout = Layout(value.shape, value.dtype, place, call.slice.mesh_shape, value.sharding)
        key, nbytes = books.atoms.intern(place), shard_bytes(layout)
        ident = books.next_buffers(1)
        waiter = Waiter(None, (place.island,), ((key, nbytes),))
        waiter.session = named.session
        waiter.admitted = lambda at: self._admitted(named, ident, layout, key, at)
        waiter.refused = lambda blame, at: self._never(named, ident, blame)
        self._lines[named] = books.admission.enter_put(waiter), call
        books.holdings.promise(named, ident, Slot(layout, nbytes, -1))

    def take_back(self) -> None:
        """The device map has changed. Puts that wait for memory on devices that their slices have left are bound anew:
        the hosts of the old ones may be gone."""
        resources, holdings = self._books.resources, self._books.holdings
        for named, (number, call) in reversed(self._lines.copy().items()):
            session, old = named.session.number, holdings.layout(named.buffer).place
            if resources.place(session, call.slice.name) == old:
                continue
            if not resources.knows(session, call.slice.name) and all(map(resources.usable, old.devices())):
                continue  # the client has released the slice, and the devices are there
            self._books.admission.leave(number)
            del self._lines[named]
            holdings.take_back(named)
            self._moved.insert(0, (named, call))

    def bind_again(self, now: int) -> None:
        moved, self._moved = self._moved, []
        for named, call in moved:
            if self._books.resources.knows(named.session.number, call.slice.name):
                self._bind(named, call, now)
            else:
                gone = f"slice {call.slice.name!r} was released, and its devices were lost before the put"
                self._refuse(named, Blame("host-lost", gone))

    def _never(self, named: Named, ident: int, blame: Blame) -> None:
        self._lines.pop(named, None)
        self._books.holdings.never(ident, blame)
        self._refuse(named, blame)
        for other in named.others:
            self._books.outbox.note(other.session.peer, Ready((other.name,), blame))
        if ident in self._books.buffers:
            self._books.holdings.spoil(ident, blame)  # for whoever has it by another name

    def _admitted(self, named: Named, ident: int, layout: Layout, key: int, now: int) -> None:
        books = self._books
        self._lines.pop(named, None)
        seq = books.next_seq()
        hosts, island, session = books.hosts_of(layout.place), layout.place.island, named.session
        after = books.ledger.after(key)
        books.outbox.step(
            island, RecvStep(seq, -1, ident, hosts, seq, after, session.number, named.name, layout), hosts
        )
        flight = Flight(seq, "put", island, hosts, now, buffer=ident, transfer=seq, cost=self._cost(ident))
        flight.session = session
        books.history.with_client(flight, session, layout)
        books.flights.take_off(flight, now)
        books.holdings.hold_for_transfer(ident)  # a put that its client gives up ends all the same
        books.holdings.entered(ident, seq)
        books.outbox.note(session.peer, Taking(named.name, seq, layout))

    def _cost(self, buffer: int) -> int:
        return self._books.buffers[buffer].nbytes * self._books.config.bounds.byte

    def put_over(self, flight: Flight) -> None:
        for named in self._books.holdings.settled(flight.buffer, flight.blame):
            if not named.released:
                self._books.outbox.note(named.session.peer, Ready((named.name,), flight.blame))
            self.ready(named, self._books.now)
        self._books.holdings.transfer_over(flight.buffer)

    # --- get -----------------------------------------------------------------------------------------------------

    def get(self, session: Session, call: Get, now: int) -> str | None:
        named = session.names.get(call.buffer)
        if named is None or named.released:
            return f"it gets buffer {call.buffer}, which it does not hold"
        if named.blame is not None:
            self._books.outbox.note(session.peer, Refused("get", call.request, named.blame))
        elif named.buffer >= 0 and named.ready:
            self._send(session, call, named, now)
        else:
            named.gets.append((session, call))
        return None

    def ready(self, named: Named, now: int) -> None:
        """It has contents now, or never will: whoever asked before is answered."""
        if named.blame is not None:
            self.refuse_gets(named, named.blame)
        gets, named.gets = named.gets, []
        for session, call in gets:
            self._send(session, call, named, now)
        if gets and named.released and not named.gets:
            self._books.holdings.drop(named)

    def _send(self, session: Session, call: Get, named: Named, now: int) -> None:
        books, buffer = self._books, named.buffer
        record, layout = books.buffers[buffer], books.holdings.layout(buffer)
        if record.state in ("spilling", "spilled", "restoring"):
            named.gets.append((session, call))
            books.admission.bring_back_for_get(named, now)
            return
        hosts, seq = books.hosts_of(layout.place), books.next_seq()
        books.holdings.hold_for_transfer(buffer)
        books.buffers.touch(buffer, seq)
        step = SendStep(seq, -1, buffer, hosts, seq, session.number)
        books.outbox.step(layout.place.island, step, hosts)
        flight = Flight(
            seq, "get", layout.place.island, hosts, now, buffer=buffer, transfer=seq, cost=self._cost(buffer)
        )
        flight.session, flight.request = session, call.request
        books.history.with_client(flight, session, layout)
        books.flights.take_off(flight, now)
        books.outbox.note(session.peer, Sending(call.request, seq, layout, books.holdings.rows(buffer)))

    def copied(self, buffer: int, now: int) -> None:
        named = self._books.holdings.named(buffer)
        for each in (named, *named.others) if named is not None else ():
            if each.gets:
                self.ready(each, now)

    def refuse_gets(self, named: Named, blame: Blame) -> None:
        gets, named.gets = named.gets, []
        for session, call in gets:
            self._books.outbox.note(session.peer, Refused("get", call.request, blame))
        if gets and named.released:
            self._books.holdings.drop(named)

    def get_over(self, flight: Flight) -> None:
        if flight.blame is not None and flight.session is not None:
            self._books.outbox.note(flight.session.peer, Refused("sending", flight.request, flight.blame))
        self._books.holdings.transfer_over(flight.buffer)

    # --- clients die ---------------------------------------------------------------------------------------------

    def client_gone(self, session: Session, now: int) -> None:
        """What it was sending never comes, what it was sent nobody lands: neither holds anything for ever."""
        blame = Blame("client-lost", f"client {session.name!r} is gone")
        for flight in self._books.flights.all():
            if flight.session is session and flight.kind in ("put", "get"):
                self._books.outbox.step(flight.island, PoisonStep(flight.transfer, blame), flight.hosts)
        for named in [named for named in self._lines if named.session is session]:
            self._books.admission.leave(self._lines.pop(named)[0])
            self._books.holdings.never(named.buffer, blame)
        for named in session.names.values():
            named.gets.clear()
        for key in [key for key in self._waiting if key[0] == session.number]:
            for named, _ in self._waiting.pop(key):
                self._books.watch.end(("put", named))
