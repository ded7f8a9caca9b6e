"""A training step as a program of priced computations on slices, and a program that makes its arguments.

Each of a stage's weights, optimizer state and gradients is one buffer, with as many bytes as its arrays have together.
Activations and gradients that move have their real shapes and shardings, so moves between slices are planned exactly.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from core.model import Arg, Computation, Node, Out, Program, Ref, Sharding, SliceSpec, Value
from seaway.costs import Cost
from sim.hardware import Kernel

from ..pricing import book
from ..pricing.jobs import Job


@dataclass(frozen=True)
class Step:
    """`start` makes the arguments of `step`. `step` takes over all of them but the batch, and returns them changed."""

    start: Program
    step: Program
    kernels: dict[str, Kernel]
    tokens: int  # of a step


@dataclass
class Pricing:
    """Prices the jobs of a step, by the book or another `source`. `efficiency`: the chip's, against its compiler's."""

    efficiency: float = 1.0
    source: Callable[[Job], Cost] | None = None
    kernels: dict[str, Kernel] = field(default_factory=dict)
    found: dict[str, Cost] = field(default_factory=dict)

    def cost(self, job: Job) -> Cost:
        if job.key not in self.found:
            self.found[job.key] = found = (self.source or book.cost)(job)
            kernel = found.scaled(1 / self.efficiency).kernel
            self.kernels[job.key] = msgspec.structs.replace(kernel, name=job.key)
        return self.found[job.key]

    def computation(self, job: Job) -> Computation:
        self.cost(job)
        kernel = self.kernels[job.key]
        return Computation(job.key, job.key, kernel.duration, temp=kernel.temp, collective=bool(kernel.collectives))


class Graph:
    """A program under construction."""

    def __init__(self, name: str, slices: Sequence[SliceSpec], pricing: Pricing) -> None:
        self.name, self.slices, self.pricing = name, tuple(slices), pricing
        self.args: list[Value] = []
        self.nodes: list[Node] = []
        self.results: list[Ref] = []
        self._computations: dict[str, int] = {}
        self._listed: list[Computation] = []
        self._types: dict[Ref, Value] = {}
        self._kept: set[int] = set()

    def arg(self, value: Value, kept: bool = False) -> Arg:
        """Add an argument. `kept`: the caller keeps it and passes it again."""
        ref = Arg(len(self.args))
        self.args.append(value)
        self._types[ref] = value
        if kept:
            self._kept.add(ref.index)
        return ref

    def type(self, ref: Ref) -> Value:
        return self._types[ref]

    def call(
        self, job: Job, on: int, inputs: Sequence[Ref], outputs: Sequence[Value], *, name: str,
        donate: tuple[int, ...] = (),
    ) -> list[Out]:  # fmt: skip
        if job.key not in self._computations:
            self._computations[job.key] = len(self._listed)
            self._listed.append(self.pricing.computation(job))
        expects = tuple(msgspec.structs.replace(self._types[ref], slice=on) for ref in inputs)
        at = len(self.nodes)
        self.nodes.append(
            Node(name or job.key, self._computations[job.key], on, tuple(inputs), expects, tuple(outputs), donate)
        )
        refs = [Out(at, number) for number in range(len(outputs))]
        self._types |= dict(zip(refs, outputs, strict=True))
        return refs

    def step(self, results: Iterable[Ref], tokens: int) -> Step:
        taken = tuple(index for index in range(len(self.args)) if index not in self._kept)
        program = Program(
            self.name, self.slices, tuple(self._listed), tuple(self.args), tuple(self.nodes), tuple(results), taken
        )
        return Step(self._start(), program, self.pricing.kernels, tokens)

    def _start(self) -> Program:
        """The program that makes each argument on its slice, in 1 ns."""
        make = Computation(f"{self.name}: start", f"{self.name}: start", 1, collective=False)
        nodes = tuple(Node(f"start {at}", 0, value.slice, (), (), (value,)) for at, value in enumerate(self.args))
        return Program(
            f"{self.name}: start", self.slices, (make,), (), nodes, tuple(Out(at) for at in range(len(nodes)))
        )


# --- one computation for all -----------------------------------------------------------------------------------


def spmd(job: Job, where: SliceSpec, tokens: int, pricing: Pricing) -> Step:
    graph = Graph(job.key, [where], pricing)
    kept = graph.arg(on_all(where, pricing.cost(job).memory.argument, "uint8", 0))
    state, loss = graph.call(job, 0, [kept], [graph.type(kept), Value((), "float32", 0)], donate=(0,), name="step")
    return graph.step([state, loss], tokens)


def axes_of(where: SliceSpec) -> tuple[int, ...]:
    return tuple(range(len(where.mesh_shape)))


def on_all(where: SliceSpec, each: int, dtype: str, at: int) -> Value:
    """A value with `each` different numbers on each device of a slice."""
    return Value((where.devices, max(1, each)), dtype, at, Sharding((axes_of(where), ())))
