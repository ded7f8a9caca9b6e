"""A computation: a function that is compiled for a slice. A declaration; calling it runs it, or traces it.

A call with arguments of certain shapes and types finds (or makes, once) its `Signature`: all that can be known
before anything runs. `sw.jit` and `sw.synthetic` differ only in how they work one out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from core.model import Sharding
from sim.hardware import Kernel

from . import ambient, avals, trees
from .avals import Aval
from .errors import NotNow
from .operand import Operand
from .slices import Slice

if TYPE_CHECKING:
    from .graph import Graph

Contents = Any  # of one array: a numpy or JAX array
Evaluate = Callable[[list[Contents]], list[Contents]]


class Signature:
    """One computation for arguments of certain shapes and types. Compared by identity.

    kernel: what it costs, if that is known; else `work()` may estimate it. evaluate: contents from contents, on this
    machine; None where there is nothing to compute. key: of code and options, the same for the same. function: the
    JAX function of the leaves, for whoever compiles it; of an irregular one, to its padded arrays and their count.
    document: in place of a function, what hosts do with their files (see `checkpoint`).
    """

    __slots__ = (
        "collective", "document", "donate", "evaluate", "expects", "function", "graph", "inputs", "irregular", "kernel",
        "key", "name", "out_names", "out_shardings", "out_tree", "outputs", "slice", "work",
    )  # fmt: skip

    def __init__(
        self, *, name: str, home: Slice, inputs: tuple[Aval, ...], expects: tuple[Sharding, ...],
        outputs: tuple[Aval, ...], out_shardings: tuple[Sharding, ...], out_tree: trees.Treedef, key: str,
        donate: tuple[int, ...] = (), irregular: bool = False, collective: bool = True,
        kernel: Kernel | None = None, work: Callable[[], Any] | None = None, evaluate: Evaluate | None = None,
        out_names: tuple[str, ...] | None = None, function: Callable[..., Any] | None = None,
        document: bytes = b"",
    ) -> None:  # fmt: skip
        self.name, self.slice, self.key = name, home, key
        self.inputs, self.expects, self.donate = inputs, expects, donate
        self.outputs, self.out_shardings, self.out_tree = outputs, out_shardings, out_tree
        self.irregular, self.collective, self.kernel = irregular, collective, kernel
        self.work, self.evaluate, self.function, self.document = work, evaluate, function, document
        self.out_names = trees.paths(out_tree) if out_names is None else out_names
        self.graph: Graph | None = None  # as a program of its own


class Computation(ABC):
    """What calls share: finding the signature, and the way to the session or into the program under trace."""

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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        signature, leaves = self.match(args, kwargs)
        tracer = ambient.tracer()
        outs = tracer.call(signature, leaves) if tracer else ambient.caller(self.name).run(signature, leaves)
        return signature.out_tree.unflatten(outs)

    def match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Signature, list[Any]]:
        """The signature of a call, and its arguments as a flat list."""
        if not kwargs and not self._static:
            try:
                key: Any = tuple([arg._abstract for arg in args])
            except AttributeError:
                pass  # not only arrays, one an argument
            else:
                found = self._known.get(key)
                if found is None:
                    found = self._known[key] = self.match_trees(args, kwargs)[0]
                return found, list(args)
        return self.match_trees(args, kwargs)

    def match_trees(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Signature, list[Any]]:
        statics, dynamic, named = self._split_static(args, kwargs)
        flat = [trees.flatten(arg) for arg in dynamic]
        flat_named = {name: trees.flatten(kwarg) for name, kwarg in sorted(named.items())}
        leaves = [leaf for found, _ in (*flat, *flat_named.values()) for leaf in found]
        types = tuple([self._aval(leaf, number) for number, leaf in enumerate(leaves)])
        treedefs = tuple(tree for _, tree in flat)
        named_trees = tuple((name, tree) for name, (_, tree) in flat_named.items())
        key = (treedefs, named_trees, types, statics)
        found = self._known.get(key)
        if found is None:
            shape = Shape(treedefs, dict(named_trees), types, dict(statics))
            found = self._known[key] = self.trace(shape)
        return found, leaves

    @abstractmethod
    def trace(self, shape: Shape) -> Signature: ...

    def donated(self, shape: Shape) -> tuple[int, ...]:
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
        statics: dict[int | str, Any] = {
            number: args[number] for number in self._static if number < len(args)
        }
        statics |= {name: kwargs[name] for name in self._static_names if name in kwargs}
        for where, value in statics.items():
            if not isinstance(value, Hashable):
                raise TypeError(f"{self.name}(): static argument {where!r} is not hashable: {value!r}")
        dynamic = [arg for number, arg in enumerate(args) if number not in statics]
        return tuple(statics.items()), dynamic, {k: v for k, v in kwargs.items() if k not in statics}

    def _aval(self, leaf: Any, number: int) -> Aval:
        return leaf_aval(leaf, f"{self.name}(): argument leaf {number}")


class Shape:
    """What a call looks like without its contents: trees of the arguments, types of all leaves, static values."""

    __slots__ = ("args", "kwargs", "leaves", "statics")

    def __init__(
        self, args: tuple[trees.Treedef, ...], kwargs: dict[str, trees.Treedef], leaves: tuple[Aval, ...],
        statics: dict[int | str, Any],
    ) -> None:  # fmt: skip
        self.args, self.kwargs, self.leaves, self.statics = args, kwargs, leaves, statics

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


def leaf_aval(leaf: Any, where: str) -> Aval:
    if isinstance(leaf, Operand):
        return leaf._abstract
    if avals.traced_by_jax(leaf):
        raise NotNow(
            f"{where} is traced by JAX (jax.jit, jax.grad, jax.vmap or a function of sw.jit), and what runs on other "
            f"devices cannot be part of that. Transform inside the computation, as sw.jit(jax.grad(f), devices=...); "
            f"from a function of sw.jit, call the plain function; put computations together in @sw.program"
        )
    found = avals.of(leaf)
    if found is None:
        raise TypeError(
            f"{where} is {leaf!r}, of type {type(leaf).__name__}; arguments are arrays, numbers, and pytrees of "
            f"them (lists, tuples, dicts); name anything else in static_argnums"
        )
    return found
