"""Costs from compilers, for devices that this machine lacks: `tpu_costs`, `roofline_costs`; `costs` takes the better.

The TPU compiler itself needs no TPU (the extra `tpu`). A roofline is partitioned by compiling for virtual CPU devices,
and priced by a chip's rates: each operation takes as long as its flops at `efficiency` of the peak, or its bytes at the
full bandwidth, whichever is longer. Everything that can be fused is assumed to be fused. Collectives are those that the
partitioner inserts, before a compiler merges them; `hlo.overlap` says what computing hides of them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from core.model import Impossible
from sim.hardware import Chip, Setup, chips, setups

from ..errors import CostError, NoCompiler, TooBig
from ..units import Time
from . import cost_cache
from .compiling import CompiledHlo, Failed, compile_in_child
from .cost import Cost, MemoryUse, disagreement
from .hlo import HloError, Links, Rates, Tally, parse, tally
from .lowering import Lowered, lower
from .on_target import OnTarget, Overlap
from .topologies import NAME, Topology, check_devices, find, rates

TIMEOUT = "15min"
PARTITIONED = "all-reduce-promotion"  # the text is taken before this pass: later ones turn bf16 into f32 for the CPU


class Target(NamedTuple):
    """What a computation is priced for. `setup`: the cluster on which its collectives run; None: any."""

    name: str
    chip: Chip
    setup: Setup | None = None


def costs(
    fn: Callable[..., Any], args: Sequence[Any], *, prefer: Literal["tpu", "roofline"] = "tpu",
    topology: str = "v3:32x32", **options: Any,
) -> Cost:  # fmt: skip
    """Call `tpu_costs` or `roofline_costs`, with their options.

    The cost's `source` says which it was. If it is not the preferred one, a note says why.
    """
    if prefer not in ("tpu", "roofline"):
        raise CostError(f"prefer is 'tpu' or 'roofline', not {prefer!r}")
    why = ""
    if prefer == "tpu":
        try:
            if NAME.fullmatch(topology.strip()):
                require_compiler()
                return tpu_costs(fn, args, topology=topology, **options)
            why = f"{topology!r} is not a TPU topology such as 'v3:32x32'"
        except NoCompiler as error:
            why = str(error)
    found = roofline_costs(fn, args, topology=topology, **options)
    return msgspec.structs.replace(found, notes=(*(f"a roofline, because {why}",) * bool(why), *found.notes))


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
    timeout: Time = TIMEOUT,
    refresh: bool = False,
) -> Cost:
    """The cost of `fn(*args)` on TPUs, from the TPU compiler (extra `tpu`).

    `args`: a tuple of pytrees of `jax.ShapeDtypeStruct`s or arrays, of global shapes. `mesh`: a dictionary of axes
    and their sizes, major first, or a JAX mesh, with all devices of the topology, or one. `in_shardings` and
    `out_shardings`: trees of `PartitionSpec`s, each for a leaf or a subtree; an argument without one is replicated.
    `donate`: numbers of arguments whose memory may be reused for results. `timeout`: of the compiler. `refresh`:
    compile even if the cost is cached.
    """
    where = find(topology)
    require_compiler()
    lowered = lower(
        fn, args, platform="tpu", mesh=mesh,
        in_shardings=in_shardings, out_shardings=out_shardings, donate=donate, name=name,
    )  # fmt: skip
    check_devices(where, lowered.devices)
    key = cost_cache.key(
        "tpu", lowered.digest, where.name, repr(where.options), _figures(where.chip),
        os.environ.get("LIBTPU_INIT_ARGS", ""),
    )  # fmt: skip
    return cost_cache.cost(key, lowered.name, lambda: _on_tpu(lowered, where, timeout), refresh=refresh)


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
    efficiency: float | None = None,
    overlap: Overlap = "scheduled",
    timeout: Time = TIMEOUT,
    refresh: bool = False,
) -> Cost:
    """Like `tpu_costs`, but by a chip's rates. `topology` may also be a set-up of `sw.simulate`: "B", "v4-512", ...

    `efficiency`: the part of the peak that matrix products reach; None: as published for the chip (`matmul_percent` in
    its file). `overlap`: what computing hides of collectives: what a schedule of the computation's graph does
    (`hlo.overlap`), nothing, or all that it has time for.
    """
    if efficiency is not None and not 0 < efficiency <= 1:
        raise CostError(f"efficiency is a share of the peak, above 0 and at most 1, not {efficiency!r}")
    if overlap not in get_args(Overlap):
        raise CostError(f"overlap is 'scheduled', 'none' or 'full', not {overlap!r}")
    lowered = lower(
        fn, args, platform="cpu", mesh=mesh,
        in_shardings=in_shardings, out_shardings=out_shardings, donate=donate, name=name,
    )  # fmt: skip
    where = _target(topology, lowered.devices)

    def compute() -> Cost:
        flags = f"--xla_force_host_platform_device_count={lowered.devices}"
        try:
            compiled = compile_in_child(lowered, platform="cpu", xla_flags=flags, before=PARTITIONED, timeout=timeout)
        except Failed as failed:
            raise CostError(f"XLA refused {lowered.name!r}: {failed.kind}: {failed}") from None
        return _by_rates(compiled, lowered, where, efficiency, overlap)

    key = cost_cache.key(
        "roofline", lowered.digest, where.name, repr(where.chip), repr(where.setup and where.setup.cluster.islands),
        f"{efficiency!r} {overlap}",
    )  # fmt: skip
    return cost_cache.cost(key, lowered.name, compute, refresh=refresh)


def text_costs(text: str, name: str, devices: int, *, chip: Chip, partitioned: bool, memory: Mapping[str, int]) -> Cost:
    """Like `roofline_costs`, of HLO for one device that XLA has written for so many CPU devices.

    `partitioned`: it is as it was before the CPU's own passes. `memory`: by XLA's names, as "temp_size_in_bytes".
    """
    sizes = {key.removesuffix("_in_bytes").removesuffix("_size"): size for key, size in memory.items()}
    lowered = Lowered(name, b"", (("devices", devices, "Auto"),), (), "")
    compiled = CompiledHlo(text, 0.0, text if partitioned else "", {}, sizes)
    return _by_rates(compiled, lowered, Target(chip.name, chip), None, "none")


def require_compiler() -> None:
    if importlib.util.find_spec("libtpu") is None:
        raise NoCompiler(
            "the TPU compiler is not installed: pip install 'seaway[tpu]' (libtpu: 700 MB, and needs no TPU); "
            "or take roofline_costs(...), which needs nothing more"
        )


def _target(topology: str, devices: int) -> Target:
    if NAME.fullmatch(topology.strip()):
        where = find(topology)
        check_devices(where, devices)
        return Target(where.name, where.chip, where.setup)
    try:
        setup = setups.load(topology)
    except Impossible as error:
        raise CostError(f"{error}; or a TPU topology, as 'v3:4x4'") from None
    largest = max(island.devices for island in setup.cluster.islands)
    if devices > largest:
        chip, named = setup.chips[0], setups.SLICE.fullmatch(topology)
        cores = chips.generation(chip.name).counted // chip.devices_per_chip if named and chips.known(chip.name) else 1
        hint = f": its number counts cores, so take '{named[2]}-{cores * devices}'" if named and cores > 1 else ""
        raise CostError(f"the mesh has {devices} devices and an island of {topology!r} has {largest}{hint}")
    return Target(setup.name, setup.chips[0], setup)


def _figures(chip: Chip) -> str:
    """The figures of a chip that a cost depends on, as a part of the cache's key."""
    return f"{chip.name} {chip.peak_flops} {chip.hbm_bandwidth} {chip.clock_hz}"


