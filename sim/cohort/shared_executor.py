"""An executor that stands for several hosts that behave alike: it can be copied, made another's, and compared.

A real host stands for itself. All that core's executor knows of this is that its reports name `HostState.members`.

Neighbours: core's `Executor`, whose whole state is read and written here; `alike` says what tells such hosts apart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from types import MethodType
from typing import Any, cast

from msgspec.structs import replace

from core.host import OVER, Causes, Executor, HeldEffect, HostGang, HostMove, HostPlan, HostRun, HostState, LocalBuffer
from core.model import Hosts, Spans, spans
from core.protocol import Cause, GangStep
from core.transfer import ALL, from_client, to_client

Past = Callable[[Cause], bool]  # whether an event has happened on all hosts, and decides nothing any more


class SharedExecutor(Executor):
    def twin(self, members: Spans) -> SharedExecutor:
        """Another executor, with the same past, that stands for these hosts."""
        twin = SharedExecutor(members[0][0], self.hosts, lane=self.lane, incarnation=self._incarnation, members=members)
        twin.copy_of(self)
        return twin

    def copy_of(self, other: SharedExecutor) -> None:
        Copying(self).state(other._state, self._state)

    @property
    def lane(self) -> str:
        return "device" if self._by_device else "host"

    @property
    def idle(self) -> bool:
        """Whether nothing of what it was told is on these hosts, or under way."""
        now = self._state
        return not (now.plans or now.runs or now.buffers or now.records or now.pending or now.codes_asked)

    def knows(self) -> tuple[list[int], list[int]]:
        """(buffers on these hosts, those that follow one another by the first; runs of which steps are to come)."""
        return list(self._state.buffers), list(self._state.runs)

    def gangs_under_way(self) -> dict[int, tuple[GangStep, bool]]:
        """By seq: the gangs that are not over here, and whether the devices have them."""
        gangs = self._state.gangs
        return {seq: (gang.step, gang.state != "queued") for seq, gang in gangs.items() if gang.state not in OVER}

    def passed_on(self, number: int, settled: int) -> None:
        """As if its hosts had passed on the messages up to this one, and taken no part in them."""
        self._state.last = max(self._state.last, number)
        if settled > self._state.settled:
            self._settle(settled)

    def stand_for(self, members: Spans) -> None:
        """From now on for these hosts, which have the same past. What is said of one host is said of the first."""
        state = self._state
        state.host = members[0][0]
        state.members = members
        state.devices = spans.of(self.hosts.devices_of(state.host))
        state.among = ()
        for half in (*state.receives.values(), *state.sends.values()):
            # a single shard has one sender, also if another host stands for it
            if half.state == "waiting" and half.pieces and half.shard == ALL:
                _take_own_pieces(half, state.host, self.hosts)

    def sit(self, other: SharedExecutor) -> None:
        """Take the other's seat, and know nothing else."""
        state, its = self._state, other._state
        state.epoch, state.tree, state.last, state.settled = its.epoch, its.tree, its.last, its.settled

    def take_in(self, other: SharedExecutor) -> None:
        """Knows from now on what the other knows, too, which stands for all these hosts, and knows other programs.
        Neither has gangs, or memory, that wait for anything of the other."""
        state, known = self._state, HostState(self._state.host, self._state.members, self._state.devices)
        Copying(self).state(other._state, known)
        _plan_anew(known, self._by_device)
        state.last, state.settled = max(state.last, known.last), max(state.settled, known.settled)
        state.plans.update(known.plans)
        state.runs.update(known.runs)
        state.ended_runs = deque(sorted([*state.ended_runs, *known.ended_runs]))
        for first, buffer in known.buffers.items():
            state.buffers.put(first, buffer)
        state.codes.update(known.codes)
        state.codes_asked.update(known.codes_asked)
        state.records = deque(sorted([*state.records, *known.records], key=_seq))
        state.gangs = dict(sorted([*state.gangs.items(), *known.gangs.items()]))
        state.pending.update(known.pending)
        for lane, gang in known.tails.items():
            mine = state.tails.get(lane)
            if mine is None or mine.seq < gang.seq:
                state.tails[lane] = gang

    def without_send(self, transfer: int) -> bool:
        """As if a get had not been ordered, which only another of the hosts sends. Returns whether it is open."""
        state = self._state
        half = state.sends.pop(transfer, None)
        if half is None or half.state == "over":
            return False
        state.records.remove(half)
        for buffer in half.buffers:
            buffer.uses = tuple([use for use in buffer.uses if use[1] != ("sent", transfer)])
        for waiting in state.pending.values():
            if waiting:
                waiting[:] = [held for held in waiting if held.subject is not half]
        state.out = []  # what follows is that memory is free
        self._causes.happen(("sending", transfer))
        self._causes.happen(("sent", transfer))
        return half.state == "open"

    @property
    def may_merge(self) -> bool:
        """Whether all that is under way will be told to the hosts together. Contents, copies and code are told to each
        host by itself."""
        now = self._state
        if now.codes_asked or now.forming is not None or now.stopped or now.held_gangs or now.broken:
            return False
        moves = (*now.sends.values(), *now.receives.values(), *now.copies.values())
        return all(move.state == "over" or (move.empty and move.state == "waiting") for move in moves)

    def outline(self) -> Hashable | None:
        """A few numbers that are the same for equal states, found without looking at every buffer; None while hosts
        will be told things one by one."""
        if not self.may_merge:
            return None
        now = self._state
        tables = (now.plans, now.runs, now.buffers, now.codes, now.gangs, now.sends, now.receives, now.copies)
        return (
            now.last, now.settled, len(now.records), len(now.pending),
            tuple([(len(table), next(reversed(table), None)) for table in tables]),
        )  # fmt: skip

    def remembered(self, past: Past) -> Hashable:
        """All that this executor may do later depends on this, but for which hosts it stands. So one of two for
        which it is equal may do for both. `past`: events that happened on all hosts before any later order or
        event, and so decide no time."""
        return self._incarnation, self._by_device, remembered(self._state, past)


