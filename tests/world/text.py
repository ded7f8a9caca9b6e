"""Writes events and commands as short lines, one for each event and one for each command.

Golden files consist of these lines. They show what a machine was told and what it did, without causes, layouts and
beats.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from core.model import Range, SliceSpec, spans
from core.protocol import dataplane
from core.protocol import effects as e
from core.protocol import messages as m

Namer = Callable[[int], str]  # a peer's number -> its name
USUALLY_NONE = ("to_disk", "from_disk", "no_disk", "patience", "undone")  # named only where they say something


def when(now: int) -> str:
    """Return the time in milliseconds, with three digits."""
    return f"{now // 1_000_000:>5}.{now // 1_000 % 1_000:03}"


def event(seen: Any, name: Namer) -> str:
    match seen:
        case e.MessageReceived(peer, said):
            return f"{name(peer)}: {message(said)}"
        case e.Connected(peer):
            return f"connected to {name(peer)}"
        case e.Disconnected(peer, reason):
            return f"lost {name(peer)} ({reason})"
        case _:
            return local(seen)


def effect(done: Any, name: Namer) -> str:
    match done:
        case e.Send(peers, said):
            return f"to {', '.join(map(name, peers))}: {message(said)}"
        case e.Close(peer, reason):
            return f"close {name(peer)} ({reason})"
        case _:
            return local(done)


def local(thing: Any) -> str:  # noqa: C901 - a table
    match thing:
        case e.Launch():
            made = ",".join(map(str, thing.outputs)) or "-"
            read = ",".join(map(str, thing.inputs)) or "-"
            how = " placeholders" if thing.placeholders else ""
            given = f" donating {','.join(map(str, thing.donated))}" if thing.donated else ""
            return f"launch #{thing.seq} {read} -> {made}{given}{how}"
        case e.OpenSend():
            return f"open send t{thing.transfer} of {_all(thing.buffers)}" + _blame(thing.blame)
        case e.OpenRecv():
            return f"open recv t{thing.transfer} into {_all(thing.buffers)}"
        case e.Finished():
            return f"finished #{thing.seq}" + _blame(thing.blame)
        case e.Received():
            return f"received t{thing.transfer}" + _blame(thing.blame)
        case e.Sent():
            return f"sent t{thing.transfer}"
        case e.FreeBuffer():
            return f"free {','.join(map(str, thing.buffers))}"
        case e.MakeBuffer():
            return f"make {thing.buffer}" + (" (literal)" if thing.literal is not None else "")
        case e.MakeView():
            return f"view {thing.buffer} of {','.join(f'{n} on {device}' for device, n in thing.shards)}"
        case e.VoidView():
            return f"view {thing.buffer} is spoilt"
        case e.CodeReady():
            return f"code {thing.plan}.{thing.code} ready" + _blame(thing.blame)
        case e.CompileCode():
            return f"compile {thing.plan}.{thing.code}"
        case e.ForgetPlan():
            return f"forget plan {thing.plan}"
        case e.LogLine() | e.PolicyReplaced():
            return f"tell: {thing.text}"
        case _:
            return _plain(thing, ("causes",))


def message(said: Any) -> str:  # noqa: C901 - a table
    match said:
        case m.Ordered():
            what = [f"plan {plan.id}" for plan in said.plans]
            what += [f"run {run.run} of plan {run.plan}" for run in said.runs]
            what += [step(each) for each in said.steps]
            return f"order {said.number} ({spans.text(said.hosts)}) [{'; '.join(what)}]"
        case m.Reports():
            return f"reports [{'; '.join(map(report, said.reports))}]"
        case m.Calls():
            return f"calls [{'; '.join(map(message, said.calls))}]"
        case m.ClientMessages():
            return f"notes [{'; '.join(map(message, said.notes))}]"
        case m.Register():
            return f"register program {said.program} {said.ir.name!r}" + (" and tell" if said.tell else "")
        case m.Ended():
            return f"run {said.run} ended" + _blame(said.blame) + (f" undone {said.undone}" if said.undone else "")
        case m.ContentsReady():
            return f"ready {','.join(map(_name, said.buffers))}" + _blame(said.blame)
        case m.Waiting():
            since = f" for {said.age / 1e9:g} s" if said.age else ""
            which = f"program {said.program}" if said.program else f"run {said.run}"
            return f"waiting {which}{since} reason {said.reason or 'none any more'}"
        case m.Submit():
            shown = ",".join("literal" if isinstance(a, bytes) else _name(a) for a in said.args) or "-"
            made = ",".join(map(_name, said.results))
            return f"submit run {said.run} of program {said.program}: {shown} -> {made}"
        case m.View():
            of = ",".join(f"{buffer}/{shard}" for buffer, shard in said.shards)
            return f"view {said.buffer} of {of}"
        case m.Join():
            seat = f" epoch {said.epoch} last {said.last}" if said.epoch >= 0 else ""
            return f"join host {said.host} incarnation {said.incarnation}{seat}"
        case m.Seat():
            below = ",".join(str(child) for child, _ in said.children)
            given_up = f" abandon {','.join(map(str, said.abandon))}" if said.abandon else ""
            return (
                f"seat epoch {said.epoch} tree {said.tree} members {spans.text(said.members)}"
                + (f" above {below}" if below else "")
                + given_up
            )
        case dataplane.Chunk():
            return f"chunk t{said.transfer} piece {said.piece}+{said.offset} {said.nbytes} B"
        case dataplane.Grant():
            return f"grant t{said.transfer} {said.nbytes} B"
        case dataplane.Landed():
            return f"landed t{said.transfer}"
        case _:
            return _plain(said, ("layout", "value", "start", "code", "all_hosts"))


def step(said: Any) -> str:
    match said:
        case m.GangStep():
            return f"#{said.seq} run {said.run} step {said.step} on {spans.text(said.hosts)}"
        case m.ViewStep():
            of = ",".join(map(_name, said.sources))
            return f"view {said.buffer} of {of} on {spans.text(said.hosts)}"
        case m.SendStep():
            to = f" to client {said.client}" if said.client else ""
            return f"#{said.seq} send t{said.transfer} on {spans.text(said.hosts)}{to}"
        case m.RecvStep():
            behind = f" after #{said.after}" if said.after >= 0 else ""
            return f"#{said.seq} recv t{said.transfer} on {spans.text(said.hosts)}{behind}"
        case m.FreeStep():
            return f"free {','.join(map(_name, said.buffers))}"
        case m.CompileStep():
            return f"compile plan {said.plan}"
        case _:
            return _plain(said, ())


def report(said: Any) -> str:
    match said:
        case m.Done():
            return f"done #{said.seq} on {spans.text(said.hosts)}" + _blame(said.blame)
        case m.Compiled():
            return f"compiled {said.plan}.{said.code} on {spans.text(said.hosts)}" + _blame(said.blame)
        case _:
            return _plain(said, ())


def is_beat(said: Any) -> bool:
    return isinstance(said, m.Reports) and all(isinstance(each, m.Heartbeat) for each in said.reports)


def _blame(blame: m.Blame | None) -> str:
    return f" {blame}" if blame is not None else ""


def _plain(thing: Any, hidden: tuple[str, ...]) -> str:
    if not isinstance(thing, msgspec.Struct):
        return str(thing)
    shown = []
    for name in thing.__struct_fields__:
        value = getattr(thing, name)
        usual = (name in USUALLY_NONE and not value) or (name == "buffer" and value == -1)
        if name in hidden or value is None or value == () or usual:
            continue
        if isinstance(value, SliceSpec):
            value = _slice(value)
        shown.append(f"{name} {spans.text(value) if name in ('hosts', 'members') else value}")
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(thing).__name__).lower()
    return " ".join([name, *shown])


def _slice(spec: SliceSpec) -> str:
    """Without what only sub-slices have, unless it is one."""
    text = str(spec).replace(", absent='wait'", "").replace(", expected=UNSET, due=UNSET", "")
    return text if spec.of else text.replace(", of='', picks=()", "")


def _all(buffers: Sequence[int]) -> str:
    return ",".join(map(str, buffers))


def _name(name: int | Range) -> str:
    return str(name) if isinstance(name, int) else f"{name.first}..{name.first + name.count - 1}"


def entry(now: int, name: str, namer: Namer, said: Any, effects: Sequence[e.Command]) -> str:
    """The diary's lines on what an actor heard and did. "": nothing but a beat."""
    if isinstance(said, e.MessageReceived) and is_beat(said.message):
        heard = ""
    else:
        heard = "wakes" if isinstance(said, e.Wakeup) else event(said, namer)
    shown = [effect(each, namer) for each in effects if not (isinstance(each, e.Send) and is_beat(each.message))]
    if not shown and heard in ("", "wakes"):
        return ""
    return "\n".join([f"{when(now)}  {name:<12} {heard or 'beat'}", *[f"{'':>24}-> {each}" for each in shown]])
