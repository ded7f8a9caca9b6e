"""`sw.put`: contents onto a slice, or an array onto another slice or sharding."""

from __future__ import annotations

from typing import Any

from core.model import Sharding

from ..graph import Signature, leaf_aval, tracing
from ..sessions import ambient
from ..specs import Aval, Operand, Slice, as_slice, resolve, slice_of_sharding, trees
from .jitted import is_entry

_moves: dict[tuple[Slice, Aval, Sharding], Signature] = {}


def put(tree: Any, devices: Slice | int | None = None, sharding: Any = None) -> Any:
    """Put the arrays of a pytree on a slice. sharding: a PartitionSpec (or NamedSharding) for all, or a tree of them.
    `slice.sharding(...)` says on which slice, too; then `devices` is not needed.

    What the client has goes straight to the hosts. What is on another slice moves. In a simulation, a
    `jax.ShapeDtypeStruct` stands for contents that nobody has. Inside @sw.program, `put` moves a value.

        >>> with sw.simulate("B", hosts=2):
        ...     x = sw.put(np.zeros((8, 4), np.float32), devices=sw.slice(devices=4))
        ...     print(x.shape, x.slice.devices)
        (8, 4) 4
    """
    where = "sw.put"
    leaves, treedef = trees.flatten(tree)
    entries = trees.spread(sharding, tree, f"{where}: sharding", is_entry)
    found = []
    for number, (leaf, entry) in enumerate(zip(leaves, entries, strict=True)):
        home = _home(devices, entry, where)
        aval = leaf_aval(leaf, f"{where}: leaf {number}")
        split = resolve(entry, home, aval, f"{where}: sharding of leaf {number}")
        found.append(_one(leaf, aval, home, split))
    return treedef.unflatten(found)


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


def _one(leaf: Any, aval: Aval, home: Slice, split: Sharding) -> Any:
    tracer = tracing.tracer()
    if tracer is not None:
        return tracer.call(_move(home, aval, split), [leaf])[0]
    caller = ambient.caller("sw.put")
    if isinstance(leaf, Operand):
        return caller.run(_move(home, aval, split), [leaf])[0]
    return caller.put(leaf, aval, home, split, f"what was put on {caller.called(home)}")


def _move(home: Slice, aval: Aval, split: Sharding) -> Signature:
    key = (home, aval, split)
    if key not in _moves:
        _, tree = trees.flatten(0)
        text = f"{aval!r}{split.dims}{home.shape}"
        _moves[key] = Signature(
            name="put", home=home, inputs=(aval,), expects=(split,), outputs=(aval,), out_shardings=(split,),
            out_tree=tree, key=f"put:{text}", collective=False, evaluate=list, reshards=True,
        )  # fmt: skip
    return _moves[key]
