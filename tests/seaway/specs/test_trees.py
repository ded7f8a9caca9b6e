"""Trees are taken apart as JAX does it, and their structures are JAX's, whether JAX has been imported or not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaway.specs import trees

jax_trees: Any = jax.tree_util  # which has no types to speak of


class Named:
    """A container of a user's. Its keys are the names of attributes."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.inside == other.inside

    __hash__ = None  # type: ignore[assignment]


jax_trees.register_pytree_with_keys(
    Named, lambda node: (((jax_trees.GetAttrKey("inside"), node.inside),), None), lambda _, inside: Named(*inside)
)

TREES = st.recursive(
    st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.dictionaries(st.integers(0, 9), inner, max_size=3)
        | inner.map(Named)
    ),
    max_leaves=12,
)


@given(TREES)
def test_a_tree_is_what_jax_says_it_is(tree: Any) -> None:
    found, treedef = trees.flatten(tree)
    assert (found, treedef) == jax_trees.tree_flatten(tree)
    assert trees.leaves(tree) == found
    assert treedef.unflatten(found) == tree


@given(TREES)
def test_leaves_have_the_names_that_jax_gives_them(tree: Any) -> None:
    theirs, treedef = jax_trees.tree_flatten_with_path(tree)
    said = tuple(jax_trees.keystr(path, simple=True, separator=".") for path, _ in theirs)
    assert trees.paths(treedef) == said


def test_a_prefix_is_spread_over_leaves() -> None:
    tree = {"a": 1, "b": (2, 3)}
    assert trees.spread(None, tree, "x") == [None] * 3
    assert trees.spread({"a": 5, "b": None}, tree, "x") == [5, None, None]
    with pytest.raises(ValueError, match="x does not fit"):
        trees.spread({"a": 5}, tree, "x")


BEFORE_AND_AFTER = """
import sys
from collections import OrderedDict, defaultdict, namedtuple
from seaway.specs import trees
plain = {"a": (1, [2, None]), "b": namedtuple("Pair", "x y")(3, 4)}
found, before = trees.flatten(plain)
assert found == [1, 2, 3, 4] and trees.paths(before) == ("a.0", "a.1.0", "b.x", "b.y")
assert "jax" not in sys.modules
KIND = [OrderedDict(b=5, a=6), defaultdict(int, b=5, a=6)]
assert len(trees.leaves(KIND)) == 4
import jax
_, after = jax.tree_util.tree_flatten(plain)
assert before == after and hash(before) == hash(after) and type(before) is type(after)
"""


def test_a_structure_is_the_same_before_and_after_jax_is_imported() -> None:
    """Named tuples need no JAX; the standard library's other dicts do, and get it."""
    subprocess.run([sys.executable, "-c", BEFORE_AND_AFTER], check=True)
