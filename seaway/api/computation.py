"""A computation: a function that is compiled for a slice. A declaration; calling it runs it, or traces it.

A call with arguments of certain shapes and types finds (or makes, once) its `Signature`: all that can be known
before anything runs. `sw.jit` and `sw.synthetic` differ only in how they work one out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload

import numpy as np

from ..graph import Signature, leaf_aval, tracing
from ..sessions import Array, CallResults, DescribedArray, all_of_one_call, ambient
from ..specs import Aval, Operand, Slice, avals, trees

if TYPE_CHECKING:
    import jax

MANY = 8  # arguments


class LastCall(NamedTuple):
    """A call whose only argument was a list or tuple (`kind`) of all results of another call, in order. `abouts`: what
    was known of these."""

    kind: Any
    abouts: Sequence[DescribedArray]
    signature: Signature

    def results(self, arg: Any) -> CallResults | None:
        """The arguments of another call, if it is like this one. So a loop that passes on a thousand arrays need not
        look for leaves in a tree, or at the type of each."""
        if type(arg) is not self.kind or len(arg) != len(self.abouts):
            return None
        found = all_of_one_call(arg)
        return found if found is not None and found.group.abouts is self.abouts else None


R_co = TypeVar("R_co", covariant=True)


class Computation(ABC, Generic[R_co]):
    """What calls share: finding the signature, and the way to the session or into the program under trace.

    `R_co`: what the function is said to return, in JAX's words. A call returns the same tree, of arrays on devices. If
    the function does not say what it returns, that is taken to be one array.
    """

    def __init__(
        self, name: str, home: Slice, *, static: Sequence[int] = (), static_names: Sequence[str] = (),
        donate: Sequence[int] = (), donate_names: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.name = name
        self.__name__ = name
        self.slice = home
        self._static, self._static_names = tuple(static), tuple(static_names)
        self._donate, self._donate_names = frozenset(donate), frozenset(donate_names)
        self._known: dict[Any, Signature] = {}
        self._last: LastCall | None = None

    @overload
    def __call__(self: Computation[jax.Array], *args: Any, **kwargs: Any) -> Array: ...

    @overload
    def __call__(self: Computation[tuple[jax.Array, jax.Array]], *args: Any, **kwargs: Any) -> tuple[Array, Array]: ...

    @overload
    def __call__(
        self: Computation[tuple[jax.Array, jax.Array, jax.Array]], *args: Any, **kwargs: Any
    ) -> tuple[Array, Array, Array]: ...

    @overload
    def __call__(self: Computation[list[jax.Array]], *args: Any, **kwargs: Any) -> list[Array]: ...

    @overload
    def __call__(self: Computation[dict[str, jax.Array]], *args: Any, **kwargs: Any) -> dict[str, Array]: ...

    @overload
    def __call__(self, *args: Any, **kwargs: Any) -> R_co: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        signature, leaves = self.match(args, kwargs)
        tracer = tracing.tracer()
        outs = tracer.call(signature, leaves) if tracer else ambient.caller(self.name).run(signature, leaves)
        return signature.out_tree.unflatten(outs)

    def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Signature, list[Any]]:
        """The signature of a call, and its arguments as a flat list."""
        look = None if kwargs or self._static else self._look(args)
        if look is None:
            return self.match_trees(args, kwargs)
        found = self._known.get(look)
        if found is None:
            found = self._known[look] = self.match_trees(args, kwargs)[0]
        return found, list(args)

    @staticmethod
    def _look(args: tuple[Any, ...]) -> tuple[Aval, ...] | None:
        """What tells the signatures of calls apart, if each argument is one array; None: look into their trees."""
        found = []
        for arg in args:
            if isinstance(arg, Operand):
                found.append(arg._abstract)
            elif type(arg) is np.ndarray:
                found.append(avals.of_numpy(arg))
            else:
                return None
        return tuple(found)

    def match_trees(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Signature, list[Any]]:
        statics, dynamic, named = self._split_static(args, kwargs)
        alone = not statics and not named and len(dynamic) == 1
        if alone and self._last is not None:
            last = self._last
            results = last.results(dynamic[0])
            if results is not None:
                return last.signature, results
        leaves, tree = trees.flatten_arrays((dynamic, named))
        try:
            types = tuple([leaf._abstract for leaf in leaves])
        except AttributeError:  # not all of them are arrays
            leaves, tree = trees.with_all_kinds((dynamic, named), leaves, tree)
            where = f"{self.name}(): argument leaf"
            types = tuple([
                leaf._abstract if type(leaf) is Array else leaf_aval(leaf, f"{where} {number}")
                for number, leaf in enumerate(leaves)
            ])  # fmt: skip
        key = (tree, types, statics)
        found = self._known.get(key)
        if found is None:
            of_args, of_named = tree.children()
            kwargs_trees = dict(zip(sorted(named), of_named.children(), strict=True))
            shape = CallShape(tuple(of_args.children()), kwargs_trees, types, dict(statics))
            found = self._known[key] = self.trace(shape)
        if alone and len(leaves) >= MANY and type(dynamic[0]) in (list, tuple):
            results = all_of_one_call(dynamic[0])
            kind = type(dynamic[0])
            self._last = None if results is None else LastCall(kind, results.group.abouts, found)
        return found, leaves

    @abstractmethod
    def trace(self, shape: CallShape) -> Signature: ...

    def donated(self, shape: CallShape) -> tuple[int, ...]:
        """Which leaves the arguments that are donated have. Positions count static arguments, as in JAX."""
        found: list[int] = []
        first = dynamic = 0
        for number in range(len(shape.args) + sum(isinstance(key, int) for key in shape.statics)):
            if number in shape.statics:
                continue
            count = shape.args[dynamic].num_leaves
            if number in self._donate:
                found += range(first, first + count)
            first, dynamic = first + count, dynamic + 1
        for name, tree in shape.kwargs.items():
            if name in self._donate_names:
                found += range(first, first + tree.num_leaves)
            first += tree.num_leaves
        return tuple(found)

    def _split_static(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[tuple[int | str, Any], ...], list[Any], dict[str, Any]]:
        if not self._static and not self._static_names:
            return (), list(args), kwargs
        statics: dict[int | str, Any] = {number: args[number] for number in self._static if number < len(args)}
        statics |= {name: kwargs[name] for name in self._static_names if name in kwargs}
        for where, value in statics.items():
            if not isinstance(value, Hashable):
                raise TypeError(f"{self.name}(): static argument {where!r} is not hashable: {value!r}")
        dynamic = [arg for number, arg in enumerate(args) if number not in statics]
        return tuple(statics.items()), dynamic, {k: v for k, v in kwargs.items() if k not in statics}


class CallShape(NamedTuple):
    """What a call looks like without its contents: trees of the arguments, types of all leaves, static values."""

    args: tuple[trees.Treedef, ...]
    kwargs: dict[str, trees.Treedef]
    leaves: tuple[Aval, ...]
    statics: dict[int | str, Any]

    def fill(self, leaves: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of this look, statics among them."""
        at, args = 0, []
        for tree in self.args:
            args.append(tree.unflatten(leaves[at : at + tree.num_leaves]))
            at += tree.num_leaves
        kwargs: dict[str, Any] = {}
        for name, tree in self.kwargs.items():
            kwargs[name] = tree.unflatten(leaves[at : at + tree.num_leaves])
            at += tree.num_leaves
        for where in sorted(key for key in self.statics if isinstance(key, int)):
            args.insert(where, self.statics[where])
        kwargs |= {key: value for key, value in self.statics.items() if isinstance(key, str)}
        return args, kwargs
