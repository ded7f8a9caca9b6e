"""What save, restore and latest are: programs of computations that hosts do with their files.

    save      on each slice: save(request, arrays ...) -> token       then, on the first: commit(request, tokens ...)
    restore   on each slice: read(request) -> token                   then, there: load(token) -> arrays
    latest    latest(request) -> number

All but `load` are irregular computations: whatever reads of one enters only when it has ended on all its hosts. So a
commit knows that all is written, and arrays are made of what has been read, without anybody waiting on a device.
A program depends only on how the arrays look; folder and step are in the request, its first argument.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple
from urllib.parse import quote

from backend.checkpoint import ArrayEntry, Document, chunk_of, documents
from core.model import Arg, Out, Ref, Sharding
from sim.hardware import Kernel

from ...graph import CallNode, Graph, Signature
from ...specs import WHOLE, Aval, Slice, avals, trees
from . import alone

BANDWIDTH = 100_000_000  # bytes a second that a device's share of its host's storage takes or gives: assumed
LOOK_NS = 1_000_000  # nanoseconds that looking into a folder takes: assumed
TOKEN = avals.aval((1,), "int32")
SECOND = 1_000_000_000
Looks = Sequence[tuple[Aval, Sharding]]
LONGEST = 200  # characters
SINGLE = "value"  # of a tree that is one leaf


class Leaf(NamedTuple):
    """One array of a tree: its name, its look, and where it lies, or shall."""

    name: str
    aval: Aval
    home: Slice
    split: Sharding

    @property
    def nbytes(self) -> int:
        """On each device."""
        parts = prod(self.home.shape[axis] for axes in self.split.dims for axis in axes)
        return self.aval.nbytes // parts


def entry_of(leaf: Leaf, *, chunked: bool = False) -> ArrayEntry:
    shape, dtype, dims = leaf.aval.shape, leaf.aval.dtype, leaf.split.dims
    chunk = chunk_of(shape, dtype, dims, leaf.home.shape) if chunked else ()
    return ArrayEntry(leaf.name, dtype, shape, dims, chunk)


@lru_cache(maxsize=256)
def saving(leaves: tuple[Leaf, ...], request: Aval) -> Graph:
    """Arguments: the leaves, and then a request a slice."""
    homes = tuple(dict.fromkeys(leaf.home for leaf in leaves))
    entries = {leaf.name: entry_of(leaf, chunked=True) for leaf in leaves}
    nodes, requests = [], [Arg(len(leaves) + number) for number in range(len(homes))]
    for home, asked in zip(homes, requests, strict=True):
        mine = [number for number, leaf in enumerate(leaves) if leaf.home is home]
        document = Document("save", home.shape, tuple(entries[leaves[number].name] for number in mine))
        takes = [(request, WHOLE), *((leaves[number].aval, leaves[number].split) for number in mine)]
        cost = time_of(sum(leaves[number].aval.nbytes for number in mine) // home.devices)
        signature = _signature(document, home, takes, [(TOKEN, WHOLE)], cost, alone.save)
        nodes.append(CallNode(signature, (asked, *map(Arg, mine)), ()))
    all_entries = tuple(ArrayEntry(each.name, each.dtype, each.shape, (), each.chunk) for each in entries.values())
    takes = [(request, WHOLE), *[(TOKEN, WHOLE)] * len(homes)]
    commit = _signature(Document("commit", (), all_entries), homes[0], takes, [(TOKEN, WHOLE)], LOOK_NS, alone.commit)
    nodes.append(CallNode(commit, (requests[0], *map(Out, range(len(homes)))), ()))
    args = [*(leaf.aval for leaf in leaves), *[request] * len(homes)]
    return Graph("checkpoint.save", args, nodes, [Out(len(homes))], ("",))


@lru_cache(maxsize=256)
def restoring(leaves: tuple[Leaf, ...], request: Aval) -> Graph:
    """Arguments: a request a slice. Results: the leaves."""
    homes = tuple(dict.fromkeys(leaf.home for leaf in leaves))
    nodes: list[CallNode] = []
    made: dict[str, Ref] = {}
    for number, home in enumerate(homes):
        mine = [leaf for leaf in leaves if leaf.home is home]
        entries = tuple(map(entry_of, mine))
        cost = time_of(sum(leaf.nbytes for leaf in mine))
        takes = [(request, WHOLE)]
        read = _signature(Document("read", home.shape, entries), home, takes, [(TOKEN, WHOLE)], cost, alone.read)
        looks = [(leaf.aval, leaf.split) for leaf in mine]
        document = Document("load", home.shape, entries)
        load = _signature(document, home, [(TOKEN, WHOLE)], looks, 1000, alone.load)
        made |= {leaf.name: Out(len(nodes) + 1, place) for place, leaf in enumerate(mine)}
        nodes += [CallNode(read, (Arg(number),), ()), CallNode(load, (Out(len(nodes)),), ())]
    names = [leaf.name for leaf in leaves]
    return Graph("checkpoint.restore", [request] * len(homes), nodes, [made[name] for name in names], names)


@lru_cache(maxsize=256)
def looking(home: Slice, request: Aval) -> Graph:
    takes, makes = [(request, WHOLE)], [(TOKEN, WHOLE)]
    signature = _signature(Document("latest"), home, takes, makes, LOOK_NS, alone.latest)
    return Graph("checkpoint.latest", [request], [CallNode(signature, (Arg(0),), ())], [Out(0)], ("",))


def time_of(nbytes: int) -> int:
    """Nanoseconds for so many bytes of a device."""
    return LOOK_NS + nbytes * SECOND // BANDWIDTH


def _signature(
    document: Document, home: Slice, takes: Looks, makes: Looks, cost: int,
    act: Callable[[Document, list[Any]], list[Any]],
) -> Signature:  # fmt: skip
    name, blob = f"checkpoint.{document.kind}", documents.encode(document)
    digest = hashlib.blake2b(blob, digest_size=12).hexdigest()
    _, tree = trees.flatten([0] * len(makes))
    return Signature(
        name=name, home=home, inputs=tuple(aval for aval, _ in takes), expects=tuple(split for _, split in takes),
        outputs=tuple(aval for aval, _ in makes), out_shardings=tuple(split for _, split in makes), out_tree=tree,
        out_names=tuple(str(number) for number in range(len(makes))), key=f"{name}:{digest}", collective=False,
        irregular=document.kind != "load", kernel=Kernel(name, cost, source="assumed"), document=blob,
        evaluate=partial(act, document),
    )  # fmt: skip


# --- names of leaves -------------------------------------------------------------------------------------


def names_of(treedef: trees.Treedef) -> tuple[str, ...]:
    """By leaf. Raises ValueError where two would be the same."""
    import jax

    found, _ = jax.tree_util.tree_flatten_with_path(treedef.unflatten(range(treedef.num_leaves)))
    names = tuple(".".join(map(_part, path)) or SINGLE for path, _ in found)
    known: dict[str, str] = {}
    for name, (path, _) in zip(names, found, strict=True):
        where = jax.tree_util.keystr(path)
        if len(name) > LONGEST:
            raise ValueError(f"sw.checkpoint: the path of leaf {where} has {len(name)} characters; at most {LONGEST}")
        if known.setdefault(name, where) != where:
            raise ValueError(f"sw.checkpoint: leaves {known[name]} and {where} would have one name, {name!r}")
    return names


def _part(key: Any) -> str:
    """Letters, digits, `_` and `-` as they are."""
    import jax

    text = jax.tree_util.keystr((key,), simple=True)
    return quote(text, safe="").replace(".", "%2E").replace("~", "%7E") or "%00"
