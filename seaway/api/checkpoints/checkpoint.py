"""`sw.checkpoint`: save(path, tree, step=...), restore(path, like), latest(path).

Hosts write the arrays that they have straight into files (zarr v3, one array for each leaf of the tree), and read what
they shall have straight from there, however it was split. Each call but `latest` returns at once.

    >>> two = sw.slice(devices=2)
    >>> with sw.simulate("B", hosts=2):
    ...     x = sw.put(np.zeros((8, 4), np.float32), two)
    ...     _ = sw.checkpoint.save("checkpoints", {"x": x}, step=1).block_until_ready()
    ...     print(sw.checkpoint.latest("checkpoints"), sw.checkpoint.restore("checkpoints", {"x": x})["x"].shape)
    1 (8, 4)
"""

from __future__ import annotations

import os
import secrets
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backend.checkpoint import LAST, Request, documents, steps

from ...errors import NoContents
from ...graph import in_trace, leaf_aval
from ...sessions import Array, ambient
from ...specs import WHOLE, Slice, as_slice, avals, is_sharding, resolve, trees
from ...specs import slice as slice_of
from ..jitted import is_entry
from . import graphs
from .graphs import Leaf, names_of

if TYPE_CHECKING:
    from ...sessions import Caller, ClientBuffer, Run, Session

__all__ = ["latest", "restore", "save"]

_saved: weakref.WeakKeyDictionary[Session, dict[str, set[int]]] = weakref.WeakKeyDictionary()
_anyone: list[Slice] = []  # who looks into a folder when nobody says who shall


def save(
    path: str | os.PathLike[str], tree: Any, *, step: int = 0, keep: int | None = None, overwrite: bool = False
) -> Array:
    """Write a pytree of arrays as step `step` of the checkpoint in the folder `path`.

    Returns at once an array (the number of the step) that is ready when all of it is on disk: wait for it, or not. If
    it fails and nobody has waited, the error is logged, and raised by the next call of sw.checkpoint or by the end of
    the session. What is called later may change or donate the arrays. A folder with the step's number is whole, always:
    a save that fails, or whose hosts or client die, leaves none. Numbers and numpy arrays are saved with the rest.
    keep: how many steps stay, the last ones, when this one is whole; None: all.
    """
    where = "sw.checkpoint.save"
    caller = _caller(where)
    leaves, treedef = trees.flatten(tree)
    home = next((leaf.slice for leaf in leaves if isinstance(leaf, Array)), None)
    if home is None:
        raise ValueError(
            f"{where}: no array of the tree lies on devices, so no host has anything to write; sw.put it before, or "
            f"save what is here with numpy"
        )
    found = []
    for name, leaf in zip(names_of(treedef), leaves, strict=True):
        aval = _strong(leaf_aval(leaf, f"{where}: leaf {name!r}"))
        on = isinstance(leaf, Array)
        found.append(Leaf(name, aval, leaf.slice if on else home, leaf._split if on else WHOLE))
    folder = folder_of(caller.session, path)
    if keep is not None and keep < 1:
        raise ValueError(f"{where}(keep={keep!r}): how many steps stay, at least 1; None: all")
    request = _request(caller, folder, _whole(step, where), overwrite, keep or 0)
    graph = graphs.saving(tuple(found), avals.of(request) or graphs.TOKEN)
    (made,) = caller.submit(graph, [*leaves, *[request] * len(graph.slices)])
    _saved.setdefault(caller.session, {}).setdefault(folder, set()).add(step)
    saved: Array = made
    run, buffer = saved.run, saved._buffer
    run._must_be_seen = True
    caller.earlier.notices.append(lambda: _simulated(caller, run, buffer))
    return saved


def restore(
    path: str | os.PathLike[str], like: Any, *, step: int | None = None, devices: Any = None, sharding: Any = None
) -> Any:
    """A pytree of arrays as it was saved: step `step`, or the latest that is whole.

    like: a tree that looks like it: arrays, as a fresh start would make them (they are not read, and may be deleted or
    donated), or jax.ShapeDtypeStructs, as jax.eval_shape gives them. Each comes back where its like lies, split as that
    is. devices, sharding: for leaves that lie nowhere, or to have them elsewhere: a slice and a PartitionSpec for all,
    or trees of them. How it was split when it was saved makes no difference.
    """
    where = "sw.checkpoint.restore"
    caller = _caller(where)
    leaves, treedef = trees.flatten(like)
    if not leaves:
        return like
    wanted = _wanted(where, leaves, treedef, like, devices, sharding)
    if step is None:
        step = latest(path, devices=wanted[0].home)
        if step is None:
            raise FileNotFoundError(f"{where}: no step is complete in {os.fspath(path)}")
    request = _request(caller, folder_of(caller.session, path), _whole(step, where))
    graph = graphs.restoring(wanted, avals.of(request) or graphs.TOKEN)
    made = caller.submit(graph, [request] * len(graph.slices))
    return treedef.unflatten(made)


