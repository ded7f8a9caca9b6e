"""First pass: slices become places, values become layouts, references become slots. It inserts no moves yet, except for
nodes that are moves. A Reshard is one also where both layouts are on the same devices: the next pass makes it a gang.

`validate` has refused shapes that do not divide by their mesh, so all shards of an array have the same shape. What an
exchange or Reshard makes and nothing ever reads is left out: it has no effect, and no device's order says when to free
its memory. Arrays of a Reshard that come from the same devices are one move.
"""

from collections.abc import Callable, Mapping, Sequence

from ..model import (
    Arg,
    Code,
    Exchange,
    Gang,
    Illegal,
    Layout,
    Move,
    Node,
    Out,
    Place,
    Program,
    ProgramError,
    Ref,
    Reshard,
    Slot,
    Value,
    laid_out,
    shard_bytes,
)
from .draft import Draft, Step

KindOf = Callable[[int], str]


def home(program: Program, places: Sequence[Place], value: Value) -> Layout:
    """Return the layout of a value on its slice. Arguments that are literals get this layout."""
    return laid_out(value, program.slices[value.slice], places[value.slice])


def bind(program: Program, places: Sequence[Place], args: Sequence[Layout], kind_of: KindOf | None = None) -> Draft:
    """`kind_of`: an island's, for computations whose cost depends on that."""
    _check(program, places, args)
    builder = _DraftBuilder(program, places, kind_of)
    for index, layout in enumerate(args):
        builder.slot(layout, index)
    for index, node in enumerate(program.nodes):
        if isinstance(node, Node):
            builder.gang(index, node)
        else:
            builder.move(index, node)
    codes = tuple(Code(each.key, each.name, code=each.code) for each in program.computations)
    results = tuple(builder.find(ref) for ref in program.results)
    return Draft(program, builder.layouts, codes, tuple(builder.slots), tuple(builder.steps), results)


def _check(program: Program, places: Sequence[Place], args: Sequence[Layout]) -> None:
    if len(places) != len(program.slices):
        raise Illegal(f"{len(places)} places for {len(program.slices)} slices")
    for spec, place in zip(program.slices, places, strict=True):
        if place.size != spec.devices:
            raise Illegal(f"slice {spec.name!r} of {spec.devices} devices bound to {place.size}")
    if len(args) != len(program.args):
        raise ProgramError(f"program {program.name!r} takes {len(program.args)} arguments; {len(args)} were given")
    for number, (value, layout) in enumerate(zip(program.args, args, strict=True)):
        if value.shape != layout.shape or value.dtype != layout.dtype:
            raise ProgramError(
                f"program {program.name!r}: argument {number} is {value.dtype}{list(value.shape)}; "
                f"{layout.dtype}{list(layout.shape)} was given"
            )


class _DraftBuilder:
    def __init__(self, program: Program, places: Sequence[Place], kind_of: KindOf | None) -> None:
        self.program = program
        self.places = places
        self._kind_of = kind_of
        self.layouts: dict[Value, Layout] = {}
        self.slots: list[Slot] = []
        self.steps: list[Step] = []
        self._made: list[Mapping[int, int]] = []  # slots by output, by node
        self._bytes: dict[Layout, int] = {}
        self._read = _read_moves(program)

    def slot(self, layout: Layout, arg: int = -1) -> int:
        nbytes = self._bytes.get(layout)
        if nbytes is None:
            nbytes = self._bytes[layout] = shard_bytes(layout)
        self.slots.append(Slot(layout, nbytes, -1, arg=arg))
        return len(self.slots) - 1

    def gang(self, index: int, node: Node) -> None:
        of, place = self.program.computations[node.computation], self.places[node.slice]
        inputs = tuple(self.find(ref) for ref in node.inputs)
        for value in node.expects:
            self._layout(value)
        outputs = tuple(self.slot(self._layout(value)) for value in node.outputs)
        self._made.append(dict(enumerate(outputs)))
        cost = of.cost_on(self._kind_of(place.island)) if self._kind_of else of.cost
        what = node.name, node.computation, place, inputs, outputs, ()
        self.steps.append(Gang(*what, cost, of.temp, of.collective, node.irregular, index, of.steps))

    def move(self, index: int, node: Exchange | Reshard) -> None:
        made: dict[int, int] = {}
        together: dict[Place, list[tuple[int, int]]] = {}  # sources and targets by where the sources are
        for at in self._read[index]:
            source, made[at] = self.find(node.inputs[at]), self.slot(self._layout(node.outputs[at]))
            together.setdefault(self.slots[source].layout.place, []).append((source, made[at]))
        self._made.append(made)
        for each in together.values():
            sources, targets = zip(*each, strict=True)
            self.steps.append(Move(node.name, sources, targets, isinstance(node, Exchange), index))

    def find(self, ref: Ref) -> int:
        return ref.index if isinstance(ref, Arg) else self._made[ref.node][ref.output]

    def _layout(self, value: Value) -> Layout:
        found = self.layouts.get(value)
        if found is None:
            found = self.layouts[value] = home(self.program, self.places, value)
        return found


def _read_moves(program: Program) -> dict[int, tuple[int, ...]]:
    """Return, of each exchange and Reshard, the outputs that reach a node or a result."""
    read = {ref for ref in program.results if isinstance(ref, Out)}
    found: dict[int, tuple[int, ...]] = {}
    for index in reversed(range(len(program.nodes))):
        node = program.nodes[index]
        if isinstance(node, Node):
            read.update(ref for ref in node.inputs if isinstance(ref, Out))
        else:
            found[index] = tuple(at for at in range(len(node.inputs)) if Out(index, at) in read)
            read.update(ref for at in found[index] if isinstance(ref := node.inputs[at], Out))
    return found
