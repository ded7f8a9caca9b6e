"""Views: arrays whose shards are shards of other arrays, on the same devices.

A view takes no memory. It holds its sources, whatever becomes of the client's names for them, until the last reference
to the view is gone. Meanwhile what it shares is neither spilled nor taken over by a run to which it is donated: such a
run gets memory of its own. A view whose source fails or is lost fails with it, for the same reason.

A view *waits* until all its sources have entered an order, and holds those that exist; like those of a run that waits,
they may be spilled meanwhile. Those that were come back then. When all are on the devices, the view is bound, checked
and ordered in one moment: hosts make it behind all that fills its sources (`ViewStep`). If a slice has moved since its
sources were made, they do not lie where the view should, and the view is refused.

Neighbours: `clients` brings calls; `buffer_refs` counts, and tells what happens to sources. The functions that matter:
`view`, `_try`, `_checked`, `gone`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from ..memory import Buffer, Buffers
from ..model import (
    Atoms,
    Impossible,
    Layout,
    ProgramError,
    Shards,
    laid_out,
    ranges,
    validate_put,
    virtual_index,
)
from ..protocol import Blame, ContentsReady, View, ViewStep
from ..slices import MustWait, Resources
from .buffer_names import BufferNames
from .outbox import TurnOutbox
from .plan_rows import ResultRow
from .records import BufferName, ClientRecord
from .state import State

if TYPE_CHECKING:
    from .admission import Admission
    from .buffer_refs import BufferRefs
    from .contents import Contents
    from .runs import Runs

K = TypeVar("K")
V = TypeVar("V")
AWAY = ("spilling", "spilled", "restoring")  # states of buffers that are not on the devices


class WaitingView(msgspec.Struct, eq=False):
    """A view that has not been ordered yet."""

    named: BufferName
    call: View
    sources: dict[int, BufferName]  # by the client's name
    held: dict[int, int] = {}  # the client's name -> the buffer that it holds
    pins: bool = False  # all of these have been ordered, and stay on the devices from now on


class Views:
    admission: Admission
    contents: Contents
    refs: BufferRefs
    runs: Runs

    def __init__(
        self, state: State, *, atoms: Atoms, buffers: Buffers, names: BufferNames, outbox: TurnOutbox,
        resources: Resources,
    ) -> None:  # fmt: skip
        self._state = state
        self._atoms = atoms
        self._buffers = buffers
        self._names = names
        self._outbox = outbox
        self._resources = resources
        self.waiting: dict[BufferName, WaitingView] = {}
        self._by_name: dict[BufferName, list[WaitingView]] = {}  # what waits for, or holds, this source
        self._holders: dict[int, dict[BufferName, WaitingView]] = {}  # source -> those that hold it, and wait
        self._views_of: dict[int, dict[int, None]] = {}  # source -> views of it that have been ordered
        # view, which may be gone -> sources whose contents are not final; and the other way round
        self.unsettled: dict[int, set[int]] = {}
        self._awaiting: dict[int, dict[int, None]] = {}

    # --- in ------------------------------------------------------------------------------------------------------

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
        session.top = max(session.top, call.buffer)
        named = session.names.setdefault(call.buffer, BufferName(session, call.buffer))
        view = self.waiting[named] = WaitingView(named, call, sources)
        try:
            _check_call(call)
        except ProgramError as error:
            self._fail(view, Blame("refused", str(error)))
            return None
        for source in sources.values():
            self._by_name.setdefault(source, []).append(view)
            if source.blame is not None:
                self._fail(view, source.blame)
                return None
            self._hold(view, source)
        self._try(view)
        return None

    def _hold(self, view: WaitingView, source: BufferName) -> None:
        record = self._buffers.all.get(source.buffer)
        if record is not None and source.name not in view.held:
            view.held[source.name] = record.id
            self._holders.setdefault(record.id, {})[view.named] = view
            record.holds += 1
            record.views += 1
            self.refs.see_held(record.id, _holder(view.named.session.number, view.named.name))

    def _let_go(self, source: int, client: int, name: int, pinned: bool, last_seq: int = -1) -> None:
        record = self._buffers.all[source]
        record.views -= 1
        record.shared -= pinned
        record.last_seq = max(record.last_seq, last_seq)
        self.refs.see_let_go(source, _holder(client, name))
        self.refs.dropped(source)

    def _forget(self, view: WaitingView) -> None:
        """It does not wait any more."""
        del self.waiting[view.named]
        for source in view.sources.values():
            views = self._by_name.get(source, [])
            if view in views:
                views.remove(view)
                if not views:
                    del self._by_name[source]
        for buffer in dict.fromkeys(view.held.values()):
            _drop(self._holders, buffer, view.named)

    # --- what happens to sources ---------------------------------------------------------------------------------

    def named_there(self, source: BufferName) -> None:
        """It has a buffer now."""
        for view in self._by_name.get(source, [])[:]:
            self._hold(view, source)
            self._try(view)

    def wait_for(self, source: BufferName) -> bool:
        return source in self._by_name

    def taken_back(self, source: BufferName) -> None:
        """It will have another buffer."""
        for view in self._by_name.get(source, ()):
            buffer = view.held.pop(source.name, None)
            if buffer is not None:
                if buffer not in view.held.values():
                    _drop(self._holders, buffer, view.named)
                self._let_go(buffer, view.named.session.number, view.named.name, view.pins)

    def there(self, buffer: int) -> None:
        """It has entered an order, or has been copied."""
        for view in list(self._holders.get(buffer, {}).values()):
            self._try(view)

    def failed(self, source: BufferName, blame: Blame) -> None:
        """It will never have contents."""
        for view in self._by_name.get(source, [])[:]:
            self._fail(view, blame)

    def settled(self, buffer: int, blame: Blame | None) -> None:
        """Its contents are final. Steps that read a view of it cannot settle before, though both may be gone by now."""
        for view in self._awaiting.pop(buffer, ()):
            left = self.unsettled.get(view)
            if left is None:  # it is a view of another one of these, too
                continue
            left.discard(buffer)
            if blame is not None:
                self._lose(view, blame)
            elif not left:
                self._settle(view, None)

    def unsettled_in(self, first: int, count: int) -> set[int]:
        """Those of these buffers for which views wait."""
        if count <= len(self._awaiting):
            return {each for each in range(first, first + count) if each in self._awaiting}
        return {each for each in self._awaiting if first <= each < first + count}

    def spoilt(self, buffer: int, blame: Blame) -> None:
        """It has lost its contents, or will never have any: neither have its views."""
        for view in list(self._holders.get(buffer, {}).values()):
            self._fail(view, blame)
        for ident in list(self._views_of.get(buffer, ())):
            self._lose(ident, blame)

    def _lose(self, ident: int, blame: Blame) -> None:
        if ident in self._buffers and self._buffers[ident].blame is None:
            self.refs.lost(ident, blame)
        if ident in self.unsettled:
            self._settle(ident, blame)

    # --- a view is made ------------------------------------------------------------------------------------------

    def _try(self, view: WaitingView) -> None:
        if view.named not in self.waiting or len(view.held) < len(view.sources):
            return
        records = {name: self._buffers.all[buffer] for name, buffer in view.held.items()}
        for record in records.values():
            if record.promise:
                return
        if not view.pins:
            view.pins = True
            for record in records.values():
                record.shared += 1
        for name, record in records.items():
            if record.state in AWAY:
                self.admission.bring_back(view.sources[name], self._state.now)
                return
        named = view.named
        if named.released and not named.readers and not named.gets and named not in self._by_name:
            self._forget(view)  # nobody wants it any more
            for buffer in view.held.values():
                self._let_go(buffer, named.session.number, named.name, view.pins)
            return
        try:
            layout = self._checked(view, records)
        except (Impossible, ProgramError) as error:
            self._fail(view, Blame("refused", str(error)))
        else:
            self._order(view, layout)

    def _order(self, view: WaitingView, layout: Layout) -> None:
        named, state = view.named, self._state
        ident = state.next_buffer
        state.next_buffer += 1
        hosts, key = state.hosts_of(layout.place), self._atoms.intern(layout.place)
        buffers = ranges.folded([view.held[name] for name, _ in view.call.shards])
        step = ViewStep(ident, hosts, layout, buffers, named.session.number, named.name)
        self._outbox.step(layout.place.island, step, hosts)
        self._forget(view)
        self.refs.promise(named, ident, ResultRow(0, -1, -1, layout, 0, key, hosts, exact=True))
        record = self._buffers[ident]
        record.sources = tuple(dict.fromkeys(view.held.values()))
        held = list(view.held.values())
        for source in record.sources:
            held.remove(source)
        for source in held:  # it has two names, and was held by both
            self._let_go(source, named.session.number, named.name, view.pins)
        for source in record.sources:
            self._views_of.setdefault(source, {})[ident] = None
        unsettled = {source for source in record.sources if self._buffers[source].state == "promised"}
        self.unsettled[ident] = unsettled
        for source in unsettled:
            self._awaiting.setdefault(source, {})[ident] = None
        self.refs.entered(ident, -1)
        if not unsettled:
            self._settle(ident, None)

    def _settle(self, ident: int, blame: Blame | None) -> None:
        for source in self.unsettled.pop(ident):
            _drop(self._awaiting, source, ident)
        for named in self.refs.settled(ident, blame):
            if not named.released and named.blame is None:
                self._outbox.note(named.session.peer, ContentsReady((named.name,)))
            self.contents.ready(named, self._state.now)

    def _fail(self, view: WaitingView, blame: Blame) -> None:
        named = view.named
        if named not in self.waiting:
            return
        self._forget(view)
        for buffer in view.held.values():
            self._let_go(buffer, named.session.number, named.name, view.pins)
        named.blame = blame
        if not named.released:
            self._outbox.note(named.session.peer, ContentsReady((named.name,), blame))
        self.contents.refuse_gets(named, blame)
        self.failed(named, blame)
        for run in list(named.readers.values()):
            self.runs.fail(run, blame, self._state.now)

    # --- where it lies -------------------------------------------------------------------------------------------

    def _checked(self, view: WaitingView, records: dict[int, Buffer]) -> Layout:
        """Where the view lies. Raises Impossible or ProgramError unless each of its shards is where it should be."""
        call, session = view.call, view.named.session.number
        if not call.slice.of and not self._resources.knows(session, call.slice.name):
            raise Impossible(
                f"slice {call.slice.name!r} is not bound: a view lies on the slice of its sources, or on a part of it"
            )
        found = self._resources.bind(session, call.slice)
        if isinstance(found, MustWait):
            raise Impossible(f"slice {call.slice.name!r} {found.reason}: a view lies where its sources are")
        layout = laid_out(call.value, call.slice, found.place)
        size = Shards(layout).size
        shards = {name: _shards_of(name, record, layout, size) for name, record in records.items()}
        for device, (name, shard) in zip(found.place.devices(), call.shards, strict=True):
            place, its = self.refs.layout(records[name].id).place, shards[name]
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

    # --- out -----------------------------------------------------------------------------------------------------

    def gone(self, record: Buffer) -> None:
        """No reference to it is left, and its hosts have been told. What it shares may be free behind its last use."""
        for source in record.sources:
            _drop(self._views_of, source, record.id)
            self._let_go(source, record.client, record.name, True, record.last_seq)

    def with_views(self, buffers: list[int]) -> list[int]:
        """These, and all views of them."""
        found = dict.fromkeys(buffers)
        todo = list(found)
        while todo:
            for view in self._views_of.get(todo.pop(), ()):
                if view not in found:
                    found[view] = None
                    todo.append(view)
        return sorted(found)

    def client_gone(self, session: ClientRecord) -> None:
        for view in [view for view in self.waiting.values() if view.named.session is session]:
            self._fail(view, Blame("client-lost", f"client {session.name!r} is gone"))

    def adopt(self, record: Buffer, sources: tuple[int, ...]) -> None:
        """After a restart: hosts still have this view, and its client says that it is its own."""
        for source in sources:
            shared = self._buffers.hold(source)
            shared.views += 1
            shared.shared += 1
            self.refs.see_held(source, _holder(record.client, record.name))
            self._views_of.setdefault(source, {})[record.id] = None
        record.sources = sources


def _holder(client: int, name: int) -> str:
    return f"view {name} of client {client}"


def _drop(table: dict[int, dict[K, V]], key: int, value: K) -> None:
    """Takes it out of what is kept for this key, and the key with the last one."""
    kept = table.get(key)
    if kept is not None and value in kept:
        del kept[value]
        if not kept:
            del table[key]


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
    assert layout is not None
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
