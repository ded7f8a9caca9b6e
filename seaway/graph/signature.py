"""`Signature`: a computation for arguments of certain shapes and types, with everything known before it runs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.model import Sharding
from sim.hardware import Kernel

from ..errors import NotNow
from ..specs import Aval, Operand, Slice, avals, trees

if TYPE_CHECKING:
    from .graph import Graph

Contents = Any  # of one array: a numpy or JAX array
Evaluate = Callable[[list[Contents]], list[Contents]]


class Signature:
    """One computation for arguments of certain shapes and types. Compared by identity.

    kernel: the cost, if it is known; if not, `work()` may estimate it. evaluate: computes contents on this machine;
    None if there is nothing to compute. key: equal for equal code and options. function: the JAX function of the
    leaves, to be compiled; for an irregular computation it returns the padded arrays and their row count. document: in
    place of a function, instructions for hosts to read or write files (see `checkpoint`). reshards: nothing is
    computed; what it wants of its input is all there is to it. steps: so many equal steps; the cost is that of one.
    """

    __slots__ = (
        "collective", "document", "donate", "evaluate", "expects", "function", "graph", "inputs", "irregular", "kernel",
        "key", "name", "out_names", "out_shardings", "out_tree", "outputs", "reshards", "slice", "steps", "work",
    )  # fmt: skip

    def __init__(
        self, *, name: str, home: Slice, inputs: tuple[Aval, ...], expects: tuple[Sharding, ...],
        outputs: tuple[Aval, ...], out_shardings: tuple[Sharding, ...], out_tree: trees.Treedef, key: str,
        donate: tuple[int, ...] = (), irregular: bool = False, collective: bool = True,
        kernel: Kernel | None = None, work: Callable[[], Any] | None = None, evaluate: Evaluate | None = None,
        out_names: tuple[str, ...] | None = None, function: Callable[..., Any] | None = None,
        document: bytes = b"", reshards: bool = False, steps: int = 1,
    ) -> None:  # fmt: skip
        self.name, self.slice, self.key = name, home, key
        self.inputs, self.expects, self.donate = inputs, expects, donate
        self.outputs, self.out_shardings, self.out_tree = outputs, out_shardings, out_tree
        self.irregular, self.collective, self.kernel = irregular, collective, kernel
        self.work, self.evaluate, self.function, self.document = work, evaluate, function, document
        self.reshards, self.steps = reshards, steps
        self.out_names = trees.paths(out_tree) if out_names is None else out_names
        self.graph: Graph | None = None  # the program of this one call, once built


def leaf_aval(leaf: Any, where: str) -> Aval:
    if isinstance(leaf, Operand):
        return leaf._abstract
    if avals.traced_by_jax(leaf):
        raise NotNow(
            f"{where} is traced by JAX (jax.jit, jax.grad, jax.vmap or a function of sw.jit), and a computation on "
            f"other devices cannot be part of that. Transform inside the computation, as sw.jit(jax.grad(f), "
            f"devices=...); from a function of sw.jit, call the plain function; put computations together in "
            f"@sw.program"
        )
    found = avals.of(leaf)
    if found is None:
        raise TypeError(
            f"{where} is {leaf!r}, of type {type(leaf).__name__}; arguments are arrays, numbers, and pytrees of "
            f"them (lists, tuples, dicts); name anything else in static_argnums"
        )
    return found
