"""`Graph`: a traced program that belongs to no session yet, with nodes on slices in the order in which Python called.

`lower` turns it into core's `Program`: the session names the slices and prices the computations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from core.model import (
    Arg,
    Computation,
    Exchange,
    Node,
    Out,
    Program,
    Ref,
    Reshard,
    Sharding,
    SliceSpec,
    Value,
    validate,
)

from ..specs import WHOLE, Aval, Slice
from .signature import Signature


class CallNode(NamedTuple):
    """One node: a computation on arguments."""

    signature: Signature
    inputs: tuple[Ref, ...]
    donate: tuple[int, ...]


class Route(NamedTuple):
    """A node that is a sparse exchange, from `sw.route`."""

    name: str
    input: Ref
    aval: Aval
    slice: Slice
    sharding: Sharding
    evaluate: Callable[[Any], Any]


class Given:
    """A result that is one of the arguments, returned unchanged."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Graph:
    """A traced program.

    `homes[i]`: slice and sharding of the first use of argument i, where a literal is placed; None if no node uses it.
    `used`: the arguments that nodes use; core's program has only these. `results`: the results, as flat leaves.
    `donated`: those of them that are donated. `all_used`, `all_made`: whether nodes use all arguments, and whether they
    make all results.
    """

    def __init__(
        self, name: str, args: Sequence[Aval], nodes: Sequence[CallNode | Route], results: Sequence[Ref | Given],
        out_names: Sequence[str], donate_args: tuple[int, ...] = (), captured: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        self.name, self.args, self.nodes = name, tuple(args), tuple(nodes)
        self.results, self.out_names = tuple(results), tuple(out_names)
        self.donate_args, self.captured = donate_args, tuple(captured)
        self.homes = self._homes()
        self.used = tuple(at for at, home in enumerate(self.homes) if home is not None)
        self.all_used = len(self.used) == len(self.args)
        self.donated = tuple(at for at in donate_args if self.homes[at] is not None)
        slices = dict.fromkeys(node_slice(node) for node in self.nodes)
        self.slices = tuple(sorted(slices, key=lambda each: bool(each.spec("").of)))  # what has parts, before these
        made = [ref for ref in self.results if isinstance(ref, Out)]
        self.made: tuple[Out, ...] = tuple(made) if made or not self.nodes else (Out(len(self.nodes) - 1),)
        # Core's program ends with its results, so it needs one even if the user returns none.
        self.hidden = not made
        self.all_made = len(made) == len(self.results)

    def _homes(self) -> list[tuple[Slice, Sharding] | None]:
        homes: list[tuple[Slice, Sharding] | None] = [None] * len(self.args)
        for node in self.nodes:
            if isinstance(node, CallNode):
                wanted = zip(node.inputs, node.signature.expects, strict=True)
            else:
                wanted = zip((node.input,), (WHOLE,), strict=True)
            for ref, sharding in wanted:
                if isinstance(ref, Arg) and homes[ref.index] is None:
                    homes[ref.index] = (node_slice(node), sharding)
        return homes

    def output(self, ref: Out) -> tuple[Aval, Slice, Sharding]:
        node = self.nodes[ref.node]
        if isinstance(node, Route):
            return node.aval, node.slice, node.sharding
        signature = node.signature
        return signature.outputs[ref.output], signature.slice, signature.out_shardings[ref.output]

    def lower(self, name_of: Callable[[Slice], str], price: Callable[[Signature], Computation]) -> Program:
        where = {each: number for number, each in enumerate(self.slices)}
        renumbered = {at: number for number, at in enumerate(self.used)}

        def ref_of(ref: Ref) -> Ref:
            return Arg(renumbered[ref.index]) if isinstance(ref, Arg) else ref

        computations: dict[Signature, int] = {}
        listed: list[Computation] = []
        nodes: list[Node | Exchange | Reshard] = []
        for node in self.nodes:
            home = where[node_slice(node)]
            if isinstance(node, Route):
                nodes.append(Exchange(node.name, ref_of(node.input), _value(node.aval, home, node.sharding)))
                continue
            signature = node.signature
            if signature.reshards:
                outputs = zip(signature.outputs, signature.out_shardings, strict=True)
                makes = tuple(_value(aval, home, split) for aval, split in outputs)
                nodes.append(Reshard(signature.name, tuple(map(ref_of, node.inputs)), makes))
                continue
            number = computations.get(signature)
            if number is None:
                number = computations[signature] = len(listed)
                listed.append(price(signature))
            expects = zip(signature.inputs, signature.expects, strict=True)
            outputs = zip(signature.outputs, signature.out_shardings, strict=True)
            takes = tuple(_value(aval, home, split) for aval, split in expects)
            makes = tuple(_value(aval, home, split) for aval, split in outputs)
            reads = tuple(map(ref_of, node.inputs))
            nodes.append(Node(signature.name, number, home, reads, takes, makes, node.donate, signature.irregular))
        args = [
            _value(aval, where[home[0]], home[1])
            for aval, home in zip(self.args, self.homes, strict=True) if home is not None
        ]  # fmt: skip
        donated = tuple(renumbered[at] for at in self.donate_args if at in renumbered)
        specs: tuple[SliceSpec, ...] = tuple(each.spec(name_of(each)) for each in self.slices)
        program = Program(self.name, specs, tuple(listed), tuple(args), tuple(nodes), self.made, donated)
        validate(program)
        return program


def node_slice(node: CallNode | Route) -> Slice:
    return node.slice if isinstance(node, Route) else node.signature.slice


def _value(aval: Aval, home: int, sharding: Sharding) -> Value:
    return Value(aval.shape, aval.dtype, home, sharding)


def single(signature: Signature) -> Graph:
    """The program of one node for a call outside any program. It is built once a signature."""
    if signature.graph is None:
        count = len(signature.inputs)
        call = CallNode(signature, tuple(map(Arg, range(count))), signature.donate)
        results = tuple(Out(0, number) for number in range(len(signature.outputs)))
        signature.graph = Graph(
            signature.name, signature.inputs, (call,), results, signature.out_names, signature.donate
        )
    return signature.graph
