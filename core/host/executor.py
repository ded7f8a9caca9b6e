"""The executor of one host: `handle(event, now) -> [command, ...]`, from its island's ordered stream to its devices.

In: `Ordered` messages and `Seat`s that the host's relay has taken, and what devices, compiler and transfer machine
say. Out: commands to these three, and `ToController(report)` for the controller.

Confluent: which commands there are, their causes, and their order on each channel (launch queue; a transfer) depend
on which events came and on their order on each connection (stream; devices; transfers; compiler). They depend
neither on `now` nor on how connections interleave. Three things hold this up. Names and causes are decided when a
step is read, from the stream alone (`PendingCauses.live`). An effect waits for exactly its causes. And where two
connections do race (data against poison), the transfer machine decides the race. The law is for one seat: a new
seat, a failed launch and a lost device are faults, and what a fault finds under way is a matter of time.

So one executor may stand for many hosts that are told the same and whose devices answer in the same order: its
commands are each one's, at the latest of their causes' times there. A simulator does that (`sim/cohort/alike`);
`standing` is all that it needs of an executor.

Neighbours: `host` feeds it. Read `_ordered` first, then `_gang`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ..model import Hosts, Illegal, Layout, Plan, Spans, spans
from ..protocol import (
    AskStep,
    Blame,
    CodeReady,
    Command,
    CompileStep,
    Copied,
    DeviceLost,
    ExpectStep,
    Finished,
    ForgetStep,
    FreeStep,
    GangStep,
    HostFault,
    Join,
    LaunchFailed,
    Ordered,
    PoisonStep,
    Received,
    RecvStep,
    Reform,
    Reformed,
    RestoreStep,
    RowsCounted,
    RunHeader,
    Seat,
    Seated,
    SendStep,
    Sent,
    SpillStep,
    ToController,
    ViewStep,
)
from . import standing
from .causes import PendingCauses
from .host_codes import HostCodes
from .host_moves import Moves
from .host_state import OVER, Causes, HostMove, HostRun, HostState
from .launches import LaunchQueue
from .local_buffers import HostBuffers
from .local_views import LocalViews
from .plans import HostPlan, concerns
from .run_names import names_of
from .self_reports import fault, own_blame, repeat

NO_READS: dict[int, int] = {}  # runs without any share this


class Executor:
    """`hosts`: which devices each host of the cluster has. `lane`: one launch queue a host, or one a device.
    `members`: the hosts that its reports are about, `host` the first of them; `host` alone if not given."""

    def __init__(
        self, host: int, hosts: Hosts, *, lane: str = "host", incarnation: int = 0, members: Spans = ()
    ) -> None:
        if lane not in ("host", "device"):
            raise Illegal(f"a lane is 'host' or 'device', not {lane!r}")
        if members and not spans.contains(members, host):
            raise Illegal(f"host {host} stands for hosts {spans.text(members)}, and is not among them")
        self._hosts = hosts
        self._incarnation = incarnation
        self._by_device = lane == "device"
        self._state = HostState(host, members or spans.one(host), spans.of(hosts.devices_of(host)))
        self._causes = PendingCauses(self._state)
        self._buffers = HostBuffers(self._state, self._causes)
        self._queue = LaunchQueue(self._state, self._causes, self._buffers)
        self._moves = Moves(self._state, self._causes, self._buffers, hosts)
        self._codes = HostCodes(self._state, hosts)
        self._views = LocalViews(self._state, self._causes, self._buffers, hosts)
        self._events: dict[type, Callable[[Any], None]] = {
            Ordered: self._ordered, Finished: self._queue.finished, Received: self._moves.received,
            Sent: self._moves.sent, Copied: self._moves.copied, RowsCounted: self._moves.counted,
            CodeReady: self._codes.ready, LaunchFailed: self._queue.failed, DeviceLost: self._device_lost,
            Seat: self._seat, Reformed: self._reformed,
        }  # fmt: skip
        self._steps: dict[type, Callable[[Any], None]] = {
            GangStep: self._gang, SendStep: self._send, RecvStep: self._receive, FreeStep: self._free,
            ViewStep: self._views.read, SpillStep: self._spill, RestoreStep: self._restore,
            PoisonStep: self._moves.poison, ExpectStep: self._moves.expect, CompileStep: self._compile,
            ForgetStep: self._forget, AskStep: self._ask,
        }  # fmt: skip

    # --- in and out ---------------------------------------------------------------------------------------

    def handle(self, event: Any, now: int) -> list[Command]:
        """Raises Illegal for what this host's own devices or transfers cannot have done; never for a
        message."""
        act = self._events.get(type(event))
        if act is None:
            raise Illegal(f"an executor takes no {type(event).__name__}")
        out = self._state.out = []
        act(event)
        return out

    @property
    def host(self) -> int:
        return self._state.host

    @property
    def members(self) -> Spans:
        """The hosts that its reports are about. What is said of one host (Seated, HostFault) is said of `host`."""
        return self._state.members

    def describe(self) -> Join:
        """How this host presents itself to a controller that has lost it, or that has restarted."""
        state = self._state
        unfinished = tuple(sorted([record.seq for record in state.records if record.state not in OVER]))
        held = tuple(self._buffers.held())
        return Join(state.host, self._incarnation, state.epoch, state.last, held, unfinished)

    def plan(self, number: int) -> Plan | None:
        """What a CompileCode names, for the driver to read; None once it is forgotten."""
        found = self._state.plans.get(number)
        return None if found is None else found.plan

    def plan_of(self, run: int) -> Plan | None:
        """What a Launch names a step of. A run is forgotten only when nothing of it can launch any more."""
        found = self._state.runs.get(run)
        return None if found is None else found.plan.plan

    def layout_of(self, buffer: int) -> Layout | None:
        """The layout of a buffer that is on this host; what a copy or a count of its rows costs depends on it."""
        found = self._state.buffers.alone(buffer)
        return None if found is None else found.layout

    def gangs_under_way(self) -> dict[int, tuple[GangStep, bool]]:
        """By seq: the gangs that are not over here, and whether the devices have them."""
        gangs = self._state.gangs
        return {
            seq: (gang.step, gang.state != "queued") for seq, gang in gangs.items() if gang.state not in OVER
        }

    # --- to stand for several hosts -----------------------------------------------------------------------

    def twin(self, members: Spans) -> Executor:
        """Another executor, with the same past, that stands for these hosts."""
        twin = self._another(members)
        twin._copying().state(self._state, twin._state)
        return twin

    def blank(self, members: Spans) -> Executor:
        """Another executor, for the same seats, that knows of no program."""
        other = self._another(members)
        standing.sit(other._state, self._state)
        return other

    def take_in(self, other: Executor) -> None:
        """Knows from now on what the other knows, too, which stands for all these hosts, and knows other programs.
        Neither has gangs, or memory, that wait for anything of the other."""
        known = HostState(self._state.host, self._state.members, self._state.devices)
        self._copying().state(other._state, known)
        standing.take_in(self._state, known, self._by_device)

    def without_send(self, transfer: int) -> bool:
        """As if this get had not been ordered. Returns whether it is open."""
        return standing.without_send(self._state, self._causes, transfer)

    def _another(self, members: Spans) -> Executor:
        lane = "device" if self._by_device else "host"
        return Executor(members[0][0], self._hosts, lane=lane, incarnation=self._incarnation, members=members)

    def _copying(self) -> standing.Copying:
        """Copies what another executor knows, for this one."""
        parts = (self, self._queue, self._moves, self._buffers, self._codes, self._views)
        return standing.Copying({type(part): part for part in parts})

    def knows(self) -> tuple[list[int], list[int]]:
        """(buffers on these hosts, those that follow one another by the first; runs of which steps are to come)."""
        return list(self._state.buffers), list(self._state.runs)

    @property
    def idle(self) -> bool:
        """Whether nothing of what it was told is on these hosts, or under way."""
        now = self._state
        return not (now.plans or now.runs or now.buffers or now.records or now.pending or now.codes_asked)

    def stand_for(self, members: Spans) -> None:
        standing.stand_for(self._state, members, self._hosts)

    @property
    def may_merge(self) -> bool:
        """Whether no contents, copies or code are under way."""
        return standing.may_merge(self._state)

    def outline(self) -> Hashable | None:
        """A little of `remembered` that is quick to find; None while contents, copies or code are under way."""
        return standing.outline(self._state) if self.may_merge else None

    def remembered(self, past: standing.Past) -> Hashable:
        """All that this executor may do later depends on this, but for which hosts it stands. So one of two for
        which it is equal may do for both. `past`: events that happened on all hosts before any later order or
        event, and so decide no time."""
        return self._incarnation, self._by_device, standing.remembered(self._state, past)

    def passed_on(self, number: int, settled: int) -> None:
        """As if its hosts had passed on the messages up to this one, and taken no part in them."""
        self._state.last = max(self._state.last, number)
        if settled > self._state.settled:
            self._settle(settled)

    # --- the stream ---------------------------------------------------------------------------------------

    def _ordered(self, message: Ordered) -> None:
        state = self._state
        if message.epoch != state.epoch or message.number <= state.last:
            fault(
                state,
                f"message {message.number} of epoch {message.epoch} after {state.last} of epoch {state.epoch}",
            )
            return
        state.last = message.number
        state.order = (("order", message.number),)
        if message.settled > state.settled:
            self._settle(message.settled)
        if message.hosts not in state.among and not self._is_among(message.hosts):
            return  # this host only passes it on
        for plan in message.plans:
            if concerns(plan, state.devices):
                state.plans[plan.id] = HostPlan(plan, state.devices, self._by_device)
        late = False
        for header in message.runs:
            if header.at:
                late = True
            else:
                self._begin(header)
        if late:
            self._interleaved(message)
            return
        steps = self._steps
        for step in message.steps:
            steps[type(step)](step)

    def _settle(self, settled: int) -> None:
        """Below it all is final: forget what is over. By causality all of it is; what is not, stays."""
        state, records, ended = self._state, self._state.records, self._state.ended_runs
        state.settled = settled
        while records:
            record = records[0]
            if record.seq >= settled or record.state not in OVER:
                break
            records.popleft()
            if type(record) is not HostMove:
                del state.gangs[record.seq]
            elif record.kind == "send":
                del state.sends[record.key]
            elif record.kind == "receive":
                del state.receives[record.key]
            elif record.kind != "none":
                del state.copies[record.key]
        while ended and ended[0][0] < settled:
            state.runs.pop(ended.popleft()[1], None)
        if state.abandoned_early:
            kept = {seq: blame for seq, blame in state.abandoned_early.items() if seq >= settled}
            state.abandoned_early = kept

    def _is_among(self, hosts: Spans) -> bool:
        """Whether this host is one of them: if it stands for several, all are, or the only one that sends what a client
        gets. The last answers are remembered: most gangs are for the same hosts, and most gets from one of them."""
        state = self._state
        if not spans.overlap(hosts, state.members):
            return False
        state.among = (hosts, *state.among[:1])
        return True

    def _interleaved(self, message: Ordered) -> None:
        """Some runs begin behind some of the steps: read these and the steps in the order in which they were said."""
        waiting = sorted((header for header in message.runs if header.at), key=lambda header: header.at)
        for number, step in enumerate(message.steps, 1):
            self._steps[type(step)](step)
            while waiting and waiting[0].at <= number:
                self._begin(waiting.pop(0))
        for header in waiting:
            self._begin(header)

    def _begin(self, header: RunHeader) -> None:
        state = self._state
        plan = state.plans.get(header.plan)
        if plan is None:
            return  # it concerns other hosts that this message is for; if not, a step of it will tell
        said = names_of(header, plan)
        if said is None:
            fault(state, f"run {header.run} of plan {header.plan} has too few arguments for it")
            return
        for slot, ident, layout, contents in said.acts:
            if layout is not None:
                self._moves.literal(ident, layout, contents, header.after)
            labels = said.labels.get(slot)
            if labels and (buffer := state.buffers.alone(ident)):  # an argument that is also a result
                buffer.labels += labels
        if plan.parts:
            reads = plan.reads.copy() if plan.reads else NO_READS
            state.runs[header.run] = HostRun(
                header.run, plan, said.call, said.ids, said.literal, said.labels, header.kept_ranges, plan.parts,
                reads,
            )  # fmt: skip

    # --- its steps ----------------------------------------------------------------------------------------

    def _gang(self, step: GangStep) -> None:
        state = self._state
        if step.hosts not in state.among and not self._is_among(step.hosts):
            return
        run = state.runs.get(step.run)
        if run is not None:
            run.parts -= 1
            if not run.parts:
                state.ended_runs.append((step.seq, run.id))
            planned = run.call.gangs.get(step.step) or run.plan.gang(step.step, run.call)
            if planned is not None:
                self._queue.enter(step, run, planned)
                return
        if state.abandoned_early.pop(step.seq, None) is None:
            # It cannot be launched, and what comes behind it must not meet its peers' collective.
            text = f"gang {step.seq} is step {step.step} of run {step.run}, which this host does not know"
            fault(state, text, step.seq)
            self._queue.stop(step.seq)

    def _run_of(self, step: SendStep | RecvStep) -> HostRun | None:
        """The run of which it is a step. Behind its last step, a run is forgotten when that is settled."""
        run = self._state.runs.get(step.run)
        if run is not None:
            run.parts -= 1
            if not run.parts:
                self._state.ended_runs.append((step.seq, run.id))
        return run

    def _send(self, step: SendStep) -> None:
        if step.hosts not in self._state.among and not self._is_among(step.hosts):
            return
        run = None if step.client else self._run_of(step)
        move = run.plan.moves.get(step.step) if run is not None else None
        if step.client:
            self._moves.send_whole(step)
        elif run is None or move is None:
            text = f"a send is step {step.step} of run {step.run}, which this host does not know"
            self._moves.undoable(step.seq, text)
        else:
            self._moves.send(step, run, move)
        if step.seq in self._state.abandoned_early:
            self._drop_abandoned(step)

    def _receive(self, step: RecvStep) -> None:
        if step.hosts not in self._state.among and not self._is_among(step.hosts):
            return
        run = None if step.client else self._run_of(step)
        move = run.plan.moves.get(step.step) if run is not None else None
        if step.client:
            self._moves.receive_whole(step)
        elif run is None or move is None:
            text = f"a receive is step {step.step} of run {step.run}, which this host does not know"
            self._moves.undoable(step.seq, text)
        else:
            self._moves.receive(step, run, move)
        if step.seq in self._state.abandoned_early:
            self._drop_abandoned(step)

    def _drop_abandoned(self, step: SendStep | RecvStep) -> None:
        blame = self._state.abandoned_early.pop(step.seq)
        self._moves.poison(PoisonStep(step.transfer, blame))

    def _free(self, step: FreeStep) -> None:
        state = self._state
        for named in step.buffers:
            first, count = (named, 1) if isinstance(named, int) else (named.first, named.count)
            for buffer in state.buffers.over(first, count):  # hosts without a shard of it are told too
                self._buffers.retire(buffer, state.order)

    def _spill(self, step: SpillStep) -> None:
        if self._is_among(step.hosts):
            self._moves.spill(step)

    def _restore(self, step: RestoreStep) -> None:
        if self._is_among(step.hosts):
            self._moves.restore(step)

    def _ask(self, step: AskStep) -> None:
        self._queue.ask(step.seq)

    def _compile(self, step: CompileStep) -> None:
        plan = self._state.plans.get(step.plan)
        if plan is not None:  # else it concerns other hosts
            self._codes.compile(step, plan)

    def _forget(self, step: ForgetStep) -> None:
        for run in step.runs:
            self._state.runs.pop(run, None)
        for plan in step.plans:
            if self._state.plans.pop(plan, None) is not None:
                self._codes.forget(plan)

    # --- the host's own -----------------------------------------------------------------------------------

    def _device_lost(self, event: DeviceLost) -> None:
        blame = own_blame(self._state, event.blame) or event.blame
        trouble = HostFault(self._state.host, -1, blame, event.device)
        self._state.out.append(ToController(trouble, (("lost", event.device),)))

    # --- seats --------------------------------------------------------------------------------------------

    def _seat(self, seat: Seat) -> None:
        state = self._state
        if not spans.contains(state.members, seat.host) or seat.epoch < state.epoch:
            text = f"a seat for host {seat.host} in epoch {seat.epoch}; this one is in epoch {state.epoch}"
            fault(state, text)
            return
        if state.last < 0:
            state.last = seat.last
        state.order = (("seat", seat.tree),)
        state.tree = seat.tree
        if seat.epoch > state.epoch:
            state.forming, state.reforming = seat, False
            state.lost.clear()  # all that named these buffers has drained
            state.stopped = True
        self._abandon(seat)
        if seat.epoch > state.epoch:
            state.epoch = seat.epoch
            self._causes.when((*state.order, *self._queue.under_way()), self._reform, seat)
        else:
            self._say_again()

    def _abandon(self, seat: Seat) -> None:
        """What will never finish is dropped; the rest goes on. The controller must name each gang in flight that
        not all of its hosts can launch, or its peers wait for ever."""
        blame = Blame("host-lost", f"island {seat.island} lost a member before it was done")
        self._queue.abandon(seat.abandon, blame)
        self._moves.abandon(seat.abandon, blame)
        self._buffers.drop(seat.dropped, blame)
        if self._state.forming is None:
            self._queue.go_on()

    def _say_again(self) -> None:
        """The path has changed and reports may have been lost with it: say all again that is not settled."""
        state = self._state
        for record in state.records:
            for report in record.said:
                repeat(state, report)
        self._codes.again()
        if state.forming is None:
            state.out.append(
                ToController(Seated(state.host, state.epoch, state.tree, state.last), state.order)
            )

    def _reform(self, seat: Seat, causes: Causes) -> None:
        if self._state.forming is seat:  # else a newer epoch has begun
            self._state.reforming = True
            self._state.out.append(Reform(seat.epoch, seat.members, seat.abandon, causes))

    def _reformed(self, event: Reformed) -> None:
        state = self._state
        if event.epoch < state.epoch:
            return  # overtaken by a newer epoch
        if event.epoch > state.epoch or not state.reforming:
            raise Illegal(f"epoch {event.epoch} was formed, and nobody asked")
        if event.blame is not None:  # the controller will offer another seat
            blame = own_blame(state, event.blame) or event.blame
            state.out.append(ToController(HostFault(state.host, -1, blame), (("reformed", event.epoch),)))
            return
        state.forming, state.reforming = None, False
        state.order = (("reformed", event.epoch),)
        self._codes.void()
        self._say_again()  # what was said in the old epoch may not have been heard
        self._queue.go_on()
