"""What the controller saw, for the trace: when a gang was ready, entered, and was reported over.

Drivers see more (when a device started, when it ended): they fill a trace of their own, and the two are merged.
Times that the controller merely heard of are flagged as worked out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..messages import Blame
from ..place import device_spans
from ..plan import Gang, Slot
from ..trace import ENDED, FAILED, Trace
from .records import Flight, Run, Session

if TYPE_CHECKING:
    from .books import Books


class History:
    def __init__(self, books: Books, trace: Trace | None) -> None:
        self._books = books
        self._trace = trace

    def client(self, session: Session) -> None:
        if self._trace is not None:
            self._trace.client(
                session.number, session.name, session.weight, session.priority, self._books.now
            )

    def client_gone(self, session: Session) -> None:
        if self._trace is not None:
            self._trace.client_gone(session.number, self._books.now)

    def submitted(self, run: Run) -> None:
        if self._trace is not None:
            name = run.program.ir.name
            self._trace.submitted(run.id, run.session.number, run.call.run, name, self._books.now)

    def admitted(self, run: Run) -> None:
        if self._trace is not None:
            self._trace.admitted(run.id, self._books.now)

    def ended(self, run: Run, blame: Blame | None) -> None:
        if self._trace is not None:
            self._trace.ended(run.id, self._books.now, blame)

    def entered(self, flight: Flight, run: Run, key: int, ready: int) -> None:
        if self._trace is None:
            return
        step = run.plan.steps[flight.step]
        if isinstance(step, Gang):
            self._place(key, step)
            self._trace.gang(
                flight.seq, run.id, step.name, flight.island, key, ready=ready, entered=flight.entered
            )

    def moved(self, flight: Flight, run: Run, keys: tuple[int, int], target: Slot) -> None:
        """`keys`: of the places it goes from and to."""
        if self._trace is not None:
            name, nbytes = run.plan.steps[flight.step].name, target.nbytes * target.layout.place.size
            self._trace.transfer(flight.seq, run.id, name, *keys, nbytes=nbytes, entered=flight.entered)

    def landed(self, flight: Flight) -> None:
        if self._trace is not None:
            failed = FAILED if flight.blame is not None else 0
            self._trace.update(flight.seq, ENDED | failed, ended=self._books.now)

    def _place(self, key: int, gang: Gang) -> None:
        assert self._trace is not None
        if key not in self._trace.places:
            island = self._books.cluster.islands[gang.place.island]
            self._trace.place(
                key, island.index, device_spans(gang.place), island.per_host, island.base_device
            )