def latest(path: str | os.PathLike[str], *, devices: Slice | int | None = None) -> int | None:
    """The last step of the checkpoint in `path` that is whole; None if there is none. Waits for a host to look."""
    where = "sw.checkpoint.latest"
    caller = _caller(where)
    if devices is None and not _anyone:
        _anyone.append(slice_of(1))
    home = _anyone[0] if devices is None else as_slice(devices, where)
    folder = folder_of(caller.session, path)
    request = _request(caller, folder, 0)
    (made,) = caller.submit(graphs.looking(home, avals.of(request) or graphs.TOKEN), [request])
    try:
        number = int(made)
    except NoContents:  # a simulation of times alone writes no files: it knows what it was told, and what lies here
        return max([*_saved.get(caller.session, {}).get(folder, ()), *steps(Path(folder))], default=None)
    return number - 1 if number else None


# --- inside -------------------------------------------------------------------------------------------------------


def _caller(where: str) -> Caller:
    in_trace(where)
    caller = ambient.caller(where)
    caller.earlier.look_back()
    return caller


def _simulated(caller: Caller, run: Run, buffer: ClientBuffer) -> bool:
    """Raises the error of a save in a simulation, whose run ends well: only its result has failed. Returns whether it
    is known. The array itself is the user's to drop."""
    if not buffer.known:
        return False
    error = caller.unreadable(buffer)
    if error is not None and not isinstance(error, NoContents) and not run._looked_at:
        run._looked_at = True
        raise error
    return True


def _wanted(
    where: str, leaves: list[Any], treedef: trees.Treedef, like: Any, devices: Any, sharding: Any
) -> tuple[Leaf, ...]:
    homes = _homes(where, like, devices, len(leaves))
    entries = trees.spread(sharding, like, f"{where}: sharding", is_entry)
    default = next((leaf.slice for leaf in leaves if isinstance(leaf, Array)), None)
    found = []
    for name, leaf, asked, entry in zip(names_of(treedef), leaves, homes, entries, strict=True):
        said = f"{where}: leaf {name!r}"
        aval = _strong(leaf_aval(leaf, said))
        own = leaf.slice if isinstance(leaf, Array) else None
        home = asked or own or default
        if home is None:
            raise ValueError(f"{said} lies on no slice; say where it shall: devices=sw.slice(...)")
        if entry is None and own is home:
            split = leaf._split
        else:
            theirs = getattr(leaf, "sharding", None) if own is None else None
            wanted = entry if entry is not None or not is_sharding(theirs) else theirs
            split = resolve(wanted, home, aval, said)
        found.append(Leaf(name, aval, home, split))
    return tuple(found)


def _homes(where: str, like: Any, devices: Any, count: int) -> list[Slice | None]:
    if devices is None:
        return [None] * count
    if isinstance(devices, Slice | int):
        return [as_slice(devices, where)] * count
    spread = trees.spread(devices, like, f"{where}: devices", lambda entry: isinstance(entry, Slice | int))
    return [None if each is None else as_slice(each, where) for each in spread]


def folder_of(session: Session, path: str | os.PathLike[str]) -> str:
    """As hosts are told: where they are of this machine, as this process would find it; else as they will."""
    text = os.fspath(path)
    if not text:
        raise ValueError("sw.checkpoint: '' is no folder's name")
    here: bool = getattr(session.driver, "files_here", True)
    return os.path.abspath(os.path.expanduser(text)) if here else text


def _request(caller: Caller, folder: str, step: int, overwrite: bool = False, keep: int = 0) -> np.ndarray[Any, Any]:
    nonce = getattr(caller.session.driver, "nonce", None)
    chosen: str = secrets.token_hex(8) if nonce is None else nonce()
    return documents.as_array(Request(folder, step, chosen, overwrite, keep))


def _strong(aval: avals.Aval) -> avals.Aval:
    return avals.aval(aval.shape, aval.dtype)


def _whole(step: Any, where: str) -> int:
    number: Any = int(step) if isinstance(step, np.integer) else step
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= LAST:
        raise ValueError(f"{where}(step={step!r}): a whole number from 0 to {LAST}")
    return number
