"""Pytrees, as JAX has them. They need only JAX's compiled half, which is imported ten times faster than JAX.

A structure is the same whether JAX has been imported or not, so a call finds what was made for calls like it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

Treedef = Any  # jax.tree_util.PyTreeDef


def flatten(tree: Any) -> tuple[list[Any], Treedef]:
    return with_all_kinds(tree, *flatten_arrays(tree))


def with_all_kinds(tree: Any, found: list[Any], treedef: Treedef) -> tuple[list[Any], Treedef]:
    """What `flatten` finds, if `flatten_arrays` has found this."""
    if "jax" not in sys.modules and any(issubclass(kind, dict) for kind in set(map(type, found))):
        import jax  # it registers the standard library's other dicts, and nobody can have registered more without it

        found, treedef = jax.tree_util.tree_flatten(tree)
    return found, treedef


def flatten_arrays(tree: Any) -> tuple[list[Any], Treedef]:
    """The same for a tree whose leaves are to be arrays. If one of them is not, `flatten` may find other leaves: it
    alone looks at the types of all of them."""
    found, treedef = _registry().flatten(tree)
    return found, treedef


def leaves(tree: Any) -> list[Any]:
    return flatten(tree)[0]


def paths(treedef: Treedef) -> tuple[str, ...]:
    """The names of its leaves, like `loss` or `params.0.w`; "" for a tree that is one leaf."""
    found = _registry().flatten_with_path(treedef.unflatten(range(treedef.num_leaves)))[0]
    return tuple(".".join(_words(path)) for path, _ in found)


def spread(prefix: Any, tree: Any, what: str, is_leaf: Any = None) -> list[Any]:
    """A tree's prefix (one PartitionSpec for all, or one a branch), as a list with an entry a leaf."""
    if prefix is None:
        return [None] * len(leaves(tree))
    import jax

    found: list[Any] = []

    def each(entry: Any, branch: Any) -> None:
        found.extend([entry] * len(jax.tree_util.tree_leaves(branch)))

    def leaf(entry: Any) -> bool:
        return entry is None or (is_leaf is not None and is_leaf(entry))

    try:
        jax.tree_util.tree_map(each, prefix, tree, is_leaf=leaf)
    except ValueError as error:
        raise ValueError(f"{what} does not fit the tree that it is for: {error}") from None
    return found


@cache
def _registry() -> Any:
    """What JAX calls `jax.tree_util.default_registry`. JAX sets the variable before it imports its compiled half, which
    reads it once; without it, that prints lines about devices that nobody asked for."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    return import_module("jaxlib._jax").pytree.default_registry()


def _words(path: Iterable[Any]) -> Iterable[str]:
    """What `jax.tree_util.keystr(path, simple=True)` says of each key: the attribute in which its class keeps it."""
    for key in path:
        yield str(next(getattr(key, name) for name in ("idx", "key", "name") if hasattr(key, name)))
