"""What a computation costs, as users say it: a time, a priced kernel, or a function of the arguments' shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from sim.hardware import Collective, Kernel, Kind

from ..costs import units
from ..specs import Aval


@runtime_checkable
class Priced(Protocol):
    """Whatever brings a kernel: what `sw.costs.tpu_costs` gives does."""

    @property
    def kernel(self) -> Kernel: ...


Cost = int | str | Kernel | Priced | Callable[..., Any]

KINDS: dict[str, Kind] = {
    "allreduce": "all-reduce", "allgather": "all-gather", "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all", "permute": "permute",
}  # fmt: skip


def nanoseconds(who: str, key: str, value: int | str) -> int:
    return units.duration(value, f"{who}: {key}")


def nbytes(who: str, key: str, value: int | str) -> int:
    return units.nbytes(value, f"{who}: {key}")


def kernel_of(cost: Cost, name: str, leaves: Sequence[Aval]) -> Kernel:
    """`cost` may be a function of the arguments, as abstract values, that returns any of the rest."""
    if isinstance(cost, Kernel):
        return cost
    if isinstance(cost, Priced):
        return cost.kernel
    if callable(cost):
        return kernel_of(cost(*[leaf.abstract() for leaf in leaves]), name, leaves)
    return Kernel(name, nanoseconds(f"computation {name!r}", "cost", cost))


def collectives(who: str, given: dict[str, Any]) -> tuple[Collective, ...]:
    """From `allreduce="4B"` and the like; a list stands for several."""
    listed = {key: value if isinstance(value, list | tuple) else (value,) for key, value in given.items()}
    return tuple(
        Collective(KINDS[key], nbytes(who, key, each))
        for key, values in listed.items()
        for each in values
        if each is not None
    )
