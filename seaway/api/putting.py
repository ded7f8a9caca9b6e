"""`sw.put`: contents onto a slice, or an array onto another slice or sharding."""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

from core.model import Sharding

from ..graph import Signature, leaf_aval, tracing
from ..sessions import PlacedContents, ambient
from ..specs import Aval, Operand, Slice, as_slice, resolve, slice_of_sharding, trees
from .jitted import is_entry

KEPT = 1024  # moves that are remembered
_moves: dict[tuple[Slice, tuple[Aval, ...], tuple[Sharding, ...]], Signature] = {}


def put(tree: Any, devices: Slice | int | None = None, sharding: Any = None) -> Any:
    """Put the arrays of a pytree on a slice. sharding: a PartitionSpec (or NamedSharding) for all, or a tree of them.
    `slice.sharding(...)` says on which slice, too; then `devices` is not needed.

    What the client has goes straight to the hosts. What is on another slice moves: all of it by one call, which fails
    as a whole. In a simulation, a `jax.ShapeDtypeStruct` stands for contents that nobody has. Inside @sw.program, `put`
    moves values.

        >>> with sw.simulate("B", hosts=2):
        ...     x = sw.put(np.zeros((8, 4), np.float32), devices=sw.slice(devices=4))
        ...     print(x.shape, x.slice.devices)
        (8, 4) 4
    """
    where = "sw.put"
    leaves, treedef = trees.flatten(tree)
    entries = trees.spread(sharding, tree, f"{where}: sharding", is_entry)
    wanted = []
    for number, (leaf, entry) in enumerate(zip(leaves, entries, strict=True)):
        home = _home(devices, entry, where)
        aval = leaf_aval(leaf, f"{where}: leaf {number}")
        split = resolve(entry, home, aval, f"{where}: sharding of leaf {number}")
        wanted.append(PlacedContents(leaf, aval, home, split))
    tracer = tracing.tracer()
    if not wanted:
        return treedef.unflatten([])
    if tracer is not None:
        return treedef.unflatten(_moved(tracer.call, wanted))
    caller = ambient.caller(where)
    there = [isinstance(each.leaf, Operand) for each in wanted]
    moved = iter(_moved(caller.run, list(compress(wanted, there))))
    placed = iter(caller.put([each for each in wanted if not isinstance(each.leaf, Operand)]))
    return treedef.unflatten([next(moved if moves else placed) for moves in there])


def _moved(call: Callable[[Signature, list[Any]], Sequence[Any]], wanted: Sequence[PlacedContents]) -> list[Any]:
    """What goes to one slice goes together."""
    together: dict[Slice, list[int]] = {}
    for number, each in enumerate(wanted):
        together.setdefault(each.home, []).append(number)
    found: list[Any] = [None] * len(wanted)
    for home, numbers in together.items():
        several = [wanted[number] for number in numbers]
        move = _move(home, tuple(each.aval for each in several), tuple(each.sharding for each in several))
        for number, array in zip(numbers, call(move, [each.leaf for each in several]), strict=True):
            found[number] = array
    return found


def _home(devices: Slice | int | None, entry: Any, where: str) -> Slice:
    """Where an array goes: to the slice that was given, or whose sharding was given."""
    if devices is not None or entry is None:
        return as_slice(devices, where)
    found = slice_of_sharding(entry)
    if found is None:
        raise TypeError(
            f"{where}(..., sharding={entry!r}) does not say on which slice: give slice.sharding(...), which does, or "
            f"devices= as well (slices of one shape have equal meshes)"
        )
    return found


def _move(home: Slice, types: tuple[Aval, ...], splits: tuple[Sharding, ...]) -> Signature:
    key = (home, types, splits)
    if key not in _moves:
        if len(_moves) >= KEPT:
            _moves.clear()
        _, tree = trees.flatten([0] * len(types) if len(types) > 1 else 0)
        arrays = " ".join(f"{aval!r}{split.dims}" for aval, split in zip(types, splits, strict=True))
        _moves[key] = Signature(
            name="put", home=home, inputs=types, expects=splits, outputs=types, out_shardings=splits, out_tree=tree,
            key=f"put:{arrays}{home.shape}", collective=False, evaluate=list, reshards=True,
        )  # fmt: skip
    return _moves[key]
