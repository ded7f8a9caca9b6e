"""Reads `cost=`: a time, a priced kernel, or a function of the arguments' shapes becomes the simulator's `Kernel`."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from sim.hardware import Collective, Kernel, Kind

from .. import units
from ..specs import Aval


@runtime_checkable
class KernelBearer(Protocol):
    """An object with a kernel, such as a result of `sw.costs.tpu_costs`."""

    @property
    def kernel(self) -> Kernel: ...


Cost = units.Time | Kernel | KernelBearer | Callable[..., Any]

KINDS: dict[str, Kind] = {
    "allreduce": "all-reduce", "allgather": "all-gather", "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all", "permute": "permute",
}  # fmt: skip


def nbytes(who: str, key: str, value: int | str) -> int:
    return units.nbytes(value, f"{who}: {key}")


def kernel_of(cost: Cost, name: str, leaves: Sequence[Aval]) -> Kernel:
    """The kernel of a cost. A function is called with the arguments' abstract values and returns any other cost."""
    if isinstance(cost, Kernel):
        return cost
    if isinstance(cost, KernelBearer):
        return cost.kernel
    if callable(cost):
        return kernel_of(cost(*[leaf.abstract() for leaf in leaves]), name, leaves)
    return Kernel(name, units.duration(cost, f"computation {name!r}: cost"))


def collectives(who: str, given: dict[str, Any]) -> tuple[Collective, ...]:
    """Collectives from options such as `allreduce="4B"`. A list means several."""
    listed = {key: value if isinstance(value, list | tuple) else (value,) for key, value in given.items()}
    return tuple(
        Collective(KINDS[key], nbytes(who, key, each))
        for key, values in listed.items()
        for each in values
        if each is not None
    )