# --- from what compilers write to costs ---------------------------------------------------------------------


def _on_tpu(lowered: Lowered, where: Topology, timeout: Time) -> Cost:
    try:
        compiled = compile_in_child(
            lowered, platform="tpu", topology=where.name, options=where.options, timeout=timeout
        )
    except Failed as failed:
        raise _explained(failed, lowered, where) from None
    found = _read(compiled.hlo, lowered.name, rates(where.chip, 1.0), fused=True)
    estimates = {"blend": round(found.blend), "cycles": round(found.cycles)}
    seconds = compiled.cost.get("optimal_seconds", -1.0)
    # The compiler's own optimum counts each loop's body once, so it is multiplied by the ratio of our two rooflines. It
    # is negative if there are operations that the compiler cannot estimate.
    if seconds > 0 and found.once_roofline > 0:
        estimates["optimal"] = round(seconds * 1e9 * found.roofline / found.once_roofline)
    estimates["roofline"] = round(found.roofline)
    about: dict[str, Any] = {"used": "blend", "source": "tpu-compiler", "clock_hz": where.chip.clock_hz}
    return _cost(compiled, lowered, where.name, found, estimates, **about)


def _by_rates(
    compiled: CompiledHlo, lowered: Lowered, where: Target, efficiency: float | None, overlap: Overlap
) -> Cost:
    efficiency = efficiency or where.chip.matmul_percent / 100
    fused, of_chip = not compiled.before, rates(where.chip, efficiency)
    target = OnTarget(where.setup, lowered) if where.setup else None
    found = _read(
        compiled.before or compiled.hlo, lowered.name, of_chip, fused=fused,
        links=target.takes if target else None,
    )  # fmt: skip
    whole = max(found.flops / of_chip.flops, found.moved / of_chip.bandwidth) * 1e9
    estimates = {"roofline": round(found.roofline), "whole": round(whole)}
    notes = (
        f"matrix operations at {efficiency:.0%} of the peak, memory at its full bandwidth",
        "temp is the CPU compiler's, which keeps bf16 as f32 and fuses less: more than an accelerator needs",
    )
    needed, wrong = _memory(compiled.memory), []
    if needed.argument + needed.output - needed.alias > where.chip.hbm_bytes:
        wrong.append("arguments and results alone are more than a device's memory")
    if fused:
        wrong.append("the text before the CPU's own passes is missing: bf16 may count as f32")
    about: dict[str, Any] = {"used": "roofline", "source": "roofline", "notes": notes}
    cost = _cost(compiled, lowered, where.name, found, estimates, wrong, **about)
    return target.overlapped(cost, overlap) if target and cost.collectives else cost


