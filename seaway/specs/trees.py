"""Pytrees, as JAX has them; its machinery is imported when the first one comes."""

from __future__ import annotations

from typing import Any

Treedef = Any  # jax.tree_util.PyTreeDef


def flatten(tree: Any) -> tuple[list[Any], Treedef]:
    import jax

    return jax.tree_util.tree_flatten(tree)


def leaves(tree: Any) -> list[Any]:
    import jax

    return jax.tree_util.tree_leaves(tree)


def paths(treedef: Treedef) -> tuple[str, ...]:
    """The names of its leaves, like `loss` or `params.0.w`; "" for a tree that is one leaf."""
    import jax

    found, _ = jax.tree_util.tree_flatten_with_path(treedef.unflatten(range(treedef.num_leaves)))
    return tuple(jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in found)


def spread(prefix: Any, tree: Any, what: str, is_leaf: Any = None) -> list[Any]:
    """A tree's prefix (one PartitionSpec for all, or one a branch), as a list with an entry a leaf."""
    import jax

    found: list[Any] = []

    def each(entry: Any, branch: Any) -> None:
        found.extend([entry] * len(jax.tree_util.tree_leaves(branch)))

    def leaf(entry: Any) -> bool:
        return entry is None or (is_leaf is not None and is_leaf(entry))

    try:
        jax.tree_util.tree_map(each, prefix, tree, is_leaf=leaf)
    except ValueError as error:
        raise ValueError(f"{what} does not fit: {error}") from None
    return found
