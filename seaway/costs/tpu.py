"""`tpu_costs`: costs from the real TPU compiler, on a machine without a TPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import CostError, NoCompiler, TooBig
from . import cost_cache
from .compiling import CompiledHlo, Failed, compile_in_child
from .cost import Cost, disagreement
from .hlo import Tally
from .lowering import Lowered, lower
from .reports import doubts, figures, memory, read, versions
from .topologies import Topology, check_devices, find, rates

TIMEOUT = 900.0
ESTIMATE = "blend"


def tpu_costs(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    topology: str = "v3:32x32",
    mesh: object = None,
    in_shardings: object = None,
    out_shardings: object = None,
    donate: int | Sequence[int] = (),
    name: str | None = None,
    timeout: float = TIMEOUT,
    refresh: bool = False,
) -> Cost:
    """The cost of `fn(*args)` on TPUs, from the TPU compiler (extra `tpu`).

    `args`: a tuple of pytrees of `jax.ShapeDtypeStruct`s or arrays, of global shapes. `mesh`: a dictionary of axes
    and their sizes, major first, or a JAX mesh, with all devices of the topology, or one. `in_shardings` and
    `out_shardings`: trees of `PartitionSpec`s, each for a leaf or a subtree; an argument without one is replicated.
    `donate`: numbers of arguments whose memory may be reused for results. `timeout`: seconds. `refresh`: compile even
    if the cost is cached.
    """
    where = find(topology)
    require_compiler()
    lowered = lower(
        fn, args, platform="tpu", mesh=mesh,
        in_shardings=in_shardings, out_shardings=out_shardings, donate=donate, name=name,
    )  # fmt: skip
    check_devices(where, lowered.devices)
    key = cost_cache.key(
        "tpu", lowered.digest, where.name, repr(where.options), figures(where.chip),
        os.environ.get("LIBTPU_INIT_ARGS", ""),
    )  # fmt: skip
    return cost_cache.cost(key, lowered.name, lambda: _compile(lowered, where, timeout), refresh=refresh)


def require_compiler() -> None:
    if importlib.util.find_spec("libtpu") is None:
        raise NoCompiler(
            "the TPU compiler is not installed: pip install 'seaway[tpu]' (libtpu: 700 MB, and needs no TPU); "
            "or take roofline_costs(...), which needs nothing more"
        )


def _compile(lowered: Lowered, where: Topology, timeout: float) -> Cost:
    try:
        compiled = compile_in_child(
            lowered, platform="tpu", topology=where.name, options=where.options, timeout=timeout
        )
    except Failed as failed:
        raise explain(failed, lowered, where) from None
    return cost_of(compiled, lowered, where)


def explain(failed: Failed, lowered: Lowered, where: Topology) -> CostError:
    """The compiler's error as one that says what to do."""
    text = str(failed)
    if "RESOURCE_EXHAUSTED" in text or "Ran out of memory" in text:
        return TooBig(
            f"{lowered.name!r} does not fit into the memory of a device of {where.name}. "
            "Shard its arguments over more devices, donate what it replaces (donate=), keep less of the forward pass "
            f"(jax.checkpoint), or take a smaller batch. The compiler said:\n{_short(text)}"
        )
    if failed.stage == "devices":
        return CostError(f"the TPU compiler has no topology {where.name!r}: {_short(text)}")
    return CostError(
        f"the TPU compiler refused {lowered.name!r} for {where.name}: {failed.kind}: {_short(text)}"
    )


def _short(text: str) -> str:
    lines = [line for line in text.partition("=== Source Location Trace")[0].splitlines() if line.strip()]
    return "\n".join(line[:400] for line in lines[:12])


def cost_of(compiled: CompiledHlo, lowered: Lowered, where: Topology) -> Cost:
    chip = where.chip
    found = read(compiled.hlo, lowered.name, rates(chip))
    estimates = {"blend": round(found.blend), "cycles": round(found.cycles)}
    if optimal := _optimal(compiled.cost.get("optimal_seconds", -1.0), found):
        estimates["optimal"] = optimal
    estimates["roofline"] = round(found.roofline)
    return Cost(
        name=lowered.name,
        duration=estimates[ESTIMATE],
        used=ESTIMATE,
        source="tpu-compiler",
        estimates=estimates,
        collectives=found.collectives(),
        memory=memory(compiled.memory),
        flops=found.flops,
        hbm_bytes=found.moved,
        devices=lowered.devices,
        target=where.name,
        clock_hz=chip.clock_hz,
        warnings=(*doubts(found), *filter(None, [disagreement(estimates)])),
        versions=versions(),
        digest=lowered.digest,
        seconds=round(compiled.seconds, 3),
    )


def _optimal(seconds: float, found: Tally) -> int:
    """The compiler's own optimum, in nanoseconds; 0 if it has none.

    It counts each loop's body once, so it is multiplied by the ratio of our two rooflines. It is negative if there are
    operations that the compiler cannot estimate.
    """
    if seconds <= 0 or found.once_roofline <= 0:
        return 0
    return round(seconds * 1e9 * found.roofline / found.once_roofline)
