"""Gives the results of a run buffers when it is lowered, so that runs that read them may be lowered too.

If its client keeps none of them, and no step reads one, nothing else ever will: these *unkept* results have no names.
Each is held by its maker's promise alone, and is free when the gang that makes it has entered the order.

Literals have slots of the run's own too, and free them behind the last step that reads them.

Neighbours: `runs` lowers; `dispatch` and `outcomes` say what becomes of unkept results; `buffer_refs` counts others.
The function that matters: `promise`.
"""

from ..memory import Buffer, Buffers, Ledger
from ..protocol import Blame
from .buffer_names import BufferNames
from .buffer_refs import BufferRefs
from .plan_rows import PlanRows, ResultRow
from .records import BufferName, RunRecord
from .state import ControllerModule, State
from .view_table import ViewTable

# Of a run, what its client keeps: as in `RunHeader`.
Kept = tuple[tuple[tuple[int, int, int], ...], tuple[tuple[int, int, int, int], ...]]


class Results(ControllerModule):
    _state: State
    _buffers: Buffers
    _ledger: Ledger
    _names: BufferNames
    _refs: BufferRefs
    _table: ViewTable

    def promise(self, run: RunRecord, rows: PlanRows) -> Kept:
        """Returns those that the client keeps: their slots, the client, and its names."""
        held, base, session, view, slot_of = run.held, run.base, run.session, run.view, rows.slot_of_arg
        if run.reads:
            run.literals = {arg: slot_of[arg] for arg in view.slotted if arg not in held}
        else:
            run.literals = slot_of.copy()
        if not run.names and rows.may_be_unkept:
            run.unkept = True
            for row in rows.unkept:
                buffer = base + row.slot
                self._buffers.all.put(buffer, Buffer(
                    buffer, session.number, 0, row.key, row.nbytes, False, True, row.exact, row.layout, row.hosts,
                    count=row.count, sizes=row.sizes, layouts=row.layouts,
                ))  # fmt: skip
                if self._state.watched:
                    self._state.see_held(buffer, "its maker", count=row.count)
            return (), ()
        if not run.names:
            self._names.nameless(run, len(rows.results))
        made: dict[int, list[tuple[int, int, int]]] = {}
        first: dict[int, BufferName] = {}  # slot -> the result that stands for it
        kept: list[tuple[int, int, int]] = []
        together: list[tuple[int, int, int, int]] = []
        for named, row in (
            self._names.of_results(run, rows) if run.counts else zip(run.names, rows.results, strict=True)
        ):
            slot = row.slot
            if not named.released:
                if named.count == 1:
                    kept.append((slot, session.number, named.name))
                else:
                    together.append((slot, session.number, named.name, named.count))
            if named.copies is not None:  # hosts know it by all names that it will have
                others = [each for each in named.copies.others if not each.released]
                kept += [(slot, each.session.number, each.name) for each in others]
            source = run.sources[row.arg] if row.arg in held else first.setdefault(slot, named)
            if source is not named and type(source) is BufferName:
                if named.wanted or named.readers or named in self._table.by_name:
                    self._refs.alias(named, source)
            else:
                made.setdefault(row.maker, []).append((slot, base + slot, row.count))
                self._refs.promise(named, base + slot, row)
        run.made_results = made
        return tuple(kept), tuple(together)

    def entered(self, run: RunRecord, row: ResultRow, seq: int) -> None:
        """The gang that makes an unkept result is in the order: behind it, the memory is free."""
        first = run.base + row.slot
        for buffer in [self._buffers.all[first]] if row.count == 1 else self._buffers.over(first, row.count):
            self._buffers.all.drop(buffer.id)
            if self._state.watched:
                self._state.see_let_go(buffer.id, "its maker", count=buffer.count)
            self._ledger.free(buffer.key, buffer.nbytes, seq)
            self._refs.free_on_hosts(buffer.id, buffer.layout, buffer.hosts, buffer.count)

    def never(self, run: RunRecord, blame: Blame) -> None:
        """Gangs that have not entered will not make its unkept results."""
        run.unkept = False
        for row in run.rows.unkept:
            if run.base + row.slot in self._buffers:
                for buffer in self._buffers.over(run.base + row.slot, row.count):
                    self._refs.never(buffer.id, blame)

    # --- arguments and literals ------------------------------------------------------------------------------

    def argument_over(self, run: RunRecord, argument: int, seq: int) -> None:
        """Behind `seq` nothing of this run reads the argument any more."""
        if argument in run.held:
            self._refs.let_go(run, argument, seq)
        else:
            self.literal_over(run, argument, seq)

    def literal_over(self, run: RunRecord, argument: int, seq: int) -> None:
        slot, rows = run.literals.pop(argument, None), run.rows
        if slot is not None and argument not in run.donated and not rows.plan.slots[slot].keep:
            self._ledger.free(rows.slot_keys[slot], rows.plan.slots[slot].nbytes, seq)
