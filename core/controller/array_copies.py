"""Copies a client's arrays to other devices, and lets its names stand for the copies.

The copy is a run of the controller's own: a program of Reshard nodes, which is lowered, admitted and dispatched like a
client's. So all its memory is reserved at once, its transfers enter the order behind what makes their sources, and a
host that is lost fails it. Arrays that are in host memory are sent from there. It speaks for the client with a session
that has no connection: nobody is told of it.

Its results are held for the names that they copy (`BufferName.copies`) until it is over. Views are not copied: they are
made again, of the copies. (A view of what stays where it is becomes an array of its own.)

Neighbours: `relocation` decides when; `buffer_refs` gives a name its copy. The functions that matter: `begin`, `end`.
"""

import msgspec

from ..memory import Buffer, Buffers
from ..model import (
    Arg,
    Layout,
    Out,
    Place,
    Program,
    RangeTable,
    Reshard,
    Sharding,
    SliceSpec,
    Value,
    device_spans,
    spans,
    virtual_index,
)
from ..slices import part
from .buffer_names import BufferNames
from .buffer_refs import BufferRefs
from .records import BufferName, ClientRecord, ProgramRecord, RunRecord
from .runs import Runs
from .state import ControllerModule, State
from .views import Views


class ArrayCopies(ControllerModule):
    _state: State
    _buffers: Buffers
    _names: BufferNames
    _refs: BufferRefs
    _runs: Runs
    _views: Views

    def begin(
        self, session: ClientRecord, name: str, here: list[Buffer], old: Place, new: Place, now: int
    ) -> RunRecord | None:
        """Copy what somebody still wants of these buffers. None: that is nothing."""
        there = {b.id for b in here}
        # A view of what is there, too, is made again, of the copies.
        wanted = [
            b for b in here
            if (b.handle or b.holds > b.users) and not (b.shards and there.issuperset(b.sources))
        ]  # fmt: skip
        if not wanted:
            return None
        silent = msgspec.structs.replace(session, peer=-1, names=RangeTable(), programs={}, runs={}, gone=True)
        program = ProgramRecord(silent, 0, _program(name, wanted), pinned=True)
        sources, width = dict[int, BufferName | bytes](), dict[int, int]()
        index = 0
        for buffer in wanted:
            sources[index] = buffer.owner
            if buffer.count > 1:
                width[index] = buffer.count
            index += buffer.count
        lie = dict.fromkeys(layout.place for buffer in wanted for layout in _layouts(buffer))
        targets = [moved(place, old, new) for place in lie]
        run = self._runs.own(program, (*lie, *targets), sources, width, now)
        run.cold = frozenset(place for place, its in zip(lie, targets, strict=True) if place != its)
        self._names.copy(run, [buffer.owner for buffer in wanted])
        self._runs.advance(run, now)
        return run

    def end(self, run: RunRecord, views: list[int] | None, old: Place, new: Place) -> dict[int, int]:
        """It is over. Names stand for the copies from now on, and these are views of those. None: the copies are
        dropped. Nothing may be lowered meanwhile. Returns the copy of each buffer."""
        copied: dict[int, int] = {}  # buffer -> its copy
        for named in run.result_names() if views is not None else ():
            for copy, its in self._pairs(named):
                if its.blame is None and its.buffer == copy.copied and its.buffer in self._buffers.all:
                    copied.update(zip(_idents(its), _idents(copy), strict=True))
                    copy.copies = its
                    self._refs.put_in_place(copy)
        made: list[BufferName] = []
        for ident in sorted(views or ()):
            view = self._buffers[ident] if ident in self._buffers and ident not in copied else None
            if view is not None and all(source in copied for source in view.sources):
                again = self._views.again(view, moved(view.layout.place, old, new), copied)
                copied[ident] = again.buffer
                self._refs.put_in_place(again)
                made.append(again)
        for named in made:
            self._refs.drop_copy(named)
        self.forget(run)
        return copied

    def forget(self, run: RunRecord) -> None:
        """What its results were to be has become of them, or never will."""
        for named in run.result_names():
            self._refs.drop_copy(named)

    def _pairs(self, named: BufferName) -> list[tuple[BufferName, BufferName]]:
        """A copy, and what it copies, which may have been cut since: in parts that are alike."""
        its = named.copies
        if its is None or named.buffer < 0:
            return []
        found = []
        for one in self._names.parts(its, named.name - its.name, named.count):
            (copy,) = self._names.parts(named, one.name - named.name, one.count)
            found.append((copy, one))
        return found


def moved(place: Place, old: Place, new: Place) -> Place:
    """Where a place is when the devices of `old` have become those of `new`: it may be some of them, or others."""
    if place == old:
        return new
    if place.island != old.island or not spans.within(device_spans(place), device_spans(old)):
        return place
    return part(new, tuple(virtual_index(old, device) for device in place.devices()))


def _program(name: str, buffers: list[Buffer]) -> Program:
    """The arguments, and the same once more: of each place, on the devices that stand for it."""
    layouts = [layout for buffer in buffers for layout in _layouts(buffer)]
    places = list(dict.fromkeys(layout.place for layout in layouts))
    at = {place: number for number, place in enumerate(places)}
    sizes = [place.size for place in places]
    slices = [SliceSpec(f"{way} {number}", size) for way in ("from", "to") for number, size in enumerate(sizes)]
    args, results = [], []
    nodes: list[tuple[list[Arg], list[Value]]] = [([], []) for _ in places]
    for index, layout in enumerate(layouts):
        number = at[layout.place]
        inputs, outputs = nodes[number]
        results.append(Out(number, len(inputs)))
        args.append(_value(layout, number))
        inputs.append(Arg(index))
        outputs.append(_value(layout, len(places) + number))
    made = tuple(Reshard("copy", tuple(inputs), tuple(outputs)) for inputs, outputs in nodes)
    return Program(f"a slice {name}", tuple(slices), (), tuple(args), made, tuple(results))


def _value(layout: Layout, number: int) -> Value:
    return Value(layout.shape, layout.dtype, number, Sharding(layout.sharding.dims, layout.mesh))


def _layouts(buffer: Buffer) -> tuple[Layout, ...]:
    return buffer.layouts or (buffer.layout,)


def _idents(named: BufferName) -> range:
    return range(named.buffer, named.buffer + named.count)
