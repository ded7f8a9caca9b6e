"""Checks programs, arguments and layouts that a peer sent, before core does anything with them.

`validate` returns if the program can be lowered, and raises `ProgramError` if not; the text names the node. It
does so for everything that decodes as a `Program`, in time linear in the message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from . import spans
from .errors import ProgramError
from .place import device_spans
from .plan import Layout
from .program import ITEM_BYTES, Arg, Exchange, Node, Out, Program, Ref, Reshard, SliceSpec, Value
from .topology import Cluster

# Far above what real programs need. They bound what one peer's program can cost.
MAX_NODES = 16_384
MAX_REFS = 1_048_576  # inputs of all nodes together, arguments, results
MAX_SLICES = 1_024
MAX_DEVICES = 1 << 20
MAX_MESH_RANK = 8
MAX_RANK = 16
MAX_OUTPUTS = 65_536
MAX_ELEMENTS = 1 << 48
MAX_NUMBER = 1 << 60  # costs (36 years), temporaries
MAX_NAME = 256
MAX_LITERALS = 4096  # bytes of literal arguments in one call


def validate(program: Program) -> None:
    _count(program)
    _check_slices(program.slices)
    for number, computation in enumerate(program.computations):
        where = f"computation {computation.name[:MAX_NAME]!r} ({number})"
        for what, text in (("name", computation.name), ("key", computation.key), ("code", computation.code)):
            _check_name(where, what, text)
        for kind, cost in {"": computation.cost, **computation.by_kind}.items():
            _check_name(where, "kind", kind)
            _check_number(where, "cost", cost)
        _check_number(where, "temp", computation.temp)
        if not 1 <= computation.steps <= MAX_NUMBER:
            raise ProgramError(f"{where}: it has {computation.steps} steps; give it 1, or up to {MAX_NUMBER}")
    for number, value in enumerate(program.args):
        _check_value(f"argument {number}", value, program.slices)
    _check_indices("donate_args", program.donate_args, len(program.args), "argument")
    walk = _ProgramWalk(program)
    for number, node in enumerate(program.nodes):
        walk.visit(number, node)
    walk.finish()


def validate_literals(program: Program, args: Sequence[int | bytes]) -> None:
    """Check a call's arguments: their number is the program's, and each literal has exactly its value's size."""
    if len(args) != len(program.args):
        raise ProgramError(f"program {program.name!r} takes {len(program.args)} arguments; {len(args)} were given")
    total = 0
    for number, (given, value) in enumerate(zip(args, program.args, strict=True)):
        if isinstance(given, bytes):
            total += len(given)
            if len(given) != value.nbytes:
                raise ProgramError(
                    f"argument {number} is {value.dtype}{list(value.shape)}, {value.nbytes} bytes; "
                    f"the literal given for it has {len(given)}"
                )
    if total > MAX_LITERALS:
        raise ProgramError(
            f"literals of {total} bytes in one call; at most {MAX_LITERALS}: put larger arrays on devices first"
        )


