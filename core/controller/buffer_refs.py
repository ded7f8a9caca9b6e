"""Counts which clients, runs and transfers hold each buffer, and frees a buffer that nothing holds.

A result is held by its client's handle and, until the step that makes it has entered an order, by its maker's
promise; an argument is held by each run that reads it, until the last gang that reads it has entered the order
(devices run in order, so what is ordered later may take its memory) or the last transfer of it has ended.

A view holds what it shares, from when it is asked for until it is gone itself.

Neighbours: `Buffers` counts, `Ledger` and `Spill` account, `outbox` tells hosts; `outcomes` decides about contents.
The functions that matter: `read`, `promise`, `entered`, `let_go`, `release`, `hold_for_view`.
"""

from collections.abc import Callable

from ..memory import Buffer, Buffers, Ledger, Spill
from ..model import Layout, Range, Shards, Spans, ranged, ranges, spans
from ..protocol import Blame, FoldStep, FreeStep, GetSettled, Refused
from .buffer_names import BufferNames
from .observations import ViewFolded
from .outbox import TurnOutbox
from .plan_rows import ResultRow
from .records import BufferName, RunRecord, WaitingGet, WaitingView
from .state import ControllerModule, State
from .view_table import ViewTable, drop

NOBODY: dict[BufferName, WaitingView] = {}
COPY = "what will take its name"


