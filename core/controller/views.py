"""Views: arrays whose shards are shards of other arrays, on the same devices.

A view takes no memory. It holds its sources, whatever becomes of the client's names for them, until the last reference
to the view is gone. Meanwhile what it shares is neither spilled nor taken over by a run to which it is donated: such a
run gets memory of its own. A view whose source fails or is lost fails with it, for the same reason.

A view *waits* until all its sources have entered an order, and holds those that exist; like those of a run that waits,
they may be spilled meanwhile. Those that were come back then. When all are on the devices, the view is bound, checked
and ordered in one moment: hosts make it behind all that fills its sources (`ViewStep`). If a slice has moved since its
sources were made, they do not lie where the view should, and the view is refused.

Neighbours: `clients` brings calls; `buffer_refs` counts; `outcomes` ends views with what they share. What waits is in
`view_table`, and is in `State.views` when something that it waited for has come.
The functions that matter: `view`, `advance`, `_checked`.
"""

from collections.abc import Mapping

import msgspec

from ..memory import Buffer, Buffers
from ..model import (
    Atoms,
    Impossible,
    Layout,
    Place,
    ProgramError,
    Shards,
    laid_out,
    ranges,
    validate_put,
    virtual_index,
)
from ..protocol import Blame, View, ViewStep
from ..slices import MustWait, Resources
from .admission import Admission
from .buffer_names import BufferNames
from .buffer_refs import BufferRefs
from .outbox import TurnOutbox
from .outcomes import Outcomes
from .plan_rows import ResultRow
from .records import BufferName, ClientRecord, WaitingView
from .state import ControllerModule, State
from .view_table import ViewTable

AWAY = ("spilling", "spilled", "restoring")  # states of buffers that are not on the devices


class SliceDown(ValueError):
    """The slice that has been bound for the sources of a view has no devices now."""