class _ProgramWalk:
    """Checks the nodes in traced order; it keeps which values exist so far and which have been donated."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.donatable_args = frozenset(program.donate_args)
        self.outputs: list[tuple[Value, ...]] = []  # by node
        self.donated: dict[Ref, str] = {}  # ref -> the node that took over its memory

    def visit(self, number: int, node: Node | Exchange | Reshard) -> None:
        where = f"node {node.name[:MAX_NAME]!r} ({number})"
        _check_name(where, "name", node.name)
        if isinstance(node, Exchange):
            self._visit_exchange(where, node)
        elif isinstance(node, Reshard):
            self._visit_reshard(where, node)
        else:
            self._visit_node(where, node)
        self.outputs.append(node.outputs)

    def finish(self) -> None:
        for number, ref in enumerate(self.program.results):
            self._find(f"result {number}", ref)

    def _visit_node(self, where: str, node: Node) -> None:
        slices = self.program.slices
        _check_index(where, "computation", node.computation, len(self.program.computations))
        _check_index(where, "slice", node.slice, len(slices))
        if len(node.inputs) != len(node.expects):
            raise ProgramError(f"{where}: {len(node.inputs)} inputs, but it expects {len(node.expects)}")
        for number, (ref, wanted) in enumerate(zip(node.inputs, node.expects, strict=True)):
            self._visit_input(f"{where}: input {number}", ref, wanted, node.slice)
        for number, value in enumerate(node.outputs):
            here = f"{where}: output {number}"
            _check_value(here, value, slices)
            _check_slice(here, value, node.slice, slices)
            if node.irregular and not value.shape:
                raise ProgramError(f"{here}: an irregular computation makes rows, and a scalar has none")
        does = self.program.computations[node.computation]
        if does.steps > 1 and (node.irregular or (not does.collective and slices[node.slice].devices > 1)):
            raise ProgramError(
                f"{where}: its {does.steps} steps must end together, so it must be a collective, or on one device, and "
                f"not irregular; or give it 1 step"
            )
        self._donate(where, node)

    def _visit_input(self, where: str, ref: Ref, wanted: Value, home: int) -> None:
        made = self._find(where, ref)
        _check_value(where, wanted, self.program.slices)
        _check_slice(where, wanted, home, self.program.slices)
        if made.shape != wanted.shape or made.dtype != wanted.dtype:
            raise ProgramError(f"{where}: expects {_type(wanted)}, but {self._text(ref)} is {_type(made)}")

    def _visit_exchange(self, where: str, node: Exchange) -> None:
        made = self._find(where, node.input)
        _check_value(f"{where}: output", node.output, self.program.slices)
        if made.dtype != node.output.dtype:
            raise ProgramError(f"{where}: sends rows of {_type(made)}, but its output is {_type(node.output)}")
        if not made.shape or not node.output.shape:
            raise ProgramError(f"{where}: an exchange sends rows, and a scalar has none")

    def _visit_reshard(self, where: str, node: Reshard) -> None:
        if not node.inputs or len(node.inputs) != len(node.outputs):
            raise ProgramError(f"{where}: {len(node.inputs)} arrays cannot become {len(node.outputs)}")
        for number, (ref, value) in enumerate(zip(node.inputs, node.outputs, strict=True)):
            made, here = self._find(where, ref), f"{where}: output {number}"
            _check_value(here, value, self.program.slices)
            if value.slice != node.outputs[0].slice:
                raise ProgramError(f"{here}: is on slice {value.slice}, and output 0 on {node.outputs[0].slice}")
            if made.shape != value.shape or made.dtype != value.dtype:
                raise ProgramError(f"{here}: {_type(made)} cannot become {_type(value)}, which is another array")

    def _donate(self, where: str, node: Node) -> None:
        _check_indices(f"{where}: donate", node.donate, len(node.inputs), "input")
        reads = Counter(node.inputs) if node.donate else {}
        for number in node.donate:
            ref = node.inputs[number]
            if isinstance(ref, Arg) and ref.index not in self.donatable_args:
                raise ProgramError(
                    f"{where}: donates {self._text(ref)}, which the caller does not give up (donate_args)"
                )
            if reads[ref] > 1:
                raise ProgramError(f"{where}: donates {self._text(ref)} and reads it as another input too")
            self.donated[ref] = where

    def _find(self, where: str, ref: Ref) -> Value:
        """Return the value that the reference stands for. Raise if no earlier node makes it or it was donated."""
        if isinstance(ref, Arg):
            _check_index(where, "argument", ref.index, len(self.program.args))
            found = self.program.args[ref.index]
        else:
            if not 0 <= ref.node < len(self.outputs):
                known = 0 <= ref.node < len(self.program.nodes)
                later = f", {self.program.nodes[ref.node].name[:MAX_NAME]!r}, which comes later" if known else ""
                raise ProgramError(f"{where}: reads node {ref.node}{later}; only {len(self.outputs)} come before it")
            _check_index(where, f"output of {self._name(ref)}", ref.output, len(self.outputs[ref.node]))
            found = self.outputs[ref.node][ref.output]
        if ref in self.donated:
            raise ProgramError(f"{where}: reads {self._text(ref)}, whose memory {self.donated[ref]} has taken over")
        return found

    def _name(self, ref: Out) -> str:
        return f"node {self.program.nodes[ref.node].name[:MAX_NAME]!r} ({ref.node})"

    def _text(self, ref: Ref) -> str:
        return f"argument {ref.index}" if isinstance(ref, Arg) else f"output {ref.output} of {self._name(ref)}"


def _count(program: Program) -> None:
    _check_name("program", "name", program.name)
    inputs = sum(len(node.inputs) for node in program.nodes)
    outputs = sum(len(node.outputs) for node in program.nodes)
    for what, count, limit in (
        ("slices", len(program.slices), MAX_SLICES),
        ("computations", len(program.computations), MAX_NODES),
        ("nodes", len(program.nodes), MAX_NODES),
        ("outputs of nodes", outputs, MAX_OUTPUTS),
        ("inputs, arguments and results", inputs + len(program.args) + len(program.results), MAX_REFS),
    ):
        if count > limit:
            raise ProgramError(f"program {program.name!r} has {count} {what}; at most {limit}")


def _check_slices(slices: tuple[SliceSpec, ...]) -> None:
    known: dict[str, SliceSpec] = {}
    for number, spec in enumerate(slices):
        where = f"slice {spec.name[:MAX_NAME]!r} ({number})"
        for what, text in (("name", spec.name), ("kind", spec.kind), ("island", spec.island)):
            _check_name(where, what, text)
        if not 1 <= spec.devices <= MAX_DEVICES:
            raise ProgramError(f"{where}: {spec.devices} devices; from 1 to {MAX_DEVICES}")
        if len(spec.mesh) > MAX_MESH_RANK:
            raise ProgramError(f"{where}: a mesh of {len(spec.mesh)} axes; at most {MAX_MESH_RANK}")
        if any(extent < 1 for extent in spec.mesh_shape) or prod(spec.mesh_shape) != spec.devices:
            raise ProgramError(f"{where}: mesh {spec.mesh} does not hold exactly its {spec.devices} devices")
        _check_part(where, spec, known, slices)
        if known.setdefault(spec.name, spec) != spec:
            raise ProgramError(f"{where}: another slice has the same name: {known[spec.name]}")


def _check_part(where: str, spec: SliceSpec, before: dict[str, SliceSpec], slices: tuple[SliceSpec, ...]) -> None:
    """Check a sub-slice, as far as the program says what it is a part of: the session may have the other slice."""
    _check_name(where, "of", spec.of)
    if not spec.of:
        if spec.picks:
            raise ProgramError(f"{where}: it picks devices, and does not say of which slice (`of`)")
        return
    if len(spec.picks) != spec.devices:
        raise ProgramError(
            f"{where}: {spec.devices} devices, but it picks {len(spec.picks)} of slice {spec.of[:MAX_NAME]!r}"
        )
    if len(set(spec.picks)) != len(spec.picks):
        raise ProgramError(f"{where}: it picks a device of slice {spec.of!r} twice")
    if spec.kind or spec.island or spec.layout != "packed" or spec.exclusive or spec.absent != "wait":
        raise ProgramError(
            f"{where}: kind, island, layout, exclusive and absent are those of slice {spec.of!r}, of which it is a part"
        )
    whole = before.get(spec.of)
    if whole is None:
        if any(other.name == spec.of for other in slices):
            raise ProgramError(f"{where}: it is a part of slice {spec.of!r}, which must be listed before it")
        return
    if whole.of:
        raise ProgramError(
            f"{where}: it is a part of slice {spec.of!r}, which is itself a part of slice {whole.of!r}: say which "
            f"devices of slice {whole.of!r} it has"
        )
    for pick in spec.picks:
        _check_index(where, f"device of slice {spec.of!r}", pick, whole.devices)


def _check_value(where: str, value: Value, slices: tuple[SliceSpec, ...]) -> None:
    if value.dtype not in ITEM_BYTES:
        raise ProgramError(f"{where}: dtype {value.dtype[:MAX_NAME]!r} is unknown; known: {', '.join(ITEM_BYTES)}")
    if len(value.shape) > MAX_RANK:
        raise ProgramError(f"{where}: {len(value.shape)} dimensions; at most {MAX_RANK}")
    if any(size < 0 for size in value.shape) or prod(value.shape) > MAX_ELEMENTS:
        raise ProgramError(f"{where}: shape {value.shape} is negative or holds over {MAX_ELEMENTS} elements")
    _check_index(where, "slice", value.slice, len(slices))
    spec, mesh = slices[value.slice], value.sharding.mesh
    if mesh:
        if len(mesh) > MAX_MESH_RANK:
            raise ProgramError(f"{where}: a mesh of {len(mesh)} axes; at most {MAX_MESH_RANK}")
        if min(mesh) < 1 or prod(mesh) != spec.devices:
            raise ProgramError(
                f"{where}: the mesh {mesh} of its sharding does not hold exactly the {spec.devices} devices of slice "
                f"{spec.name!r}"
            )
    if value.sharding.dims:
        _check_sharding(where, value, mesh or spec.mesh_shape)


def _check_sharding(where: str, value: Value, mesh: tuple[int, ...]) -> None:
    dims = value.sharding.dims
    if len(dims) != len(value.shape):
        raise ProgramError(f"{where}: shape {value.shape} has {len(value.shape)} dimensions, its sharding {len(dims)}")
    if sum(map(len, dims)) > len(mesh):
        raise ProgramError(f"{where}: its sharding names more axes than mesh {mesh} has")
    used: set[int] = set()
    for dimension, axes in enumerate(dims):
        for axis in axes:
            _check_index(where, "mesh axis", axis, len(mesh))
            if axis in used:
                raise ProgramError(f"{where}: its sharding uses axis {axis} of mesh {mesh} twice")
            used.add(axis)
        parts, size = prod(mesh[axis] for axis in axes), value.shape[dimension]
        if size % parts:
            below = size - size % parts
            raise ProgramError(
                f"{where}: dimension {dimension} of {_type(value)} does not divide by {parts} "
                f"(axes {axes} of mesh {mesh}); the nearest sizes that do: {below} and {below + parts}"
            )


def _check_slice(where: str, value: Value, home: int, slices: tuple[SliceSpec, ...]) -> None:
    if value.slice != home:
        raise ProgramError(
            f"{where}: is on slice {slices[value.slice].name!r} ({value.slice}), but its node runs on "
            f"{slices[home].name!r} ({home})"
        )


def _check_index(where: str, what: str, index: int, count: int) -> None:
    if not 0 <= index < count:
        raise ProgramError(f"{where}: {what} {index} is unknown; there are {count}")


def _check_indices(where: str, indices: tuple[int, ...], count: int, what: str) -> None:
    for index in indices:
        _check_index(where, what, index, count)
    if len(set(indices)) != len(indices):
        raise ProgramError(f"{where}: names one {what} twice")


def _check_name(where: str, what: str, text: str) -> None:
    if len(text) > MAX_NAME:
        raise ProgramError(f"{where}: its {what} has {len(text)} characters; at most {MAX_NAME}")


def _check_number(where: str, what: str, number: int) -> None:
    if not 0 <= number <= MAX_NUMBER:
        raise ProgramError(f"{where}: {what} {number} is not from 0 to {MAX_NUMBER}")


def _type(value: Value) -> str:
    return f"{value.dtype}{list(value.shape)}"


def is_layout(layout: Layout, cluster: Cluster) -> bool:
    """Whether a layout that a peer sent is possible on this cluster."""
    place, size = layout.place, prod(layout.mesh)
    if not 0 <= place.island < len(cluster.islands) or not 0 < size <= MAX_DEVICES:
        return False
    ((low, high),) = cluster.islands[place.island].device_span
    for grid in place.grids:
        if len(grid.shape) != len(grid.strides) or min(grid.shape, default=1) < 1:
            return False
        ends = [stride * (extent - 1) for extent, stride in zip(grid.shape, grid.strides, strict=True)]
        first = grid.base + sum(end for end in ends if end < 0)
        if not low <= first <= grid.base + sum(end for end in ends if end > 0) < high:
            return False
    if layout.sharding.mesh:
        return False
    spec = SliceSpec("held", size, layout.mesh)
    try:
        validate_put(Value(layout.shape, layout.dtype, 0, layout.sharding), spec)
    except ProgramError:
        return False
    return place.size == size == spans.count(device_spans(place))


def validate_put(value: Value, spec: SliceSpec, where: str = "put") -> None:
    """Check the type of an array that a client wants to put on a slice. Raise ProgramError, as `validate` does."""
    slices = (spec,)
    _check_slices(slices)
    _check_value(where, value, slices)