def _cost(
    compiled: CompiledHlo, lowered: Lowered, target: str, found: Tally, estimates: dict[str, int],
    wrong: Sequence[str] = (), **about: Any,
) -> Cost:  # fmt: skip
    warnings = (*_doubts(found), *wrong, *filter(None, [disagreement(estimates)]))
    return Cost(
        name=lowered.name, duration=estimates[about["used"]], estimates=estimates, collectives=found.collectives(),
        memory=_memory(compiled.memory), flops=found.flops, hbm_bytes=found.moved, devices=lowered.devices,
        target=target, warnings=warnings, versions=cost_cache.versions(), digest=lowered.digest,
        seconds=round(compiled.seconds, 3), **about,
    )  # fmt: skip


def _read(text: str, name: str, of_chip: Rates, *, fused: bool, links: Links | None = None) -> Tally:
    try:
        return tally(parse(text), of_chip, fused=fused, links=links)
    except HloError as error:
        made_by = ", ".join(f"{package} {version}" for package, version in cost_cache.versions().items())
        raise CostError(
            f"the compiled text of {name!r} cannot be read: {error}. It was written by {made_by}; "
            "this reader knows jax 0.10 and 0.12 with libtpu 0.0.42 and 0.0.50"
        ) from None


def _doubts(found: Tally) -> list[str]:
    """Warnings of what the figures leave out or know only roughly."""
    texts = []
    if found.unknown_loops:
        texts.append(f"{len(found.unknown_loops)} loops run until the data say so, and are counted once")
    if found.silent:
        kinds = ", ".join(dict.fromkeys(found.silent))
        texts.append(f"nothing is known of the time of {len(found.silent)} custom calls: {kinds}")
    if irregular := sum(not one.regular for one in found.collectives()):
        texts.append(f"{irregular} collectives have groups that are described by the nearest regular ones")
    return texts


def _memory(sizes: dict[str, int]) -> MemoryUse:
    parts = {key: sizes.get(key, 0) for key in ("argument", "output", "alias", "temp")}
    together = parts["argument"] + parts["output"] - parts["alias"] + parts["temp"]
    peak = max(sizes.get("peak_memory", 0), together)
    return MemoryUse(**parts, code=sizes.get("generated_code", 0), peak=peak)


def _explained(failed: Failed, lowered: Lowered, where: Topology) -> CostError:
    """The compiler's error as one that says what to do."""
    text = str(failed)
    lines = [line for line in text.partition("=== Source Location Trace")[0].splitlines() if line.strip()]
    short = "\n".join(line[:400] for line in lines[:12])
    if "RESOURCE_EXHAUSTED" in text or "Ran out of memory" in text:
        return TooBig(
            f"{lowered.name!r} does not fit into the memory of a device of {where.name}. "
            "Shard its arguments over more devices, donate what it replaces (donate=), keep less of the forward pass "
            f"(jax.checkpoint), or take a smaller batch. The compiler said:\n{short}"
        )
    if failed.stage == "devices":
        return CostError(f"the TPU compiler has no topology {where.name!r}: {short}")
    return CostError(f"the TPU compiler refused {lowered.name!r} for {where.name}: {failed.kind}: {short}")
