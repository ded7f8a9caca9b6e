"""What lets one executor stand for several hosts that behave alike: copy it, make it another's, compare it.

Only a simulator's cohorts need this (`sim/cohort/alike`), by way of `Executor`: a real host stands for itself. It is
in core because it copies and compares everything that an executor knows. It is the one place in which an executor
knows that it may stand for others. Besides, its reports name `state.members`.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..model import Hosts, Spans, spans
from ..protocol import Cause
from .host_state import HostGang, HostMove, HostRun, HostState, LocalBuffer, SlotIds


def stand_for(state: HostState, members: Spans, hosts: Hosts) -> None:
    """From now on for these hosts, which have the same past. What is said of one host is said of the first."""
    state.host = members[0][0]
    state.members = members
    state.devices = spans.of(hosts.devices_of(state.host))
    state.among = ()
    for plan in (*state.plans.values(), *(run.plan for run in state.runs.values())):
        plan.stand_for(state.devices)


def same_parts(state: HostState, other: HostState) -> bool:
    """Whether both know the same plans, and the other's host has the same part in each of them as this one's."""
    if state.plans.keys() != other.plans.keys():
        return False
    known = {id(plan): plan for plan in (*state.plans.values(), *(run.plan for run in state.runs.values()))}
    return all(plan.same_for(other.devices) for plan in known.values())


def at_rest(state: HostState) -> bool:
    """Whether nothing is under way."""
    waiting = state.pending or state.codes_asked or state.forming is not None
    held = state.stopped or state.held_gangs or state.broken
    return not (waiting or held or any(record.state != "over" for record in state.records))


def remembered(state: HostState) -> tuple[Any, ...]:
    """All that later steps may depend on, but for which host this is, in a form that can be compared."""
    return (
        state.epoch, state.tree, state.last, state.settled,
        {number: plan.plan for number, plan in state.plans.items()},
        {number: _run(run) for number, run in state.runs.items()},
        {key: None if said is None else said.blame for key, said in state.codes.items()},
        [_record(record) for record in state.records],
        [_buffer(state, buffer) for buffer in state.buffers.values()],
        tuple(state.lost.items()),
        {
            lane: last.seq
            for lane, last in state.tails.items()
            if not last.plain and _live(state, last.seq, ("launch", last.seq))
        },
        tuple(state.abandoned_early.items()),
    )  # fmt: skip


def _live(state: HostState, seq: int, cause: Cause) -> bool:
    return seq >= state.settled or cause in state.pending


def _run(run: HostRun) -> tuple[Any, ...]:
    return run.plan.plan.id, run.parts, _ids(run), run.literal, run.labels, run.together, run.reads


def _ids(run: HostRun) -> tuple[Any, ...]:
    return (run.ids.base, dict(run.ids)) if isinstance(run.ids, SlotIds) else tuple(run.ids)


def _record(record: HostGang | HostMove) -> tuple[Any, ...]:
    """All but the hosts that say it."""
    said = [replace(report, hosts=spans.EMPTY) for report in record.said]
    if isinstance(record, HostGang):
        return "gang", record.seq, record.seq, said
    return record.kind, record.seq, record.key, said, record.empty, record.waited


def _buffer(state: HostState, buffer: LocalBuffer) -> tuple[Any, ...]:
    made = buffer.made if buffer.made is not None and _live(state, buffer.made_seq, buffer.made) else None
    made_seq = buffer.made_seq if made is not None or buffer.final is not None else -1
    user = buffer.user if buffer.user >= 0 and _live(state, buffer.user, ("done", buffer.user)) else -1
    return (
        buffer.id, buffer.layout, made, made_seq, buffer.foreign and made is not None, user,
        tuple([use for use in buffer.uses if _live(state, *use)]),
        buffer.blame, buffer.final, buffer.labels, buffer.spilled, buffer.void, buffer.count, buffer.layouts,
    )  # fmt: skip
