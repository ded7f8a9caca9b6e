"""The executor of one host: `handle(event, now) -> [effect, ...]`, from its island's ordered stream to its
devices.

In: `Ordered` messages and `Seat`s that the host's `stream.Inlet` has taken, and what devices, compiler and
transfer machine say. Out: commands to these three, and `Up(report)` for the controller.

Confluent: which effects there are, their causes, and their order on each channel (launch queue; a
transfer) depend on which events came and on their order per connection (stream; devices; transfers;
compiler), and neither on `now` nor on how connections interleave. Three things hold this up. Names and
causes are decided when a step is read, from the stream alone (`desk.live`); an effect waits for exactly its
causes (`waits`); and where two connections do race (data against poison), the race is the transfer
machine's to decide. The law is for one seat: a new seat, a failed launch and a lost device are faults, and
what a fault finds under way is a matter of time.

So one executor may stand for many hosts that are told the same and whose devices answer in the same order
(`alike`): its effects are each one's, at the latest of their causes' times there (`alike.at`). What tells
some of them apart is refused until the executor has been `split`; two whose hosts are alike again can become one
(`absorb`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

from ...model import Hosts, Illegal, Layout, Plan, Spans, spans
from ...protocol import (
    AskStep,
    Blame,
    Cause,
    CodeReady,
    CompileStep,
    Copied,
    DeviceLost,
    Effect,
    ExpectStep,
    Finished,
    ForgetStep,
    FreeStep,
    GangStep,
    Join,
    LaunchFailed,
    MakeBuffer,
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
    Trouble,
)
from .alike import Alike
from .codes import Codes
from .desk import Desk
from .moves import Moves
from .queue import Queue
from .runs import PlanFacts, Run
from .shards import Shard, Shards
from .waits import Causes


class Executor:
    """`hosts`: which devices each host of the cluster has. `lane`: one launch queue a host, or one a
    device. `alike`: the hosts for which this executor stands, all of one island, `host` among them; itself alone if not
    given."""

    def __init__(
        self, host: int, hosts: Hosts, *, lane: str = "host", incarnation: int = 0, alike: Spans | None = None
    ) -> None:
        if lane not in ("host", "device"):
            raise Illegal(f"a lane is 'host' or 'device', not {lane!r}")
        if alike is not None and not spans.contains(alike, host):
            raise Illegal(f"host {host} stands for hosts {spans.text(alike)}, and is not among them")
        self.host = host
        self._hosts = hosts
        self.epoch = self.tree = self.last = -1
        self._incarnation = incarnation
        self._mine = spans.of(hosts.devices_of(host))
        self._by_device = lane == "device"
        self._desk = Desk(host)
        self._shards = Shards(self._desk)
        self._queue = Queue(self._desk, self._shards)
        self._moves = Moves(self._desk, self._shards, self._queue, hosts)
        self._plans: dict[int, PlanFacts] = {}
        self._runs: dict[int, Run] = {}
        self._complete: deque[tuple[int, int]] = deque()  # (last seq, run): nothing more of it will come
        self._codes = Codes(self._desk)
        self._members = Alike(spans.one(host), hosts)
        self._alone = True
        self._forming: Seat | None = None  # the new epoch that this host has not yet reported
        self._reforming = False
        self._on: dict[type, Callable[[Any], None]] = {
            Ordered: self._ordered, Finished: self._queue.finished, Received: self._moves.received,
            Sent: self._moves.sent, Copied: self._moves.copied, RowsCounted: self._moves.counted,
            CodeReady: self._code_ready, LaunchFailed: self._queue.failed, DeviceLost: self._device_lost,
            Seat: self._seat, Reformed: self._reformed,
        }  # fmt: skip
        self._step: dict[type, Callable[[Any], None]] = {
            GangStep: self._gang, SendStep: self._send, RecvStep: self._recv, FreeStep: self._free,
            SpillStep: self._spill, RestoreStep: self._restore, PoisonStep: self._moves.poison,
            ExpectStep: self._moves.expect, CompileStep: self._compile, ForgetStep: self._forget,
            AskStep: self._ask,
        }  # fmt: skip
        self._stand_for(alike or spans.one(host))

    # --- in and out ---------------------------------------------------------------------------------------

    def handle(self, event: Any, now: int) -> list[Effect]:
        """Raises Illegal for what this host's own devices or transfers cannot have done; never for a
        message."""
        act = self._on.get(type(event))
        if act is None:
            raise Illegal(f"an executor takes no {type(event).__name__}")
        if not self._alone:
            self._members.refuse(event, self)
        out = self._desk.out = []
        act(event)
        return out

    def next_wakeup(self) -> int | None:
        return None

    def describe(self) -> Join:
        """How this host (the first of those it stands for) presents itself to a controller that has lost it, or that
        has restarted."""
        unfinished = tuple(
            sorted(record.seq for record in self._desk.records if record.state not in ("over", "gone"))
        )
        held = tuple(self._shards.held())
        return Join(self.host, self._incarnation, self.epoch, self.last, held, unfinished)

    def plan(self, number: int) -> Plan | None:
        """What a CompileCode names, for the driver to read; None once it is forgotten."""
        facts = self._plans.get(number)
        return None if facts is None else facts.plan

    def plan_of(self, run: int) -> Plan | None:
        """What a Launch names a step of. A run is forgotten only when nothing of it can launch any more."""
        found = self._runs.get(run)
        return None if found is None else found.facts.plan

    def layout_of(self, buffer: int) -> Layout | None:
        """Of a buffer that is on this host; what a copy or a count of its rows costs depends on it."""
        shard = self._shards.get(buffer)
        return None if shard is None else shard.layout

    # --- alike hosts --------------------------------------------------------------------------------------

    @property
    def alike(self) -> Spans:
        """The hosts for which it stands. Reports are about all of them; what is said of one host (Seated, Trouble) is
        said of `host`, the first, and each of the others says it of itself."""
        return self._members.members

    def divides(self, message: Ordered) -> tuple[Spans, ...]:
        """() if the message treats all of `alike` alike; else the parts into which they must be split before it."""
        return () if self._alone else self._members.divides(message, self)

    def split(self, part: Spans) -> Executor:
        """Another executor, with the same past, that stands for this part from now on; this one keeps the rest."""
        rest = spans.minus(self.alike, part)
        if not part or not rest or spans.minus(part, self.alike):
            raise Illegal(
                f"hosts {spans.text(part)} are to be split from {spans.text(self.alike)}: name some and not all of them"
            )
        self._desk.out = []
        twin = deepcopy(self, {id(self._hosts): self._hosts})
        twin._stand_for(part)
        self._stand_for(rest)
        return twin

    def same(self, other: Executor) -> bool:
        """Whether the two differ in nothing but the hosts for which they stand, and what they know may go on alike on
        all of them, so that one may do for both. Never while anything is under way."""
        mine = self._state()
        if mine is None or mine != other._state():
            return False
        known = {
            id(facts): facts for facts in (*self._plans.values(), *(r.facts for r in self._runs.values()))
        }
        return all(facts.alike(other._mine) for facts in known.values())

    def absorb(self, other: Executor) -> None:
        """Stand for the other's hosts too; it is of no more use."""
        if other is self or not self.same(other) or spans.overlap(self.alike, other.alike):
            mine, theirs = spans.text(self.alike), spans.text(other.alike)
            raise Illegal(f"the executor of hosts {theirs} is not in the state of that of hosts {mine}")
        self._stand_for(spans.union(self.alike, other.alike))

    def _stand_for(self, alike: Spans) -> None:
        self.host = alike[0][0]
        self._alone = spans.count(alike) == 1
        self._desk.stand_for(alike)
        self._members.stand_for(alike)
        self._mine = spans.of(self._hosts.devices_of(self.host))
        for facts in (*self._plans.values(), *(run.facts for run in self._runs.values())):
            facts.be(self._mine)

    def _state(self) -> tuple[Any, ...] | None:
        """All that what comes may depend on, but for who this host is; None while anything is under way."""
        desk, queue = self._desk, self._queue.state()
        busy = len(desk.waits) or self._codes.busy or self._forming is not None
        if busy or queue is None or any(record.state != "over" for record in desk.records):
            return None
        return (
            self._incarnation, self._by_device, self.epoch, self.tree, self.last, desk.settled,
            {number: facts.plan for number, facts in self._plans.items()},
            {number: run.state() for number, run in self._runs.items()},
            self._codes.state(),
            [record.describe() for record in desk.records], self._shards.state(), queue,
        )  # fmt: skip

    # --- the stream ---------------------------------------------------------------------------------------

    def _ordered(self, message: Ordered) -> None:
        desk = self._desk
        if message.epoch != self.epoch or message.number <= self.last:
            text = (
                f"message {message.number} of epoch {message.epoch} after {self.last} of epoch {self.epoch}"
            )
            desk.fault(text)
            return
        self.last = message.number
        desk.order = ("order", message.number)
        desk.settle(message.settled)
        if self._queue.graves:
            self._queue.tend(desk.settled)
        while self._complete and self._complete[0][0] < desk.settled:
            self._runs.pop(self._complete.popleft()[1], None)
        if not self._within(message.hosts):
            return  # this host only passes it on
        for plan in message.plans:
            facts = PlanFacts(plan, self._mine, self._by_device)
            if facts.concerns_us():
                self._plans[plan.id] = facts
        late = 0
        for header in message.runs:
            if header.at:
                late += 1
            else:
                self._begin(header)
        if late:
            self._read(message)
            return
        for step in message.steps:
            self._step[type(step)](step)

    def _read(self, message: Ordered) -> None:
        """Runs and steps in the order in which they were said."""
        waiting = sorted((header for header in message.runs if header.at), key=lambda header: header.at)
        for number, step in enumerate(message.steps, 1):
            self._step[type(step)](step)
            while waiting and waiting[0].at <= number:
                self._begin(waiting.pop(0))
        for header in waiting:
            self._begin(header)

    def _within(self, hosts: Spans) -> bool:
        for low, high in hosts:  # noqa: SIM110 - asked twice a gang, and three times faster than any()
            if low <= self.host < high:
                return True
        return False

    def _begin(self, header: RunHeader) -> None:
        facts = self._plans.get(header.plan)
        if facts is None:
            return  # the affair of other hosts that this message is for; if not, a step of it will tell
        if len(header.args) < facts.arity:
            self._desk.fault(
                f"run {header.run} of plan {header.plan} has {len(header.args)} arguments, which are too few"
            )
            return
        run = Run(header, facts)
        if run.parts:
            self._runs[header.run] = run
        for slot, arg in facts.args:
            if arg in run.literal or slot in run.kept:
                self._argument(run, slot, arg, header.after)

    def _argument(self, run: Run, slot: int, arg: int, after: int) -> None:
        """Make it here if its contents came with the call; and know it if it is also a result."""
        facts, buffer = run.facts.plan.slots[slot], run.ids[slot]
        used = facts.keep or facts.last >= 0 or facts.senders
        if arg in run.literal and used and run.facts.on(facts.layout.place):
            self._literal(buffer, facts.layout, run.literal[arg], after)
        shard = self._shards.get(buffer)
        if shard is not None:
            shard.labels += run.kept.get(slot, ())

    def _literal(self, buffer: int, layout: Layout, contents: bytes, after: int) -> None:
        """As a receive: made when there is room, which may be behind gangs that still run."""
        desk, room = self._desk, self._moves.room(after)
        if not room:
            self._shards.make(buffer, layout)
            desk.out.append(MakeBuffer(buffer, layout, contents, (desk.order,)))
            return
        made: Cause = ("made", buffer)
        self._shards.add(Shard(buffer, layout, made, after, foreign=True))
        desk.waits.expect(made)
        desk.waits.when((desk.order, *room), partial(self._make_literal, buffer, layout, contents))

    def _make_literal(self, buffer: int, layout: Layout, contents: bytes, causes: Causes) -> None:
        self._desk.out.append(MakeBuffer(buffer, layout, contents, causes))
        self._desk.waits.happen(("made", buffer))

    def _part(self, step: GangStep | SendStep | RecvStep) -> Run | None:
        """The run of which it is a step. Behind its last, it is forgotten when that is settled."""
        run = self._runs.get(step.run)
        if run is not None:
            run.parts -= 1
            if not run.parts:
                self._complete.append((step.seq, run.id))
        return run

    def _gang(self, step: GangStep) -> None:
        if not self._within(step.hosts):
            return
        run = self._part(step)
        facts = run.facts.gang(step.step) if run is not None else None
        if run is not None and facts is not None:
            self._queue.enter(step, run, facts)
        elif self._queue.graves.pop(step.seq, None) is None:
            # It cannot be launched, and what comes behind it must not meet its peers' collective.
            text = f"gang {step.seq} is step {step.step} of run {step.run}, which this host does not know"
            self._desk.fault(text, step.seq)
            self._queue.stop(step.seq)

    def _send(self, step: SendStep) -> None:
        if not self._within(step.hosts):
            return
        run = self._part(step)
        move = run.facts.move(step.step) if run is not None else None
        if step.client:
            self._moves.send_whole(step)
        elif run is None or move is None:
            text = f"a send is step {step.step} of run {step.run}, which this host does not know"
            self._moves.undoable(step.seq, text)
        else:
            self._moves.send(step, run, move)
        self._bury(step.seq, step.transfer)

    def _recv(self, step: RecvStep) -> None:
        if not self._within(step.hosts):
            return
        run = self._part(step)
        move = run.facts.move(step.step) if run is not None else None
        if step.client:
            self._moves.recv_whole(step)
        elif run is None or move is None:
            text = f"a receive is step {step.step} of run {step.run}, which this host does not know"
            self._moves.undoable(step.seq, text)
        else:
            self._moves.recv(step, run, move)
        self._bury(step.seq, step.transfer)

    def _bury(self, seq: int, transfer: int) -> None:
        blame = self._queue.graves.pop(seq, None)
        if blame is not None:
            self._moves.poison(PoisonStep(transfer, blame))

    def _free(self, step: FreeStep) -> None:
        for buffer in step.buffers:
            shard = self._shards.get(buffer)
            if shard is not None:  # hosts without a shard of it are told too
                self._shards.retire(shard, (self._desk.order,))

    def _spill(self, step: SpillStep) -> None:
        if self._within(step.hosts):
            self._moves.spill(step)

    def _restore(self, step: RestoreStep) -> None:
        if self._within(step.hosts):
            self._moves.restore(step)

    def _ask(self, step: AskStep) -> None:
        self._queue.ask(step.seq)

    def _compile(self, step: CompileStep) -> None:
        facts = self._plans.get(step.plan)
        if facts is None:
            return  # others'
        self._codes.compile(step, facts)

    def _forget(self, step: ForgetStep) -> None:
        for run in step.runs:
            self._runs.pop(run, None)
        for plan in step.plans:
            self._plans.pop(plan, None)
            self._codes.forget(plan)

    # --- the host's own -----------------------------------------------------------------------------------

    def _code_ready(self, event: CodeReady) -> None:
        self._codes.ready(event, self._plans.get(event.plan))

    def _device_lost(self, event: DeviceLost) -> None:
        blame = self._desk.here(event.blame) or event.blame
        self._desk.up(Trouble(self.host, -1, blame, event.device), (("lost", event.device),))

    # --- seats --------------------------------------------------------------------------------------------

    def _seat(self, seat: Seat) -> None:
        desk = self._desk
        if not spans.contains(self.alike, seat.host) or seat.epoch < self.epoch:
            desk.fault(
                f"a seat for host {seat.host} in epoch {seat.epoch}; this one is in epoch {self.epoch}"
            )
            return
        if self.last < 0:
            self.last = seat.last
        desk.order = ("seat", seat.tree)
        self.tree = seat.tree
        if seat.epoch > self.epoch:
            self._forming, self._reforming = seat, False
            self._shards.new_epoch()
            self._queue.stopped = True
        self._abandon(seat)
        if seat.epoch > self.epoch:
            self.epoch = seat.epoch
            causes: Causes = (desk.order, *self._queue.under_way())
            desk.waits.when(causes, partial(self._reform, seat))
        else:
            self._again()

    def _abandon(self, seat: Seat) -> None:
        """What will never finish is dropped; the rest goes on. Whoever writes the list must name each gang
        in flight that not all of its hosts can launch, or its peers wait for ever."""
        blame = Blame("host-lost", f"island {seat.island} lost a member before it was done")
        self._queue.abandon(seat.abandon, blame)
        self._moves.abandon(seat.abandon, blame)
        self._shards.drop(seat.dropped, blame)
        if self._forming is None:
            self._queue.go_on()

    def _again(self) -> None:
        """The path has changed and reports may have been lost with it: say all again that is not settled."""
        desk = self._desk
        for record in desk.records:
            for report in record.said:
                desk.again(report)
        self._codes.again()
        if self._forming is None:
            desk.up(Seated(self.host, self.epoch, self.tree, self.last), (desk.order,))

    def _reform(self, seat: Seat, causes: Causes) -> None:
        if self._forming is seat:  # else a newer epoch has begun
            self._reforming = True
            self._desk.out.append(Reform(seat.epoch, seat.members, seat.abandon, causes))

    def _reformed(self, event: Reformed) -> None:
        if event.epoch < self.epoch:
            return  # overtaken by a newer epoch
        if event.epoch > self.epoch or not self._reforming:
            raise Illegal(f"epoch {event.epoch} was formed, and nobody asked")
        self._forming, self._reforming = None, False
        self._desk.order = ("reformed", event.epoch)
        self._codes.void()
        self._again()  # what was said in the old epoch may not have been heard
        self._queue.go_on()
