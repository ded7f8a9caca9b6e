"""`sw.jit` and `sw.pmap`: JAX functions as computations on a slice."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from core.model import Sharding
from sim.hardware import Kernel

from ..graph import Cost, Evaluate, Signature, kernel_of
from ..specs import Aval, Slice, as_slice, avals, shardings, trees
from . import process_questions
from .computation import CallShape, Computation, R_co
from .programs import as_numbers
from .unready import counted, padded

MAPPED = 0  # a sharding written as a number: that dimension over all devices, as pmap has it
COMPILED = ("tpu-compiler", "roofline")  # sources of costs whose collectives were found in what was compiled
BIG_CONSTANT = 1 << 20  # bytes; of larger ones only shape and type tell two codes apart

# What primitives in which devices wait for one another are called, and their asynchronous parts. The compiler puts in
# more, and what jax.vmap does with a named axis is none.
EXCHANGES = (
    "all_gather", "all_to_all", "pbroadcast", "pmax", "pmin", "ppermute", "precv", "psend", "psum", "ragged_all_to_all",
    "reduce_scatter", "unreduced_",
)  # fmt: skip


T = TypeVar("T")


class JitOptions(TypedDict, total=False):
    """The options of `jit`, for type checkers."""

    devices: Slice | int | None
    in_shardings: Any
    out_shardings: Any
    donate_argnums: int | Sequence[int]
    donate_argnames: str | Sequence[str]
    static_argnums: int | Sequence[int]
    static_argnames: str | Sequence[str]
    cost: Cost | None
    collective: bool | None
    max_shape: Any
    name: str | None


class PmapOptions(TypedDict, total=False):
    """The options of `pmap`, for type checkers."""

    devices: Slice | int | None
    in_axes: Any
    out_axes: Any
    static_broadcasted_argnums: int | Sequence[int]
    donate_argnums: int | Sequence[int]
    cost: Cost | None
    name: str | None


class JitComputation(Computation[R_co]):
    """See `jit`. `fn` is called with abstract values once for each look of its arguments."""

    def __init__(
        self, fn: Callable[..., Any], name: str, home: Slice, *, in_shardings: Any, out_shardings: Any,
        kwarg_shardings: Any = None, cost: Cost | None = None, collective: bool | None = None,
        irregular: bool = False, max_shape: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, home, **options)
        functools.update_wrapper(self, fn, updated=())
        self.__name__ = name
        self.fn = fn
        self._in, self._out, self._kwargs = in_shardings, out_shardings, kwarg_shardings
        self._cost, self._collective = cost, collective
        self._irregular, self._max_shape = irregular, max_shape

    def __repr__(self) -> str:
        return f"<sw.jit {self.name} on {self.slice!r}>"

    def trace(self, shape: CallShape) -> Signature:
        expects = self._expects(shape)
        jaxpr, out_avals, out_tree = self._abstractly(shape)
        call = functools.partial(_called, self.fn, shape)
        evaluate: Evaluate = Evaluator(call)
        if self._irregular:
            out_avals, out_tree, evaluate = counted(self.name, out_avals, out_tree, evaluate, self._max_shape)
        if not out_avals:
            nothing = "returns nothing, so nobody could tell when it has run; return an array"
            raise TypeError(f"sw.jit {self.name!r} {nothing}")
        where = f"sw.jit {self.name!r}: out_shardings"
        out_tree_like = out_tree.unflatten(out_avals)
        entries = trees.spread(self._out, out_tree_like, where, is_entry)
        names = trees.paths(out_tree)
        out_shardings = tuple(
            resolve(entry, self.slice, aval, f"{where}, {name or 'the result'}")
            for entry, aval, name in zip(entries, out_avals, names, strict=True)
        )
        kernel = kernel_of(self._cost, self.name, shape.leaves) if self._cost is not None else None
        return Signature(
            name=self.name, home=self.slice, inputs=shape.leaves, expects=expects, outputs=tuple(out_avals),
            out_shardings=out_shardings, out_tree=out_tree, out_names=names, donate=self.donated(shape),
            irregular=self._irregular, collective=self._waits(kernel, jaxpr), kernel=kernel,
            key=self._key(jaxpr, expects, out_shardings, kernel), evaluate=evaluate,
            work=functools.partial(_work, jaxpr, self.slice, (*expects, *out_shardings)),
            function=padded(call, out_avals) if self._irregular else call,
        )  # fmt: skip

    def _waits(self, kernel: Kernel | None, jaxpr: Any) -> bool:
        """Whether its devices wait for one another. Unless somebody says no, they may. A cost tells only where a
        compiler has looked for collectives: a duration, stated or measured, has them in it, and names none."""
        if self._collective is not None:
            return self._collective
        if kernel is not None and kernel.source in COMPILED:
            return bool(kernel.collectives) or (self.slice.devices > 1 and exchanges(jaxpr.jaxpr))
        return self.slice.devices > 1

    def _abstractly(self, shape: CallShape) -> tuple[Any, list[Aval], trees.Treedef]:
        import jax

        def call(*leaves: Any) -> Any:
            return _called(self.fn, shape, *leaves)

        call.__wrapped__ = self.fn  # type: ignore[attr-defined]  # whose file and line JAX's errors then name
        inputs = [leaf.abstract() for leaf in shape.leaves]
        try:
            with process_questions.refused(f"{type_name(self)} {self.name!r}", self.slice):
                jaxpr, out = jax.make_jaxpr(call, return_shape=True)(*inputs)
        except Exception as error:
            error.add_note(
                f"while {type_name(self)} {self.name!r} was traced for {', '.join(map(repr, shape.leaves))}"
                f"{_without_contents(error)}"
            )
            raise
        found, tree = trees.flatten(out)
        return jaxpr, [avals.aval(leaf.shape, leaf.dtype) for leaf in found], tree

    def _expects(self, shape: CallShape) -> tuple[Sharding, ...]:
        where = f"{type_name(self)} {self.name!r}: in_shardings"
        args, kwargs = shape.fill(shape.leaves)
        for number in sorted((key for key in shape.statics if isinstance(key, int)), reverse=True):
            del args[number]
        kwargs = {name: kwargs[name] for name in shape.kwargs}
        given = self._in
        if given is None or is_entry(given) or not isinstance(given, tuple | list):
            given = (given,) * len(args)
        entries = trees.spread(tuple(given), tuple(args), where, is_entry)
        entries += [self._kwargs] * len(trees.leaves(kwargs))
        return tuple(
            resolve(entry, self.slice, aval, f"{where}, leaf {number}")
            for number, (entry, aval) in enumerate(zip(entries, shape.leaves, strict=True))
        )

    def _key(self, jaxpr: Any, expects: Any, outs: Any, kernel: Kernel | None) -> str:
        digest = hashlib.blake2b(digest_size=12)
        parts = (str(jaxpr), self.slice.shape, expects, outs, kernel, self._collective, self._irregular)
        digest.update(repr(parts).encode())
        for constant in jaxpr.consts:
            known = avals.of(constant)
            if known is not None and known.nbytes <= BIG_CONSTANT:
                digest.update(avals.host_bytes(constant, known))
        return f"{self.name}:{digest.hexdigest()}"


class Evaluator:
    """Runs the function on this machine's CPU, compiled when it is first asked."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._compiled: Any = None

    def __call__(self, contents: list[Any]) -> list[Any]:
        import jax

        with jax.default_device(jax.devices("cpu")[0]):
            if self._compiled is None:
                self._compiled = jax.jit(self._call)
            return trees.leaves(self._compiled(*contents))


