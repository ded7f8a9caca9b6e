"""The launch queue: gangs enter it in the order of the stream and leave it in that order, each on all its hosts or
on none.

A launch waits for the launch before it and for inputs that come from elsewhere. Inputs that earlier launches of
this host make are futures, and nothing waits for them. Whether an input is spoilt is known at launch, except by a
gang that fails while it runs (see `host_state.LocalBuffer`). A spoilt input does not stop a launch: it would leave the
gang's peers waiting, and their collective would pair with this host's *next* gang.

Lanes: one for the whole host (JAX runs a process's collectives strictly in its enqueue order, even on disjoint
devices), or one for each device, for hardware with a queue for each device.

Neighbours: `executor` brings gangs and what devices say of them; `local_buffers` has what they read and make.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Illegal
from ..protocol import (
    Abandon,
    Arrived,
    Blame,
    Cause,
    Done,
    Enqueued,
    Finished,
    FreeBuffer,
    GangStep,
    HostFault,
    Launch,
    LaunchFailed,
    Prepare,
    ToController,
)
from .causes import PendingCauses
from .host_state import GANG, Causes, HostGang, HostRun, HostState, LocalBuffer
from .local_buffers import HostBuffers
from .plans import PlannedGang
from .self_reports import own_blame

FINISH = GANG["finish"]


class LaunchQueue:
    def __init__(self, state: HostState, causes: PendingCauses, buffers: HostBuffers) -> None:
        self._state = state
        self._causes = causes
        self._buffers = buffers

    # --- the stream ---------------------------------------------------------------------------------------

    def enter(self, step: GangStep, run: HostRun, planned: PlannedGang) -> None:
        state, seq, ids = self._state, step.seq, run.ids
        named, pending, settled = state.buffers, state.pending, state.settled
        inputs: list[LocalBuffer] = []
        foreign: list[Cause] | None = None  # what inputs from elsewhere wait for
        blame: Blame | None = None
        for slot in planned.inputs:
            buffer = named.get(ids[slot]) or self._buffers.missing_input(ids[slot], seq)
            inputs.append(buffer)
            buffer.user = seq
            made = buffer.made if buffer.foreign else None
            if made is not None and (buffer.made_seq >= settled or made in pending):
                foreign = [made] if foreign is None else [*foreign, made]
            elif blame is None and buffer.final is not None and buffer.made_seq < settled:
                blame = buffer.final
        done: Cause = ("done", seq)
        outputs: list[LocalBuffer] = []
        for slot, layout in planned.outputs:
            buffer = named[ids[slot]] = LocalBuffer(ids[slot], layout, done, seq, False, seq)
            if slot in run.labels:
                buffer.labels = run.labels[slot]
            outputs.append(buffer)
        pending[done] = None
        donated, frees = self._let_go(step, run, planned) if planned.lets_go else ((), ())
        if seq in state.abandoned_early:
            gang = HostGang(seq, step, planned, inputs, outputs, blame, donated, frees, (), False)
            state.gangs[seq] = gang
            state.records.append(gang)
            self.abandon((seq,), state.abandoned_early.pop(seq))
        else:
            causes = state.order if foreign is None else self._prepare(step, foreign)
            tails = state.tails
            for lane in planned.lanes:
                before = tails.get(lane)
                if before is not None and not before.plain:
                    causes = self._behind(before, causes)
            plain = len(causes) == 1
            gang = HostGang(seq, step, planned, inputs, outputs, blame, donated, frees, causes, plain)
            state.gangs[seq] = gang
            state.records.append(gang)
            for lane in planned.lanes:
                tails[lane] = gang
            if plain and not state.stopped:
                self._launch(gang, causes)
            else:
                pending["launch", seq] = None
                self._causes.when(causes, self._launch, gang)
        if state.lost:
            self._buffers.retire_lost([buffer.id for buffer in outputs])

    def _let_go(
        self, step: GangStep, run: HostRun, planned: PlannedGang
    ) -> tuple[tuple[int, ...], Sequence[LocalBuffer]]:
        """Nothing later in the stream names what this gang donates or is the last to read. Returns what it donates,
        and what is free when it has finished."""
        named, ids = self._state.buffers, run.ids
        donated: tuple[int, ...] = ()
        if planned.donated and step.donate:
            donated = tuple([ids[slot] for slot in planned.donated])
            for ident in donated:
                named.pop(ident, None)
        frees: list[LocalBuffer] = []
        for slot, arg in planned.dying:
            if arg < 0 or arg in run.literal:
                buffer = named.pop(ids[slot], None)
                if buffer is not None:
                    frees.append(buffer)
        for slot in planned.counted:
            buffer = named.get(ids[slot])
            if run.last_read(slot) and buffer is not None:
                self._buffers.retire(buffer, ())
        return donated, frees

    def _prepare(self, step: GangStep, foreign: list[Cause]) -> Causes:
        """Inputs come from elsewhere: host work may begin before they are here. Returns what the launch waits for."""
        order = self._state.order
        self._state.out.append(Prepare(step.seq, step.run, step.step, order))
        return (*order, *dict.fromkeys(foreign))

    def _behind(self, before: HostGang, causes: Causes) -> Causes:
        """What the launch waits for, with the launch of the gang before it in a lane."""
        launch: Cause = ("launch", before.seq)
        if launch in causes or not self._causes.live(before.seq, launch):
            return causes
        return (*causes, launch)

    def _launch(self, gang: HostGang, causes: Causes) -> None:
        if gang.state != "queued":
            return  # a tombstone
        state, step, blame = self._state, gang.step, gang.blame
        if state.stopped:
            state.held_gangs.append(gang)
            return
        gang.state = "launched"
        inputs: list[int] = []
        for buffer in gang.inputs:
            inputs.append(buffer.id)
            if blame is None:
                blame = buffer.blame
        if blame is not None:
            gang.blame = blame
            for buffer in gang.outputs:
                buffer.spoil(blame)
        outputs = tuple([buffer.id for buffer in gang.outputs])
        state.out.append(
            Launch(
                step.seq, step.run, step.step, tuple(inputs), outputs, gang.donated, step.sizes,
                blame is not None, causes,
            )
        )  # fmt: skip
        launch: Cause = ("launch", step.seq)
        if step.ack:
            gang.said = (Enqueued(step.seq, state.members),)
            state.out.append(ToController(gang.said[0], (launch,)))
        if launch in state.pending:
            self._causes.happen(launch)

    def ask(self, seq: int) -> None:
        """Answered when it has launched: a host that is late says so late, and is missing until then."""
        gang, order = self._state.gangs.get(seq), self._state.order
        if gang is None:
            return
        launch: Cause = ("launch", seq)
        late = not gang.plain and self._causes.live(seq, launch)
        causes = (*order, launch) if late or launch in self._state.pending else order
        self._causes.when(causes, self._answer, gang)

    def _answer(self, gang: HostGang, causes: Causes) -> None:
        if gang.state != "over" or gang.said:  # not a tombstone
            self._state.out.append(ToController(Arrived(gang.seq, self._state.members), causes))

    # --- the devices --------------------------------------------------------------------------------------

    def finished(self, event: Finished) -> None:
        state, seq = self._state, event.seq
        gang = state.gangs.get(seq)
        after = FINISH.get(gang.state) if gang is not None else None
        if gang is None or after is None:
            raise Illegal(f"gang {seq} finished, but is {gang.state if gang else 'not known'} here")
        gang.state = after
        if after == "gone":
            return
        blame = gang.blame
        if blame is None:
            for buffer in gang.inputs:
                if buffer.final is not None:
                    blame = buffer.final
                    break
            else:
                if event.blame is not None:
                    blame = own_blame(state, event.blame, gang.planned.program, gang.planned.name)
        done: Cause = ("done", seq)
        causes = (done,)
        report = Done(seq, state.members, blame, event.sizes)
        gang.said = (report,)
        state.out.append(ToController(report, causes))
        self._end(gang, blame, causes)
        self._causes.happen(done)

    def failed(self, event: LaunchFailed) -> None:
        """Peers may wait for it. Nothing is launched behind it, or they would pair with the wrong gang: the
        controller ends the epoch."""
        state = self._state
        gang = state.gangs.get(event.seq)
        after = GANG["fail"].get(gang.state) if gang is not None else None
        if gang is None or after is None:
            raise Illegal(
                f"gang {event.seq} failed to launch, but is {gang.state if gang else 'not known'} here"
            )
        gang.state = after
        if after == "gone":
            return
        self.stop(event.seq)
        blame = own_blame(state, event.blame, gang.planned.program, gang.planned.name) or event.blame
        gang.said = (HostFault(state.host, event.seq, blame),)
        state.out.append(ToController(gang.said[0], (("failed", event.seq),)))

    def stop(self, seq: int) -> None:
        """Nothing launches until this gang has been abandoned."""
        self._state.broken.add(seq)
        self._state.stopped = True

    def _end(self, gang: HostGang, blame: Blame | None, causes: Causes) -> None:
        if blame is not None:
            for buffer in gang.outputs:
                buffer.final = blame
        for buffer in gang.frees:
            if not buffer.void:
                self._state.out.append(FreeBuffer(buffer.id, causes))
        gang.inputs = gang.outputs = ()  # nobody keeps buffers alive by remembering a gang

    # --- a new epoch --------------------------------------------------------------------------------------

    def abandon(self, seqs: tuple[int, ...], blame: Blame) -> None:
        """They will never finish. Where they have not launched they leave a tombstone, and those behind go
        on."""
        state = self._state
        given_up: list[HostGang] = []
        launched: list[int] = []
        for seq in sorted(seqs):
            state.broken.discard(seq)
            gang = state.gangs.get(seq)
            if gang is None and seq >= state.settled:
                state.abandoned_early[seq] = blame
            after = GANG["abandon"].get(gang.state) if gang is not None else None
            if gang is None or after is None:
                continue
            given_up.append(gang)
            if gang.state == "queued":  # no launch takes over what it was to donate
                donated = [buffer for buffer in gang.inputs if buffer.id in gang.donated]
                gang.frees = [*gang.frees, *donated]
                for buffer in gang.outputs:
                    buffer.void = True
            else:
                launched.append(seq)
            gang.state = after
            gang.said = ()
        if launched:
            state.out.append(Abandon(tuple(launched), state.order))
        for gang in given_up:
            for buffer in gang.outputs:
                buffer.spoil(blame)
            self._causes.when((*state.order, *self._before(gang)), self._bury, (gang, blame))
        for gang in given_up:  # those behind it go on, and still not before those ahead of it
            ahead = tuple([cause for cause in gang.causes if cause[0] == "launch"])
            self._causes.when(ahead, self._pass, gang.seq)

    def _before(self, gang: HostGang) -> Causes:
        """What a gang that never ran would have ended behind: all gangs before it, and what still fills or reads
        its inputs. What it was the last to use is not free any sooner."""
        live = self._causes.live
        earlier: list[Cause] = [("done", seq) for seq in self._state.gangs if seq < gang.seq]
        found = [cause for cause in earlier if live(cause[1], cause)]
        foreign = [(buffer.made_seq, buffer.made) for buffer in gang.inputs if buffer.foreign]
        found += [made for seq, made in foreign if made is not None and live(seq, made)]
        found += [cause for buffer in gang.inputs for seq, cause in buffer.uses if live(seq, cause)]
        return tuple(dict.fromkeys(found))

    def _pass(self, seq: int, causes: Causes) -> None:
        self._causes.happen(("launch", seq))

    def _bury(self, given_up: tuple[HostGang, Blame], causes: Causes) -> None:
        gang, blame = given_up
        self._end(gang, blame, causes)
        self._causes.happen(("done", gang.seq))

    def go_on(self) -> None:
        """Unless something still stops it."""
        state = self._state
        if state.broken:
            return
        state.stopped = False
        held, state.held_gangs = state.held_gangs, []
        for gang in held:
            self._launch(gang, gang.causes)

    def under_way(self) -> Causes:
        """What the devices still have."""
        return tuple([("done", seq) for seq, gang in self._state.gangs.items() if gang.state == "launched"])
