"""Bugs that are put into core on purpose, one at a time. The fuzzer must find each of them.

    with plant("lost free"):
        ...                       # core has this bug now

Each bug is a small change of one method. `planting.search` counts the seeds that it takes to find one.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from core.client.client_session import ClientSession
from core.controller.admission import Admission
from core.controller.buffer_refs import BufferRefs
from core.controller.compilation import Compilation
from core.controller.completion import Completion
from core.controller.dispatch import Dispatch
from core.controller.outcomes import Outcomes
from core.controller.recovery import Recovery
from core.controller.runs import Runs
from core.fanout.reduce import Reduction
from core.fanout.stream import Stream
from core.host.executor import Executor
from core.host.host_moves import Moves
from core.host.launches import LaunchQueue
from core.host.local_buffers import HostBuffers
from core.link.link import Link
from core.memory.buffers import Buffers
from core.memory.footprint import Footprint
from core.memory.ledger import Ledger
from core.model.plan import Gang
from core.protocol.effects import Finished, FreeBuffer, Launch
from core.protocol.messages import Done, Ended, ExpectStep, GangStep
from core.schedule.contention import Contention, Window
from core.schedule.scheduler import Scheduler
from core.transfer.credits import Pool
from core.transfer.sending import SendMachine

from .planting import Patch, bug, every, nothing

# --- buffers and memory -------------------------------------------------------------------------------------


@bug("lost decrement", "one in five times that a run lets go of an argument, its hold stays")
def _(put: Patch) -> None:
    put(Buffers, "let_go", every(5, Buffers.let_go, lambda self, idents, **more: []))


@bug("lost free", "one in five buffers that nobody holds is not freed on its hosts")
def _(put: Patch) -> None:
    put(BufferRefs, "free_on_hosts", every(5, BufferRefs.free_on_hosts, nothing))


@bug("double free", "a host frees every tenth buffer twice")
def _(put: Patch) -> None:
    def again(self: HostBuffers, buffer: Any, causes: Any) -> None:
        retire(self, buffer, causes)
        self._causes.when(causes, lambda ident, done: self._state.out.append(FreeBuffer(ident, done)), buffer.id)

    retire = HostBuffers.retire
    put(HostBuffers, "retire", every(10, retire, again))


@bug(
    "freed too early",
    "a host frees a buffer when it is told to, and does not wait for the work that was ordered before",
)
def _(put: Patch) -> None:
    put(HostBuffers, "idle", lambda self, buffer: ())


@bug("admission ignored", "a run is admitted whether or not its memory is there")
def _(put: Patch) -> None:
    put(Ledger, "_missing", lambda self, footprint, more: {})


@bug("memory before its gang", "what is received takes its memory at once, not behind the gang that gives it up")
def _(put: Patch) -> None:
    put(Moves, "room", lambda self, after: ())


@bug("temporaries forgotten", "memory that a gang needs while it runs is not counted")
def _(put: Patch) -> None:
    make = Footprint.__init__

    def bare(self: Footprint, plan: Any, donated: Any, atoms: Any) -> None:
        steps = [replace(step, temp=0) if isinstance(step, Gang) else step for step in plan.steps]
        make(self, replace(plan, steps=tuple(steps)), donated, atoms)

    put(Footprint, "__init__", bare)


@bug("donation of a shared buffer", "a run takes over an argument that others hold too")
def _(put: Patch) -> None:
    def is_sole(self: Buffers, ident: int, nbytes: int) -> bool:
        buffer = self[ident]
        return buffer.exact and buffer.nbytes == nbytes and buffer.state not in ("spilling", "poisoned")

    put(Buffers, "is_sole", is_sole)


@bug("spilled buffer read without restore", "what was spilled is marked as back, and no host is told")
def _(put: Patch) -> None:
    def bring_back(self: Admission, ident: int, now: int) -> None:
        buffer = self._buffers[ident]
        self._spill.restore(buffer)
        self._spill.restored(buffer)

    put(Admission, "restore", bring_back)


# --- order and launches -------------------------------------------------------------------------------------


@bug("order swapped on one host", "host 1 reads two gangs that follow one another in a message the other way round")
def _(put: Patch) -> None:
    ordered = Executor._ordered

    def swapped(self: Executor, message: Any) -> None:
        steps = list(message.steps)
        for at in range(len(steps) - 1):
            if self.host == 1 and isinstance(steps[at], GangStep) and isinstance(steps[at + 1], GangStep):
                steps[at : at + 2] = steps[at + 1], steps[at]
                break
        ordered(self, replace(message, steps=tuple(steps)))

    put(Executor, "_ordered", swapped)


@bug("skipped launch for a poisoned input", "a host whose input is spoilt does not launch, and says that it has ended")
def _(put: Patch) -> None:
    launch = LaunchQueue._launch

    def skipping(self: LaunchQueue, gang: Any, causes: Any) -> None:
        stopped = self._state.stopped
        if gang.state != "queued" or stopped or not any(buffer.blame for buffer in gang.inputs):
            launch(self, gang, causes)
            return
        gang.state = "launched"
        for buffer in gang.outputs:
            buffer.spoil(next(each.blame for each in gang.inputs if each.blame))
        self._causes.happen(("launch", gang.seq))
        self.finished(Finished(gang.seq))

    put(LaunchQueue, "_launch", skipping)


@bug("gang launched twice", "a host launches every seventh gang a second time")
def _(put: Patch) -> None:
    launch = LaunchQueue._launch

    def twice(self: LaunchQueue, gang: Any, causes: Any) -> None:
        out = self._state.out
        before = len(out)
        launch(self, gang, causes)
        made = [effect for effect in out[before:] if isinstance(effect, Launch) and effect.seq == gang.seq]
        if gang.seq % 7 == 0:
            out += made

    put(LaunchQueue, "_launch", twice)


@bug("sequence does not increase", "gangs of an even turn and an odd one change numbers")
def _(put: Patch) -> None:
    enter = Dispatch._enter_gang

    def swapped(self: Dispatch, ticket: Any, now: int) -> None:
        state = self._state
        spare = vars(state).pop("spare", None)
        if spare is None:
            vars(state)["spare"] = state.next_seq
            state.next_seq += 1
            enter(self, ticket, now)
        else:
            known, state.next_seq = state.next_seq, spare
            enter(self, ticket, now)
            state.next_seq = known

    put(Dispatch, "_enter_gang", swapped)


@bug("window ignored", "a device may have four times as many gangs ahead as the window says")
def _(put: Patch) -> None:
    init = Contention.__init__

    def wide(self: Contention, atoms: Any, window: Window, early: bool, tell: Any) -> None:
        init(self, atoms, Window(4 * window.gangs, window.span, 4 * window.most), early, tell)

    put(Contention, "__init__", wide)


@bug("entered before its predecessor", "a step enters when all but one of those before it have")
def _(put: Patch) -> None:
    start = Dispatch.start

    def early(self: Dispatch, run: Any, now: int) -> None:
        rows = run.rows
        known = rows.gates, rows.first
        rows.gates = [max(0, gates - 1) for gates in rows.gates]
        rows.first = [index for index, gates in enumerate(rows.gates) if not gates]
        try:
            start(self, run, now)
        finally:
            rows.gates, rows.first = known

    put(Dispatch, "start", early)


@bug("withdrawn gang still waits", "a run that fails or is cancelled leaves its gangs in the scheduler")
def _(put: Patch) -> None:
    put(Scheduler, "withdraw", lambda self, run: 0)


@bug("compile readiness ignored", "gangs enter before every host has their code")
def _(put: Patch) -> None:
    ask = Compilation.ask
    put(Compilation, "ask", lambda self, rows: ask(self, rows) or True)


@bug("stale device map", "runs that have not started keep the plan for devices that are gone")
def _(put: Patch) -> None:
    put(Runs, "lower_again", nothing)


# --- the way down, and up -----------------------------------------------------------------------------------


@bug("overtaking after re-parenting", "what was lost with an old path is sent down the new tree in the wrong order")
def _(put: Patch) -> None:
    form = Stream._form

    def reversed_form(self: Stream, lasts: Any) -> Any:
        self.log.reverse()
        return form(self, lasts)

    put(Stream, "_form", reversed_form)


@bug("lost with the old path", "what was under way when the tree changed is not sent again")
def _(put: Patch) -> None:
    form = Stream._form

    def forgetful(self: Stream, lasts: Any) -> Any:
        self.log.clear()
        return form(self, lasts)

    put(Stream, "_form", forgetful)


@bug("wrong host set on a combined report", "a relay reports for all hosts below it when some have reported")
def _(put: Patch) -> None:
    take = Reduction.take

    def whole(self: Reduction, like: Any) -> Any:
        return [replace(report, hosts=self._participants.need or report.hosts) for report in take(self, like)]

    def add(self: Reduction, source: int, report: Any) -> Any:
        found = adds(self, source, report)
        self.left.clear()
        return found

    adds = Reduction.add
    put(Reduction, "take", whole)
    put(Reduction, "add", add)


@bug("reports not said again", "a host with a new seat does not repeat what may have been lost with the old path")
def _(put: Patch) -> None:
    again = Executor._say_again

    def silent(self: Executor) -> None:
        out = self._state.out
        before = len(out)
        again(self)
        out[before:] = [effect for effect in out[before:] if not isinstance(getattr(effect, "report", None), Done)]

    put(Executor, "_say_again", silent)


@bug("lease not expired", "a link to a peer that is silent for ever never ends")
def _(put: Patch) -> None:
    put(Link, "_lease_end", lambda self: 1 << 62)


@bug("resend lost", "a link does not send again what was lost with a connection")
def _(put: Patch) -> None:
    put(Link, "_go_back", lambda self, now: [])


# --- transfers ----------------------------------------------------------------------------------------------


@bug("credits not returned", "what has arrived does not give its credits back to the receiver's pool")
def _(put: Patch) -> None:
    put(Pool, "arrived", lambda self, lane, nbytes: self._enlist(lane))


@bug("sent beyond its credit", "a sender sends all it has as soon as it is granted anything")
def _(put: Patch) -> None:
    pump = SendMachine._pump

    def eager(self: SendMachine, transfer: int, receiver: int, out: Any) -> Any:
        out.credit = max(out.credit, out.total)
        return pump(self, transfer, receiver, out)

    put(SendMachine, "_pump", eager)


@bug("a chunk lost", "one in twenty turns of a sender says nothing of what it sends")
def _(put: Patch) -> None:
    def mute(self: SendMachine, *args: Any) -> Any:
        pump(self, *args)
        return []

    pump = SendMachine._pump
    put(SendMachine, "_pump", every(20, pump, mute))


@bug("wrong count of a sparse exchange", "each receiver is told to expect one piece fewer than it will get")
def _(put: Patch) -> None:
    expect = Moves.expect

    def fewer(self: Moves, step: ExpectStep) -> None:
        expect(self, replace(step, pieces=tuple((host, max(0, n - 1)) for host, n in step.pieces)))

    put(Moves, "expect", fewer)


@bug("poison lost", "a host does not heed that a transfer will never complete")
def _(put: Patch) -> None:
    put(Moves, "poison", nothing)


# --- runs and clients ---------------------------------------------------------------------------------------


@bug("a run ended twice", "every third end of a run is told to its client twice")
def _(put: Patch) -> None:
    tell = Outcomes._tell_end

    def twice(self: Outcomes, run: Any) -> None:
        first = not run.ended
        tell(self, run)
        if first and run.id % 3 == 0:
            self._outbox.note(run.session.peer, Ended(run.call.run, run.blame))

    put(Outcomes, "_tell_end", twice)


@bug("failure not passed on", "a run whose argument is spoilt is not told")
def _(put: Patch) -> None:
    put(Completion, "argument_settled", lambda self, buffer, blame, now: self._state.readers.pop(buffer, None) and None)


@bug("client's death forgotten", "what a dead client owned is kept")
def _(put: Patch) -> None:
    put(Buffers, "release", every(3, Buffers.release, lambda self, client, name: []))


@bug("open runs forgotten", "a restarted controller does not answer for the runs it does not know")
def _(put: Patch) -> None:
    opened = Recovery.client_opened

    def deaf(self: Recovery, session: Any, opening: Any, why: str) -> None:
        opened(self, session, replace(opening, open_runs=()), why)

    put(Recovery, "client_opened", deaf)


@bug("client forgets what it holds", "a client that comes back does not say what it holds")
def _(put: Patch) -> None:
    opened = ClientSession.connected

    def poor(self: ClientSession, now: int) -> None:
        before = len(self._out)
        opened(self, now)
        for at in range(before, len(self._out)):
            message = getattr(self._out[at], "message", None)
            if getattr(message, "held", ()):
                self._out[at] = replace(self._out[at], message=replace(message, held=()))  # type: ignore[type-var]

    put(ClientSession, "connected", poor)