class Views(ControllerModule):
    _state: State
    _admission: Admission
    _atoms: Atoms
    _buffers: Buffers
    _names: BufferNames
    _outbox: TurnOutbox
    _outcomes: Outcomes
    _refs: BufferRefs
    _resources: Resources
    _table: ViewTable

    def __len__(self) -> int:
        """How many wait."""
        return len(self._table.waiting)

    def view(self, session: ClientRecord, call: View, now: int) -> str | None:
        """Returns what is wrong with the call, if the client broke the protocol."""
        if call.buffer <= 0 or session.names.find(call.buffer) is not None:
            return f"it views as buffer {call.buffer}, a name that is in use"
        if session.names.names() >= self._state.config.max_buffers:
            return f"it holds {session.names.names()} buffers, which is the limit"
        sources: dict[int, BufferName] = {}
        for name, _ in call.shards:
            if name not in sources:
                found = self._names.called(session, name)
                if found is None or found[0].released:
                    return f"it views buffer {name}, which it does not hold"
                sources[name] = found[0]
        named = session.enter(BufferName(session, call.buffer))
        view = self._table.waiting[named] = WaitingView(named, call, sources)
        try:
            _check_call(call)
        except ProgramError as error:
            self._outcomes.fail_view(view, Blame("refused", str(error)))
            return None
        for source in sources.values():
            self._table.by_name.setdefault(source, []).append(view)
            if source.blame is not None:
                self._outcomes.fail_view(view, source.blame)
                return None
            self._refs.hold_for_view(view, source)
        self.advance(view)
        return None

    # --- a view is made ------------------------------------------------------------------------------------------

    def work(self) -> None:
        """What some waited for has come: they are ordered right behind it, and views of each right behind that."""
        views = list(self._state.views)
        self._state.views.clear()
        for view in views:
            self.advance(view)

    def advance(self, view: WaitingView) -> None:
        if view.named not in self._table.waiting or len(view.held) < len(view.sources):
            return
        records = {name: self._buffers.all[buffer] for name, buffer in view.held.items()}
        if not self._are_there(view, records):
            return
        named = view.named
        if named.released and not named.readers and not named.gets and named not in self._table.by_name:
            self._table.forget(view)  # nobody wants it any more
            for buffer in view.held.values():
                self._refs.let_go_of(buffer, named.session.number, named.name, view.pins)
            return
        try:
            layout = self._checked(view, records)
        except (Impossible, ProgramError, SliceDown) as error:
            code = "host-lost" if isinstance(error, SliceDown) else "refused"
            self._outcomes.fail_view(view, Blame(code, str(error)))
        else:
            self._order(view, layout)

    def _are_there(self, view: WaitingView, records: dict[int, Buffer]) -> bool:
        """Whether all that it is to share is on the devices, to stay there."""
        spec = view.call.slice
        if self._resources.is_held(view.named.session.number, spec.of or spec.name):
            return False
        if any(record.promise or record.folded for record in records.values()):
            return False
        if not view.pins:
            view.pins = True
            for record in records.values():
                self._refs.pin_for_view(record)
        for name, record in records.items():
            if record.state in AWAY:
                self._admission.bring_back(view.sources[name], self._state.now)
                return False
        return True

    def _order(self, view: WaitingView, layout: Layout) -> None:
        named, state = view.named, self._state
        ident = state.next_buffer
        state.next_buffer += 1
        hosts, key = state.hosts_of(layout.place), self._atoms.intern(layout.place)
        buffers = ranges.folded([view.held[name] for name, _ in view.call.shards])
        self._outbox.step(
            layout.place.island, ViewStep(ident, hosts, layout, buffers, named.session.number, named.name), hosts
        )
        self._table.forget(view)
        self._refs.promise(named, ident, ResultRow(0, -1, -1, layout, 0, key, hosts, exact=True))
        held = list(view.held.values())
        sources = tuple(dict.fromkeys(held))
        for source in sources:
            held.remove(source)
        for source in held:  # it has two names, and was held by both
            self._refs.let_go_of(source, named.session.number, named.name, view.pins)
        self._refs.view_made(ident, sources, buffers)
        unsettled = {source for source in sources if self._buffers[source].state == "promised"}
        self._table.unsettled[ident] = unsettled
        for source in unsettled:
            self._table.awaiting.setdefault(source, {})[ident] = None
        self._refs.entered(ident, -1)
        self.work()
        if not unsettled:
            self._outcomes.settle_view(ident, None)

    # --- a slice's arrays go elsewhere ---------------------------------------------------------------------------

    def wait_again(self, session: ClientRecord) -> None:
        """What waits for sources of this client does not keep these on the devices any more; until it is asked anew."""
        for view in self.waiting_of(session):
            if view.pins:
                view.pins = False
                for buffer in view.held.values():
                    self._refs.pin_for_view(self._buffers[buffer], by=-1)

    def waiting_of(self, session: ClientRecord) -> list[WaitingView]:
        return [view for view in self._table.waiting.values() if view.named.session is session]

    def unfold(self, view: Buffer) -> None:
        """All that it shares is on the devices again."""
        self._refs.folded(view, False)
        self._tell(view)

    def again(self, view: Buffer, place: Place, copied: Mapping[int, int]) -> BufferName:
        """The same view of copies, elsewhere. `copied`: source -> its copy. Returns what is to take its name."""
        named, state = view.owner, self._state
        layout = msgspec.structs.replace(view.layout, place=place)
        ident = state.next_buffer
        state.next_buffer += 1
        hosts, key = state.hosts_of(place), self._atoms.intern(place)
        new = BufferName(named.session, named.name, released=named.released, copies=named)
        self._refs.promise(new, ident, ResultRow(0, -1, -1, layout, 0, key, hosts, exact=True))
        shards = ranges.folded([copied[source] for source in ranges.each(view.shards)])
        self._refs.share(self._buffers[ident], tuple(copied[source] for source in view.sources), shards)
        self._tell(self._buffers[ident])
        return new

    def _tell(self, view: Buffer) -> None:
        step = ViewStep(view.id, view.hosts, view.layout, view.shards, view.client, view.name)
        self._outbox.step(view.layout.place.island, step, view.hosts)

    # --- where it lies -------------------------------------------------------------------------------------------

    def _checked(self, view: WaitingView, records: dict[int, Buffer]) -> Layout:
        """Where the view lies. Raises Impossible or ProgramError unless each of its shards is where it should be, and
        SliceDown if hosts of the sources' slice are lost."""
        call, session = view.call, view.named.session.number
        if not call.slice.of and not self._resources.knows(session, call.slice.name):
            raise Impossible(
                f"slice {call.slice.name!r} is not bound: a view lies on the slice of its sources, or on a part of it"
            )
        found = self._resources.bind(session, call.slice)
        if isinstance(found, MustWait):
            raise SliceDown(f"slice {call.slice.name!r} {found.reason}: a view lies where its sources are")
        layout = laid_out(call.value, call.slice, found.place)
        size = Shards(layout).size
        shards = {name: _shards_of(name, record, layout, size) for name, record in records.items()}
        for device, (name, shard) in zip(found.place.devices(), call.shards, strict=True):
            place, its = self._refs.layout(records[name].id).place, shards[name]
            index = virtual_index(place, device)
            if index < 0:
                raise ProgramError(
                    f"view: buffer {name} has no shard on device {device} of slice {call.slice.name!r}; has a slice "
                    f"moved since the buffer was made?"
                )
            here = its.ordinal(its.shard_of(index))
            if here != shard:
                raise ProgramError(
                    f"view: shard {shard} of buffer {name} is not on device {device} of slice {call.slice.name!r}; "
                    f"shard {here} is"
                )
        return layout

    def client_gone(self, session: ClientRecord) -> None:
        for view in self.waiting_of(session):
            self._outcomes.fail_view(view, Blame("client-lost", f"client {session.name!r} is gone"))


def _check_call(call: View) -> None:
    validate_put(call.value, call.slice, "view")
    if len(call.shards) != call.slice.devices:
        raise ProgramError(
            f"view: it names {len(call.shards)} shards, and slice {call.slice.name!r} has {call.slice.devices} "
            f"devices: name one for each"
        )


def _shards_of(name: int, record: Buffer, view: Layout, size: tuple[int, ...]) -> Shards:
    """The shards of a source, each of which is like a shard of the view."""
    layout = record.layout
    if not record.exact or record.rows >= 0:
        raise ProgramError(
            f"view: buffer {name} is the result of an irregular computation, and its shards differ in size; "
            f"have a computation copy what is to be viewed"
        )
    shards = Shards(layout)
    if (shards.size, layout.dtype) != (size, view.dtype):
        raise ProgramError(
            f"view: shards of buffer {name} are {layout.dtype}{list(shards.size)}, and those of the view are "
            f"{view.dtype}{list(size)}"
        )
    return shards
