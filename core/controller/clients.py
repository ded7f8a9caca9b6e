"""Clients: a session each, from Open to its end. Translates their calls; a breach of the protocol closes that peer.

Neighbours: `runs`, `puts`, `views` and `gets` take calls; `outcomes` ends runs; `buffer_refs` counts what clients hold.
When a client dies, exactly what it owned is freed, and its slices are released.
The functions that matter: `opened`, `calls` (one function a kind of call), `given_up`, `gone`.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from .. import protocol as p
from ..compile import Lowerings
from ..memory import Buffers
from ..model import MAX_LITERALS, Impossible, ProgramError, validate
from ..slices import Resources
from .accounts import Accounts
from .buffer_names import BufferNames
from .buffer_refs import BufferRefs
from .dispatch import Dispatch
from .elastic import Elastic
from .gets import Gets
from .meters import Meters
from .observations import ClientLost
from .outbox import TurnOutbox
from .outcomes import Outcomes
from .puts import Puts
from .records import ClientRecord, ProgramRecord
from .recovery import Recovery
from .registrations import Registrations
from .relocation import Relocation
from .runs import Runs
from .slice_calls import SliceCalls
from .state import ControllerModule, State
from .suspensions import Suspensions
from .trace_rows import Tracing
from .views import Views

MOST = 1 << 20  # sessions in the life of one controller
REMEMBERED = 1024  # clients that were given up
ANOTHER = (
    "the controller was started without what this session knows of it (with an older copy of its --state, or with "
    "--forget), and its arrays are lost: open another session"
)
NO_HOST = (
    "no host obeys this controller, because its --state is an older copy, or another one: `seaway status` says what to "
    "do"
)
UNHEARD = "the client heard nothing from the controller for longer than the lease"  # and so began anew


class Clients(ControllerModule):
    _state: State
    _accounts: Accounts
    _buffers: Buffers
    _dispatch: Dispatch
    _elastic: Elastic
    _gets: Gets
    _lowerings: Lowerings
    _meters: Meters
    _names: BufferNames
    _outbox: TurnOutbox
    _outcomes: Outcomes
    _puts: Puts
    _recovery: Recovery
    _refs: BufferRefs
    _registrations: Registrations
    _relocation: Relocation
    _resources: Resources
    _runs: Runs
    _slice_calls: SliceCalls
    _suspensions: Suspensions
    _tracing: Tracing | None
    _views: Views
    _count: int = 0
    _lost: dict[int, str] = {}  # clients that were given up, by number -> why; the last of them

    def calls(self) -> dict[type, Callable[[ClientRecord, Any, int], str | None]]:
        """By kind of call. Each returns what is wrong with it; the controller then closes the peer."""
        return {
            p.Register: self._register, p.Unregister: self._unregister, p.Submit: self._runs.submit,
            p.Put: self._puts.put, p.View: self._views.view, p.Get: self._gets.get, p.Release: self._release,
            p.ReleaseSlice: self._release_slice, p.Relocate: self._slice_calls.called,
            p.AskElastic: self._elastic.asked, p.Cancel: self._cancel, p.StopRun: self._stop, p.CloseSession: self._bye,
        }  # fmt: skip

    def grown(self) -> None:
        for session in self._state.sessions.values():
            self._outbox.note(session.peer, p.Grown(self._state.all_hosts))

    def stranger(self, peer: int, message: object) -> bool:
        """Whether this opens the session of a client that belongs to another state of the controller, or of any while
        all hosts that are here do; or one that its account does not allow. It is told so, and its session is over."""
        if type(message) is not p.Open:
            return False
        if message.start not in self._state.starts:  # its names for what it has mean something else here
            why, code = ANOTHER, "restart"
        elif self._state.strangers and not any(each.members or each.coming for each in self._state.islands):
            why, code = NO_HOST, "refused"
        elif why := self._accounts.why_not_open(peer, message):
            code = "refused"
        else:
            return False
        self._recovery.forget(peer)
        self._accounts.forget(peer)
        self._outbox.note(peer, p.ConnectionClosed(why, code))
        self._outbox.close(p.Close(peer, why, breach=""))
        return True

    def opened(self, peer: int, opening: p.Open, now: int) -> str | None:
        if peer in self._state.by_peer:
            return "it opened its session twice"
        if len(set(opening.held)) != len(opening.held):
            return "it holds a buffer twice"
        if opening.weight < 1:
            return f"weight {opening.weight}: weights are whole and at least 1"
        if len(self._state.sessions) >= (most := self._state.config.max_clients):
            return f"there are {most} clients at most (`max_clients`), and as many are here"
        account = self._accounts.of(peer)
        assert account is not None  # or it would be a stranger
        opening = msgspec.structs.replace(opening, client=self._accounts.returns_as(peer, opening.client))
        owner, number = account.limits.name, self._number(opening)
        name = f"{owner}/{opening.name}" if owner and owner != opening.name else opening.name
        meter = self._meters.meter_of(name)
        session = ClientRecord(number, peer, name, opening.weight, opening.priority, account, number, meter)
        self._accounts.enter(session)
        self._state.sessions[session.number] = session
        self._state.by_peer[peer] = session
        if self._tracing is not None:
            self._tracing.trace.client(session.number, session.name, session.weight, session.priority, now)
        self._outbox.note(
            peer, p.Opened(session.number, self._state.incarnation, self._state.start, self._state.all_hosts)
        )
        why = self._lost.get(opening.client, "")
        self._recovery.client_opened(session, opening, why)
        self._suspensions.client_back(session, opening.client, now)
        return None

    def _number(self, opening: p.Open) -> int:
        """A client that was here before a restart keeps the number that hosts know it by."""
        first = self._state.incarnation * MOST
        if 0 < opening.client < first and opening.client not in self._state.sessions:
            if not self._accounts.has_share(opening.client):
                return opening.client
        self._count += 1
        return first + self._count

    def _register(self, session: ClientRecord, call: p.Register, now: int) -> str | None:
        if call.program in session.programs:
            return f"program {call.program} is registered already"
        if len(session.programs) >= self._state.config.max_programs:
            return f"it registered more than {self._state.config.max_programs} programs"
        program = session.programs[call.program] = ProgramRecord(session, call.program, call.ir)
        try:
            validate(call.ir)
            session.validated(program)
            program.nbytes = tuple(value.nbytes for value in call.ir.args)
            program.small = sum(program.nbytes) <= MAX_LITERALS
            program.donated = donated = frozenset(call.ir.donate_args)
            program.edges = tuple(at for at in range(1, len(program.nbytes)) if (at in donated) != (at - 1 in donated))
            self._accounts.check_program(session)
            program.fits = False
            for spec in call.ir.slices:
                self._resources.bind(session.number, spec)
            program.fits = True
        except (ProgramError, Impossible) as error:
            program.blame = p.Blame("refused", str(error), call.ir.name)
            if not call.tell:
                self._outbox.note(session.peer, p.Refused("program", call.program, program.blame))
        self._registrations.registered(program, call.tell, now)
        return None

    def _unregister(self, session: ClientRecord, call: p.Unregister, now: int) -> str | None:
        program = session.unregistered(call.program)
        if program is None:
            return f"program {call.program} is not registered"
        self._registrations.taken_back(program)
        self._forget(program)
        return None

    def _forget(self, program: ProgramRecord) -> None:
        """Plans of a program that nobody has registered any more are not wanted again."""
        for session in self._state.sessions.values():
            if any(other.ir == program.ir for other in session.programs.values()):
                return
        self._lowerings.forget_program(program.ir)

    def _release(self, session: ClientRecord, call: p.Release, now: int) -> str | None:
        for each in call.buffers:
            name, count = (each, 1) if isinstance(each, int) else (each.first, each.count)
            found = self._names.called(session, name, count)
            if found is None or found[0].released:
                return f"it released buffer {name}, which it does not hold"
            for named in found:
                self._refs.release(named)
        return None

    def _release_slice(self, session: ClientRecord, call: p.ReleaseSlice, now: int) -> str | None:
        """One that is not bound here is free already: it was released before, or never used, or it was bound by a
        controller that has been started anew since. So the session goes on as if nothing had been said."""
        names = self._elastic.released(session.number, call.name) or [call.name]
        released = [each for name in names for each in self._resources.release(session.number, name)]
        if not released:
            return None
        for name in released:
            self._runs.slice_changed(session.number, name, now)
        self._runs.slices_bound(now)
        return None

    def _cancel(self, session: ClientRecord, call: p.Cancel, now: int) -> str | None:
        run = session.runs.get(call.run)
        if run is not None:
            blame = p.Blame("cancelled", "cancelled by its client", run.program.ir.name)
            self._outcomes.fail(run, blame, now)
        elif call.run > session.last_run:
            return f"it cancelled run {call.run}, which it never submitted"
        return None  # it has ended meanwhile

    def _stop(self, session: ClientRecord, call: p.StopRun, now: int) -> str | None:
        if call.run in session.runs:  # it has not ended meanwhile
            self._dispatch.stop(session.runs[call.run])
        return None

    def _bye(self, session: ClientRecord, call: p.CloseSession, now: int) -> str | None:
        self._outbox.note(session.peer, p.ConnectionClosed("as asked"))
        self.gone(session, p.Blame("client-lost", "its client said goodbye"), now)
        return None

    def given_up(self, session: ClientRecord, reason: str, anew: bool, now: int) -> None:
        """Its connection was lost for longer than a lease. It may come back, and is told so then."""
        self._lost[session.number] = UNHEARD if anew else f"by the controller's account: {reason}"
        while len(self._lost) > REMEMBERED:
            del self._lost[next(iter(self._lost))]
        self.gone(session, p.Blame("client-lost", f"client {session.name!r}: {reason}"), now)

    def gone(self, session: ClientRecord, blame: p.Blame, now: int) -> None:
        """Died or left: its runs end, what it owned is freed, its slices are released; nobody else is harmed."""
        session.gone = True
        for program in session.programs.values():
            self._registrations.taken_back(program)
        self._state.observe(ClientLost(session.number))
        if self._tracing is not None:
            self._tracing.trace.client_gone(session.number, now)
        self._state.by_peer.pop(session.peer, None)
        session.peer = -1
        for run in sorted(session.runs.values(), key=lambda run: -run.id):
            self._outcomes.fail(run, blame, now)
        self._elastic.client_gone(session.number)
        self._relocation.client_gone(session, now)
        self._views.client_gone(session)
        self._puts.client_gone(session)
        for _, named in sorted(session.names.items()):
            self._refs.release(named)
        if self._accounts.leave(session):
            for island in self._state.islands:
                island.scheduler.client_gone(session.share)
        self._state.sessions.pop(session.number, None)
        self._buffers.client_gone(session.number)
        for program in session.programs.values():
            self._forget(program)
        self._resources.release_session(session.number)
        self._runs.slices_bound(now)
