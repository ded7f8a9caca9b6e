"""Who holds which buffer, and what is done when nobody does: one FreeStep in the order, one word to the ledger.

A result is held by its client's handle and, until the step that makes it has entered an order, by its maker's
promise; an argument is held by each run that reads it, until the last gang that reads it has entered the order
(devices run in order, so what is ordered later may take its memory) or the last transfer of it has ended.

Neighbours: `buffers` counts, `ledger` and `spill` account, hosts are told by the islands' streams.
The functions that matter: `read`, `promise`, `entered`, `let_go`, `settled`, `release`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..invariants import BufferHeld, BufferLetGo, BufferLost
from ..memory import Buffer
from ..model import Layout, Shards, Slot, spans
from ..protocol import Blame, FreeStep, Ready
from .records import Named, Run

if TYPE_CHECKING:
    from .books import Books


class Holdings:
    def __init__(self, books: Books) -> None:
        self._books = books
        self._layouts: dict[int, Layout] = {}
        self._named: dict[int, Named] = {}  # buffer -> what its owner calls it, while it exists
        self._aliases: dict[int, int] = {}  # buffer -> more names that clients have for it
        self._rows: dict[
            int, int
        ] = {}  # buffer -> how many of its first dimension an irregular maker has made
        self._transfers: dict[int, int] = {}  # buffer -> puts and gets under way

    def layout(self, buffer: int) -> Layout:
        return self._layouts[buffer]

    def rows(self, buffer: int) -> int:
        """-1: all."""
        return self._rows.get(buffer, -1)

    def named(self, buffer: int) -> Named | None:
        return self._named.get(buffer)

    def other_holds(self) -> dict[int, int]:
        """Holds that are no run's: second names, and transfers."""
        found = dict(self._aliases)
        for buffer, number in self._transfers.items():
            found[buffer] = found.get(buffer, 0) + number
        return found

    def on_host(self, host: int) -> list[int]:
        """Buffers with a shard on this host."""
        return [
            buffer for buffer, layout in self._layouts.items()
            if spans.contains(self._books.hosts_of(layout.place), host)
        ]  # fmt: skip

    def on_device(self, device: int) -> list[int]:
        return [b for b, layout in self._layouts.items() if device in layout.place.devices()]

    # --- runs read -------------------------------------------------------------------------------------------

    def read(self, run: Run, index: int, named: Named) -> None:
        """This run reads it, now or when it has been promised; so it stays until the run is through with it."""
        named.readers[run.id] = run
        if (
            named.buffer in self._books.buffers
        ):  # one that is spoilt may be gone: then its blame is all there is
            self._take(run, index, named)

    def _take(self, run: Run, index: int, named: Named) -> None:
        run.held[index] = named.buffer
        self._books.buffers.hold(named.buffer)
        self._held(named.buffer, "run", run.id)

    def give_up(self, named: Named) -> None:
        """The client donates it with this call: its name means nothing from here on."""
        named.released = True
        named.session.names.pop(named.name, None)
        self.drop(named)

    def let_go(self, run: Run, index: int) -> None:
        """The run is through with this argument."""
        buffer = run.held.pop(index)
        self._let_go(buffer, "run", run.id)
        if run.using:
            self._books.buffers.done_using(buffer)
        self._free(self._books.buffers.let_go((buffer,)))
        self._books.admission.idle(buffer)

    def read_own(self, run: Run, slot: int) -> None:
        """A result that later steps of its own run read: it stays until they have, whoever lets go meanwhile."""
        buffer = run.own[slot] = run.buffer_of(slot)
        self._books.buffers.hold(buffer)
        self._books.buffers.use(buffer)
        self._held(buffer, "run", run.id)

    def own_read(self, run: Run, slot: int, seq: int) -> None:
        """Behind `seq` this run does not read its own result any more."""
        buffer = run.own.pop(slot)
        self.touch(buffer, seq)
        self._let_go(buffer, "run", run.id)
        self._books.buffers.done_using(buffer)
        self._free(self._books.buffers.let_go((buffer,)))

    def hold_for_transfer(self, buffer: int) -> None:
        """A put or get is under way: the buffer stays, and stays on the devices."""
        self._books.buffers.hold(buffer)
        self._books.buffers.use(buffer)
        self._transfers[buffer] = self._transfers.get(buffer, 0) + 1
        self._held(buffer, "transfer")

    def transfer_over(self, buffer: int) -> None:
        self._let_go(buffer, "transfer")
        self._transfers[buffer] -= 1
        if not self._transfers[buffer]:
            del self._transfers[buffer]
        self._books.buffers.done_using(buffer)
        self._free(self._books.buffers.let_go((buffer,)))
        self._books.admission.idle(buffer)

    # --- runs make -------------------------------------------------------------------------------------------

    def promise(self, named: Named, ident: int, slot: Slot, exact: bool = True) -> None:
        """A result, or a put, has an id and a layout: whoever reads it may be lowered now. Not `exact`: what it
        takes is a bound, until its irregular maker has run."""
        self.create(named, ident, slot.nbytes, slot.layout, exact)
        for each in (named, *named.others):
            self._wake_readers(each)

    def _wake_readers(self, named: Named) -> None:
        for run in list(named.readers.values()):
            for index, source in enumerate(run.sources):
                if source is named:
                    self._take(run, index, named)
            self._books.wake.append(run)

    def create(self, named: Named, ident: int, nbytes: int, layout: Layout, exact: bool = True) -> None:
        handle, key = named.wanted, self._books.atoms.intern(layout.place)
        self._books.buffers.create(
            ident, named.session.number, named.name, key, nbytes, handle=handle, exact=exact
        )
        named.buffer = ident
        self._layouts[ident] = layout
        self._named[ident] = named
        if handle:
            self._held(ident, "client", named.session.number)
        self._held(ident, "its maker")
        named.others = [other for other in named.others if not other.released and other.blame is None]
        for other in named.others:  # second names from before it was taken back
            other.buffer = ident
            self._hold_alias(other)

    def take_back(self, named: Named) -> None:
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
            if buffer in self._named:
                self._named[buffer].read_on = [e for e in self._named[buffer].read_on if e is not named]
            return
        for other in named.others:  # of runs that have started: they will stand for what is made elsewhere
            other.buffer = -1
            self._let_go(buffer, "client", other.session.number)
            self._free(self._books.buffers.let_go((buffer,)))
        self._aliases.pop(buffer, None)
        self.never(buffer, Blame("moved", "it is made elsewhere"))
        if buffer in self._books.buffers and self._books.buffers[buffer].handle:
            self._let_go(buffer, "client", named.session.number)
            self._free(self._books.buffers.release(named.session.number, named.name))

    def _unread(self, named: Named) -> None:
        """By runs that have not started."""
        for run in named.readers.values():
            for index in [] if run.using else list(run.held):
                if run.sources[index] is named:
                    self.let_go(run, index)

    def never(self, buffer: int, blame: Blame) -> None:
        """The step that was to make it never enters an order."""
        self._let_go(buffer, "its maker")
        self._free(self._books.buffers.never_made(buffer, blame))

    def alias(self, named: Named, source: Named) -> None:
        """A program that returns an argument, or a value twice, gives its client one more name for one buffer."""
        named.buffer = source.buffer
        named.alias = True
        named.ready = source.ready
        if named.wanted:
            self._named[named.buffer].others.append(named)
            self._hold_alias(named)
        else:
            self._read_on(named)
        self._wake_readers(named)

    def _hold_alias(self, named: Named) -> None:
        self._aliases[named.buffer] = self._aliases.get(named.buffer, 0) + 1
        self._books.buffers.hold(named.buffer)
        self._held(named.buffer, "client", named.session.number)

    def entered(self, buffer: int, seq: int) -> None:
        """The step that makes it is in the order: its promise is kept, its memory is its own."""
        self._let_go(buffer, "its maker")
        self._free(self._books.buffers.ordered(buffer, seq))
        self._books.admission.buffer_there(buffer)

    def shrink(self, run: Run, slot: int, size: int) -> None:
        """An irregular output is there: its leading dimension is `size`, not the bound."""
        record = run.plan.slots[slot]
        if record.keep and run.buffer_of(slot) not in self._books.buffers:
            return  # nobody wanted it: it has been freed, with its bound
        bound = Shards(record.layout).size[0]
        nbytes = record.nbytes * min(size, bound) // bound if bound else 0
        self._books.ledger.shrunk(run.id, slot, nbytes)
        if run.buffer_of(slot) in self._books.buffers:
            self._books.buffers.shrink(run.buffer_of(slot), nbytes)
            self._rows[run.buffer_of(slot)] = size

    def touch(self, buffer: int, seq: int) -> None:
        if buffer in self._books.buffers:
            self._books.buffers.touch(buffer, seq)

    def settled(self, buffer: int, blame: Blame | None) -> list[Named]:
        """Its contents are final. Returns the names that clients have for it."""
        named = self._named.get(buffer)
        if buffer in self._books.readers:
            self._books.settling.append((buffer, blame))
        if named is None or buffer not in self._books.buffers:
            return []
        names = [named, *named.others] if named.others else [named]
        if blame is None:
            self._books.buffers.filled_if_promised(buffer)
        else:
            self.spoil(buffer, blame)
        for each in names:
            each.ready = each.blame is None
        self._books.admission.idle(buffer)
        return names

    def spoil_results(self, run: Run, blame: Blame) -> None:
        """What a failed run has not made good by now, it never will; who reads that, fails with it."""
        for named in run.names:
            if named.alias or (named.buffer >= 0 and named.ready):
                continue
            if named.blame is None:
                named.blame = blame
            self._books.contents.refuse_gets(named, named.blame)
            if named.buffer >= 0 and named.buffer in self._books.buffers:
                if self._books.buffers[named.buffer].promise:
                    self.never(named.buffer, blame)
                if named.buffer in self._books.buffers:
                    self.spoil(named.buffer, blame)
            for reader in list(named.readers.values()):
                self._books.runs_room.fail(reader, blame, self._books.now)

    def spoil(self, buffer: int, blame: Blame) -> None:
        """It keeps its blame while a run holds it; the client's handle has nothing left to hold."""
        self._books.buffers.poison(buffer, blame)
        named = self._named.get(buffer)
        if named is None:
            return
        for other in [*named.others, *named.read_on]:
            other.blame, other.ready = other.blame or blame, False
            self._books.contents.refuse_gets(other, blame)
            self._drop_alias(buffer, other)
            for run in list(other.readers.values()):
                self._books.runs_room.fail(run, blame, self._books.now)
        named.blame = named.blame or blame
        self._books.contents.refuse_gets(named, named.blame)
        if not named.released and buffer in self._books.buffers and self._books.buffers[buffer].handle:
            self._drop_handle(named)

    def lost(self, buffer: int, blame: Blame) -> None:
        """A host or device took it along: its client is told by name, whoever reads it fails."""
        named = self._named.get(buffer)
        if named is None or buffer not in self._books.buffers or self._books.buffers[buffer].promise:
            return  # not made yet: its run is judged by where it was to be made
        self._books.observe(BufferLost(buffer))
        named.ready = False
        names = [each for each in (named, *named.others) if not each.released and each.blame is None]
        for each in names:
            self._books.outbox.note(each.session.peer, Ready((each.name,), blame))
        known = (named, *named.others, *named.read_on)
        readers = [run for each in known for run in each.readers.values()]
        self.spoil(buffer, blame)
        for run in readers:
            self._books.runs_room.fail(run, blame, self._books.now)

    # --- clients ---------------------------------------------------------------------------------------------

    def release(self, named: Named) -> None:
        """The client lets go of its name."""
        named.session.names.pop(named.name, None)
        if named.released:
            return
        named.released = True
        if not named.gets:  # a get that was asked for before is answered first
            self.drop(named)

    def drop(self, named: Named) -> None:
        """The client's own hold ends."""
        if named.gets:
            late = Blame("user", f"buffer {named.name} was released before it had contents to get")
            self._books.contents.refuse_gets(named, late)
        if named.alias and named.blame is None:
            self._drop_alias(named.buffer, named)
        elif (
            not named.alias
            and named.buffer in self._books.buffers
            and self._books.buffers[named.buffer].handle
        ):
            self._drop_handle(named)

    def _drop_alias(self, buffer: int, named: Named) -> None:
        primary = self._named.get(buffer)
        if primary is None or named not in primary.others:
            return  # it had been given up before it stood for anything
        primary.others.remove(named)
        self._read_on(named)
        self._aliases[buffer] -= 1
        if not self._aliases[buffer]:
            del self._aliases[buffer]
        self._let_go(buffer, "client", named.session.number)
        self._free(self._books.buffers.let_go((buffer,)))

    def _read_on(self, named: Named) -> None:
        """No client holds it by this name; runs may read it by it, and what becomes of it concerns them."""
        primary = self._named.get(named.buffer)
        if primary is not None and named.readers:
            primary.read_on = [*(each for each in primary.read_on if each.readers), named]

    def _drop_handle(self, named: Named) -> None:
        self._let_go(named.buffer, "client", named.session.number)
        self._free(self._books.buffers.release(named.session.number, named.name))

    def adopt(self, named: Named, ident: int, layout: Layout, nbytes: int) -> None:
        """After a restart: hosts still have it (it is counted), and this client says that it is its own."""
        self.create(named, ident, nbytes, layout)
        self.entered(ident, -1)
        self._books.buffers.filled(ident)
        named.ready = True

    # --- who watches is told ---------------------------------------------------------------------------------

    def _held(self, buffer: int, holder: str, number: int = -1) -> None:
        if self._books.watched:
            self._books.observe(BufferHeld(buffer, holder if number < 0 else f"{holder} {number}"))

    def _let_go(self, buffer: int, holder: str, number: int = -1) -> None:
        if self._books.watched:
            self._books.observe(BufferLetGo(buffer, holder if number < 0 else f"{holder} {number}"))

    # --- nobody holds it -------------------------------------------------------------------------------------

    def _free(self, gone: list[Buffer]) -> None:
        for buffer in gone:
            layout = self._layouts.pop(buffer.id)
            self._named.pop(buffer.id, None)
            self._rows.pop(buffer.id, None)
            kept = buffer.on_device or buffer.on_host
            self._books.spill.drop(buffer)
            if kept:
                self.free_on_hosts(buffer.id, layout)

    def free_on_hosts(self, buffer: int, layout: Layout) -> None:
        self._books.outbox.step(layout.place.island, FreeStep((buffer,)), self._books.hosts_of(layout.place))
