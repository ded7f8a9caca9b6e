"""Counts which clients, runs and transfers hold each buffer, and frees a buffer that nothing holds.

A result is held by its client's handle and, until the step that makes it has entered an order, by its maker's
promise; an argument is held by each run that reads it, until the last gang that reads it has entered the order
(devices run in order, so what is ordered later may take its memory) or the last transfer of it has ended.

Neighbours: `buffers` counts, `ledger` and `spill` account, hosts are told by the islands' streams.
The functions that matter: `read`, `promise`, `entered`, `let_go`, `settled`, `release`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..invariants import BufferHeld, BufferLetGo, BufferLost
from ..memory import Buffer, Buffers, Ledger, Spill
from ..model import Layout, Shards, Spans, ranged, spans
from ..protocol import Blame, ContentsReady, FreeStep
from .buffer_names import BufferNames
from .outbox import TurnOutbox
from .plan_rows import PlanRows, ResultRow
from .records import BufferName, RunRecord
from .state import State
from .unkept_results import UnkeptResults
from .views import Views

if TYPE_CHECKING:
    from .admission import Admission
    from .contents import Contents
    from .runs import Runs


# Of a run, what its client keeps: as in `RunHeader`.
Kept = tuple[tuple[tuple[int, int, int], ...], tuple[tuple[int, int, int, int], ...]]


class BufferRefs:
    admission: Admission
    contents: Contents
    runs: Runs

    def __init__(
        self,
        state: State,
        *,
        buffers: Buffers,
        ledger: Ledger,
        names: BufferNames,
        outbox: TurnOutbox,
        spill: Spill,
        views: Views,
    ) -> None:
        self._state = state
        self._buffers = buffers
        self._ledger = ledger
        self._names = names
        self._outbox = outbox
        self._spill = spill
        self._views = views
        self.unkept = UnkeptResults(state, buffers=buffers, ledger=ledger, refs=self)

    def layout(self, buffer: int) -> Layout:
        layout = self._buffers.all[buffer].layout
        assert layout is not None
        return layout

    def named(self, buffer: int) -> BufferName | None:
        """The name that its client has for it, while it exists."""
        found = self._buffers.all.get(buffer)
        return found.owner if found is not None else None

    def on_host(self, host: int) -> list[int]:
        """Buffers with a shard on this host, and views of these."""
        return self._one_by_one(lambda buffer: spans.contains(buffer.hosts, host))

    def on_device(self, device: int) -> list[int]:
        return self._one_by_one(lambda b: b.layout is not None and device in b.layout.place.devices())

    def _one_by_one(self, chosen: Callable[[Buffer], bool]) -> list[int]:
        self._buffers.open(chosen)
        return self._views.with_views([buffer.id for buffer in self._buffers if chosen(buffer)])

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
            self.see_held(named.buffer, "run", run.id, named.count)

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
        records = self.argument(run, index)
        del run.held[index]
        for record in records:
            buffer = record.id
            if seq is not None:
                self._buffers.touch(buffer, seq)
            if self._state.watched:
                self.see_let_go(buffer, "run", run.id, record.count)
            gone = self._buffers.let_go((buffer,), used=run.using)
            if gone:
                self._free(gone)
            elif self.admission.line:
                self.admission.idle(buffer)

    def read_own(self, run: RunRecord, slot: int) -> None:
        """Hold a result for later steps of its own run. It stays until they have read it, whatever its client does."""
        buffer = run.own[slot] = run.buffer_of(slot)
        self._buffers.hold(buffer)
        self._buffers.use(buffer)
        self.see_held(buffer, "run", run.id)

    def own_read(self, run: RunRecord, slot: int, seq: int) -> None:
        """Behind `seq` this run does not read its own result any more."""
        buffer = run.own.pop(slot)
        self.touch(buffer, seq)
        self.see_let_go(buffer, "run", run.id)
        self._free(self._buffers.let_go((buffer,), used=True))

    def hold_for_transfer(self, buffer: int) -> None:
        """A put or get is under way: the buffer stays, and stays on the devices."""
        self._buffers.hold(buffer).transfers += 1
        self._buffers.use(buffer)
        if self._state.watched:
            self.see_held(buffer, "transfer")

    def transfer_over(self, buffer: int) -> None:
        if self._state.watched:
            self.see_let_go(buffer, "transfer")
        self._buffers.all[buffer].transfers -= 1
        if gone := self._buffers.let_go((buffer,), used=True):
            self._free(gone)
        self.admission.idle(buffer)

    # --- runs make -------------------------------------------------------------------------------------------

    def promise(self, named: BufferName, ident: int, row: ResultRow) -> None:
        """A result, put or view has an id and a layout, so runs that read it may be lowered now."""
        self._create(named, ident, row)
        if named.readers or self._views.waiting:
            self._wake_readers(named)
        for other in named.others:
            self._wake_readers(other)

    def promise_results(self, run: RunRecord, rows: PlanRows) -> Kept:
        """Give results buffers. Returns those that the client keeps: their slots, the client, and its names."""
        held, base, session = run.held, run.base, run.session
        if not run.names:
            run.names = [BufferName(session, 0, released=True) for _ in rows.results]
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
            source = run.sources[row.arg] if row.arg in held else first.setdefault(slot, named)
            if source is not named and type(source) is BufferName:
                if named.wanted or named.readers or self._views.wait_for(named):
                    self.alias(named, source)
            else:
                made.setdefault(row.maker, []).append((slot, base + slot, row.count))
                self.promise(named, base + slot, row)
        run.made_results = made
        return tuple(kept), tuple(together)

    def _wake_readers(self, named: BufferName) -> None:
        if self._views.waiting:
            self._views.named_there(named)
        for run in list(named.readers.values()):
            if run.width:
                self._names.cut_arguments(run)
            for index, source in run.sources.items():
                if source is named:
                    self._take(run, index, named)
            self._state.wake.append(run)

    def _create(self, named: BufferName, ident: int, row: ResultRow) -> None:
        handle = not named.released or bool(named.gets)
        client = named.session.number
        self._buffers.create(
            ident, client, named.name, row.key, row.nbytes, handle=handle, exact=row.exact, layout=row.layout,
            hosts=row.hosts, owner=named, sizes=row.sizes, layouts=row.layouts,
        )  # fmt: skip
        named.buffer = ident
        if self._state.watched:
            if handle:
                self.see_held(ident, "client", client, row.count)
            self.see_held(ident, "its maker", count=row.count)
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
            self._drop_alias(buffer, named)
            primary = self.named(buffer)
            if primary is not None:
                primary.read_on = [each for each in primary.read_on if each is not named]
            return
        for other in named.others:  # of runs that have started: they will stand for what is made elsewhere
            other.buffer = -1
            self.see_let_go(buffer, "client", other.session.number)
            self._free(self._buffers.let_go((buffer,)))
        if buffer in self._buffers.all:
            self._buffers.all[buffer].aliases = 0
        self.never(buffer, Blame("moved", "it is made elsewhere"))
        if buffer in self._buffers and self._buffers[buffer].handle:
            self.see_let_go(buffer, "client", named.session.number, named.count)
            self._free(self._buffers.release(named.session.number, named.name))

    def _unread(self, named: BufferName) -> None:
        """Let go of it for all runs that have not started, and views that wait."""
        if self._views.waiting:
            self._views.taken_back(named)
        for run in named.readers.values():
            if run.width and not run.using:
                self._names.cut_arguments(run)
            for index in [] if run.using else list(run.held):
                if run.sources[index] is named:
                    self.let_go(run, index)

    def never(self, buffer: int, blame: Blame) -> None:
        """The step that was to make it never enters an order."""
        self.see_let_go(buffer, "its maker", count=self._buffers[buffer].count)
        self._free(self._buffers.never_made(buffer, blame))

    def alias(self, named: BufferName, source: BufferName) -> None:
        """A program that returns an argument, or a value twice, gives its client one more name for one buffer."""
        named.buffer = source.buffer
        named.alias = True
        named.ready = source.ready
        if named.wanted:
            self._buffers.all[named.buffer].owner.others.append(named)
            self._hold_alias(named)
        else:
            self._read_on(named)
        self._wake_readers(named)

    def _hold_alias(self, named: BufferName) -> None:
        self._buffers.hold(named.buffer).aliases += 1
        self.see_held(named.buffer, "client", named.session.number)

    def entered(self, first: int, seq: int, count: int = 1) -> None:
        """The step that makes it is in the order: its promise is kept, its memory is its own."""
        for record in self._buffers.over(first, count):
            buffer = record.id
            if self._state.watched:
                self.see_let_go(buffer, "its maker", count=record.count)
            gone = self._buffers.ordered(buffer, seq)
            if gone:
                self._free(gone)
            if buffer in self.admission.for_buffer:
                self.admission.buffer_there(buffer)
            if record.views and self._views.waiting:
                self._views.there(buffer)

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
        waiting |= self._views.unsettled_in(first, count)
        found = [self._settled(each, there.get(each), blame) for each in sorted(there.keys() | waiting)]
        return [named for names in found for named in names]

    def _settled(self, buffer: int, record: Buffer | None, blame: Blame | None) -> list[BufferName]:
        if buffer in self._state.readers:
            self._state.settling.append((buffer, blame))
        if self._views.unsettled:
            self._views.settled(buffer, blame)
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
        if self.admission.line:
            self.admission.idle(buffer)
        return names

    def spoil_results(self, run: RunRecord, blame: Blame) -> None:
        """Spoil the results that a failed run has not made. Runs that read them fail with it."""
        if run.unkept:
            self.unkept.never(run, blame)
        for named in run.result_names():
            if named.alias or (named.buffer >= 0 and named.ready):
                continue
            if named.blame is None:
                named.blame = blame
            self.contents.refuse_gets(named, named.blame)
            if self._views.waiting:
                self._views.failed(named, named.blame)
            if named.buffer >= 0 and named.buffer in self._buffers:
                if self._buffers[named.buffer].promise:
                    self.never(named.buffer, blame)
                if named.buffer in self._buffers:
                    self.spoil(named.buffer, blame)
            for reader in list(named.readers.values()):
                self.runs.fail(reader, blame, self._state.now)

    def spoil(self, buffer: int, blame: Blame) -> None:
        """It keeps its blame while a run holds it; the client's handle has nothing left to hold."""
        self._buffers.poison(buffer, blame)
        named = self.named(buffer)
        if named is None:
            return
        for other in [*named.others, *named.read_on]:
            other.blame, other.ready = other.blame or blame, False
            self.contents.refuse_gets(other, blame)
            self._drop_alias(buffer, other)
            for run in list(other.readers.values()):
                self.runs.fail(run, blame, self._state.now)
        named.blame = named.blame or blame
        self.contents.refuse_gets(named, named.blame)
        record = self._buffers.all.get(buffer)
        if record is not None and record.views:
            self._views.spoilt(buffer, blame)
        if not named.released and buffer in self._buffers and self._buffers[buffer].handle:
            self._drop_handle(named)

    def lost(self, buffer: int, blame: Blame) -> None:
        """A buffer was lost with a host or device: its client is told its name, and runs that read it fail."""
        named = self.named(buffer)
        if named is None or buffer not in self._buffers or self._buffers[buffer].promise:
            return  # not made yet: its run is judged by where it was to be made
        self._state.observe(BufferLost(buffer))
        named.ready = False
        names = [each for each in (named, *named.others) if not each.released and each.blame is None]
        for each in names:
            self._outbox.note(each.session.peer, ContentsReady((each.name,), blame))
        known = (named, *named.others, *named.read_on)
        readers = [run for each in known for run in each.readers.values()]
        self.spoil(buffer, blame)
        for run in readers:
            self.runs.fail(run, blame, self._state.now)

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
            self.contents.refuse_gets(named, late)
        if named.alias:
            if named.blame is None:
                self._drop_alias(named.buffer, named)
            return
        record = self._buffers.all.get(named.buffer)
        if record is not None and record.handle:
            self._drop_handle(named)

    def _drop_alias(self, buffer: int, named: BufferName) -> None:
        primary = self.named(buffer)
        if primary is None or named not in primary.others:
            return  # it had been given up before it stood for anything
        primary.others.remove(named)
        self._read_on(named)
        self._buffers.all[buffer].aliases -= 1
        self.see_let_go(buffer, "client", named.session.number)
        self._free(self._buffers.let_go((buffer,)))

    def _read_on(self, named: BufferName) -> None:
        """No client holds it by this name; runs may read it by it, and what becomes of it concerns them."""
        primary = self.named(named.buffer)
        if primary is not None and named.readers:
            primary.read_on = [*(each for each in primary.read_on if each.readers), named]

    def _drop_handle(self, named: BufferName) -> None:
        if self._state.watched:
            self.see_let_go(named.buffer, "client", named.session.number, named.count)
        self._free(self._buffers.release(named.session.number, named.name))

    def adopt(
        self, named: BufferName, ident: int, layout: Layout, nbytes: int, key: int, sources: tuple[int, ...]
    ) -> None:
        """After a restart: hosts still have it (it is counted), and this client says that it is its own; or a view of
        its own shares it. `sources`: of a view. It is held until `dropped`."""
        hosts = self._state.hosts_of(layout.place)
        self._create(named, ident, ResultRow(0, -1, -1, layout, nbytes, key, hosts, exact=True))
        self._buffers.hold(ident)
        self._views.adopt(self._buffers[ident], sources)
        self.entered(ident, -1)
        self._buffers.filled(ident)
        named.ready = True

    # --- observations ---------------------------------------------------------------------------------

    def see_held(self, buffer: int, holder: str, number: int = -1, count: int = 1) -> None:
        if self._state.watched:
            for each in range(buffer, buffer + count):
                self._state.observe(BufferHeld(each, holder if number < 0 else f"{holder} {number}"))

    def see_let_go(self, buffer: int, holder: str, number: int = -1, count: int = 1) -> None:
        if self._state.watched:
            for each in range(buffer, buffer + count):
                self._state.observe(BufferLetGo(each, holder if number < 0 else f"{holder} {number}"))

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
                assert buffer.layout is not None
                self.free_on_hosts(buffer.id, buffer.layout, buffer.hosts, buffer.count)
            if buffer.sources:
                self._views.gone(buffer)

    def dropped(self, buffer: int) -> None:
        """A hold of it that was no run's, and no use, is over."""
        self._free(self._buffers.let_go((buffer,)))
        if self.admission.line:
            self.admission.idle(buffer)

    def free_on_hosts(self, buffer: int, layout: Layout, hosts: Spans, count: int = 1) -> None:
        self._outbox.step(layout.place.island, FreeStep((ranged(buffer, count),)), hosts)
