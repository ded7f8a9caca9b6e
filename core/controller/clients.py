"""Clients: a session each, from Open to its end. Translates their calls; a breach of the protocol closes that peer.

Neighbours: `runs` takes submissions and cancellations, `holdings` counts what clients hold, `puts` moves contents
between clients and hosts. When a client dies, exactly what it owned is freed, and its slices are released.
The functions that matter: `opened`, `call`, `gone`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..invariants import ClientLost
from ..model import Impossible, ProgramError, validate
from ..protocol import (
    Blame,
    Bye,
    Call,
    Calls,
    Cancel,
    Get,
    Goodbye,
    Open,
    Opened,
    Put,
    Refused,
    Register,
    Release,
    ReleaseSlice,
    Submit,
    Unregister,
)
from .records import ProgramRecord, Session

if TYPE_CHECKING:
    from .books import Books

MOST = 1 << 20  # sessions in the life of one controller
REMEMBERED = 1024  # clients that were given up
UNHEARD = "the client heard nothing from the controller for longer than the lease"  # and so began anew


class Clients:
    def __init__(self, books: Books) -> None:
        self._books = books
        self._count = 0
        self._lost: dict[int, str] = {}  # clients that were given up, by number -> why; the last of them
        self.calls: dict[type, Callable[[Session, Any, int], str | None]] = {
            Register: self._register,
            Unregister: self._unregister,
            Submit: books.runs_room.submit,
            Put: books.contents.put,
            Get: books.contents.get,
            Release: self._release,
            ReleaseSlice: self._release_slice,
            Cancel: self._cancel,
            Bye: self._bye,
        }

    def opened(self, peer: int, opening: Open, now: int) -> str | None:
        books = self._books
        if peer in books.by_peer:
            return "it opened its session twice"
        if len(set(opening.held)) != len(opening.held):
            return "it holds a buffer twice"
        if opening.weight < 1:
            return f"weight {opening.weight}: weights are whole and at least 1"
        if len(books.sessions) >= books.config.max_clients:
            return f"there are {len(books.sessions)} clients already, which is the limit"
        session = Session(self._number(opening), peer, opening)
        books.sessions[session.number] = session
        books.by_peer[peer] = session
        books.history.client(session)
        books.outbox.note(peer, Opened(session.number, books.incarnation))
        books.recovery.client_opened(session, opening)
        return None

    def _number(self, opening: Open) -> int:
        """A client that was here before a restart keeps the number that hosts know it by."""
        first = self._books.incarnation * MOST
        if 0 < opening.client < first and opening.client not in self._books.sessions:
            return opening.client
        self._count += 1
        return first + self._count

    def call(self, peer: int, message: Calls | Call, now: int) -> str | None:
        """Returns what is wrong with it; the owner then closes the peer."""
        session = self._books.by_peer.get(peer)
        if session is None:
            return f"its first message is {type(message).__name__}, not Open"
        for call in message.calls if isinstance(message, Calls) else (message,):
            wrong = self.calls[type(call)](session, call, now)
            if wrong:
                return wrong
            if session.gone:
                break
        return None

    def _register(self, session: Session, call: Register, now: int) -> str | None:
        if call.program in session.programs:
            return f"program {call.program} is registered already"
        if len(session.programs) >= self._books.config.max_programs:
            return f"it registered more than {self._books.config.max_programs} programs"
        record = session.programs[call.program] = ProgramRecord(session, call.program, call.ir)
        try:
            validate(call.ir)
            for spec in call.ir.slices:
                self._books.resources.bind(session.number, spec)
        except (ProgramError, Impossible) as error:
            record.blame = Blame("refused", str(error), call.ir.name)
            self._books.outbox.note(session.peer, Refused("program", call.program, record.blame))
            return None
        self._books.runs_room.compile_ahead(record)
        return None

    def _unregister(self, session: Session, call: Unregister, now: int) -> str | None:
        record = session.programs.pop(call.program, None)
        if record is None:
            return f"program {call.program} is not registered"
        self._forget(record)
        return None

    def _forget(self, record: ProgramRecord) -> None:
        """Plans of a program that nobody has registered any more are not wanted again."""
        for session in self._books.sessions.values():
            if any(other.ir == record.ir for other in session.programs.values()):
                return
        self._books.lowerings.forget_program(record.ir)

    def _release(self, session: Session, call: Release, now: int) -> str | None:
        for name in call.buffers:
            named = session.names.get(name)
            if named is None or named.released:
                return f"it released buffer {name}, which it does not hold"
            self._books.holdings.release(named)
        return None

    def _release_slice(self, session: Session, call: ReleaseSlice, now: int) -> str | None:
        """One that is not bound here is free already: it was released before, or never used, or it was bound by a
        controller that has been started anew since. So the session goes on as if nothing had been said."""
        if not self._books.resources.release(session.number, call.name):
            return None
        self._books.runs_room.slice_changed(session.number, call.name, now)
        self._books.runs_room.slices_bound(now)
        return None

    def _cancel(self, session: Session, call: Cancel, now: int) -> str | None:
        run = session.runs.get(call.run)
        if run is not None:
            self._books.runs_room.cancel(run, now)
        elif call.run > session.last_run:
            return f"it cancelled run {call.run}, which it never submitted"
        return None  # it has ended meanwhile

    def _bye(self, session: Session, call: Bye, now: int) -> str | None:
        self._books.outbox.note(session.peer, Goodbye("as asked"))
        self.gone(session, Blame("client-lost", "its client said goodbye"), now)
        return None

    def given_up(self, session: Session, reason: str, anew: bool, now: int) -> None:
        """Its connection was lost for longer than a lease. It may come back, and is told so then."""
        self._lost[session.number] = UNHEARD if anew else f"by the controller's account: {reason}"
        while len(self._lost) > REMEMBERED:
            del self._lost[next(iter(self._lost))]
        self.gone(session, Blame("client-lost", f"client {session.name!r}: {reason}"), now)

    def why_lost(self, number: int) -> str:
        """Of one that comes back to the controller that has given it up. "": it comes from an earlier start."""
        return self._lost.get(number, "")

    def gone(self, session: Session, blame: Blame, now: int) -> None:
        """Died or left: its runs end, what it owned is freed, its slices are released; nobody else is harmed."""
        books = self._books
        session.gone = True
        books.observe(ClientLost(session.number))
        books.history.client_gone(session)
        books.by_peer.pop(session.peer, None)
        session.peer = -1
        for run in sorted(session.runs.values(), key=lambda run: -run.id):
            books.runs_room.fail(run, blame, now)
        books.contents.client_gone(session, now)
        for named in list(session.names.values()):
            books.holdings.release(named)
        for island in books.islands:
            island.scheduler.client_gone(session.number)
        books.sessions.pop(session.number, None)
        books.buffers.client_gone(session.number)
        for record in session.programs.values():
            self._forget(record)
        books.resources.release_session(session.number)
        books.runs_room.slices_bound(now)
