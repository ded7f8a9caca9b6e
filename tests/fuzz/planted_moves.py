"""Planted bugs of slices that move, rest and come back, and of hosts that are emptied."""

from __future__ import annotations

from typing import Any

from core.controller.array_copies import ArrayCopies
from core.controller.buffer_refs import BufferRefs
from core.controller.drains import Drains
from core.controller.elastic import Elastic
from core.controller.on_the_way import OnTheWay
from core.controller.preemption import Preemption
from core.controller.relocation import Relocation
from core.controller.suspensions import Suspensions
from core.controller.views import Views
from core.host.local_views import LocalViews
from core.slices.bindings import FIRST
from core.slices.inventory import Inventory
from core.slices.resources import Resources

from .draw import OPERATED, PREEMPTS, RESTED
from .planting import Patch, bug, nothing


@bug("a copy that nobody drops", "copies of a move that has failed are kept", first=OPERATED)
def _(put: Patch) -> None:
    put(ArrayCopies, "forget", nothing)


@bug("the old array stays", "a name that stands for a copy still holds what it copied", first=OPERATED)
def _(put: Patch) -> None:
    good = BufferRefs.put_in_place

    def kept(self: BufferRefs, new: Any) -> None:
        self._buffers.hold(new.copies.buffer)
        good(self, new)

    put(BufferRefs, "put_in_place", kept)


@bug("what is called meanwhile runs on", "a slice is not held while its arrays are copied", first=OPERATED)
def _(put: Patch) -> None:
    put(Resources, "hold", nothing)


@bug("never awake", "what waits for a slice that was suspended is not told that it is back", first=OPERATED)
def _(put: Patch) -> None:
    put(Relocation, "_release", nothing)


@bug("a view that is not made again", "a view stays folded when what it shares has come back", first=OPERATED)
def _(put: Patch) -> None:
    put(Views, "unfold", nothing)


@bug("left behind", "a host that drains leaves with all that it has", first=OPERATED)
def _(put: Patch) -> None:
    put(Drains, "_slices", lambda self, host: [])
    put(Drains, "_left", lambda self, host: [])


@bug("both places for good", "a slice keeps the devices that it has left", first=OPERATED)
def _(put: Patch) -> None:
    good = Resources.arrived

    def arrived(self: Resources, session: int, name: str, moved: bool) -> None:
        binding = self.binding(session, name)
        if moved and binding is not None and binding.place is not None and not binding.parked:
            self._put(binding, binding.place)
        good(self, session, name, moved)

    put(Resources, "arrived", arrived)


@bug("awake after a restart", "a later start is not told what is suspended", first=RESTED)
def _(put: Patch) -> None:
    put(Suspensions, "known", nothing)


@bug("folded and forgotten", "hosts forget views of what has left the devices", first=RESTED)
def _(put: Patch) -> None:
    good = LocalViews.fold

    def fold(self: LocalViews, step: Any) -> None:
        good(self, step)
        self._state.buffers.drop(step.buffer)

    put(LocalViews, "fold", fold)


@bug("devices that others have", "a slice is resumed where another one is now", first=RESTED)
def _(put: Patch) -> None:
    put(Inventory, "takes_back", lambda self, place, exclusive, anyway: True)


@bug("read from host memory", "a copy on the same devices reads what is not there", first=OPERATED)
def _(put: Patch) -> None:
    good = ArrayCopies.begin

    def begin(self: ArrayCopies, session: Any, name: str, here: Any, old: Any, new: Any, now: int) -> Any:
        run = good(self, session, name, here, old, new, now)
        if run is not None:
            run.cold = frozenset(buffer.layout.place for buffer in here)
        return run

    put(ArrayCopies, "begin", begin)


@bug("never given back", "a slice that gave way stays in host memory when the other has its devices", first=PREEMPTS)
def _(put: Patch) -> None:
    put(Preemption, "_give_back", lambda self, now: False)


@bug("gone without a trace", "a slice gives way while its arrays are on the devices", first=PREEMPTS)
def _(put: Patch) -> None:
    put(Relocation, "_spill_all", _parked_at_once)


def _parked_at_once(self: Relocation, each: OnTheWay, now: int) -> None:
    each.turn("away")
    for b in self.bindings(each):
        self._resources.park(each.session.number, b.spec.name)
    self._runs.slices_bound(now)


@bug("grown in silence", "a client is not told what its elastic slice is", first=PREEMPTS)
def _(put: Patch) -> None:
    put(Elastic, "_tell", lambda self, each, why, now: True)


@bug("room that others have", "an elastic slice grows into devices that others have alone", first=PREEMPTS)
def _(put: Patch) -> None:
    good = Resources.could_be

    def anywhere(self: Resources, binding: Any, without: Any = (), placed: Any = ()) -> Any:
        return good(self, binding, self.bindings() if binding.rank == FIRST else without, placed)

    put(Resources, "could_be", anywhere)