def _without_contents(error: Exception) -> str:
    """What to do instead, where the function asked for contents that it will have only when it runs."""
    from jax import errors

    kinds: tuple[type[Exception], ...] = (
        errors.ConcretizationTypeError, errors.TracerArrayConversionError, errors.TracerIntegerConversionError,
        errors.NonConcreteBooleanIndexError,
    )  # fmt: skip
    if not isinstance(error, kinds):
        return ""
    return (
        ", which have no contents yet. Decide with jnp.where or jax.lax.cond; call jax.numpy, not numpy; name what is "
        "known before in static_argnums; if only a size depends on contents, sw.jit(..., irregular=True, "
        "max_shape=...); if they say where rows go, sw.route(x, dest)"
    )


def _called(fn: Callable[..., Any], shape: CallShape, *leaves: Any) -> Any:
    args, kwargs = shape.fill(leaves)
    return fn(*args, **kwargs)


def _work(jaxpr: Any, home: Slice, used: Sequence[Sharding]) -> Any:
    from ..costs import work_of

    return work_of(jaxpr, home.shape, used)


def exchanges(jaxpr: Any) -> bool:
    """Whether collectives stand in it as such: jax.lax.psum and its like, in jax.shard_map."""
    for equation in jaxpr.eqns:
        if equation.primitive.name.startswith(EXCHANGES):
            return True
        for value in equation.params.values():
            inner = value if isinstance(value, tuple | list) else (value,)
            jaxprs = (getattr(each, "jaxpr", each) for each in inner)
            if any(exchanges(each) for each in jaxprs if hasattr(each, "eqns")):
                return True
    return False


