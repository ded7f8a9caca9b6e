"""`@sw.program`: Python that calls many computations, traced once, run as one: one message, one dataflow graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from ..graph import Graph, Tracer, leaf_aval, tracing
from ..sessions import Array, ambient, checked_retries
from ..specs import trees

P = ParamSpec("P")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class ProgramOptions(TypedDict, total=False):
    """The options of `program`, for type checkers."""

    name: str | None
    donate_argnums: int | Sequence[int]
    static_argnums: int | Sequence[int]
    retries: int | None


class Program(Generic[P, R_co]):
    """A declaration: traced anew for arguments of other shapes, bound in whichever session runs it."""

    def __init__(
        self, fn: Callable[..., Any], name: str, donate: Sequence[int], static: Sequence[int],
        retries: int | None = None,
    ) -> None:  # fmt: skip
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.name = name
        self.retries = retries
        self._donate, self._static = frozenset(donate), frozenset(static)
        self._known: dict[Any, tuple[Graph, trees.Treedef]] = {}

    @overload
    def __call__(self: Program[P, Array], *args: P.args, **kwargs: P.kwargs) -> Array: ...

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if tracing.tracer() is not None:
            return self.fn(*args, **kwargs)  # part of the program that calls it
        caller = ambient.caller(f"program {self.name!r}")
        graph, out_tree, leaves = self._find(args, kwargs)
        return out_tree.unflatten(caller.submit(graph, [*leaves, *graph.captured], self.retries))

    def trace(self, *args: Any, **kwargs: Any) -> Graph:
        """The program for arguments like these, without running it: `print(f.trace(x))`."""
        return self._find(args, kwargs)[0]

    def _find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Graph, trees.Treedef, list[Any]]:
        statics = tuple((number, args[number]) for number in sorted(self._static) if number < len(args))
        dynamic = [None if number in self._static else arg for number, arg in enumerate(args)]
        leaves, tree = trees.flatten((dynamic, kwargs))
        types = tuple([leaf_aval(leaf, f"{self.name}(): argument leaf {at}") for at, leaf in enumerate(leaves)])
        key = (tree, types, statics)
        found = self._known.get(key)
        if found is None:
            donate: list[int] = []
            at = 0
            for number, arg in enumerate(dynamic):
                count = len(trees.leaves(arg))
                donate += range(at, at + count) if number in self._donate else ()
                at += count
            found = self._known[key] = self._trace(tree, list(types), dict(statics), tuple(donate))
        return (*found, leaves)

    def _trace(
        self, tree: trees.Treedef, types: list[Any], statics: dict[int, Any], donate: tuple[int, ...]
    ) -> tuple[Graph, trees.Treedef]:
        tracer = Tracer(self.name, types, donate)
        args, kwargs = tree.unflatten(tracer.arguments)
        for number, value in statics.items():
            args[number] = value
        tracing.push_tracer(tracer)
        try:
            result = self.fn(*args, **kwargs)
        finally:
            tracing.pop_tracer()
            tracer.over = True
        outs, out_tree = trees.flatten(result)
        return tracer.finish(outs, trees.paths(out_tree)), out_tree

    def __repr__(self) -> str:
        return f"<sw.program {self.name}>"


@overload
def program(fn: Callable[P, T], **options: Unpack[ProgramOptions]) -> Program[P, T]: ...


@overload
def program(fn: None = None, **options: Unpack[ProgramOptions]) -> Callable[[Callable[P, T]], Program[P, T]]: ...


def program(
    fn: Callable[..., Any] | None = None, *, name: str | None = None, donate_argnums: int | Sequence[int] = (),
    static_argnums: int | Sequence[int] = (), retries: int | None = None,
) -> Any:  # fmt: skip
    """Trace a function that calls computations (`sw.jit`, `sw.synthetic`, ...) into one program.

    Calls inside are recorded, not made. Data flow between slices, wherever these are. Any pytree goes in and comes
    out. Use it bare or with options: `@sw.program(donate_argnums=0)`. retries: how often a run is submitted again if
    the cluster failed it (a host died, the controller restarted). Runs that failed by their own error are not. None:
    as often as its session says.

        >>> double = sw.jit(lambda x: x * 2, devices=2)
        >>> plus_one = sw.jit(lambda x: x + 1, devices=4)
        >>> @sw.program
        ... def both(x):
        ...     return plus_one(double(x))
        >>> with sw.simulate("B", hosts=2, values="compute"):
        ...     print(np.asarray(both(np.float32([1, 2]))))
        [3. 5.]
    """
    checked_retries("sw.program", retries)
    if fn is None:
        options: Any = {
            "name": name, "donate_argnums": donate_argnums, "static_argnums": static_argnums, "retries": retries
        }  # fmt: skip
        return functools.partial(program, **options)  # a decorator
    called = name or str(getattr(fn, "__name__", type(fn).__name__))
    return Program(fn, called, as_numbers(donate_argnums), as_numbers(static_argnums), retries)


def as_numbers(numbers: int | Sequence[int] | None) -> tuple[int, ...]:
    if numbers is None:
        return ()
    return (numbers,) if isinstance(numbers, int) else tuple(numbers)
