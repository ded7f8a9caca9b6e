"""What the controller saw, for the trace: when a gang was ready, entered, and was reported over.

Drivers see more (when a device started, when it ended): they fill a trace of their own, and the two are merged.
Times that the controller merely heard of are flagged as worked out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import Gang, Layout, Place, Slot, Spans, Value, device_spans, shard_bytes
from ..protocol import Blame
from ..record import ENDED, FAILED, Trace
from .records import Flight, Run, Session

if TYPE_CHECKING:
    from .books import Books

_NOWHERE = -1  # is no place; below it are those of our own


class History:
    def __init__(self, books: Books, trace: Trace | None) -> None:
        self._books = books
        self._trace = trace
        self._levels: dict[
            int, tuple[int, list[int]]
        ] = {}  # by atom: the place it was last recorded as, and its level
        self._own = 0  # places that are nobody's slice

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
            call, now = run.call, self._books.now
            self._trace.submitted(run.id, run.session.number, call.run, name, now, call.deadline)

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
            self._place(key, step.place)
            self._trace.gang(
                flight.seq, run.id, step.name, flight.island, key, ready=ready, entered=flight.entered
            )

    def moved(
        self, flight: Flight, run: Run, keys: tuple[int, int], places: tuple[Place, Place], target: Slot
    ) -> None:
        """`keys`: of the places it goes from and to. A transfer's row goes by the number of its sending half."""
        if self._trace is not None:
            for key, place in zip(keys, places, strict=True):
                self._place(key, place)
            name, nbytes = run.plan.steps[flight.step].name, target.nbytes * target.layout.place.size
            self._trace.transfer(flight.transfer, run.id, name, *keys, nbytes=nbytes, entered=flight.entered)

    def with_client(self, flight: Flight, session: Session, layout: Layout) -> None:
        """A put, or a get: contents come from a client, or go to one."""
        if self._trace is None:
            return
        key = self._books.atoms.intern(layout.place)
        self._place(key, layout.place)
        if flight.kind == "put":
            source, target, nbytes = -1, key, shard_bytes(layout) * layout.place.size
        else:
            source, target, nbytes = key, -1, Value(layout.shape, layout.dtype).nbytes
        self._trace.transfer(
            flight.transfer, -1, flight.kind, source, target, nbytes=nbytes, client=session.number,
            entered=flight.entered,
        )  # fmt: skip

    def landed(self, flight: Flight) -> None:
        if self._trace is not None and flight.kind != "send":
            failed = FAILED if flight.blame is not None else 0
            seq = flight.seq if flight.transfer < 0 else flight.transfer
            self._trace.update(seq, ENDED | failed, ended=self._books.now)

    def levels(self) -> None:
        """At the end of a turn: memory whose counters have changed, for each set of devices that no slice has told
        apart. What was cut in two since is counted in its parts from here on, and its own row ends with no capacity."""
        ledger = self._books.ledger
        if not ledger.touched:
            return
        touched, ledger.touched = ledger.touched, {}
        trace, now = self._trace, self._books.now
        if trace is None:
            return
        for atom in touched:
            devices, *level = ledger.counters_of(atom)
            key, last = self._levels.get(atom, (_NOWHERE, []))
            if key == _NOWHERE or trace.places[key].devices != devices:
                if key != _NOWHERE:
                    trace.level(now, key, 0, 0, 0)
                key, last = self._key_of(devices), []
            if level != last:
                self._levels[atom] = (key, level)
                trace.level(now, key, *level)

    def _key_of(self, devices: Spans) -> int:
        """Of a place with just these devices; one of our own where there is none."""
        assert self._trace is not None
        key = self._books.atoms.known(devices)
        if key is None:
            self._own += 1
            key = _NOWHERE - self._own
        if key not in self._trace.places:
            island = self._books.cluster.island_of_device(devices[0][0])
            self._trace.place(key, island.index, devices, island.per_host, island.base_device)
        return key

    def _place(self, key: int, place: Place) -> None:
        assert self._trace is not None
        if key not in self._trace.places:
            island = self._books.cluster.islands[place.island]
            self._trace.place(key, island.index, device_spans(place), island.per_host, island.base_device)
