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

from collections.abc import Callable, Sequence

import msgspec

from .. import protocol as p
from ..model import Illegal, Range, ranged, ranges
from .causes import PendingCauses
from .host_state import GANG, Causes, HostGang, HostRun, HostState, LocalBuffer, own_blame
from .local_buffers import HostBuffers
from .plans import PlannedGang


class LaunchQueue(msgspec.Struct, eq=False):
    _state: HostState
    _causes: PendingCauses
    _buffers: HostBuffers

    # --- the stream ---------------------------------------------------------------------------------------

    def enter(self, step: p.GangStep, run: HostRun, planned: PlannedGang) -> None:
        state, seq, pending = self._state, step.seq, self._state.pending
        inputs, foreign, blame = self._inputs(run, planned, seq)
        ids = run.ids
        reads = tuple([ids[slot] if count == 1 else Range(ids[slot], count) for slot, count in planned.inputs])
        done: p.Cause = ("done", seq)
        outputs = self._outputs(run, planned, done, seq)
        makes = tuple([ids[slot] if len(made) == 1 else Range(ids[slot], len(made)) for slot, made in planned.outputs])
        pending[done] = None
        donated, frees, uses = self._let_go(step, run, planned) if planned.lets_go else ((), (), ())
        gang = HostGang(seq, step, planned, inputs, outputs, blame, reads, makes, donated, frees, (), False)
        state.gangs[seq] = gang
        state.records.append(gang)
        if seq in state.abandoned_early:
            self.abandon((seq,), state.abandoned_early.pop(seq))
        else:
            causes = state.order if foreign is None else self._prepare(step, foreign)
            if uses:
                causes = (*causes, *uses)
            tails = state.tails
            for lane in planned.lanes:
                before = tails.get(lane)
                if before is not None and not before.plain:
                    causes = self._behind(before, causes)
                tails[lane] = gang
            gang.causes, gang.plain = causes, len(causes) == 1
            if gang.plain and not state.stopped:
                self._launch(gang, causes)
            else:
                pending["launch", seq] = None
                self._causes.when(causes, self._launch, gang)
        if state.lost:
            self._buffers.retire_lost(ranges.each(makes))

    def _inputs(
        self, run: HostRun, planned: PlannedGang, seq: int
    ) -> tuple[list[LocalBuffer], list[p.Cause] | None, p.Blame | None]:
        """The inputs; what those from elsewhere wait for; and why one is known to be spoilt."""
        state, ids = self._state, run.ids
        named, pending, settled = state.buffers, state.pending, state.settled
        inputs: list[LocalBuffer] = []
        foreign: list[p.Cause] | None = None
        blame: p.Blame | None = None
        for slot, count in planned.inputs:
            one = named.get(ids[slot])
            if one is not None and one.count == count:
                inputs.append(one)
            else:
                inputs += self._buffers.all_inputs(ids[slot], count, seq)
        for buffer in inputs:
            buffer.user = seq
            made = buffer.made if buffer.foreign else None
            if made is not None and (buffer.made_seq >= settled or made in pending):
                foreign = [made] if foreign is None else [*foreign, made]
            elif blame is None and buffer.final is not None and buffer.made_seq < settled:
                blame = buffer.final
        return inputs, foreign, blame

    def _outputs(self, run: HostRun, planned: PlannedGang, done: p.Cause, seq: int) -> list[LocalBuffer]:
        named, ids = self._state.buffers, run.ids
        outputs: list[LocalBuffer] = []
        for slot, layouts in planned.outputs:
            ident = ids[slot]
            buffer = LocalBuffer(ident, layouts[0], done, seq, False, seq)
            outputs.append(buffer)
            if len(layouts) == 1:
                named[ident] = buffer
                if slot in run.labels:
                    buffer.labels = run.labels[slot]
            else:
                buffer.count, buffer.layouts = len(layouts), layouts
                named.put(ident, buffer)
                if run.labels:
                    self._label(run, slot, len(layouts))
        for slot, client, name, count in run.together:
            if slot in planned.makes:
                for buffer in named.over(ids[slot], count):
                    buffer.labels = ((client, name),)
                    name += buffer.count
        return outputs

    def _label(self, run: HostRun, first: int, count: int) -> None:
        """Some of several outputs that are counted as one are promised to clients by themselves."""
        for slot, labels in run.labels.items():
            if first <= slot < first + count:
                alone = self._state.buffers.alone(run.ids[slot])
                assert alone is not None
                alone.labels = labels

    def _let_go(
        self, step: p.GangStep, run: HostRun, planned: PlannedGang
    ) -> tuple[tuple[int | Range, ...], Sequence[LocalBuffer], Causes]:
        """Nothing later in the stream names what this gang donates or is the last to read. Returns what it donates,
        what is free when it has finished, and what its launch must wait for: a view of what it donates may still have
        to be made, though it was freed before. (Gangs that use it are ahead in the same lanes.)"""
        named, ids = self._state.buffers, run.ids
        donated: tuple[int | Range, ...] = ()
        uses: list[p.Cause] = []
        if planned.donated and step.donate:
            donated = tuple([ranged(ids[slot], count) for slot, count in planned.donated])
            for slot, count in planned.donated:
                for buffer in named.over(ids[slot], count):
                    named.drop(buffer.id)
                    uses += [use for seq, use in buffer.uses if use[0] != "done" and self._causes.live(seq, use)]
        frees: list[LocalBuffer] = []
        for slot, arg, count in planned.dying:
            if arg < 0 or arg in run.literal:
                for buffer in named.over(ids[slot], count):
                    named.drop(buffer.id)
                    frees.append(buffer)
        for slot in planned.counted:
            alone = named.alone(ids[slot])
            if run.last_read(slot) and alone is not None:
                self._buffers.retire(alone, ())
        return donated, frees, tuple(dict.fromkeys(uses))

    def _prepare(self, step: p.GangStep, foreign: list[p.Cause]) -> Causes:
        """Inputs come from elsewhere: host work may begin before they are here. Returns what the launch waits for."""
        order = self._state.order
        self._state.out.append(p.Prepare(step.seq, step.run, step.step, order))
        return (*order, *dict.fromkeys(foreign))

    def _behind(self, before: HostGang, causes: Causes) -> Causes:
        """What the launch waits for, with the launch of the gang before it in a lane."""
        launch: p.Cause = ("launch", before.seq)
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
        gang.turn("launch")
        for buffer in gang.inputs:
            if buffer.blame is not None:
                blame = blame or buffer.blame
                break
        if blame is not None:
            gang.blame = blame
            _spoil(gang, blame)
        state.out.append(
            p.Launch(
                step.seq, step.run, step.step, gang.reads, gang.makes, gang.donated, step.sizes,
                blame is not None, causes,
            )
        )  # fmt: skip
        launch: p.Cause = ("launch", step.seq)
        if step.ack:
            gang.said = (p.Enqueued(step.seq, state.members),)
            state.out.append(p.ToController(gang.said[0], (launch,)))
        if launch in state.pending:
            self._causes.happen(launch)

    def ask(self, seq: int) -> None:
        """Answered when it has launched: a host that is late says so late, and is missing until then."""
        self._when_launched(seq, self._answer)

    def cut(self, seq: int) -> None:
        """The devices are told when they have it, whether or not they are through with it."""
        self._when_launched(seq, self._tell_cut)

    def _when_launched(self, seq: int, act: Callable[[HostGang, Causes], None]) -> None:
        gang, order = self._state.gangs.get(seq), self._state.order
        if gang is None:
            return
        launch: p.Cause = ("launch", seq)
        late = not gang.plain and self._causes.live(seq, launch)
        causes = (*order, launch) if late or launch in self._state.pending else order
        self._causes.when(causes, act, gang)

    def _answer(self, gang: HostGang, causes: Causes) -> None:
        if gang.state != "over" or gang.said:  # not a tombstone
            self._state.out.append(p.ToController(p.Arrived(gang.seq, self._state.members), causes))

    def _tell_cut(self, gang: HostGang, causes: Causes) -> None:
        if gang.state != "over" or gang.said:
            self._state.out.append(p.Cut(gang.seq, causes))

    # --- the devices --------------------------------------------------------------------------------------

    def finished(self, event: p.Finished) -> None:
        state, seq = self._state, event.seq
        gang = state.gangs.get(seq)
        if gang is None:
            raise Illegal(f"gang {seq} finished, which is not known here")
        if gang.turn("finish") == "gone":
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
        done: p.Cause = ("done", seq)
        causes = (done,)
        report = p.Done(seq, state.members, blame, event.sizes)
        gang.said = (report,)
        state.out.append(p.ToController(report, causes))
        self._end(gang, blame, causes)
        self._causes.happen(done)

    def failed(self, event: p.LaunchFailed) -> None:
        """Peers may wait for it. Nothing is launched behind it, or they would pair with the wrong gang: the
        controller ends the epoch."""
        state = self._state
        gang = state.gangs.get(event.seq)
        if gang is None:
            raise Illegal(f"gang {event.seq} failed to launch, which is not known here")
        if gang.turn("fail") == "gone":
            return
        self.stop(event.seq)
        blame = own_blame(state, event.blame, gang.planned.program, gang.planned.name) or event.blame
        gang.said = (p.HostFault(state.host, event.seq, blame),)
        state.out.append(p.ToController(gang.said[0], (("failed", event.seq),)))

    def stop(self, seq: int) -> None:
        """Nothing launches until this gang has been abandoned."""
        self._state.broken.add(seq)
        self._state.stopped = True

    def _end(self, gang: HostGang, blame: p.Blame | None, causes: Causes) -> None:
        if blame is not None:
            for buffer in gang.outputs:
                for part in buffer.parts():
                    part.final = blame
        for buffer in gang.frees:
            if not buffer.void:
                self._state.out.append(p.FreeBuffer(buffer.id, causes, buffer.count))
        gang.inputs = gang.outputs = ()  # nobody keeps buffers alive by remembering a gang

    # --- a new epoch --------------------------------------------------------------------------------------

    def abandon(self, seqs: tuple[int, ...], blame: p.Blame) -> None:
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
            if gang is None or gang.state not in GANG["abandon"]:
                continue
            given_up.append(gang)
            if gang.state == "queued":  # no launch takes over what it was to donate
                gone = set(ranges.each(gang.donated))
                donated = [buffer for buffer in gang.inputs if buffer.id in gone]
                gang.frees = [*gang.frees, *donated]
                for buffer in gang.outputs:
                    for part in buffer.parts():
                        part.void = True
            else:
                launched.append(seq)
            gang.turn("abandon")
            gang.said = ()
        if launched:
            state.out.append(p.Abandon(tuple(launched), state.order))
        for gang in given_up:
            _spoil(gang, blame)
            self._causes.when((*state.order, *self._before(gang)), self._bury, (gang, blame))
        for gang in given_up:  # those behind it go on, and still not before those ahead of it
            ahead = tuple([cause for cause in gang.causes if cause[0] == "launch"])
            self._causes.when(ahead, self._pass, gang.seq)

    def _before(self, gang: HostGang) -> Causes:
        """What a gang that never ran would have ended behind: all gangs before it, and what still fills or reads
        its inputs. What it was the last to use is not free any sooner."""
        live = self._causes.live
        earlier: list[p.Cause] = [("done", seq) for seq in self._state.gangs if seq < gang.seq]
        found = [cause for cause in earlier if live(cause[1], cause)]
        foreign = [(buffer.made_seq, buffer.made) for buffer in gang.inputs if buffer.foreign]
        found += [made for seq, made in foreign if made is not None and live(seq, made)]
        found += [cause for buffer in gang.inputs for seq, cause in buffer.uses if live(seq, cause)]
        return tuple(dict.fromkeys(found))

    def _pass(self, seq: int, causes: Causes) -> None:
        self._causes.happen(("launch", seq))

    def _bury(self, given_up: tuple[HostGang, p.Blame], causes: Causes) -> None:
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


def _spoil(gang: HostGang, blame: p.Blame) -> None:
    for buffer in gang.outputs:
        for part in buffer.parts():
            part.spoil(blame)
