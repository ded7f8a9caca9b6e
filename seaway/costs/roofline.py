"""Costs without the TPU compiler: partitioned by compiling for virtual CPU devices, priced by a chip's peak rates.

The result is a bound. Each operation takes as long as its flops at `efficiency` of the peak, or its bytes at the full
bandwidth, whichever is longer. Everything that can be fused is assumed to be fused. Collectives are those that the
partitioner inserts, before a compiler merges or hides them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from core.model import Impossible
from sim.hardware import Chip, setups

from ..errors import CostError
from . import cost_cache
from .compiling import CompiledHlo, Failed, compile_in_child
from .cost import Cost, disagreement
from .hlo import Rates
from .lowering import Lowered, lower
from .reports import doubts, figures, memory, read, versions
from .topologies import NAME, check_devices, find, rates

TIMEOUT = 900.0
MOST = 16384  # virtual devices
PARTITIONED = (
    "all-reduce-promotion"  # the text is taken before this pass: later ones turn bf16 into f32 for the CPU
)


class PricedPlace(msgspec.Struct, frozen=True):
    """The target of a price."""

    name: str
    chip: Chip
    efficiency: float

    @property
    def rates(self) -> Rates:
        return rates(self.chip, self.efficiency)


def roofline_costs(
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    topology: str = "v3:32x32",
    mesh: object = None,
    in_shardings: object = None,
    out_shardings: object = None,
    donate: int | Sequence[int] = (),
    name: str | None = None,
    efficiency: float = 1.0,
    timeout: float = TIMEOUT,
    refresh: bool = False,
) -> Cost:
    """Like `tpu_costs`, but by peak rates. `topology` may also be a set-up of `sw.simulate`: "B", "v4-512", ..."""
    if not 0 < efficiency <= 1:
        raise CostError(f"efficiency is a share of the peak, above 0 and at most 1, not {efficiency!r}")
    lowered = lower(
        fn, args, platform="cpu", mesh=mesh,
        in_shardings=in_shardings, out_shardings=out_shardings, donate=donate, name=name,
    )  # fmt: skip
    where = PricedPlace(*_find(topology, lowered.devices), efficiency)
    if lowered.devices > MOST:
        raise CostError(
            f"{lowered.devices} devices are more than a CPU client starts in reasonable time, {MOST} at most; "
            "take tpu_costs, or a mesh with fewer devices along its data axis and as much data on each"
        )
    key = cost_cache.key("roofline", lowered.digest, where.name, figures(where.chip), f"{efficiency!r}")
    return cost_cache.cost(key, lowered.name, lambda: _compile(lowered, where, timeout), refresh=refresh)


def _find(topology: str, devices: int) -> tuple[str, Chip]:
    if NAME.fullmatch(topology.strip()):
        where = find(topology)
        check_devices(where, devices)
        return where.name, where.chip
    try:
        setup = setups.load(topology)
    except Impossible as error:
        raise CostError(f"{error}; or a TPU topology, as 'v3:4x4'") from None
    largest = max(island.devices for island in setup.cluster.islands)
    if devices > largest:
        raise CostError(f"the mesh has {devices} devices and an island of {topology!r} has {largest}")
    return setup.name, setup.chips[0]


def _compile(lowered: Lowered, where: PricedPlace, timeout: float) -> Cost:
    try:
        compiled = compile_in_child(
            lowered, platform="cpu", xla_flags=f"--xla_force_host_platform_device_count={lowered.devices}",
            before=PARTITIONED, timeout=timeout,
        )  # fmt: skip
    except Failed as failed:
        raise CostError(f"XLA refused {lowered.name!r}: {failed.kind}: {failed}") from None
    return cost_of(compiled, lowered, where)


def text_costs(
    text: str, name: str, devices: int, *, chip: Chip, partitioned: bool, memory: Mapping[str, int],
    efficiency: float = 1.0,
) -> Cost:  # fmt: skip
    """Like `roofline_costs`, of HLO for one device that XLA has written for so many CPU devices.

    `partitioned`: it is as it was before the CPU's own passes. `memory`: by XLA's names, as "temp_size_in_bytes".
    """
    sizes = {key.removesuffix("_in_bytes").removesuffix("_size"): size for key, size in memory.items()}
    lowered = Lowered(name, b"", (("devices", devices, "Auto"),), (), "")
    compiled = CompiledHlo(text, 0.0, text if partitioned else "", {}, sizes)
    return cost_of(compiled, lowered, PricedPlace(chip.name, chip, efficiency))


def cost_of(compiled: CompiledHlo, lowered: Lowered, where: PricedPlace) -> Cost:
    fused = not compiled.before
    found = read(compiled.before or compiled.hlo, lowered.name, where.rates, fused=fused)
    whole = max(found.flops / where.rates.flops, found.moved / where.rates.bandwidth) * 1e9
    estimates = {"roofline": round(found.roofline), "whole": round(whole)}
    notes = (
        f"a bound: matrix operations at {where.efficiency:.0%} of the peak, memory at its full bandwidth",
        "temp is the CPU compiler's, which keeps bf16 as f32 and fuses less: more than an accelerator needs",
    )
    wrong = doubts(found)
    needed = memory(compiled.memory)
    if needed.argument + needed.output - needed.alias > where.chip.hbm_bytes:
        wrong.append("arguments and results alone are more than a device's memory")
    if fused:
        wrong.append("the text before the CPU's own passes is missing: bf16 may count as f32")
    return Cost(
        name=lowered.name,
        duration=estimates["roofline"],
        used="roofline",
        source="roofline",
        estimates=estimates,
        collectives=found.collectives(),
        memory=needed,
        flops=found.flops,
        hbm_bytes=found.moved,
        devices=lowered.devices,
        target=where.name,
        notes=notes,
        warnings=(*wrong, *filter(None, [disagreement(estimates)])),
        versions=versions(),
        digest=lowered.digest,
        seconds=round(compiled.seconds, 3),
    )