def _take_own_pieces(half: HostMove, host: int, hosts: Hosts) -> None:
    """A put or get that this host will open itself."""
    layout = half.buffers[0].layout
    client = -half.pieces[0][0]
    if layout is not None and client > 0 and half.kind == "send":
        half.pieces = to_client(layout, client, host, hosts)
    elif layout is not None and client > 0:
        half.pieces = from_client(layout, client, host, hosts)


# --- a copy -------------------------------------------------------------------------------------------------


class Copying:
    """Copies what one executor knows for another. What cannot change any more is shared."""

    def __init__(self, executor: SharedExecutor) -> None:
        """Its methods, and those of its parts, are called when causes happen."""
        self._executor = executor
        parts = (executor._queue, executor._moves, executor._buffers, executor._codes, executor._views)
        self._owners: dict[type, object] = {type(part): part for part in parts}
        self._copies: dict[int, Any] = {}  # by identity of what was copied

    def state(self, state: HostState, twin: HostState) -> None:
        twin.epoch, twin.tree, twin.last, twin.settled = state.epoch, state.tree, state.last, state.settled
        twin.order, twin.forming, twin.reforming = state.order, state.forming, state.reforming
        twin.plans, twin.ended_runs = state.plans.copy(), state.ended_runs.copy()
        twin.runs = {number: self._run(run) for number, run in state.runs.items()}
        twin.buffers = state.buffers.twin(self._buffer)
        twin.lost, twin.codes, twin.codes_asked = (state.lost.copy(), state.codes.copy(), state.codes_asked.copy())
        twin.records = deque([self._record(record) for record in state.records])
        twin.gangs = {seq: self._record(gang) for seq, gang in state.gangs.items()}
        twin.sends = {key: self._record(move) for key, move in state.sends.items()}
        twin.receives = {key: self._record(move) for key, move in state.receives.items()}
        twin.copies = {key: self._record(move) for key, move in state.copies.items()}
        for cause, waiting in state.pending.items():
            twin.pending[cause] = None if waiting is None else [self._held(held) for held in waiting]
        twin.tails = {lane: self._record(gang) for lane, gang in state.tails.items()}
        twin.stopped, twin.broken = state.stopped, state.broken.copy()
        twin.held_gangs = [self._record(gang) for gang in state.held_gangs]
        twin.abandoned_early, twin.last_on_disk = state.abandoned_early.copy(), state.last_on_disk

    def _run(self, run: HostRun) -> HostRun:
        twin = copy(run)
        if run.reads:
            twin.reads = run.reads.copy()
        return twin

    def _buffer(self, buffer: LocalBuffer) -> LocalBuffer:
        twin = self._copies.get(id(buffer))
        if twin is None:
            twin = self._copies[id(buffer)] = copy(buffer)
            if buffer.whole is not None:
                twin.whole = self._whole(buffer.whole)
            if buffer.sources:
                twin.sources = tuple([self._buffer(source) for source in buffer.sources])
        return cast("LocalBuffer", twin)

    def _whole(self, parts: list[LocalBuffer]) -> list[LocalBuffer]:
        found = self._copies.get(id(parts))
        if found is None:
            found = self._copies[id(parts)] = []
            found += [self._buffer(part) for part in parts]
        return cast("list[LocalBuffer]", found)

    def _record(self, record: Any) -> Any:
        if record.state == "over":
            return record
        twin = self._copies.get(id(record))
        if twin is None:
            twin = self._copies[id(record)] = copy(record)
            if type(record) is HostGang:
                twin.inputs, twin.outputs, twin.frees = map(
                    self._buffers, (record.inputs, record.outputs, record.frees)
                )
            else:
                twin.buffers = tuple(self._buffers(record.buffers))
        return twin

    def _buffers(self, buffers: Sequence[LocalBuffer]) -> Sequence[LocalBuffer]:
        return [self._buffer(buffer) for buffer in buffers] if buffers else ()

    def _held(self, held: HeldEffect) -> HeldEffect:
        twin = self._copies.get(id(held))
        if twin is None:
            act = cast("MethodType", held.act)
            act = MethodType(act.__func__, self._owners.get(type(act.__self__), self._executor))
            twin = HeldEffect(held.causes, held.missing, act, self._subject(held.subject))
            self._copies[id(held)] = twin
        return cast("HeldEffect", twin)

    def _subject(self, subject: Any) -> Any:
        if isinstance(subject, LocalBuffer):
            return self._buffer(subject)
        if isinstance(subject, HostGang | HostMove):
            return self._record(subject)
        if isinstance(subject, tuple):
            return tuple([self._subject(each) for each in subject])
        return subject


