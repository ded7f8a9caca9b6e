"""Hypothesis strategies for msgspec Structs, made from their annotations, so that new fields are tested too."""

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from core.model import Cluster, Range, small

INT64 = (1 << 63) - 1

SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-INT64, INT64) | st.integers(0, 3),
    str: st.text(max_size=5),
    bytes: st.binary(max_size=5),
    bool: st.booleans(),
    NoneType: st.none(),
    msgspec.UnsetType: st.just(msgspec.UNSET),
    Cluster: st.builds(small, st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    Range: st.builds(Range, st.integers(1, INT64), st.integers(1, INT64)),  # decoding checks its bounds
}


def of(hint: Any, message: Any = None) -> st.SearchStrategy[Any]:
    """Return a strategy for a type. `message` is the strategy for fields that may hold any Struct."""
    if hint in SIMPLE:
        return SIMPLE[hint]
    if hint is msgspec.UnsetType:
        return st.just(msgspec.UNSET)
    if hint is msgspec.Struct:
        return of(message)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        kind = hint  # deferred, because a Struct may be large
        return st.deferred(lambda: _struct(kind, message))
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of([of(arg, message) for arg in args])
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(of(args[0], message), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(of(arg, message) for arg in args))
    if origin is dict:
        return st.dictionaries(of(args[0], message), of(args[1], message), max_size=2)
    raise TypeError(f"no strategy for {hint}")


def _struct(kind: type[msgspec.Struct], message: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, *(of(hints[name], message) for name in kind.__struct_fields__))


def reachable(hint: Any, found: dict[type, None] | None = None) -> dict[type, None]:
    """Return all Structs that a value of this type may hold."""
    found = {} if found is None else found
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint not in found:
            found[hint] = None
            for inner in get_type_hints(hint).values():
                reachable(inner, found)
    for arg in get_args(hint):
        reachable(arg, found)
    return found
