"""`costs`: the best cost available here, from the TPU compiler if it is installed, or else a roofline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from ..errors import CostError, NoCompiler
from .cost import Cost
from .roofline import roofline_costs
from .topologies import NAME
from .tpu import require_compiler, tpu_costs

Prefer = Literal["tpu", "roofline"]


def costs(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    prefer: Prefer = "tpu",
    topology: str = "v3:32x32",
    **options: Any,
) -> Cost:
    """Call `tpu_costs` or `roofline_costs`, with their options.

    The cost's `source` says which it was. If it is not the preferred one, a note says why.
    """
    if prefer not in ("tpu", "roofline"):
        raise CostError(f"prefer is 'tpu' or 'roofline', not {prefer!r}")
    if prefer == "roofline":
        return roofline_costs(fn, args, topology=topology, **options)
    why = _why_not(topology)
    if not why:
        return tpu_costs(fn, args, topology=topology, **options)
    found = roofline_costs(fn, args, topology=topology, **options)
    return msgspec.structs.replace(found, notes=(f"a roofline, because {why}", *found.notes))


def _why_not(topology: str) -> str:
    if not NAME.fullmatch(topology.strip()):
        return f"{topology!r} is not a TPU topology such as 'v3:32x32'"
    try:
        require_compiler()
    except NoCompiler as error:
        return str(error)
    return ""