def is_entry(entry: Any) -> bool:
    return isinstance(entry, int) or shardings.is_sharding(entry)


def resolve(entry: Any, home: Slice, aval: Aval, where: str) -> Sharding:
    if not isinstance(entry, int):
        return shardings.resolve(entry, home, aval, where)
    if entry >= len(aval.shape) or aval.shape[entry] != home.devices:
        length = aval.shape[entry] if entry < len(aval.shape) else "not there"
        has = f"{aval}, dimension {entry}, is {length}"
        raise ValueError(
            f"{where}: sw.pmap maps one entry to each of the {home.devices} devices of {home!r}, and of {has}; "
            f"make it {home.devices}, or do not map it (in_axes=None)"
        )
    return shardings.along_all(home, len(aval.shape), entry)


def type_name(computation: JitComputation[Any]) -> str:
    return "sw.pmap" if computation._kwargs == MAPPED else "sw.jit"


@overload
def jit(fn: Callable[..., Any], *, irregular: Literal[True], **options: Unpack[JitOptions]) -> JitComputation[Any]: ...


@overload
def jit(
    fn: Callable[..., T], *, irregular: Literal[False] = False, **options: Unpack[JitOptions]
) -> JitComputation[T]: ...


@overload
def jit(
    fn: None = None, *, irregular: Literal[True], **options: Unpack[JitOptions]
) -> Callable[[Callable[..., Any]], JitComputation[Any]]: ...


@overload
def jit(
    fn: None = None, *, irregular: Literal[False] = False, **options: Unpack[JitOptions]
) -> Callable[[Callable[..., T]], JitComputation[T]]: ...


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    devices: Slice | int | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    cost: Cost | None = None,
    collective: bool | None = None,
    irregular: bool = False,
    max_shape: Any = None,
    name: str | None = None,
) -> Any:
    """Make a JAX function a computation that runs on a slice: jax.jit for devices that the client does not have.

    devices: a slice, or a number of devices. in_shardings, out_shardings: PartitionSpecs (or NamedShardings) over the
    slice's mesh, as trees like jax.jit's. Without them, everything is replicated. Arguments may be anywhere: they move.
    cost: what an execution takes in a simulation: "330us", a `sw.costs.tpu_costs(...)`, or a function of the arguments'
    shapes. Without it, it is estimated. collective: whether its devices wait for one another.
    irregular: how many rows it makes is known only when it has run. `fn` returns (arrays, count), of which the first
    `count` rows are meant, and `max_shape` bounds them. The other options are those of jax.jit.

        >>> @sw.jit(devices=2)
        ... def double(x):
        ...     return x * 2
        >>> with sw.simulate("B", hosts=2, values="compute"):
        ...     print(np.asarray(double(np.float32([1, 2]))))
        [2. 4.]
    """
    if fn is None:
        options = {key: value for key, value in locals().items() if key != "fn"}
        return functools.partial(jit, **options)  # a decorator
    called = name or str(getattr(fn, "__name__", type(fn).__name__))
    if max_shape is not None and not irregular:
        raise ValueError(f"sw.jit({called}, max_shape=...) bounds what irregular=True makes; give both or neither")
    static, static_names = _statics(fn, as_numbers(static_argnums), _as_names(static_argnames))
    return JitComputation(
        fn, called, as_slice(devices, f"sw.jit({called})"), in_shardings=in_shardings,
        out_shardings=out_shardings, cost=cost, collective=collective, irregular=irregular, max_shape=max_shape,
        static=static, static_names=static_names, donate=as_numbers(donate_argnums),
        donate_names=_as_names(donate_argnames),
    )  # fmt: skip


