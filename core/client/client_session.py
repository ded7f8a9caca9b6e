"""The client's end of its session: connections come and go, and the controller says what has become of calls.

Messages are lost only with their controller or with the session (`core.link` resends them). Then `Open` says what this
client holds and which of its runs have not ended, and the controller answers for each of them, by name. The controller
is a peer and may err too: a note that makes no sense closes the connection and ends the session.

Neighbours: `client` hands events on; `retries` hears first of what it holds; `content_transfers` follows what is said
of contents.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from .. import protocol as p
from ..model import Range, ranges, spans
from .call_batching import TO_CONTROLLER, CallBatching
from .client_limits import SESSION
from .client_state import ClientState, awaited
from .content_transfers import ContentTransfers
from .outgoing_calls import OutgoingCalls
from .retries import Retries


class ClientSession:
    def __init__(
        self, state: ClientState, batching: CallBatching, calls: OutgoingCalls, retries: Retries,
        transfers: ContentTransfers,
    ) -> None:  # fmt: skip
        self._state, self._batching, self._calls = state, batching, calls
        self._retries, self._transfers = retries, transfers
        self._out, self._trying = state.out, retries.trying
        self._notes: dict[type, Callable[[Any, int], str]] = {
            p.Ended: self._ended, p.ContentsReady: self._ready, p.PutAccepted: self._taking,
            p.GetAccepted: self._sending, p.GetSettled: self._final, p.Refused: self._refused,
            p.Opened: self._opened, p.Waiting: self._waiting, p.Stalled: self._stalled,
            p.ConnectionClosed: self._goodbye, p.ProgramCompiled: self._compiled, p.Relocated: self._relocated,
            p.Grown: self._grown,
            p.Sized: self._sized,
        }  # fmt: skip

    # --- connections ----------------------------------------------------------------------------------------

    def connected(self, now: int) -> None:
        """Present ourselves as the controller should know us before it hears the calls that have gathered meanwhile."""
        state, gathered = self._state, self._batching.gathered
        again = state.phase == "away"
        state.phase = SESSION[state.phase, "connected"]
        if state.thinking_since is None:
            state.thinking_since = now
        self._batching.start_anew()
        opening = state.opening
        if again:
            unsent = _named_by(gathered)
            open_runs = tuple([run for run in state.runs if ("run", run) not in unsent])
            held = state.held_before(gathered, self._calls.told_programs())
            opening = msgspec.structs.replace(
                opening, client=state.number, held=held, open_runs=open_runs, start=state.start,
                spoilt=state.spoilt_before(held),
            )  # fmt: skip
        self._out.append(p.Send(TO_CONTROLLER, opening))
        if again:
            self._repeat()
        self._batching.send(now)

    def _repeat(self) -> None:
        """Programs end with a session, and so do gets, whose contents were on their way."""
        state, gathered = self._state, self._batching.gathered
        new = {call.program for call in gathered if isinstance(call, p.Register)}
        for name, ir in self._calls.told_programs().items():
            if name not in new:
                self._out.append(p.Send(TO_CONTROLLER, p.Register(name, ir, name in state.untold)))
        # Programs bind their slices anew, but for those that were released and not used since.
        self._out += [p.Send(TO_CONTROLLER, p.ReleaseSlice(name)) for name in state.released]
        asked = {call.name for call in gathered if isinstance(call, p.AskElastic)}
        self._out += [p.Send(TO_CONTROLLER, call) for name, call in state.elastic.items() if name not in asked]
        unsent = _named_by(gathered)
        blame = p.Blame("client-lost", f"the connection to the controller was lost meanwhile: {state.why_away}")
        for kind, name in [request for request in state.requests if request not in unsent]:
            del state.requests[kind, name]
            if kind != "put":  # what became of that, the controller says
                self._refuse(kind, name, blame)

    def disconnected(self, event: p.Disconnected, now: int) -> None:
        state = self._state
        self._transfers.said.append(event)
        if (state.phase, "disconnected") not in SESSION:
            return
        state.phase = SESSION[state.phase, "disconnected"]
        state.waits.clear()
        state.why_away = event.reason or "the connection ended"
        self._out.append(p.LogLine(f"the controller is out of reach: {state.why_away}"))
        if state.phase == "closed":
            self._end(p.Blame("client-lost", "the session was closed"), now)
        elif not event.anew:
            # The lease is over: a controller that lives has given up what this session had told it, and one that is
            # restarted knows nothing of it. What has not left yet waits for either of them.
            self._end_sent(p.Blame("client-lost", f"the controller is unreachable: {state.why_away}"), now)

    def close(self, now: int) -> None:
        """Goodbye: what was called before still leaves; runs that have not ended are given up."""
        state, was = self._state, self._state.phase
        state.phase = SESSION[was, "close"]
        if state.phase == "closing" and was != "closing":
            self._batching.gather(p.CloseSession())
            self._batching.send_all(now)
        if state.phase == "closed" and was != "closed":
            self._end(p.Blame("client-lost", "the session was closed"), now)

    def _end(self, blame: p.Blame, now: int) -> None:
        """Nothing will be heard any more: whatever was waited for ends now."""
        state = self._state
        self._batching.gathered.clear()
        self._end_sent(blame, now)
        self._out += [p.ProgramTold(program, blame=blame) for program in state.untold]
        state.untold.clear()
        state.waits.clear()
        if state.blocked:
            state.blocked = False
            self._out.append(p.Unblocked())  # so that the user calls, and is told that the session is closed

    def _end_sent(self, blame: p.Blame, now: int) -> None:
        """End all that was called and may have left. Programs are registered again with the next connection."""
        state = self._state
        unsent = _named_by(self._batching.gathered)
        runs = [run for run in state.runs if ("run", run) not in unsent]
        requests = [request for request in state.requests if request not in unsent]
        for run in runs:
            del state.runs[run]
            state.cancelled.discard(run)
            held = self._trying.pop(run, None)
            if held is None:
                self._out.append(p.RunEnded(run, blame))
            else:
                self._retries.ended(held, blame, now)
        for kind, name in requests:
            del state.requests[kind, name]
            self._refuse(kind, name, blame, again=False)
        spoilt = state.spoil_unsettled({name for kind, name in unsent if kind == "buffer"})
        if spoilt:
            self._tell_buffers([*spoilt], blame)
        if state.blocked:
            self._unblock()

    # --- notes ----------------------------------------------------------------------------------------------

    def came(self, message: Any, now: int) -> None:
        state, batching = self._state, self._batching
        notes = message.notes if type(message) is p.ClientMessages else (message,)
        self._retries.announced = notes
        for note in notes:
            act = self._notes.get(type(note))
            wrong = f"it sent {type(note).__name__}, which is no note" if act is None else act(note, now)
            if wrong:
                self._violated(wrong, now)
            if state.phase == "closed":
                break
        self._retries.announced = ()
        if state.phase == "open":
            batching.send(now)
        if state.blocked:
            self._unblock()

    # Each returns what is wrong with the note; "" if nothing is.

    def _ended(self, note: p.Ended, now: int) -> str:
        state, run, blame = self._state, note.run, note.blame
        results = state.runs.pop(run, None)
        if results is None:
            why = "has ended already" if 0 < run <= state.last_run else "is no run of this client"
            return f"it ended run {run}, which {why}"
        if state.cancelled:
            state.cancelled.discard(run)
        if state.waits:
            state.waits.pop(run, None)
        self._batching.answered("run", run)
        held = self._trying.pop(run, None)
        if blame is not None:
            for each in results:
                first, count = (each, 1) if isinstance(each, int) else (each.first, each.count)
                state.settle(first, "failed" if held is None else "spoilt", count)
        if held is None:
            self._out.append(p.RunEnded(run, blame, undone=note.undone))
        else:
            self._retries.ended(held, blame, now, note.undone)
        return ""

    def _ready(self, note: p.ContentsReady, now: int) -> str:
        state = self._state
        named = [(each, 1) if isinstance(each, int) else (each.first, each.count) for each in note.buffers]
        for first, count in named:
            if not 0 < first <= first + count - 1 <= state.last_buffer:
                return f"it tells of buffer {first}, which was never named"
        happened = "ready" if note.blame is None else "spoilt"
        changed = [name for first, count in named for name in state.settle(first, happened, count)]
        for first, count in named:
            if count == 1:  # it may be a put
                state.waits.pop(-first, None)
                self._answered("put", first)
        if changed:
            self._tell_buffers(changed, note.blame)
        return ""

    def _tell_buffers(self, buffers: Sequence[int | Range], blame: p.Blame | None) -> None:
        if self._retries.buffers:
            buffers = self._retries.told(ranges.each(buffers), blame)
        if buffers:
            told = p.BuffersReady(tuple(buffers), blame)
            self._out.append(told)
            if blame is not None:
                self._transfers.said.append(told)

    def _taking(self, note: p.PutAccepted, now: int) -> str:
        if not self._answered("put", note.buffer):
            return f"it takes buffer {note.buffer}, which was not put, or was taken before"
        self._state.waits.pop(-note.buffer, None)
        self._tell(p.PutStarted(self._retries.named(note.buffer), note.transfer, note.layout))
        return ""

    def _sending(self, note: p.GetAccepted, now: int) -> str:
        if not self._answered("get", note.request):
            return f"it answers request {note.request}, which was not made, or was answered before"
        request = self._retries.named_get(note.request)
        self._tell(p.GetStarted(request, note.transfer, note.layout, note.rows, note.shard, note.early))
        return ""

    def _final(self, note: p.GetSettled, now: int) -> str:
        self._transfers.said.append(note)
        return ""

    def _refused(self, note: p.Refused, now: int) -> str:
        if note.what == "elastic":
            state_of = self._state.elastic
            self._state.elastic = {name: call for name, call in state_of.items() if call.request != note.name}
        if note.what == "relocate":
            self._state.requests.pop(("relocate", note.name), None)
        if note.what in ("put", "get"):
            self._answered(note.what, note.name)
        if note.what == "put":
            self._state.waits.pop(-note.name, None)
            if self._state.settle(note.name, "spoilt"):
                self._tell_buffers([note.name], note.blame)
        self._refuse(note.what, note.name, note.blame)
        return ""

    def _refuse(self, what: str, name: int, blame: p.Blame, again: bool = True) -> None:
        """By the controller's name. `again`: a get may be asked again."""
        if what == "put":
            name = self._retries.named(name)
        elif what in ("get", "sending"):
            name = self._retries.named_get(name)
        refused = p.CallRefused(what, name, blame)
        if what == "sending":  # Received will tell the user, once
            self._transfers.said.append(refused)
        elif what != "get" or not self._retries.get_ended(name, blame, again):
            self._tell(refused)

    def _opened(self, note: p.Opened, now: int) -> str:
        self._state.number, self._state.start = note.client, note.start
        self._transfers.said.append(note)
        return self._transfers.learn(note.all_hosts) if note.all_hosts else ""

    def _grown(self, note: p.Grown, now: int) -> str:
        return self._transfers.learn(note.all_hosts)

    def _compiled(self, note: p.ProgramCompiled, now: int) -> str:
        state, program = self._state, note.program
        state.waits.pop(awaited(program), None)
        if program in state.untold:
            del state.untold[program]
            self._out.append(p.ProgramTold(program, note.about, note.blame))
        elif program in state.programs or not 0 < program <= state.last_program:
            return f"it tells that program {program} is compiled, which nobody asked, or it told before"
        return ""  # or it was unregistered meanwhile

    def _relocated(self, note: p.Relocated, now: int) -> str:
        self._state.requests.pop(("relocate", note.request), None)
        self._out.append(p.SlicesRelocated(note.request))
        return ""

    def _sized(self, note: p.Sized, now: int) -> str:
        asked = self._state.elastic.get(note.name)
        if asked is None or asked.request != note.request:
            return ""  # it was released meanwhile
        before = asked.has.name if asked.has is not None else ""
        if note.taken_back:
            if note.taken_back != before or asked.before != note.slice.name:
                return ""  # it has moved on meanwhile
            self._calls.release_slice(before, now)
            before = ""
        self._state.elastic[note.name] = msgspec.structs.replace(asked, has=note.slice, before=before)
        self._out.append(p.SliceSized(note.name, note.slice, note.why))
        return ""

    def _waiting(self, note: p.Waiting, now: int) -> str:
        what = awaited(note.program) if note.program else note.run
        self._awaits(what, note.reason, now - note.age)
        if note.reason:
            self._out.append(p.LogLine(f"{_called(what)} waits: {note.reason}", passing=True))
        return ""

    def _stalled(self, note: p.Stalled, now: int) -> str:
        where = f" on island {note.island!r}" if note.island else ""
        missing = f"; hosts {spans.text(note.missing)} have not arrived" if note.missing else ""
        what = f"program {note.program!r}, node {note.node!r}{where}"
        hosts = f": hosts {spans.text(note.missing)}" if note.missing else ""
        self._awaits(note.run, f"{what}: {note.reason}{hosts}", now - note.age)
        self._out.append(p.LogLine(f"{_called(note.run)} is late: {what}: {note.reason}{missing}", passing=True))
        return ""

    def _awaits(self, what: int | str, reason: str, since: int) -> None:
        """`reason` "": it waits for nothing any more."""
        state = self._state
        if isinstance(what, str):
            known = any(what == awaited(program) for program in state.untold)
        else:
            known = what in state.runs or state.state_of(-what) == "promised"
        if known:
            if reason:
                state.waits[what] = reason, since
            else:
                state.waits.pop(what, None)

    def _goodbye(self, note: p.ConnectionClosed, now: int) -> str:
        state = self._state
        if state.phase == "open":
            state.why_over = note.reason
        state.phase = SESSION[state.phase, "goodbye"]
        self._out.append(p.LogLine(f"the controller said goodbye: {note.reason}"))
        code = note.code if state.number else "refused"
        self._end(p.Blame(code, f"the session is over: {note.reason}"), now)
        return ""

    def _violated(self, wrong: str, now: int) -> None:
        reason = f"the controller broke the protocol: {wrong}"
        self._out.append(p.Close(p.CONTROLLER, reason))
        self._state.phase, self._state.why_over = "closed", reason
        self._end(p.Blame("protocol", reason), now)

    # --- small things ---------------------------------------------------------------------------------------

    def _answered(self, kind: str, name: int) -> bool:
        """Whether this is the first answer to a put or get."""
        self._batching.answered(kind, name)
        if (kind, name) not in self._state.requests:
            return False
        del self._state.requests[kind, name]
        return True

    def _tell(self, effect: p.Command) -> None:
        """To the user, and to the transfers."""
        self._out.append(effect)
        self._transfers.said.append(effect)

    def _unblock(self) -> None:
        state, limits = self._state, self._state.limits
        full = len(state.runs) >= limits.max_runs or len(state.requests) >= limits.max_requests
        if not full and self._calls.room():
            state.blocked = False
            self._out.append(p.Unblocked())


def _named_by(calls: Iterable[p.Call]) -> set[tuple[str, int]]:
    """The runs, puts, gets and buffers that these calls have given names to."""
    found: set[tuple[str, int]] = set()
    for call in calls:
        match call:
            case p.Submit(run=run, results=results):
                found.add(("run", run))
                found.update([("buffer", name) for name in ranges.each(results)])
            case p.Put(buffer=buffer):
                found |= {("put", buffer), ("buffer", buffer)}
            case p.View(buffer=buffer):
                found.add(("buffer", buffer))
            case p.Get(request=request):
                found.add(("get", request))
            case p.Relocate(request=request):
                found.add(("relocate", request))
            case _:
                pass
    return found


def _called(what: int | str) -> str:
    if isinstance(what, str):
        return what
    return f"run {what}" if what >= 0 else f"the put of buffer {-what}"
