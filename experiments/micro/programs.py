"""The computation of the paper's micro-benchmarks, and programs made of it.

It is an AllReduce of one scalar, then a scalar add; each output is the next input. `-O` calls it one by one, `-C` in a
program of 128, `-F` as one node that contains 128 of it.
"""

from dataclasses import dataclass

from core.model import Arg, Computation, Node, Out, Program, Ref, SliceSpec, Value
from sim.baselines import fused
from sim.hardware import Collective, Kernel, Setup, kernel_time

ADD = 1_000  # nanoseconds of a scalar add, which is the launch of any kernel
SCALAR = Value((), "float32")


def simple(compute: int = 0) -> Kernel:
    """The paper's computation, or one that also computes for some nanoseconds."""
    return Kernel(f"add, {compute} ns", max(ADD, compute), (Collective("all-reduce", 4),))


def plain(compute: int) -> Kernel:
    """A computation of some nanoseconds on each device, without collectives."""
    return Kernel(f"compute, {compute} ns", max(1, compute))


@dataclass(frozen=True)
class Task:
    """A program, and its computations' kernels by key."""

    program: Program
    kernels: dict[str, Kernel]

    @property
    def literal(self) -> bytes:
        """The program's first argument."""
        return bytes(self.program.args[0].nbytes)


def chain(setup: Setup, kernel: Kernel, nodes: int, held: int = 1, name: str = "") -> Task:
    """A program of `nodes` in a row, on all devices of an island. Each node has `held` computations."""
    devices = setup.cluster.islands[0].devices
    whole = fused(kernel, held) if held > 1 else kernel
    name = name or whole.name
    refs: list[Ref] = [Arg(0), *(Out(node) for node in range(nodes))]
    made = tuple(Node(f"step {at}", 0, 0, (refs[at],), (SCALAR,), (SCALAR,), (0,)) for at in range(nodes))
    step = Computation(name, name, expected(setup, whole, devices))
    slices = (SliceSpec("all", devices),)
    program = Program(name, slices, (step,), (SCALAR,), made, (Out(nodes - 1),), donate_args=(0,))
    return Task(program, {name: whole})


def stages(setup: Setup, kernel: Kernel, count: int, width: int, output: int) -> Task:
    """A chain of `count` stages, each on a slice of `width` devices: a pipeline without micro-batches. `output`: bytes
    that each device of a stage hands on to the next."""
    step = Computation(kernel.name, kernel.name, expected(setup, kernel, width))
    slices = tuple(SliceSpec(f"stage {at}", width) for at in range(count))
    first = Value((), "float32")
    values = [Value((max(1, output // 4),), "float32", at) for at in range(count)]
    refs: list[Ref] = [Arg(0), *(Out(node) for node in range(count))]
    nodes = tuple(
        Node(f"stage {at}", 0, at, (refs[at],), (values[at] if at else first,), (values[at],)) for at in range(count)
    )
    program = Program(f"{count} stages", slices, (step,), (first,), nodes, (Out(count - 1),))
    return Task(program, {kernel.name: kernel})


def expected(setup: Setup, kernel: Kernel, devices: int) -> int:
    """The cost stated in the plan: the kernel's time on the first devices of an island."""
    from core.model import line

    return kernel_time(kernel, line(0, 0, devices), setup.cluster.islands[0], setup.chips[0])
