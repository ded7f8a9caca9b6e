"""The launch queue: gangs enter it in the order of the stream and leave it in that order, each on all hosts
or none.

A launch waits for the launch before it and for inputs that come from elsewhere; inputs that earlier
launches of this host make are futures and wait for nothing. Whether an input is spoilt is known at launch,
except by a gang that fails while it runs (see `shards.Shard`). A spoilt input does not stop a launch: it
would leave the gang's peers waiting, and their collective would pair with this host's *next* gang.

Lanes: one for the whole host (JAX runs a process's collectives strictly in its enqueue order, even on
disjoint devices), or one a device, for hardware with a queue a device.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...model import Illegal
from ...protocol import (
    Abandon,
    Arrived,
    Blame,
    Cause,
    Done,
    Enqueued,
    Finished,
    GangStep,
    Launch,
    LaunchFailed,
    Prepare,
    Trouble,
)
from .desk import Desk, Record
from .runs import GangFacts, Run
from .shards import Shard, Shards
from .waits import Causes


class Entry(Record):
    """A gang in the queue."""

    __slots__ = ("blame", "causes", "donated", "facts", "frees", "inputs", "outputs", "plain", "step")

    def __init__(self, step: GangStep, facts: GangFacts, home: dict[int, Entry]) -> None:
        super().__init__(step.seq, "queued", home, step.seq)
        self.step = step
        self.facts = facts
        self.inputs: list[Shard] = []
        self.outputs: list[Shard] = []
        self.donated: tuple[int, ...] = ()
        self.frees: list[Shard] = []  # that nobody needs once it has finished
        self.causes: Causes = ()
        self.plain = False  # it and all before it in its lanes wait for nothing but the stream
        self.blame: Blame | None = None


class Queue:
    def __init__(self, desk: Desk, shards: Shards) -> None:
        self._desk = desk
        self._shards = shards
        self._tails: dict[int, Entry] = {}
        self._stopped: list[Entry] = []  # may launch, but nothing launches now
        self.stopped = False
        self._broken: set[int] = (
            set()
        )  # gangs of the order that were not launched here, while their peers may wait
        self.entries: dict[int, Entry] = {}
        self.graves: dict[int, Blame] = {}  # abandoned before they came: a message that was lost comes again

    # --- the stream ---------------------------------------------------------------------------------------

    def enter(self, step: GangStep, run: Run, facts: GangFacts) -> None:
        desk, shards, seq, ids = self._desk, self._shards, step.seq, run.ids
        entry = Entry(step, facts, self.entries)
        desk.records.append(entry)
        foreign: list[Cause] = []
        for slot in facts.inputs:
            shard = shards.named.get(ids[slot]) or shards.read(ids[slot], seq)
            entry.inputs.append(shard)
            if shard.foreign and shard.made is not None and desk.live(shard.made_seq, shard.made):
                foreign.append(shard.made)
            elif shard.final is not None and shard.made_seq < desk.settled:
                entry.blame = entry.blame or shard.final
            shard.user = seq
        done: Cause = ("done", seq)
        for slot, layout in zip(facts.outputs, facts.layouts, strict=True):
            shard = shards.named[ids[slot]] = Shard(ids[slot], layout, done, seq, user=seq)
            if slot in run.kept:
                shard.labels = run.kept[slot]
            entry.outputs.append(shard)
        desk.waits.expect(done)
        self._let_go(entry, run)
        if seq in self.graves:
            self.abandon((seq,), self.graves.pop(seq))
        else:
            self._line_up(entry, foreign)
        if shards.lost:
            for slot in facts.outputs:
                shards.retire_lost(ids[slot])

    def _let_go(self, entry: Entry, run: Run) -> None:
        """Nothing later in the stream names what this gang donates or is the last to read."""
        shards, facts, ids = self._shards, entry.facts, run.ids
        if facts.donated and entry.step.donate:
            entry.donated = tuple([ids[slot] for slot in facts.donated])
            for buffer in entry.donated:
                shards.named.pop(buffer, None)
        for slot, arg in facts.frees:
            shard = shards.named.pop(ids[slot], None) if arg < 0 or arg in run.literal else None
            if shard is not None:
                entry.frees.append(shard)
        for slot in facts.counted:
            shard = shards.get(ids[slot])
            if run.last_read(slot) and shard is not None:
                shards.retire(shard, ())

    def _line_up(self, entry: Entry, foreign: list[Cause]) -> None:
        desk, seq = self._desk, entry.seq
        causes: list[Cause] = [desk.order]
        if foreign:
            desk.out.append(Prepare(seq, entry.step.run, entry.step.step, (desk.order,)))
            causes += dict.fromkeys(foreign)
        for lane in entry.facts.lanes:
            before = self._tails.get(lane)
            self._tails[lane] = entry
            if before is not None and not before.plain:
                launch: Cause = ("launch", before.seq)
                if desk.live(before.seq, launch) and launch not in causes:
                    causes.append(launch)
        entry.causes = tuple(causes)
        entry.plain = len(causes) == 1
        if entry.plain and not self.stopped:
            self._launch(entry, entry.causes)
        else:
            desk.waits.expect(("launch", seq))
            desk.waits.when(entry.causes, partial(self._launch, entry))

    def _launch(self, entry: Entry, causes: Causes) -> None:
        if entry.state != "queued":
            return  # a tombstone
        if self.stopped:
            self._stopped.append(entry)
            return
        entry.state = "launched"
        desk, step, blame = self._desk, entry.step, entry.blame
        for shard in entry.inputs:
            blame = blame or shard.blame
        if blame is not None:
            entry.blame = blame
            for shard in entry.outputs:
                shard.spoil(blame)
        inputs = tuple([shard.buffer for shard in entry.inputs])
        outputs = tuple([shard.buffer for shard in entry.outputs])
        desk.out.append(
            Launch(
                step.seq, step.run, step.step, inputs, outputs, entry.donated, step.sizes,
                blame is not None, causes,
            )
        )  # fmt: skip
        launch: Cause = ("launch", step.seq)
        if step.ack:
            entry.said = (Enqueued(step.seq, desk.me),)
            desk.up(entry.said[0], (launch,))
        desk.waits.happen(launch)

    def ask(self, seq: int) -> None:
        """Answered when it has launched: a host that is late says so late, and is missing until then."""
        entry, desk = self.entries.get(seq), self._desk
        if entry is None:
            return
        launch: Cause = ("launch", seq)
        late = not entry.plain and desk.live(seq, launch)
        causes = (desk.order, launch) if late or desk.waits.pending(launch) else (desk.order,)
        desk.waits.when(causes, partial(self._answer, entry))

    def _answer(self, entry: Entry, causes: Causes) -> None:
        if entry.state != "over" or entry.said:  # not a tombstone
            self._desk.up(Arrived(entry.seq, self._desk.me), causes)

    # --- the devices --------------------------------------------------------------------------------------

    def finished(self, event: Finished) -> None:
        entry = self.entries.get(event.seq)
        if entry is None or not entry.legal("finish"):
            raise Illegal(f"gang {event.seq} finished, but is {entry.state if entry else 'not known'} here")
        entry.turn("finish")
        if entry.state == "gone":
            return
        desk, blame = self._desk, entry.blame
        for shard in entry.inputs:
            blame = blame or shard.final
        if event.blame is not None:
            blame = blame or desk.here(event.blame, entry.facts.program, entry.facts.name)
        done: Cause = ("done", event.seq)
        report = Done(event.seq, desk.me, blame, event.sizes)
        entry.said = (report,)
        desk.up(report, (done,))
        self._end(entry, blame, (done,))
        desk.waits.happen(done)

    def failed(self, event: LaunchFailed) -> None:
        """Peers may wait for it. Nothing is launched behind it, or they would pair with the wrong gang: the
        controller ends the epoch."""
        entry = self.entries.get(event.seq)
        if entry is None or not entry.legal("fail"):
            raise Illegal(
                f"gang {event.seq} failed to launch, but is {entry.state if entry else 'not known'} here"
            )
        entry.turn("fail")
        if entry.state == "gone":
            return
        self.stop(event.seq)
        blame = self._desk.here(event.blame, entry.facts.program, entry.facts.name) or event.blame
        entry.said = (Trouble(self._desk.host, event.seq, blame),)
        self._desk.up(entry.said[0], (("failed", event.seq),))

    def stop(self, seq: int) -> None:
        """Nothing launches until this gang has been abandoned."""
        self._broken.add(seq)
        self.stopped = True

    def _end(self, entry: Entry, blame: Blame | None, causes: Causes) -> None:
        if blame is not None:
            for shard in entry.outputs:
                shard.final = blame
        for shard in entry.frees:
            self._shards.free(shard, causes)
        entry.inputs = entry.outputs = []  # nobody keeps buffers alive by remembering a gang

    # --- a new epoch --------------------------------------------------------------------------------------

    def abandon(self, seqs: tuple[int, ...], blame: Blame) -> None:
        """They will never finish. Where they have not launched they leave a tombstone, and those behind go
        on."""
        desk = self._desk
        given_up: list[Entry] = []
        launched: list[int] = []
        for seq in sorted(seqs):
            self._broken.discard(seq)
            entry = self.entries.get(seq)
            if entry is None and seq >= desk.settled:
                self.graves[seq] = blame
            if entry is None or not entry.legal("abandon"):
                continue
            given_up.append(entry)
            if entry.state == "queued":
                entry.frees += [
                    s for s in entry.inputs if s.buffer in entry.donated
                ]  # no launch takes them over
                for shard in entry.outputs:
                    shard.void = True
            else:
                launched.append(seq)
            entry.turn("abandon")
            entry.said = ()
        if launched:
            desk.out.append(Abandon(tuple(launched), (desk.order,)))
        for entry in given_up:
            for shard in entry.outputs:
                shard.spoil(blame)
            desk.waits.when((desk.order, *self._before(entry)), partial(self._bury, entry, blame))
        for entry in given_up:  # those behind it go on, and still not before those ahead of it
            ahead = tuple(cause for cause in entry.causes if cause[0] == "launch")
            desk.waits.when(ahead, partial(self._pass, entry.seq))

    def _before(self, entry: Entry) -> Causes:
        """What a gang that never ran would have ended behind: all gangs before it, and what still fills or
        reads its inputs. What it was the last to use is not free any sooner."""
        live = self._desk.live
        earlier: list[Cause] = [("done", seq) for seq in self.entries if seq < entry.seq]
        found = [cause for cause in earlier if live(cause[1], cause)]
        foreign = [(shard.made_seq, shard.made) for shard in entry.inputs if shard.foreign]
        found += [made for seq, made in foreign if made is not None and live(seq, made)]
        found += [cause for shard in entry.inputs for seq, cause in shard.uses if live(seq, cause)]
        return tuple(dict.fromkeys(found))

    def _pass(self, seq: int, causes: Causes) -> None:
        self._desk.waits.happen(("launch", seq))

    def _bury(self, entry: Entry, blame: Blame, causes: Causes) -> None:
        self._end(entry, blame, causes)
        self._desk.waits.happen(("done", entry.seq))

    def go_on(self) -> None:
        """Unless something still stops it."""
        if self._broken:
            return
        self.stopped = False
        stopped, self._stopped = self._stopped, []
        for entry in stopped:
            self._launch(entry, entry.causes)

    def state(self) -> tuple[Any, ...] | None:
        """What later gangs may depend on, in a form that can be compared; None while nothing may launch."""
        if self.stopped or self._stopped or self._broken:
            return None
        live = self._desk.live
        tails = {
            lane: last.seq
            for lane, last in self._tails.items()
            if not last.plain and live(last.seq, ("launch", last.seq))
        }
        return tails, tuple(self.graves.items())

    def under_way(self) -> Causes:
        """What the devices still have."""
        return tuple(("done", seq) for seq, entry in self.entries.items() if entry.state == "launched")

    def tend(self, settled: int) -> None:
        """Graves of what was settled long ago need no keeping."""
        self.graves = {seq: blame for seq, blame in self.graves.items() if seq >= settled}