# --- executors that know different programs ----------------------------------------------------------------


def _plan_anew(state: HostState, by_device: bool) -> None:
    """Find out what plans mean to these hosts. They were found out for others, which have devices in the same places,
    but perhaps other ones."""
    anew: dict[int, HostPlan] = {}
    for plan in (*state.plans.values(), *(run.plan for run in state.runs.values())):
        if id(plan) not in anew:
            own = HostPlan(plan.plan, state.devices, by_device)
            anew[id(plan)] = plan if plan.pattern() == own.pattern() else own
    state.plans = {number: anew[id(plan)] for number, plan in state.plans.items()}
    for run in state.runs.values():
        run.plan = anew[id(run.plan)]


def _seq(record: HostGang | HostMove) -> int:
    return record.seq


# --- a state that can be looked up -------------------------------------------------------------------------


def remembered(state: HostState, past: Past) -> Hashable:
    """All that later steps may depend on, but for which host this is."""
    said, last = Remembering(state, past), state.last_on_disk
    return (
        state.epoch, state.tree, state.last, state.settled,
        tuple([(number, id(plan.plan), plan.pattern()) for number, plan in state.plans.items()]),
        tuple([said.run(run) for run in state.runs.values()]),
        tuple(state.ended_runs),
        tuple([(key, None if code is None else (code.blame, code.about)) for key, code in state.codes.items()]),
        tuple([said.record(record) for record in state.records]),
        tuple([said.buffer(buffer) for buffer in state.buffers.values()]),
        tuple(state.lost.items()),
        tuple([
            (cause, () if waiting is None else tuple(map(said.held, waiting)))
            for cause, waiting in state.pending.items()
        ]),
        tuple([
            (lane, last.seq) for lane, last in state.tails.items()
            if not last.plain and said.live(last.seq, ("launch", last.seq))
        ]),
        tuple(state.abandoned_early.items()),
        last is not None and said.live(last[1], last) and last,
    )  # fmt: skip


