"""`synthetic`: a cost stated by the user, a time and collectives of some number of bytes."""

from __future__ import annotations

from math import prod

import msgspec

from ..errors import CostError
from ..units import duration as duration_of
from ..units import nbytes
from .cost import Cost, MemoryUse
from .hlo import HloCollective, Kind

Groups = tuple[tuple[int, int], ...]
Amount = str | int | tuple[str | int, Groups]


def synthetic(
    duration: str | int,
    *,
    name: str = "synthetic",
    allreduce: Amount | None = None,
    allgather: Amount | None = None,
    reducescatter: Amount | None = None,
    alltoall: Amount | None = None,
    permute: Amount | None = None,
    temp: str | int = 0,
    count: int = 1,
) -> Cost:
    """`synthetic("330us", allreduce="4B")`: a computation of 330 us with an all-reduce of 4 bytes on all its devices.

    A collective is given as the bytes of its operand on each device, or as (bytes, groups), with groups as in
    `sim.hardware.kernels`. `count`: how often it does all that, such as 128 for the paper's fusion of 128 computations.
    """
    if count < 1:
        raise CostError(f"count is how often it computes, at least 1, not {count!r}")
    asked: dict[Kind, Amount | None] = {
        "all-reduce": allreduce, "all-gather": allgather, "reduce-scatter": reducescatter,
        "all-to-all": alltoall, "permute": permute,
    }  # fmt: skip
    collectives = tuple(
        _exchange(kind, amount, count) for kind, amount in asked.items() if amount is not None
    )
    cost = Cost.stated(duration_of(duration) * count, name)
    return msgspec.structs.replace(cost, collectives=collectives, memory=MemoryUse(temp=nbytes(temp, "temp")))


def _exchange(kind: Kind, amount: Amount, count: int) -> HloCollective:
    groups: Groups = ()
    if isinstance(amount, tuple):
        amount, groups = amount
    size = prod(size for size, _ in groups) if groups else 0  # 0: all devices of the slice
    return HloCollective(kind, nbytes(amount, kind), groups, size, count)
