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
commands are each one's, at the latest of their causes' times there. A simulator does that (`sim/cohort`).

Neighbours: `host` feeds it. Read `_ordered` first, then `_gang`.
"""

from collections.abc import Callable
from typing import Any

from .. import protocol as p
from ..model import AllHosts, Hosts, Illegal, KnownHosts, Layout, Plan, Spans, spans
from .causes import PendingCauses
from .host_codes import HostCodes
from .host_moves import Moves
from .host_state import OVER, Causes, HostMove, HostRun, HostState, fault, own_blame, repeat
from .launches import LaunchQueue
from .local_buffers import HostBuffers
from .local_views import LocalViews
from .plans import HostPlan, concerns
from .run_names import names_of

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
        self.hosts = hosts = KnownHosts(hosts)
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
            p.Ordered: self._ordered, p.Finished: self._queue.finished, p.Received: self._moves.received,
            p.Sent: self._moves.sent, p.Copied: self._moves.copied, p.RowsCounted: self._moves.counted,
            p.SourceLost: self._moves.source_lost, p.CodeReady: self._codes.ready, p.LaunchFailed: self._queue.failed,
            p.DeviceLost: self._device_lost, p.Seat: self._seat, p.Reformed: self._reformed,
        }  # fmt: skip
        self._steps: dict[type, Callable[[Any], None]] = {
            p.GangStep: self._gang, p.SendStep: self._send, p.RecvStep: self._receive, p.FreeStep: self._free,
            p.ViewStep: self._views.read, p.FoldStep: self._views.fold, p.SpillStep: self._spill,
            p.RestoreStep: self._restore,
            p.PoisonStep: self._moves.poison, p.ExpectStep: self._moves.expect, p.CompileStep: self._compile,
            p.ForgetStep: self._forget, p.AskStep: self._ask, p.CutStep: lambda step: self._queue.cut(step.seq),
            p.GrownStep: lambda step: self._learn(step.all_hosts),
        }  # fmt: skip

    # --- in and out ---------------------------------------------------------------------------------------

    def handle(self, event: Any, now: int) -> list[p.Command]:
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

    def describe(self) -> p.Join:
        """How this host presents itself to a controller that has lost it, or that has restarted."""
        state = self._state
        unfinished = tuple(sorted([record.seq for record in state.records if record.state not in OVER]))
        held = tuple(self._buffers.held())
        return p.Join(state.host, self._incarnation, state.epoch, state.last, held, unfinished)

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

    # --- the stream ---------------------------------------------------------------------------------------

    def _ordered(self, message: p.Ordered) -> None:
        state = self._state
        if message.epoch != state.epoch or message.number <= state.last:
            fault(state, f"message {message.number} of epoch {message.epoch} after {state.last} of epoch {state.epoch}")
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

    def _interleaved(self, message: p.Ordered) -> None:
        """Some runs begin behind some of the steps: read these and the steps in the order in which they were said."""
        waiting = sorted((header for header in message.runs if header.at), key=lambda header: header.at)
        for number, step in enumerate(message.steps, 1):
            self._steps[type(step)](step)
            while waiting and waiting[0].at <= number:
                self._begin(waiting.pop(0))
        for header in waiting:
            self._begin(header)

    def _begin(self, header: p.RunHeader) -> None:
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
                header.run, plan, said.call, said.ids, said.literal, said.labels, header.kept_ranges, plan.parts, reads
            )

    # --- its steps ----------------------------------------------------------------------------------------

    def _gang(self, step: p.GangStep) -> None:
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

    def _run_of(self, step: p.SendStep | p.RecvStep) -> HostRun | None:
        """The run of which it is a step. Behind its last step, a run is forgotten when that is settled."""
        run = self._state.runs.get(step.run)
        if run is not None:
            run.parts -= 1
            if not run.parts:
                self._state.ended_runs.append((step.seq, run.id))
        return run

    def _send(self, step: p.SendStep) -> None:
        self._half(step, "send", self._moves.send_whole, self._moves.send)

    def _receive(self, step: p.RecvStep) -> None:
        self._half(step, "receive", self._moves.receive_whole, self._moves.receive)

    def _half(self, step: Any, what: str, whole: Callable[[Any], None], part: Callable[[Any, Any, Any], None]) -> None:
        if step.hosts not in self._state.among and not self._is_among(step.hosts):
            return
        run = None if step.client else self._run_of(step)
        move = run.plan.moves.get(step.step) if run is not None else None
        if step.client:
            whole(step)
        elif run is None or move is None:
            text = f"a {what} is step {step.step} of run {step.run}, which this host does not know"
            self._moves.undoable(step.seq, text)
        else:
            part(step, run, move)
        if step.seq in self._state.abandoned_early:
            blame = self._state.abandoned_early.pop(step.seq)
            self._moves.poison(p.PoisonStep(step.transfer, blame))

    def _free(self, step: p.FreeStep) -> None:
        state = self._state
        for named in step.buffers:
            first, count = (named, 1) if isinstance(named, int) else (named.first, named.count)
            for buffer in state.buffers.over(first, count):  # hosts without a shard of it are told too
                self._buffers.retire(buffer, state.order)

    def _spill(self, step: p.SpillStep) -> None:
        if self._is_among(step.hosts):
            self._moves.spill(step)

    def _restore(self, step: p.RestoreStep) -> None:
        if self._is_among(step.hosts):
            self._moves.restore(step)

    def _ask(self, step: p.AskStep) -> None:
        self._queue.ask(step.seq)

    def _compile(self, step: p.CompileStep) -> None:
        plan = self._state.plans.get(step.plan)
        if plan is not None:  # else it concerns other hosts
            self._codes.compile(step, plan)

    def _forget(self, step: p.ForgetStep) -> None:
        for run in step.runs:
            self._state.runs.pop(run, None)
        for plan in step.plans:
            if self._state.plans.pop(plan, None) is not None:
                self._codes.forget(plan)

    # --- the host's own -----------------------------------------------------------------------------------

    def _device_lost(self, event: p.DeviceLost) -> None:
        blame = own_blame(self._state, event.blame) or event.blame
        report = p.HostFault(self._state.host, -1, blame, event.device)
        self._state.out.append(p.ToController(report, (("lost", event.device),)))

    def _learn(self, told: AllHosts) -> None:
        """The cluster has these hosts now."""
        if wrong := self.hosts.learn(told):
            fault(self._state, wrong)

    # --- seats --------------------------------------------------------------------------------------------

    def _seat(self, seat: p.Seat) -> None:
        state = self._state
        if not spans.contains(state.members, seat.host) or seat.epoch < state.epoch:
            text = f"a seat for host {seat.host} in epoch {seat.epoch}; this one is in epoch {state.epoch}"
            fault(state, text)
            return
        if state.last < 0:
            state.last = seat.last
        state.order = (("seat", seat.tree),)
        if seat.all_hosts:
            self._learn(seat.all_hosts)
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

    def _abandon(self, seat: p.Seat) -> None:
        """What will never finish is dropped; the rest goes on. The controller must name each gang in flight that
        not all of its hosts can launch, or its peers wait for ever."""
        blame = p.Blame("host-lost", f"island {seat.island} lost a member before it was done")
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
            state.out.append(p.ToController(p.Seated(state.host, state.epoch, state.tree, state.last), state.order))

    def _reform(self, seat: p.Seat, causes: Causes) -> None:
        if self._state.forming is seat:  # else a newer epoch has begun
            self._state.reforming = True
            self._state.out.append(p.Reform(seat.epoch, seat.members, seat.abandon, causes))

    def _reformed(self, event: p.Reformed) -> None:
        state = self._state
        if event.epoch < state.epoch:
            return  # overtaken by a newer epoch
        if event.epoch > state.epoch or not state.reforming:
            raise Illegal(f"epoch {event.epoch} was formed, and nobody asked")
        if event.blame is not None:  # the controller will offer another seat
            blame = own_blame(state, event.blame) or event.blame
            state.out.append(p.ToController(p.HostFault(state.host, -1, blame), (("reformed", event.epoch),)))
            return
        state.forming, state.reforming = None, False
        state.order = (("reformed", event.epoch),)
        self._codes.void()
        self._say_again()  # what was said in the old epoch may not have been heard
        self._queue.go_on()
