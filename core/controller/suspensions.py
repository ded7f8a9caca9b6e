"""Suspended slices outlive the controller: a later start is told of them, and finds them as they were.

This start says what is suspended whenever that has changed (`SuspensionsChanged`); its driver keeps it, and tells the
next one (`SuspensionsKnown`). The arrays themselves are found on their hosts (`recovery`). When a client is back, its
suspended slices are, too: others may have their devices all the while.

A view whose arrays have left the devices is found as such. If no slice that is suspended has it (nobody told this start
of one), what it shares comes back.

Neighbours: `recovery` gives clients their arrays; `relocation` has the slices. The functions that matter: `known`,
`client_back`, `tell`.
"""

from collections.abc import Iterable

from ..memory import Buffer, Buffers
from ..model import Layout, Place, Sharding, is_layout, spans
from ..protocol import SuspendedSlices, SuspensionsChanged, SuspensionsKnown
from .outbox import TurnOutbox
from .records import ClientRecord
from .relocation import Relocation
from .state import ControllerModule, State
from .watch import Watchdog

AnyKey = tuple[object, ...]


class Suspensions(ControllerModule):
    _state: State
    _buffers: Buffers
    _outbox: TurnOutbox
    _relocation: Relocation
    _watch: Watchdog
    _earlier: dict[int, list[SuspendedSlices]] = {}  # by client: it has not come back
    _seen: AnyKey = ()  # what can change what is to be told, as of the last look at it
    told: tuple[SuspendedSlices, ...] = ()

    # --- from the start before -----------------------------------------------------------------------------------

    def known(self, event: SuspensionsKnown, now: int) -> None:
        self.told = event.slices
        for each in event.slices:
            if self._is_sound(each):
                self._earlier.setdefault(each.client, []).append(each)
        if self._earlier:  # as long as buffers wait for the clients
            self._watch.begin_for("suspended before", now, 2 * self._state.config.recovery, self._forget)

    def _is_sound(self, each: SuspendedSlices) -> bool:
        """It comes from a file, and the cluster may be another one now."""
        place = each.place
        if place is None or each.client < 1:
            return each.client > 0
        here = all(grid.shape for grid in place.grids) and is_layout(
            Layout((), "float32", place, (place.size,), Sharding()), self._state.cluster
        )
        fit = all(spec.devices == place.size and not spec.of for spec in each.slices)
        return here and fit and spans.is_normal(each.arrays) and spans.is_normal(each.resident)

    def _forget(self, now: int) -> None:
        self._earlier.clear()

    def client_back(self, session: ClientRecord, was: int, now: int) -> None:
        """It has its arrays again. `was`: the number by which an earlier start knew it."""
        mine = [buffer for buffer in self._buffers if buffer.client == session.number]
        for each in self._earlier.pop(was, ()):
            if each.rests:
                self._relocation.resting[session.number] = None
            if each.place is not None:
                there = {buffer.id for buffer in mine if spans.contains(each.arrays, buffer.id)}
                resident = {ident for ident in there if spans.contains(each.resident, ident)}
                self._relocation.found(session, each, each.place, there, resident, now)
        folded: dict[Place, set[int]] = {}
        for view in mine:
            if view.folded and view.id not in self._state.asleep:
                folded.setdefault(view.layout.place, set()).update(self._shared(view))
        for place, arrays in folded.items():
            self._relocation.unfold(session, place, arrays, now)

    def _shared(self, view: Buffer) -> Iterable[int]:
        """The view, and all that it shares and that is not suspended."""
        found, todo = {view.id: None}, [view]
        while todo:
            for source in map(self._buffers.__getitem__, todo.pop().sources):
                if source.id not in found and source.id not in self._state.asleep:
                    found[source.id] = None
                    todo.append(source)
        return found

    # --- for the next start --------------------------------------------------------------------------------------

    def tell(self) -> None:
        """At the end of a turn, in which something may have changed."""
        relocation = self._relocation
        seen: AnyKey = (
            *(
                (each.session.number, each.names, each.phase, each.asleep, each.gives_way_to, each.place)
                for each in dict.fromkeys(relocation.under_way.values())
            ),
            *relocation.resting, "earlier", *self._earlier,
        )  # fmt: skip
        if seen == self._seen:
            return
        self._seen = seen
        told = tuple(self._rows())
        if told != self.told:
            self.told = told
            self._outbox.effect(SuspensionsChanged(told))

    def _rows(self) -> Iterable[SuspendedSlices]:
        for rows in self._earlier.values():
            yield from rows
        for number in self._relocation.resting:
            yield SuspendedSlices(number, rests=True)
        for each in dict.fromkeys(self._relocation.under_way.values()):
            bound = self._relocation.bindings(each)
            away = any(b.parked or b.back for b in bound)  # it may wait for devices, to come back
            if bound and not each.detached and each.mine is not None and (each.asleep or away):
                arrays, resident = spans.of(each.mine or ()), spans.of(each.resident)
                specs, returns = tuple(b.spec for b in bound), each.gives_way_to is not None or not each.asleep
                yield SuspendedSlices(each.session.number, specs, each.place, arrays, resident, returns=returns)