@overload
def pmap(fn: Callable[..., T], axis_name: str | None = None, **options: Unpack[PmapOptions]) -> JitComputation[T]: ...


@overload
def pmap(
    fn: None = None, axis_name: str | None = None, **options: Unpack[PmapOptions]
) -> Callable[[Callable[..., T]], JitComputation[T]]: ...


def pmap(
    fn: Callable[..., Any] | None = None,
    axis_name: str | None = None,
    *,
    devices: Slice | int | None = None,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    donate_argnums: int | Sequence[int] = (),
    cost: Cost | None = None,
    name: str | None = None,
) -> Any:
    """Make a function a computation with one copy on each device of a slice, as jax.pmap does.

    The mapped axis is as long as the slice has devices. axis_name: for collectives such as jax.lax.psum. With it, the
    devices wait for one another, whatever `cost` says; without it they do not. `in_axes=None`: all copies share it.

        >>> import jax
        >>> total = sw.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i", devices=4)
        >>> with sw.simulate("B", hosts=2, values="compute"):
        ...     print(np.asarray(total(np.float32([1, 2, 3, 4]))))
        [10. 10. 10. 10.]
    """
    if fn is None:
        options = {key: value for key, value in locals().items() if key != "fn"}
        return functools.partial(pmap, **options)  # a decorator
    called = name or str(getattr(fn, "__name__", type(fn).__name__))
    home = as_slice(devices, f"sw.pmap({called})")
    static = as_numbers(static_broadcasted_argnums)
    axes = in_axes
    if isinstance(in_axes, tuple | list):
        axes = tuple(axis for number, axis in enumerate(in_axes) if number not in static)
    return JitComputation(
        functools.partial(_mapped, fn, axis_name, static, axes, out_axes, home.devices), called, home,
        in_shardings=axes, out_shardings=out_axes, kwarg_shardings=MAPPED, cost=cost, static=static,
        donate=as_numbers(donate_argnums), collective=bool(axis_name) and home.devices > 1,
    )  # fmt: skip


def _mapped(
    fn: Callable[..., Any], axis_name: str | None, static: tuple[int, ...], in_axes: Any, out_axes: Any, size: int,
    *args: Any, **kwargs: Any,
) -> Any:  # fmt: skip
    import jax

    fixed = {number: args[number] for number in static if number < len(args)}
    moving = [arg for number, arg in enumerate(args) if number not in fixed]

    def one(*some: Any, **named: Any) -> Any:
        whole = list(some)
        for number, value in sorted(fixed.items()):
            whole.insert(number, value)
        return fn(*whole, **named)

    mapped = jax.vmap(one, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name, axis_size=size)
    return mapped(*moving, **kwargs)


def _as_names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _statics(
    fn: Callable[..., Any], numbers: tuple[int, ...], names: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """An argument that is static by one of them is by the other too, as in JAX."""
    if not numbers and not names:
        return (), ()
    try:
        known = [
            parameter.name for parameter in inspect.signature(fn).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]  # fmt: skip
    except (TypeError, ValueError):
        return numbers, names
    more = tuple(known.index(name) for name in names if name in known)
    also = tuple(known[number] for number in numbers if number < len(known))
    return tuple(sorted({*numbers, *more})), tuple(dict.fromkeys((*names, *also)))
