"""Results of runs whose clients keep none of them: without names, so nothing else will ever read them.

Each is held by its maker's promise alone, and is free when the gang that makes it has entered the order.

Neighbours: `runs` and `dispatch` say what happens to such a run; `buffer_refs` counts all other buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..memory import Buffer, Buffers, Ledger
from ..protocol import Blame
from .plan_rows import PlanRows, ResultRow
from .records import RunRecord
from .state import State

if TYPE_CHECKING:
    from .buffer_refs import BufferRefs


class UnkeptResults:
    def __init__(self, state: State, *, buffers: Buffers, ledger: Ledger, refs: BufferRefs) -> None:
        self._state = state
        self._buffers = buffers
        self._ledger = ledger
        self._refs = refs

    def promise(self, run: RunRecord, rows: PlanRows) -> None:
        client, base, state = run.session.number, run.base, self._state
        for row in rows.unkept:
            buffer = base + row.slot
            self._buffers.all.put(buffer, Buffer(
                buffer, client, 0, row.key, row.nbytes, False, True, row.exact, row.layout, row.hosts,
                count=row.count, sizes=row.sizes, layouts=row.layouts,
            ))  # fmt: skip
            if state.watched:
                self._refs.see_held(buffer, "its maker", count=row.count)

    def entered(self, run: RunRecord, row: ResultRow, seq: int) -> None:
        """The gang that makes it is in the order: behind it, the memory is free."""
        for buffer in self._buffers.over(run.base + row.slot, row.count):
            self._buffers.all.drop(buffer.id)
            assert buffer.layout is not None
            if self._state.watched:
                self._refs.see_let_go(buffer.id, "its maker", count=buffer.count)
            self._ledger.free(buffer.key, buffer.nbytes, seq)
            self._refs.free_on_hosts(buffer.id, buffer.layout, buffer.hosts, buffer.count)

    def never(self, run: RunRecord, blame: Blame) -> None:
        """Gangs that have not entered will not make these results."""
        assert run.rows is not None
        for row in run.rows.unkept:
            if run.base + row.slot in self._buffers:
                for buffer in self._buffers.over(run.base + row.slot, row.count):
                    self._refs.never(buffer.id, blame)
