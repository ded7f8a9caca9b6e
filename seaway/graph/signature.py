"""A computation for arguments of certain shapes and types: all that can be known before anything runs."""

from __future__ import annotations

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