class BufferRefs(ControllerModule):
    _state: State
    _buffers: Buffers
    _ledger: Ledger
    _names: BufferNames
    _outbox: TurnOutbox
    _spill: Spill
    _table: ViewTable

    def layout(self, buffer: int) -> Layout:
        return self._buffers.all[buffer].layout

    def named(self, buffer: int) -> BufferName | None:
        """The name that its client has for it, while it exists."""
        found = self._buffers.all.get(buffer)
        return found.owner if found is not None else None

    def on_host(self, host: int) -> list[int]:
        """Buffers with a shard on this host, and views of these."""
        return self._one_by_one(lambda buffer: spans.contains(buffer.hosts, host))

    def on_device(self, device: int) -> list[int]:
        return self._one_by_one(lambda b: device in b.layout.place.devices())

    def _one_by_one(self, chosen: Callable[[Buffer], bool]) -> list[int]:
        self._buffers.open(chosen)
        return self._table.with_views([buffer.id for buffer in self._buffers if chosen(buffer)])

    # --- runs read -------------------------------------------------------------------------------------------

    def read(self, run: RunRecord, index: int, named: BufferName) -> None:
        """This run reads it, now or when it has been promised; so it stays until the run is through with it."""
        named.readers[run.id] = run
        if named.buffer in self._buffers.all:  # if it is spoilt and gone, its blame is all there is
            self._take(run, index, named)

    def _take(self, run: RunRecord, index: int, named: BufferName) -> None:
        run.held[index] = named.buffer
        self._buffers.all[named.buffer].holds += 1
        if self._state.watched:
            self._state.see_held(named.buffer, "run", run.id, named.count)

    def give_up(self, named: BufferName) -> None:
        """The client donates it with this call: its name means nothing from here on."""
        named.released = True
        named.session.names.drop(named.name)
        self.drop(named)

    def argument(self, run: RunRecord, index: int) -> list[Buffer]:
        """The records of an argument that the run holds, and of those that are counted as one with it."""
        first = run.held[index]
        if not run.width:
            return [self._buffers.all[first]]
        return self._buffers.over(first, run.width.get(index, 1))

    def touch_argument(self, run: RunRecord, index: int, seq: int) -> None:
        for buffer in self.argument(run, index):
            self._buffers.touch(buffer.id, seq)

    def let_go(self, run: RunRecord, index: int, seq: int | None = None) -> None:
        """The run is through with this argument; `seq` was the last to touch it."""
        records = self.argument(run, index) if run.width else [self._buffers.all[run.held[index]]]
        del run.held[index]
        for record in records:
            buffer = record.id
            if seq is not None:
                self._buffers.touch(buffer, seq)
            if self._state.watched:
                self._state.see_let_go(buffer, "run", run.id, record.count)
            gone = self._buffers.let_go(buffer, used=run.using)
            if gone:
                self._free(gone)
            elif self._state.line:
                self.idle(buffer)

    def read_own(self, run: RunRecord, slot: int) -> None:
        """Hold a result for later steps of its own run. It stays until they have read it, whatever its client does."""
        buffer = run.own[slot] = run.buffer_of(slot)
        self._buffers.hold(buffer)
        self._buffers.use(buffer)
        self._state.see_held(buffer, "run", run.id)

    def own_read(self, run: RunRecord, slot: int, seq: int) -> None:
        """Behind `seq` this run does not read its own result any more."""
        buffer = run.own.pop(slot)
        self.touch(buffer, seq)
        self._state.see_let_go(buffer, "run", run.id)
        self._free(self._buffers.let_go(buffer, used=True))

    def hold_for_transfer(self, buffer: int) -> None:
        """A put or get is under way: the buffer stays, and stays on the devices."""
        self._buffers.hold(buffer).transfers += 1
        self._buffers.use(buffer)
        if self._state.watched:
            self._state.see_held(buffer, "transfer")

    def transfer_over(self, buffer: int) -> None:
        if self._state.watched:
            self._state.see_let_go(buffer, "transfer")
        self._buffers.all[buffer].transfers -= 1
        if gone := self._buffers.let_go(buffer, used=True):
            self._free(gone)
        self.idle(buffer)

    # --- runs make -------------------------------------------------------------------------------------------

    def promise(self, named: BufferName, ident: int, row: ResultRow) -> None:
        """A result, put or view has an id and a layout, so runs that read it may be lowered now."""
        self._create(named, ident, row)
        if named.readers or self._table.waiting:
            self._wake_readers(named)
        for other in named.others:
            self._wake_readers(other)

    def _wake_readers(self, named: BufferName) -> None:
        for view in self._table.by_name.get(named, ()) if self._table.waiting else ():
            self.hold_for_view(view, named)
            self._state.views.append(view)
        for run in list(named.readers.values()):
            if run.using:
                continue  # it has what it reads
            if run.width:
                self._names.cut_arguments(run)
            for index, source in run.sources.items():
                if source is named:
                    self._take(run, index, named)
            self._state.wake.append(run)

    def _create(self, named: BufferName, ident: int, row: ResultRow) -> None:
        handle = (not named.released or bool(named.gets)) and named.copies is None
        client = named.session.number
        self._buffers.create(
            ident, client, named.name, row.key, row.nbytes, handle=handle, exact=row.exact, layout=row.layout,
            hosts=row.hosts, owner=named, sizes=row.sizes, layouts=row.layouts,
        )  # fmt: skip
        named.buffer = ident
        if named.copies is not None:
            self._buffers.hold(ident)
            self._state.see_held(ident, COPY, count=row.count)
        if self._state.watched:
            if handle:
                self._state.see_held(ident, "client", client, row.count)
            self._state.see_held(ident, "its maker", count=row.count)
        if named.others:  # second names from before it was taken back
            named.others = [other for other in named.others if not other.released and other.blame is None]
            for other in named.others:
                other.buffer = ident
                self._hold_alias(other)

    def take_back(self, named: BufferName) -> None:
        """Its run is to be lowered anew, and it with it; so are the runs that read it and have not started."""
        buffer = named.buffer
        if buffer < 0:
            return
        for each in (named, *named.others):
            self._unread(each)
        named.buffer = -1
        if named.alias:
            named.alias = False
            self.drop_alias(buffer, named)
            primary = self.named(buffer)
            if primary is not None:
                primary.read_on = [each for each in primary.read_on if each is not named]
            return
        for other in named.others:  # of runs that have started: they will stand for what is made elsewhere
            other.buffer = -1
            self._state.see_let_go(buffer, "client", other.session.number)
            self._free(self._buffers.let_go(buffer))
        if buffer in self._buffers.all:
            self._buffers.all[buffer].aliases = 0
        self.never(buffer, Blame("moved", "it is made elsewhere"))
        if named.copies is not None:
            self._let_go_copy(buffer, named.count)
        if buffer in self._buffers and self._buffers[buffer].handle:
            self._state.see_let_go(buffer, "client", named.session.number, named.count)
            self._free(self._buffers.release(named.session.number, named.name))

    def _unread(self, named: BufferName) -> None:
        """Let go of it for all runs that have not started, and views that wait."""
        if self._table.waiting:
            self._take_from_views(named)
        for run in named.readers.values():
            if run.width and not run.using:
                self._names.cut_arguments(run)
            for index in [] if run.using else list(run.held):
                if run.sources[index] is named:
                    self.let_go(run, index)

    def never(self, buffer: int, blame: Blame) -> None:
        """The step that was to make it never enters an order."""
        self._state.see_let_go(buffer, "its maker", count=self._buffers[buffer].count)
        self._free(self._buffers.never_made(buffer, blame))

    def alias(self, named: BufferName, source: BufferName) -> None:
        """A program that returns an argument, or a value twice, gives its client one more name for one buffer."""
        named.stand_for(source)
        if named.wanted:
            self._buffers.all[named.buffer].owner.others.append(named)
            self._hold_alias(named)
        else:
            self._read_on(named)
        self._wake_readers(named)

    def _hold_alias(self, named: BufferName) -> None:
        self._buffers.hold(named.buffer, alias=True)
        self._state.see_held(named.buffer, "client", named.session.number)

    def entered(self, first: int, seq: int, count: int = 1) -> None:
        """The step that makes it is in the order: its promise is kept, its memory is its own."""
        for record in self._buffers.over(first, count):
            buffer = record.id
            if self._state.watched:
                self._state.see_let_go(buffer, "its maker", count=record.count)
            gone = self._buffers.ordered(buffer, seq)
            if gone:
                self._free(gone)
            if buffer in self._state.for_buffer or record.views:
                self.there(record)

    def there(self, record: Buffer) -> None:
        """It has entered an order, or has been copied: runs and views that waited for that go on."""
        state, buffer = self._state, record.id
        if buffer in state.for_buffer:
            state.wake.extend(state.for_buffer.pop(buffer).values())
        if record.views and self._table.waiting:
            state.views.extend(self._table.holders.get(buffer, NOBODY).values())

    def stop_reading(self, run: RunRecord) -> None:
        """It has ended."""
        for index in sorted(run.held):
            self.let_go(run, index)
        for index, source in run.sources.items():
            if type(source) is BufferName:
                for named in source.parts(run.width[index]) if index in run.width else (source,):
                    named.readers.pop(run.id, None)

    def idle(self, buffer: int) -> None:
        """Nobody uses it for now: it could be spilled for those that wait for memory."""
        found = self._buffers.all.get(buffer)
        if self._state.line and found is not None and self._spill.is_idle(found):
            self._state.fresh = True

    def shrink(self, run: RunRecord, slot: int, size: int) -> None:
        """An irregular output is there: its leading dimension is `size`, not the bound."""
        record = run.plan.slots[slot]
        if record.keep and run.buffer_of(slot) not in self._buffers:
            return  # nobody wanted it: it has been freed, with its bound
        bound = Shards(record.layout).size[0]
        nbytes = record.nbytes * min(size, bound) // bound if bound else 0
        self._ledger.shrunk(run.id, slot, nbytes)
        if run.buffer_of(slot) in self._buffers:
            self._buffers.shrink(run.buffer_of(slot), nbytes)
            self._buffers.all[run.buffer_of(slot)].rows = size

    def touch(self, buffer: int, seq: int) -> None:
        if buffer in self._buffers.all:
            self._buffers.touch(buffer, seq)

    # --- clients ---------------------------------------------------------------------------------------------

    def release(self, named: BufferName) -> None:
        """The client lets go of its name."""
        named.session.names.drop(named.name)
        if named.released:
            return
        named.released = True
        if not named.gets:  # a get that was asked for before is answered first
            self.drop(named)

    def drop(self, named: BufferName) -> None:
        """The client's own hold ends."""
        if named.gets:
            late = Blame("user", f"buffer {named.name} was released before it had contents to get")
            self.refuse_gets(named, late)
        if named.alias:
            if named.blame is None:
                self.drop_alias(named.buffer, named)
            return
        record = self._buffers.all.get(named.buffer)
        if record is not None and record.handle:
            self.drop_handle(named)

    def refuse_gets(self, named: BufferName, blame: Blame) -> None:
        """The buffer has no contents, and will have none."""
        gets = named.take_gets()
        for each in gets:
            if each.transfer >= 0:
                self.settle_get(each, blame)
            else:
                self._outbox.note(each.session.peer, Refused("get", each.call.request, blame))
        if gets and named.released:
            self.drop(named)

    def settle_get(self, get: WaitingGet, blame: Blame | None) -> None:
        """What hosts have sent early is final, or worth nothing."""
        get.over = True
        self._outbox.note(get.session.peer, GetSettled(get.transfer, blame))

    def drop_alias(self, buffer: int, named: BufferName) -> None:
        primary = self.named(buffer)
        if primary is None or named not in primary.others:
            return  # it had been given up before it stood for anything
        primary.others.remove(named)
        self._read_on(named)
        self._buffers.all[buffer].aliases -= 1
        self._state.see_let_go(buffer, "client", named.session.number)
        self._free(self._buffers.let_go(buffer))

    def _read_on(self, named: BufferName) -> None:
        """No client holds it by this name; runs may read it by it, and what becomes of it concerns them."""
        primary = self.named(named.buffer)
        if primary is not None and named.readers:
            primary.read_on = [*(each for each in primary.read_on if each.readers), named]

    def drop_handle(self, named: BufferName) -> None:
        if self._state.watched:
            self._state.see_let_go(named.buffer, "client", named.session.number, named.count)
        self._free(self._buffers.release(named.session.number, named.name))

    def adopt(
        self, named: BufferName, ident: int, layout: Layout, nbytes: int, key: int, shards: tuple[int, ...]
    ) -> None:
        """After a restart: hosts still have it (it is counted), and this client says that it is its own; or a view of
        its own shares it. `shards`: of a view. It is held until `dropped`."""
        hosts = self._state.hosts_of(layout.place)
        self._create(named, ident, ResultRow(0, -1, -1, layout, nbytes, key, hosts, exact=True))
        self._buffers.hold(ident)
        self.share(self._buffers[ident], tuple(dict.fromkeys(shards)), ranges.folded(shards))
        named.fill()

    def share(self, record: Buffer, sources: tuple[int, ...], shards: tuple[int | Range, ...]) -> None:
        """It is a view of these, which are there, if there are any; so it is there, too."""
        for source in sources:
            shared = self._buffers.hold(source)
            shared.views += 1
            shared.shared += 1
            self._state.see_held(source, _holder(record.client, record.name))
        self.view_made(record.id, sources, shards)
        self.entered(record.id, -1)
        self._buffers.filled(record.id)

    # --- a copy takes the place of what it copies ----------------------------------------------------------------

    def put_in_place(self, new: BufferName) -> None:
        """The name whose buffer this copies stands for the copy from now on: for its client, for views that wait, and
        for runs that have not started. Others read the old buffer to their end. `drop_copy` follows."""
        old = new.copies
        assert old is not None
        source, copy = self._buffers[old.buffer], self._buffers[new.buffer]
        names = (old, *old.others, *old.read_on)
        self._buffers.hold(source.id)
        for each in names:
            self._unread(each)
            each.buffer = copy.id
        copy.owner, copy.rows = old, source.rows
        reading = {run.id: run for each in names for run in each.readers.values() if run.using}
        source.owner = BufferName(  # a view elsewhere may keep it for longer than its name has its copy
            old.session, old.name, source.id, ready=old.ready, released=True, readers=reading, count=source.count
        )
        if source.handle:
            self._buffers.hand_over(source.id, copy.id)
            self._state.see_let_go(source.id, "client", source.client, source.count)
            self._state.see_held(copy.id, "client", copy.client, copy.count)
        for other in old.others:
            self._hold_alias(other)
            source.aliases -= 1
            self._state.see_let_go(source.id, "client", other.session.number)
            self._buffers.let_go(source.id)
        for each in names:
            self._wake_readers(each)
        self._free(self._buffers.let_go(source.id))

    def drop_copy(self, new: BufferName) -> None:
        """It has taken its place, or is not to take any."""
        if new.copies is not None and new.buffer >= 0:
            self._let_go_copy(new.buffer, new.count)
        new.copies = None

    def _let_go_copy(self, first: int, count: int) -> None:
        for record in self._buffers.over(first, count):
            self._state.see_let_go(record.id, COPY, count=record.count)
            self._free(self._buffers.let_go(record.id))

    # --- views hold ------------------------------------------------------------------------------------------

    def hold_for_view(self, view: WaitingView, source: BufferName) -> None:
        """It has been asked for: what it shares stays, whatever becomes of the client's names for it."""
        record = self._buffers.all.get(source.buffer)
        if record is not None and source.name not in view.held:
            view.held[source.name] = record.id
            self._table.holders.setdefault(record.id, {})[view.named] = view
            record.holds += 1
            record.views += 1
            self._state.see_held(record.id, _holder(view.named.session.number, view.named.name))

    def pin_for_view(self, record: Buffer, by: int = 1) -> None:
        """It has entered an order, and stays on the devices from here on; or need not stay (`by=-1`)."""
        record.shared += by

    def fold(self, view: Buffer) -> None:
        """Its hosts have no array for it for a while, so what it shares may leave the devices."""
        self._outbox.step(view.layout.place.island, FoldStep(view.id), view.hosts)
        self.folded(view, True)

    def folded(self, view: Buffer, folded: bool) -> None:
        view.folded = folded
        self._state.observe(ViewFolded(view.id, folded))
        for source in view.sources:
            self.pin_for_view(self._buffers[source], by=-1 if folded else 1)

    def let_go_of(self, source: int, client: int, name: int, pinned: bool, last_seq: int = -1) -> None:
        """A view does not hold it any more."""
        record = self._buffers.all[source]
        record.views -= 1
        record.shared -= pinned
        record.last_seq = max(record.last_seq, last_seq)
        self._state.see_let_go(source, _holder(client, name))
        self.dropped(source)

    def view_made(self, ident: int, sources: tuple[int, ...], shards: tuple[int | Range, ...]) -> None:
        self._buffers[ident].sources, self._buffers[ident].shards = sources, shards
        for source in sources:
            self._table.views_of.setdefault(source, {})[ident] = None

    def _take_from_views(self, source: BufferName) -> None:
        """It will have another buffer."""
        for view in self._table.by_name.get(source, ()):
            buffer = view.held.pop(source.name, None)
            if buffer is not None:
                if buffer not in view.held.values():
                    drop(self._table.holders, buffer, view.named)
                self.let_go_of(buffer, view.named.session.number, view.named.name, view.pins)

    def _view_gone(self, view: Buffer) -> None:
        """No reference to it is left, and its hosts have been told. What it shares may be free behind its last use."""
        for source in view.sources:
            drop(self._table.views_of, source, view.id)
            self.let_go_of(source, view.client, view.name, not view.folded, view.last_seq)

    # --- nobody holds it -------------------------------------------------------------------------------------

    def _free(self, gone: list[Buffer]) -> None:
        for buffer in gone:
            kept = buffer.on_device or buffer.on_host
            if buffer.copying or buffer.on_host:
                self._spill.drop(buffer)
            elif buffer.on_device:
                buffer.on_device = False
                self._ledger.free(buffer.key, buffer.nbytes, buffer.last_seq)
            if kept:
                self.free_on_hosts(buffer.id, buffer.layout, buffer.hosts, buffer.count)
            if buffer.sources:
                self._view_gone(buffer)

    def dropped(self, buffer: int) -> None:
        """A hold of it that was no run's, and no use, is over."""
        self._free(self._buffers.let_go(buffer))
        if self._state.line:
            self.idle(buffer)

    def free_on_hosts(self, buffer: int, layout: Layout, hosts: Spans, count: int = 1) -> None:
        self._outbox.step(layout.place.island, FreeStep((ranged(buffer, count),)), hosts)


def _holder(client: int, name: int) -> str:
    return f"view {name} of client {client}"
