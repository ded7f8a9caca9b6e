"""How runs end and what becomes of buffers: their contents are final, spoilt or lost, and each run ends exactly once.

A run that fails spoils the results that it has not made; runs that read these fail with it, for the same reason, one
after the other. What has entered an order stays there, the same on all hosts: such a run *drains*, and is over when
nothing of it is in flight. A view fails, or is lost, with what it shares.

In: `fail`, from all that finds a reason, and from those below by `State.failing`; `settled`, `spoil` and `lost` for
buffers. Out: clients hear of it, memory is given back (`buffer_refs`), gets are answered (`gets`); steps whose reason
is known now are in `State.explained`.
The functions that matter: `fail`, `over`, `settled`, `spoil`, `lost`.
"""

from collections import deque
from typing import Any

import msgspec

from ..memory import Buffer, Buffers, Ledger
from ..model import ranged
from ..protocol import Blame, ContentsReady, Ended, ForgetStep
from .admission import Admission
from .buffer_refs import BufferRefs
from .compilation import Compilation
from .gets import Gets
from .observations import BufferLost, RunEndSeen
from .outbox import TurnOutbox
from .records import NO_PLAN, BufferName, RunRecord, WaitingView
from .results import Results
from .run_waits import RunWaits
from .state import ControllerModule, State
from .trace_rows import Tracing
from .view_table import ViewTable, drop


