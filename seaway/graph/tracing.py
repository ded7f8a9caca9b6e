"""The program tracer: runs a user's function once on stand-ins for arrays, and records its calls as a `Graph`."""

from __future__ import annotations

import threading
from functools import partialmethod
from typing import Any, NoReturn

from core.model import Arg, Out, Ref, Sharding

from ..errors import NotNow, TracedValueError
from ..specs import WHOLE, Aval, Operand, Slice
from .graph import CallNode, Given, Graph, Route
from .signature import Signature, leaf_aval


class Tracer:
    """One trace of one program."""

    def __init__(self, name: str, args: list[Aval], donate: tuple[int, ...]) -> None:
        self.name = name
        self.over = False
        self._args = list(args)
        self._donate = donate
        self._nodes: list[CallNode | Route] = []
        self._captured: list[Any] = []
        self._found: dict[int, Arg] = {}  # id of a captured value -> its argument
        self._taken: dict[Ref, str] = {}  # donated value -> the computation that it was donated to
        self.arguments = [Traced(self, aval, Arg(number), None, WHOLE) for number, aval in enumerate(args)]

    def call(self, signature: Signature, leaves: list[Any]) -> list[Traced]:
        reads = zip(leaves, signature.inputs, strict=True)
        inputs = tuple([self._ref(leaf, aval, signature.name) for leaf, aval in reads])
        donate = tuple(number for number in signature.donate if self._may_donate(inputs[number]))
        for number in donate:
            self._taken[inputs[number]] = signature.name
        self._nodes.append(CallNode(signature, inputs, donate))
        node = len(self._nodes) - 1
        outputs = zip(signature.outputs, signature.out_shardings, strict=True)
        return [
            Traced(self, aval, Out(node, number), signature.slice, split)
            for number, (aval, split) in enumerate(outputs)
        ]

    def route(self, name: str, rows: Traced, aval: Aval, home: Slice, sharding: Sharding, evaluate: Any) -> Traced:
        self._nodes.append(Route(name, self._ref(rows, rows._abstract, name), aval, home, sharding, evaluate))
        return Traced(self, aval, Out(len(self._nodes) - 1), home, sharding)

    def finish(self, leaves: list[Any], out_names: tuple[str, ...]) -> Graph:
        self.over = True
        results: list[Ref | Given] = []
        for number, leaf in enumerate(leaves):
            aval = leaf_aval(leaf, f"result {number} of @sw.program {self.name!r}")
            ref = self._ref(leaf, aval, "the result")
            if isinstance(ref, Arg) and ref.index in self._donate:
                raise NotNow(f"@sw.program {self.name!r} returns argument leaf {ref.index}, which it donates")
            results.append(Given(ref.index) if isinstance(ref, Arg) else ref)
        return Graph(self.name, self._args, self._nodes, results, out_names, self._donate, self._captured)

    def _may_donate(self, ref: Ref) -> bool:
        """Whether a node may donate this value. An argument that the caller keeps must not be taken, as in JAX."""
        return not isinstance(ref, Arg) or ref.index in self._donate

    def _ref(self, leaf: Any, aval: Aval, reader: str) -> Ref:
        if not isinstance(leaf, Traced):
            return self._capture(leaf, aval)
        if leaf._tracer is not self:
            state = "has ended" if leaf._tracer.over else "is still under way"
            raise NotNow(
                f"{leaf!r} escaped from the trace of {leaf._tracer.name!r}, which {state}, into {self.name!r}: return "
                f"it from that program, and pass what the call gives"
            )
        if leaf._ref in self._taken:
            raise NotNow(
                f"in @sw.program {self.name!r}, {leaf!r} is read by {reader!r} after {self._taken[leaf._ref]!r} took "
                f"over its memory (donate_argnums); read it before, or do not donate it"
            )
        return leaf._ref

    def _capture(self, leaf: Any, aval: Aval) -> Arg:
        """Make a constant or an array from outside the program a hidden argument, passed with every call."""
        known = self._found.get(id(leaf))
        if known is None:
            known = self._found[id(leaf)] = Arg(len(self._args))
            self._args.append(aval)
            self._captured.append(leaf)
        return known


class Traced(Operand):
    """Stands for an array while a program is traced."""

    __slots__ = ("_abstract", "_ref", "_sharding", "_slice", "_tracer")
    __hash__ = object.__hash__

    def __init__(self, tracer: Tracer, aval: Aval, ref: Ref, home: Slice | None, sharding: Sharding) -> None:
        self._tracer, self._abstract, self._ref = tracer, aval, ref
        self._slice, self._sharding = home, sharding

    @property
    def slice(self) -> Slice | None:
        """The slice it is on; None for an argument, which may be on any slice."""
        return self._slice

    @property
    def _split(self) -> Sharding:
        return self._sharding

    def __repr__(self) -> str:
        where = "" if self._slice is None else f" on {self._slice!r}"
        return f"Traced({self._abstract!r}{where})"

    def _refusal(self, does: str) -> TracedValueError:
        return TracedValueError(repr(self), self._tracer.name, does)

    def _needs(self, does: str) -> NoReturn:
        raise self._refusal(does)

    def _operate(self, symbol: str, other: Any, turned: bool) -> NoReturn:
        raise NotNow(
            f"`{symbol}` on {self!r} in @sw.program {self._tracer.name!r}: a program calls computations, and Python's "
            f"operators are none; write a computation: sw.jit(lambda x, ...: x {symbol} ..., devices=...)"
        )

    def _computes(self, function: str) -> NoReturn:
        raise NotNow(
            f"{function} on {self!r} in @sw.program {self._tracer.name!r}: a program calls "
            f"computations; wrap the function in sw.jit(..., devices=...), or move the value with sw.put"
        )

    def __bool__(self) -> bool:
        raise self._refusal("`if`, `while`, `and`, `or` or bool()")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise self._refusal("`==`")

    def __ne__(self, other: object) -> bool:
        if self is other:
            return False
        raise self._refusal("`!=`")

    def __float__(self) -> float:
        raise self._refusal("float()")

    def __int__(self) -> int:
        raise self._refusal("int()")

    def __getitem__(self, where: Any) -> Any:
        raise NotNow(
            f"indexing {self!r} in @sw.program {self._tracer.name!r}: write it as a computation: "
            f"sw.jit(lambda x: x[...], devices=...)"
        )

    def block_until_ready(self) -> NoReturn:
        raise NotNow(
            f"@sw.program {self._tracer.name!r} waits for {self!r} while it is traced; wait for what the call returns"
        )


for _name, _does in (("index", "use as an index"), ("complex", "complex()"), ("array", "numpy"), ("iter", "iteration")):
    setattr(Traced, f"__{_name}__", partialmethod(lambda self, does, *_, **__: self._needs(does), _does))


class _TracingThread(threading.local):
    """The programs that one thread is tracing."""

    def __init__(self) -> None:
        self.tracers: list[Tracer] = []


_here = _TracingThread()


def tracer() -> Tracer | None:
    """The innermost program that this thread is tracing, if any."""
    return _here.tracers[-1] if _here.tracers else None


def push_tracer(tracer: Tracer) -> None:
    _here.tracers.append(tracer)


def pop_tracer() -> None:
    _here.tracers.pop()


def in_trace(what: str) -> None:
    """Raise if this thread is tracing a program. For calls that have no meaning there."""
    if _here.tracers:
        name = _here.tracers[-1].name
        raise NotNow(f"{what} inside @sw.program {name!r}, which is only being traced: do it before or after the call")