class Remembering:
    """Each record of a state as a value. Layouts and plans are compared by identity: both come from the stream, which
    hosts of one island share."""

    def __init__(self, state: HostState, past: Past) -> None:
        self._pending, self._settled, self._past = state.pending, state.settled, past

    def live(self, seq: int, cause: Cause) -> bool:
        return cause in self._pending or (seq >= self._settled and not self._past(cause))

    def _causes(self, causes: Causes) -> Causes:
        pending, past = self._pending, self._past
        return tuple([cause for cause in causes if cause in pending or not past(cause)])

    def run(self, run: HostRun) -> Hashable:
        return run.id, id(run.plan.plan), run.parts, tuple(run.reads.items())

    def record(self, record: HostGang | HostMove) -> Hashable:
        """All but the hosts that say it."""
        said = tuple([replace(report, hosts=spans.EMPTY) for report in record.said])
        if isinstance(record, HostMove):
            return (record.kind, record.seq, record.key, record.state, said, record.empty, self._causes(record.waited))
        if record.state in OVER:
            return "gang", record.seq, record.state, said
        return (
            "gang", record.seq, record.state, said, record.blame, record.donated,
            self._causes(record.causes) if record.state == "queued" else (),
            tuple([(buffer.id, buffer.blame, buffer.final) for buffer in record.inputs]),
            tuple([(buffer.id, buffer.blame, buffer.final) for buffer in record.outputs]),
            tuple([(buffer.id, buffer.void) for buffer in record.frees]),
        )  # fmt: skip

    def buffer(self, buffer: LocalBuffer) -> Hashable:
        made = buffer.made if buffer.made is not None and self.live(buffer.made_seq, buffer.made) else None
        made_seq = buffer.made_seq if made is not None or buffer.final is not None else -1
        user = buffer.user if buffer.user >= 0 and self.live(buffer.user, ("done", buffer.user)) else -1
        return (
            buffer.id, buffer.count, id(buffer.layout), made, made_seq, buffer.foreign and made is not None, user,
            tuple([use for use in buffer.uses if self.live(*use)]),
            buffer.blame, buffer.final, buffer.labels, buffer.spilled, buffer.on_disk, buffer.void,
            tuple([part.id for part in buffer.parts()]), tuple([source.id for source in buffer.sources]),
        )  # fmt: skip

    def held(self, held: HeldEffect) -> Hashable:
        act = cast("MethodType", held.act)
        return act.__name__, held.missing, self._causes(held.causes), self._subject(held.subject)

    def _subject(self, subject: Any) -> Hashable:
        if isinstance(subject, LocalBuffer):
            return self.buffer(subject)
        if isinstance(subject, HostGang | HostMove):
            return subject.seq
        if isinstance(subject, tuple):
            return tuple([self._subject(each) for each in subject])
        try:
            hash(subject)
        except TypeError:
            return id(subject)
        return cast("Hashable", subject)
