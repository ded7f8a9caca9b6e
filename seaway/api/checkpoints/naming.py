"""What a leaf of a tree is called in a checkpoint: its path, `0.params.layer.q`, as a folder's name on any system."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from ...specs import trees

LONGEST = 200  # characters
SINGLE = "value"  # of a tree that is one leaf


def names_of(treedef: trees.Treedef) -> tuple[str, ...]:
    """By leaf. Raises ValueError where two would be the same."""
    import jax

    found, _ = jax.tree_util.tree_flatten_with_path(treedef.unflatten(range(treedef.num_leaves)))
    names = tuple(".".join(map(_part, path)) or SINGLE for path, _ in found)
    known: dict[str, str] = {}
    for name, (path, _) in zip(names, found, strict=True):
        where = jax.tree_util.keystr(path)
        if len(name) > LONGEST:
            raise ValueError(
                f"sw.checkpoint: the path of leaf {where} has {len(name)} characters; at most {LONGEST}"
            )
        if known.setdefault(name, where) != where:
            raise ValueError(f"sw.checkpoint: leaves {known[name]} and {where} would have one name, {name!r}")
    return names


def _part(key: Any) -> str:
    """Letters, digits, `_` and `-` as they are."""
    import jax

    text = jax.tree_util.keystr((key,), simple=True)
    return quote(text, safe="").replace(".", "%2E").replace("~", "%7E") or "%00"
