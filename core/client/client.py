"""The client's end of a session: the user calls, names are given at once, and no call awaits an answer.

    run, results = client.submit(program, args, now)   # a call: names come back, a message may leave
    effects = client.handle(Called(), now)             # what the driver is to do about it
    effects = client.handle(Came(peer, notes), now)    # what the controller says: RunEnded, BuffersReady ...

Batching (`call_batching`). A lone call is never delayed, a thousand small ones are few messages, and a call that frees
memory never waits for one that needs it.

Bounds. At most `max_runs` runs and `max_requests` puts and gets are under way. A call beyond is answered
`Blocked` and changes nothing; `Unblocked` follows when there is room. Messages are lost only with their
controller or the session (`core.link.link` resends): then `Open` says what this client holds and which of its
runs have not ended, and the controller answers for each of them, by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..model import Illegal, Program, SliceSpec, Value, spans
from ..protocol import (
    CONTROLLER,
    Blame,
    BuffersReady,
    Bye,
    Call,
    Called,
    CallRefused,
    Came,
    Cancel,
    Close,
    Connected,
    Disconnected,
    Effect,
    Ended,
    Get,
    GetComing,
    Goodbye,
    Notes,
    Open,
    Opened,
    Put,
    PutWanted,
    Ready,
    Refused,
    Register,
    Release,
    ReleaseSlice,
    RunEnded,
    Send,
    Sending,
    Stalled,
    Submit,
    Taking,
    Tell,
    Unblocked,
    Unregister,
    Waiting,
    Wakeup,
)
from .awaited import Awaited
from .call_batching import Pipe
from .client_limits import RUN, SESSION, Blocked, Limits, Submitted
from .handles import Handles


class Client:
    def __init__(
        self, name: str, *, weight: int = 1, priority: int = 0, limits: Limits | None = None
    ) -> None:
        if weight < 1:
            raise Illegal(f"a client's weight is a whole number of at least 1, not {weight}")
        self.state = "new"
        self.number = 0  # by which the controller knows it
        self.limits = limits if limits is not None else Limits()
        self._opening = Open(name, weight, priority)
        self._programs: dict[int, Program] = {}
        self._forgotten: dict[int, Program] = {}  # unregistered, and the controller has not been told yet
        self._runs: dict[int, str] = {}
        self._handles = Handles()
        self._requests: dict[tuple[str, int], None] = {}  # puts and gets that have not been answered
        self._last = {"program": 0, "run": 0, "request": 0}
        self._pipe = Pipe(self.limits.pipe, self.limits.linger, self.limits.batch)
        self._blocked = False
        self._waited: dict[int, None] = {}
        self._lost = ""  # why the controller was out of reach, the last time
        self._since: int | None = None  # when the user last submitted or stopped waiting
        self.awaited = Awaited()
        self._now = 0  # when the notes under way came
        self._out: list[Effect] = []
        self._notes: dict[type, Callable[[Any], str | None]] = {
            Ended: self._ended, Ready: self._ready, Taking: self._taking, Sending: self._sending,
            Refused: self._refused, Opened: self._welcome, Waiting: self._waiting, Stalled: self._late,
            Goodbye: self._goodbye,
        }  # fmt: skip

    # --- calls --------------------------------------------------------------------------------------------

    def register(self, program: Program, now: int) -> int | Blocked:
        self._may_call()
        if len(self._programs) >= self.limits.max_programs:
            raise Illegal(f"{len(self._programs)} programs are registered; unregister some first")
        if len(self._pipe.gathered) >= self.limits.max_runs:
            return self._block("calls wait for the controller")
        name = self._name("program")
        self._programs[name] = program
        self._call(Register(name, program), now)
        return name

    def unregister(self, program: int, now: int) -> None:
        self._may_call()
        self._forgotten[program] = self._known_program(program)
        del self._programs[program]
        self._call(Unregister(program), now)
        self._told()

    def submit(
        self, program: int, args: tuple[int | bytes, ...], now: int, *, keep: tuple[bool, ...] = (),
        dispatch: str = "parallel", deadline: int = 0,
    ) -> Submitted | Blocked:  # fmt: skip
        """`keep`: which results to hold; () stands for all. Donated arguments are gone when this returns."""
        self._may_call()
        ir = self._known_program(program)
        self._check(ir, args, keep, dispatch)
        if len(self._runs) >= self.limits.max_runs:
            return self._block(f"{len(self._runs)} runs have not ended")
        waited, self._waited = tuple(self._waited), {}
        think = 0 if self._since is None else max(0, now - self._since)
        self._since = now
        wanted = keep or (True,) * len(ir.results)
        return self._enter(program, args, wanted, dispatch, deadline, now, waited, think)

    def _enter(
        self, program: int, args: tuple[int | bytes, ...], wanted: tuple[bool, ...], dispatch: Any, deadline: int,
        now: int, waited: tuple[int, ...] = (), think: int = 0,
    ) -> Submitted:  # fmt: skip
        ir, run = self._programs[program], self._name("run")
        for index in ir.donate_args:
            buffer = args[index]
            if isinstance(buffer, int):
                self._handles.give_up(
                    buffer, f"was donated to run {run} of {ir.name!r}; donate a copy to keep it"
                )
        results = tuple([self._handles.promise() if wants else 0 for wants in wanted])
        self._runs[run] = "out"
        self._call(Submit(run, program, args, results, dispatch, deadline, waited, think), now)
        return Submitted(run, results)

    def _check(
        self, ir: Program, args: tuple[int | bytes, ...], keep: tuple[bool, ...], dispatch: str
    ) -> None:
        if len(args) != len(ir.args):
            raise Illegal(f"program {ir.name!r} takes {len(ir.args)} arguments, not {len(args)}")
        if keep and len(keep) != len(ir.results):
            raise Illegal(f"program {ir.name!r} has {len(ir.results)} results; `keep` names {len(keep)}")
        if dispatch not in ("parallel", "sequential"):
            raise Illegal(f"dispatch is 'parallel' or 'sequential', not {dispatch!r}")
        literal = 0
        for index, arg in enumerate(args):
            if isinstance(arg, int):
                self._handles.check(arg)
                if index in ir.donate_args and args.count(arg) > 1:
                    raise Illegal(
                        f"buffer {arg} is donated as argument {index} and passed again; pass a copy"
                    )
                continue
            literal += len(arg)
            if len(arg) != ir.args[index].nbytes:
                raise Illegal(f"argument {index} has {len(arg)} bytes; its type has {ir.args[index].nbytes}")
        if literal > self.limits.literal:
            raise Illegal(
                f"{literal} bytes ride in the call, and {self.limits.literal} may; `put` them first"
            )

    def put(self, value: Value, where: SliceSpec, now: int) -> int | Blocked:
        """A buffer whose contents this client sends straight to the hosts, after PutWanted."""
        self._may_call()
        if len(self._requests) >= self.limits.max_requests:
            return self._block(f"{len(self._requests)} puts and gets are under way")
        buffer = self._handles.promise()
        self._requests["put", buffer] = None
        self._call(Put(buffer, value, where), now)
        return buffer

    def get(self, buffer: int, now: int) -> int | Blocked:
        """Returns the request; the contents come straight from the hosts, after GetComing."""
        self._may_call()
        self._handles.check(buffer)
        if len(self._requests) >= self.limits.max_requests:
            return self._block(f"{len(self._requests)} puts and gets are under way")
        request = self._name("request")
        self._requests["get", request] = None
        self._call(Get(request, buffer), now)
        return request

    def release(self, buffers: tuple[int, ...], now: int) -> None:
        self._may_call()
        if len(set(buffers)) != len(buffers):
            raise Illegal(f"a buffer is named twice in {buffers}; release it once")
        for buffer in buffers:
            self._handles.check(buffer)
        for buffer in buffers:
            self._handles.give_up(buffer, "was released; keep it until its last use")
        if buffers:
            self._call(Release(buffers), now)

    def release_slice(self, name: str, now: int) -> Blocked | None:
        self._may_call()
        if len(self._pipe.gathered) >= self.limits.max_runs:
            return self._block("calls wait for the controller")
        self._call(ReleaseSlice(name), now)
        return None

    def cancel(self, run: int, now: int) -> None:
        """It still ends, once: with a blame, or without if it was over before the controller heard."""
        self._may_call()
        if not 0 < run <= self._last["run"]:
            raise Illegal(
                f"run {run} was never submitted by this client; cancel a run that `submit` returned"
            )
        if self._runs.get(run) == "out":
            self._runs[run] = RUN["out", "cancel"]
            self._call(Cancel(run), now)

    def waited(self, run: int, now: int) -> None:
        """The user's code was waiting for this run's end, and could go on from `now` on: the next call depends on it.
        It may be told later than that; what he did since the last of such times is his thinking."""
        if run in self._runs or not 0 < run <= self._last["run"]:
            raise Illegal(f"run {run} has not ended; say that it was waited for after its RunEnded")
        self._waited[run] = None
        while len(self._waited) > self.limits.max_runs:
            del self._waited[next(iter(self._waited))]
        self._since = now if self._since is None else max(self._since, now)

    def landed(self, request: int, blame: Blame | None) -> bool:
        """Contents of a get have come, or will not. Whether they are asked for again: see `persistent`."""
        return False

    def close(self, now: int) -> None:
        """Goodbye: what was called before still leaves; runs that have not ended are given up."""
        was = self.state
        self._turn("close")
        if self.state == "closing" and was != "closing":
            self._call(Bye(), now)
            self._out += [Send((CONTROLLER,), message) for message in self._pipe.all(now)]
        if self.state == "closed" and was != "closed":
            self._end(Blame("client-lost", "the session was closed"))

    # --- the machine --------------------------------------------------------------------------------------

    def handle(self, event: Effect, now: int) -> list[Effect]:
        match event:
            case Called():
                pass
            case Came(message=message):
                if self.state in ("open", "closing"):
                    self._came(message, now)
            case Connected(peer=peer):
                if peer == CONTROLLER and (self.state, "connected") in SESSION:
                    self._opened(now)
            case Disconnected(peer=peer):
                if peer == CONTROLLER and (self.state, "disconnected") in SESSION:
                    self._disconnected(event.reason)
            case Wakeup():
                self._send(now)
            case _:
                raise Illegal(f"a client is not told of {type(event).__name__}")
        out, self._out = self._out, []
        return out

    def next_wakeup(self) -> int | None:
        return self._pipe.next_wakeup() if self.state == "open" else None

    # --- messages out -------------------------------------------------------------------------------------

    def _call(self, call: Call, now: int) -> None:
        self._pipe.add(call)
        self._send(now)

    def _send(self, now: int) -> None:
        if self.state == "open":
            for message in self._pipe.leaving(now):
                self._out.append(Send((CONTROLLER,), message))

    # --- connections --------------------------------------------------------------------------------------

    def _opened(self, now: int) -> None:
        """Present ourselves as the controller should know us before it hears what has gathered meanwhile."""
        again = self.state == "away"
        self._turn("connected")
        if self._since is None:
            self._since = now
        self._pipe.anew()
        opening = self._opening
        if again:
            unsent = {call.run for call in self._pipe.gathered if isinstance(call, Submit)}
            open_runs = tuple(run for run in self._runs if run not in unsent)
            held = self._handles.before(self._pipe.gathered, self._told())
            opening = msgspec.structs.replace(opening, client=self.number, held=held, open_runs=open_runs)
        self._out.append(Send((CONTROLLER,), opening))
        if again:
            self._repeat()
        self._send(now)

    def _repeat(self) -> None:
        """Programs die with a session; and so do gets, whose contents were on their way."""
        new = {call.program for call in self._pipe.gathered if isinstance(call, Register)}
        for name, ir in self._told().items():
            if name not in new:
                self._out.append(Send((CONTROLLER,), Register(name, ir)))
        waiting = {("get", call.request) for call in self._pipe.gathered if isinstance(call, Get)}
        waiting |= {("put", call.buffer) for call in self._pipe.gathered if isinstance(call, Put)}
        blame = Blame("client-lost", f"the connection to the controller was lost meanwhile: {self._lost}")
        for kind, name in [request for request in self._requests if request not in waiting]:
            del self._requests[kind, name]
            if kind == "get":
                self._out.append(CallRefused("get", name, blame))  # of a put, the controller says what became

    def _told(self) -> dict[int, Program]:
        """Programs that calls which have not left may name, the forgotten among them."""
        waiting = {call.program for call in self._pipe.gathered if isinstance(call, Unregister)}
        self._forgotten = {name: ir for name, ir in self._forgotten.items() if name in waiting}
        return dict(sorted((self._programs | self._forgotten).items()))

    def _disconnected(self, reason: str) -> None:
        self._turn("disconnected")
        self.awaited.clear()
        self._lost = reason or "the connection ended"
        self._out.append(Tell(f"the controller is out of reach: {self._lost}"))
        if self.state == "closed":
            self._end(Blame("client-lost", "the session was closed"))

    def _end(self, blame: Blame) -> None:
        """Nothing will be heard any more: whatever was waited for ends now."""
        self._pipe.gathered.clear()
        for run in self._runs:
            self._out.append(RunEnded(run, blame))
        for kind, name in self._requests:
            self._out.append(CallRefused(kind, name, blame))
        spoilt = self._handles.spoil_all()
        if spoilt:
            self._out.append(BuffersReady(spoilt, blame))
        self._runs, self._requests = {}, {}
        self.awaited.clear()
        if self._blocked:
            self._blocked = False
            self._out.append(Unblocked())  # to be told that the session is closed

    # --- notes --------------------------------------------------------------------------------------------

    def _came(self, message: msgspec.Struct, now: int) -> None:
        notes: tuple[Any, ...] = message.notes if isinstance(message, Notes) else (message,)
        self._now = now
        for note in notes:
            wrong = self._note(note)
            if wrong:
                self._violated(wrong)
            if self.state == "closed":
                return
        self._send(now)
        self._unblock()

    def _note(self, note: Any) -> str | None:
        """Returns what is wrong with it: the controller is the client's peer, and may not err either."""
        act = self._notes.get(type(note))
        return f"it sent {type(note).__name__}, which is no note" if act is None else act(note)

    def _ended(self, note: Ended) -> str | None:
        if note.run not in self._runs:
            return f"it ended run {note.run}, which {self._why_not(note.run, 'run')}"
        del self._runs[note.run]
        self.awaited.over(note.run)
        self._pipe.answered("run", note.run)
        self._out.append(RunEnded(note.run, note.blame))
        return None

    def _ready(self, note: Ready) -> str | None:
        unknown = [buffer for buffer in note.buffers if not self._handles.was_named(buffer)]
        if unknown:
            return f"it tells of buffer {unknown[0]}, which was never named"
        good = note.blame is None
        changed = tuple([buffer for buffer in note.buffers if self._handles.ready(buffer, good)])
        for buffer in note.buffers:
            self.awaited.over(-buffer)
            self._landed("put", buffer)
        if changed:
            self._out.append(BuffersReady(changed, note.blame))
        return None

    def _taking(self, note: Taking) -> str | None:
        if not self._landed("put", note.buffer):
            return f"it takes buffer {note.buffer}, which was not put, or was taken before"
        self.awaited.over(-note.buffer)
        self._out.append(PutWanted(note.buffer, note.transfer, note.layout))
        return None

    def _sending(self, note: Sending) -> str | None:
        if not self._landed("get", note.request):
            return f"it answers request {note.request}, which was not made, or was answered before"
        self._out.append(GetComing(note.request, note.transfer, note.layout, note.rows))
        return None

    def _refused(self, note: Refused) -> str | None:
        if note.what in ("put", "get"):
            self._landed(note.what, note.name)
        if note.what == "put":
            self.awaited.over(-note.name)
        if note.what == "put" and self._handles.ready(note.name, False):
            self._out.append(BuffersReady((note.name,), note.blame))
        self._out.append(CallRefused(note.what, note.name, note.blame))
        return None

    def _welcome(self, note: Opened) -> str | None:
        self.number = note.client
        return None

    def _waiting(self, note: Waiting) -> str | None:
        self._awaits(note.run, note.reason, note.age)
        if note.reason:
            self._out.append(Tell(f"{_called(note.run)} waits: {note.reason}", passing=True))
        return None

    def _awaits(self, what: int, reason: str, age: int) -> None:
        if what in self._runs or self._handles.state(-what) == "promised":
            self.awaited.said(what, reason, self._now - age)

    def _late(self, note: Stalled) -> str | None:
        where = f" on island {note.island!r}" if note.island else ""
        missing = f"; hosts {spans.text(note.missing)} have not arrived" if note.missing else ""
        what = f"program {note.program!r}, node {note.node!r}{where}"
        hosts = f": hosts {spans.text(note.missing)}" if note.missing else ""
        self._awaits(note.run, f"{what}: {note.reason}{hosts}", note.age)
        self._out.append(Tell(f"{_called(note.run)} is late: {what}: {note.reason}{missing}", passing=True))
        return None

    def _goodbye(self, note: Goodbye) -> str | None:
        self._turn("goodbye")
        self._out.append(Tell(f"the controller said goodbye: {note.reason}"))
        self._end(Blame("client-lost", f"the session is over: {note.reason}"))
        return None

    def _landed(self, kind: str, name: int) -> bool:
        """A put or get has been answered, for the first time."""
        self._pipe.answered(kind, name)
        if (kind, name) not in self._requests:
            return False
        del self._requests[kind, name]
        return True

    def _violated(self, wrong: str) -> None:
        reason = f"the controller broke the protocol: {wrong}"
        self._out.append(Close(CONTROLLER, reason))
        self.state = "closed"
        self._end(Blame("protocol", reason))

    # --- small things -------------------------------------------------------------------------------------

    def _turn(self, happened: str) -> None:
        self.state = SESSION[self.state, happened]

    def _may_call(self) -> None:
        if (self.state, "call") not in SESSION:
            raise Illegal(f"the session is {self.state}; open another one")

    def _name(self, kind: str) -> int:
        self._last[kind] += 1
        return self._last[kind]

    def _known_program(self, program: int) -> Program:
        found = self._programs.get(program)
        if found is None:
            raise Illegal(f"program {program} {self._why_not(program, 'program')}; register it first")
        return found

    def _why_not(self, name: int, kind: str) -> str:
        ended = {"run": "has ended already", "program": "was unregistered"}
        return ended[kind] if 0 < name <= self._last[kind] else f"is no {kind} of this client"

    def _block(self, why: str) -> Blocked:
        self._blocked = True
        return Blocked(why)

    def _unblock(self) -> None:
        limits = self.limits
        full = len(self._runs) >= limits.max_runs or len(self._requests) >= limits.max_requests
        if self._blocked and not full and len(self._pipe.gathered) < limits.max_runs:
            self._blocked = False
            self._out.append(Unblocked())


def _called(what: int) -> str:
    return f"run {what}" if what >= 0 else f"the put of buffer {-what}"