class Outcomes(ControllerModule):
    _state: State
    _admission: Admission
    _buffers: Buffers
    _compilation: Compilation
    _gets: Gets
    _ledger: Ledger
    _outbox: TurnOutbox
    _refs: BufferRefs
    _results: Results
    _tracing: Tracing | None
    _table: ViewTable
    _waits: RunWaits
    # A failure makes readers fail: one after the other.
    _failing: deque[tuple[RunRecord, Blame]] = msgspec.field(default_factory=deque)

    # --- a run fails -----------------------------------------------------------------------------------------

    def fail(self, run: RunRecord, blame: Blame, now: int) -> None:
        """It ends here, for this reason. What has entered an order stays there, the same on all hosts."""
        self._failing.append((run, blame))
        if len(self._failing) > 1:
            return
        while self._failing:
            self._fail(*self._failing[0], now)
            self._failing.popleft()

    def _fail(self, run: RunRecord, blame: Blame, now: int) -> None:
        if run.state == "over" or run.blame is not None:
            return
        run.blame = blame if blame.program else msgspec.structs.replace(blame, program=run.program.ir.name)
        started = run.state == "running"
        self._waits.over(run, tell=False)
        if started:
            self.withdraw(run)
        else:
            self._stop_waiting(run)
        run.turn("failed")
        self._tell_end(run)
        self._spoil_results(run, run.blame)
        if run.id in self._state.unexplained:
            self._state.explained.append(run)
        if run.id in self._state.runs and (not started or not run.open_steps):
            self.over(run, now)

    def _stop_waiting(self, run: RunRecord) -> None:
        if run.rows is not NO_PLAN:
            leave(self._state.for_code, run.plan.id, run)
        for spec in run.program.ir.slices:
            leave(self._state.for_slice, (run.session.number, spec.name), run)
        self._admission.withdraw(run)

    def withdraw(self, run: RunRecord) -> None:
        """No further step of it enters an order."""
        if run.rows is NO_PLAN:
            return
        for island in run.rows.island_hosts:
            self._state.islands[island].scheduler.withdraw(run.id)
        run.withdraw()
        parked = self._state.parked
        others = [each for each in parked.pop(run.plan.id, ()) if each[0] is not run] if parked else ()
        if others:
            parked[run.plan.id] = others

    def _tell_end(self, run: RunRecord) -> None:
        if run.ended:
            return
        run.ended = True
        run.session.ended(run.call.run)
        if not run.program.pinned:
            run.session.meter.run_over(run, self._state.now)
        if self._tracing is not None:
            self._tracing.trace.ended(run.id, self._state.now, run.blame)
        if self._state.watched and not run.session.gone:
            self._state.observe(RunEndSeen(run.session.number, run.call.run, run.blame))
        self._outbox.note(run.session.peer, Ended(run.call.run, run.blame, run.undone()))

    # --- a run is over ---------------------------------------------------------------------------------------

    def over(self, run: RunRecord, now: int) -> None:
        """Nothing of it is in flight any more."""
        if run.state != "over":
            run.turn("settled")
        if not run.ended:
            self._tell_end(run)
        if run.id in self._state.unexplained:
            self._state.explained.append(run)
        self._state.runs.pop(run.id, None)
        if run.using:
            self._give_back(run)
        for slot in list(run.own) if run.own else ():
            self._refs.own_read(run, slot, -1)
        if run.reads:
            self._refs.stop_reading(run)
        if run.rows is not NO_PLAN:
            run.rows.users -= 1

    def _give_back(self, run: RunRecord) -> None:
        """Give back what the run reserved and did not use; and what a failed run made and nothing will read."""
        rows = run.rows
        if run.literals:
            self._compilation.announce(run)  # hosts are to free them, and must know what they are
        for slot, key, nbytes in self._ledger.end(run.id):
            record = rows.plan.slots[slot]
            if run.is_held(record.arg):  # it was to be donated, and was not: letting go of it frees it
                for buffer in self._refs.argument(run, record.arg) if record.arg in run.held else ():
                    self._buffers.returned(buffer.id)
                continue
            self._refs.free_on_hosts(run.buffer_of(slot), record.layout, rows.slot_hosts[slot])
            self._ledger.free(key, nbytes)
        for index, slot in list(run.literals.items()) if run.literals else ():
            if not rows.plan.slots[slot].keep:  # hosts made it, and the gang that would free it never enters
                layout, hosts = rows.plan.slots[slot].layout, rows.slot_hosts[slot]
                self._refs.free_on_hosts(run.buffer_of(slot), layout, hosts)
            self._results.literal_over(run, index, -1)
        if run.blame is not None:
            for island, hosts in rows.island_hosts.items():
                if island not in run.untold:
                    self._outbox.step(island, ForgetStep((run.id,)), hosts)

    # --- contents --------------------------------------------------------------------------------------------

    def settled(self, first: int, blame: Blame | None, count: int = 1) -> list[BufferName]:
        """Its contents are final. Returns the names that clients have for it."""
        if count == 1:
            return self._settled(first, self._buffers.all.get(first), blame)
        records = self._buffers.over(first, count)
        if len(records) == 1 and records[0].count == count:
            return self._settled(first, records[0], blame)
        there = {record.id: record for record in records}  # some may be gone
        readers = self._state.readers
        few = readers if len(readers) < count else range(first, first + count)
        waiting = {each for each in few if first <= each < first + count and each in readers}
        waiting |= self._table.unsettled_in(first, count)
        found = [self._settled(each, there.get(each), blame) for each in sorted(there.keys() | waiting)]
        return [named for names in found for named in names]

    def _settled(self, buffer: int, record: Buffer | None, blame: Blame | None) -> list[BufferName]:
        if buffer in self._state.readers:
            self._state.settling.append((buffer, blame))
        if self._table.unsettled:
            self._views_settle(buffer, blame)
        if record is None:
            return []
        named = record.owner
        names = [named, *named.others] if named.others else [named]
        if blame is not None:
            self.spoil(buffer, blame)
        elif record.state == "promised":
            record.turn("filled")
        for each in names:
            each.ready = each.blame is None
        if self._state.line:
            self._refs.idle(buffer)
        return names

    def tell_ready(self, run: RunRecord, names: list[BufferName], now: int) -> None:
        """The end of a run says it for all its results; one that is ready before is told alone."""
        for named in names:
            if run.left and named.ready and not named.released:
                self._outbox.note(run.session.peer, ContentsReady((ranged(named.name, named.count),)))
            if named.gets or named.blame is not None:
                self._gets.ready(named, now)

    def _spoil_results(self, run: RunRecord, blame: Blame) -> None:
        """Spoil the results that a failed run has not made. Runs that read them fail with it."""
        if run.unkept:
            self._results.never(run, blame)
        for named in run.result_names():
            if named.alias or (named.buffer >= 0 and named.ready):
                continue
            if named.blame is None:
                named.blame = blame
            self._refs.refuse_gets(named, named.blame)
            if self._table.waiting:
                self.fail_views(named, named.blame)
            if named.buffer >= 0 and named.buffer in self._buffers:
                if self._buffers[named.buffer].promise:
                    self._refs.never(named.buffer, blame)
                if named.buffer in self._buffers:
                    self.spoil(named.buffer, blame)
            for reader in list(named.readers.values()):
                self.fail(reader, blame, self._state.now)

    def spoil(self, buffer: int, blame: Blame) -> None:
        """It keeps its blame while a run holds it; the client's handle has nothing left to hold."""
        self._buffers.poison(buffer, blame)
        named = self._refs.named(buffer)
        if named is None:
            return
        for other in [*named.others, *named.read_on]:
            other.blame, other.ready = other.blame or blame, False
            self._refs.refuse_gets(other, blame)
            self._refs.drop_alias(buffer, other)
            for run in list(other.readers.values()):
                self.fail(run, blame, self._state.now)
        named.blame = named.blame or blame
        self._refs.refuse_gets(named, named.blame)
        record = self._buffers.all.get(buffer)
        if record is not None and record.views:
            self._spoil_views(buffer, blame)
        if not named.released and buffer in self._buffers and self._buffers[buffer].handle:
            self._refs.drop_handle(named)

    def lost(self, buffer: int, blame: Blame) -> None:
        """A buffer was lost with a host or device: its client is told its name, and runs that read it fail."""
        named = self._refs.named(buffer)
        if named is None or buffer not in self._buffers or self._buffers[buffer].promise:
            return  # not made yet: its run is judged by where it was to be made
        self._state.observe(BufferLost(buffer))
        named.ready = False
        if buffer in self._state.asleep:
            self._state.lost_asleep.setdefault(named.session.number, []).append(named.name)
            if blame.code in ("host-lost", "host-left"):
                where = "on its disk" if self._buffers[buffer].on_disk else "in its memory"
                text = f"{blame.cause}; this array was {where}, for its slice is suspended"
                blame = msgspec.structs.replace(blame, cause=text)
        names = [each for each in (named, *named.others) if not each.released and each.blame is None]
        for each in names:
            self._outbox.note(each.session.peer, ContentsReady((each.name,), blame))
        known = (named, *named.others, *named.read_on)
        readers = [run for each in known for run in each.readers.values()]
        self.spoil(buffer, blame)
        for run in readers:
            self.fail(run, blame, self._state.now)

    def stay_away(self, named: BufferName, blame: Blame) -> None:
        """It was spilled, and there is no room for it on the devices."""
        self.fail_views(named, blame)
        self._refs.refuse_gets(named, blame)

    # --- views -----------------------------------------------------------------------------------------------

    def _views_settle(self, buffer: int, blame: Blame | None) -> None:
        """Its contents are final. Steps that read a view of it cannot settle before, though both may be gone by now."""
        for view in self._table.awaiting.pop(buffer, ()):
            left = self._table.unsettled.get(view)
            if left is None:  # it is a view of another one of these, too
                continue
            left.discard(buffer)
            if blame is not None:
                self._lose_view(view, blame)
            elif not left:
                self.settle_view(view, None)

    def settle_view(self, ident: int, blame: Blame | None) -> None:
        for source in self._table.unsettled.pop(ident):
            drop(self._table.awaiting, source, ident)
        for named in self.settled(ident, blame):
            if not named.released and named.blame is None:
                self._outbox.note(named.session.peer, ContentsReady((named.name,)))
            self._gets.ready(named, self._state.now)

    def _spoil_views(self, buffer: int, blame: Blame) -> None:
        """It has lost its contents, or will never have any: neither have its views."""
        for view in list(self._table.holders.get(buffer, {}).values()):
            self.fail_view(view, blame)
        for ident in list(self._table.views_of.get(buffer, ())):
            self._lose_view(ident, blame)

    def _lose_view(self, ident: int, blame: Blame) -> None:
        if ident in self._buffers and self._buffers[ident].blame is None:
            self.lost(ident, blame)
        if ident in self._table.unsettled:
            self.settle_view(ident, blame)

    def fail_views(self, source: BufferName, blame: Blame) -> None:
        """What they wait for will never have contents."""
        for view in self._table.by_name.get(source, [])[:]:
            self.fail_view(view, blame)

    def fail_view(self, view: WaitingView, blame: Blame) -> None:
        named = view.named
        if named not in self._table.waiting:
            return
        self._table.forget(view)
        for buffer in view.held.values():
            self._refs.let_go_of(buffer, named.session.number, named.name, view.pins)
        named.blame = blame
        if not named.released:
            self._outbox.note(named.session.peer, ContentsReady((named.name,), blame))
        self._refs.refuse_gets(named, blame)
        self.fail_views(named, blame)
        for run in list(named.readers.values()):
            self.fail(run, blame, self._state.now)


def leave(waiting: dict[Any, dict[int, RunRecord]], key: object, run: RunRecord) -> None:
    """Take the run out of the runs that wait under this key."""
    runs = waiting.get(key, {})
    runs.pop(run.id, None)
    if not runs:
        waiting.pop(key, None)
