"""Prices a computation for a simulation: a `Signature` goes in, core's `Computation` and sim's `Kernel` come out.

The cost is the user's if there is one, or else an estimate from the JAX function's flops and bytes.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from core.model import Computation, Impossible, SliceSpec
from sim.hardware import Chip, Kernel, setups
from sim.simulation import Simulation

from ...costs import IdleCluster
from ...errors import nearest
from ...graph import Cost, Signature, kernel_of
from ...specs import Slice, partition_spec

SECOND = 1e9
LAUNCH = 1_000  # nanoseconds: no kernel is shorter

Costs = str | Mapping[str, Cost] | Callable[[Signature], Cost | None]


class SimulatedPricing:
    """`costs` is one of: "estimate" or "roofline"; a time, for every computation without a cost; a dict by computation
    name (others are estimated); a function of the `Signature` that may return None for "estimate this".

    A computation's own `cost=` overrides "estimate", "roofline" or a time. A dict's or function's cost overrides it.
    """

    def __init__(self, costs: Costs, simulation: Simulation) -> None:
        self._costs, self._sim = costs, simulation
        self._stated: Kernel | None = None
        self._idle = IdleCluster(simulation.setup)
        self.kernels: dict[Signature, Kernel] = {}
        if not (isinstance(costs, Mapping) or callable(costs) or costs in ("estimate", "roofline")):
            try:
                self._stated = kernel_of(costs, "any", ())
            except Impossible:
                costs = str(costs)
                raise ValueError(
                    f"costs={costs!r}: 'estimate', 'roofline', a time like '1ms', a dict by name, or a function"
                    f"{nearest(costs, ['estimate', 'roofline'])}"
                ) from None

    def __call__(self, signature: Signature) -> Computation:
        kernel = self._kernel(signature)
        self.kernels[signature] = kernel
        key = signature.key if kernel is signature.kernel else f"{signature.key}@{kernel.duration}"
        self._sim.kernels[key] = kernel
        spec, steps = _spec(signature.slice), signature.steps
        costs: Any = [
            (kind, max(1, self._idle.time(kernel.on(kind), replace(spec, kind=spec.kind or kind))) * steps)
            for kind, _ in kernel.durations
        ]
        cost = max(1, self._idle.time(kernel, spec)) * steps
        return Computation(
            signature.name, key, cost, kernel.temp, signature.collective, steps=steps,
            costs=tuple(costs) or msgspec.UNSET,
        )  # fmt: skip

    def _kernel(self, signature: Signature) -> Kernel:
        name, costs = signature.name, self._costs
        if isinstance(costs, Mapping) and name in costs:
            return kernel_of(costs[name], name, signature.inputs)
        if callable(costs):
            said = costs(signature)
            if said is not None:
                return kernel_of(said, name, signature.inputs)
        if signature.kernel is not None:
            return signature.kernel
        if self._stated is not None:
            return replace(self._stated, name=name)
        compiled = costs == "roofline" and signature.function is not None and not signature.irregular
        price = self._roofline if compiled else self._estimate
        found = {kind: price(signature, chip) for kind, chip in self._idle.chips(_spec(signature.slice)).items()}
        slowest = max(found.values(), key=lambda kernel: kernel.duration)
        if len(found) == 1:
            return slowest
        return replace(slowest, durations=tuple((kind, kernel.duration) for kind, kernel in found.items()))

    def _roofline(self, signature: Signature, chip: Chip) -> Kernel:
        """Compile for as many CPU devices to find collectives too. The first time takes seconds."""
        from ...costs import roofline_costs

        home = signature.slice
        specs = [partition_spec(each, home.axis_names) for each in signature.expects]
        outs = [partition_spec(each, home.axis_names) for each in signature.out_shardings]
        assert signature.function is not None
        found = roofline_costs(
            signature.function, tuple(leaf.abstract() for leaf in signature.inputs),
            topology=self._setup_of(home, chip), mesh=dict(zip(home.axis_names, home.shape, strict=True)),
            in_shardings=tuple(specs),
            out_shardings=signature.out_tree.unflatten(outs), donate=signature.donate, name=signature.name,
        )  # fmt: skip
        return found.kernel

    def _setup_of(self, home: Slice, chip: Chip) -> str:
        """The name of a hardware set-up with this chip."""
        name = self._sim.setup.name
        for known in (name, f"{chip.name.removeprefix('tpu-')}-{home.devices}", "A"):
            try:
                if setups.load(known).chips[0].name == chip.name:
                    return known
            except Impossible:
                continue
        raise ValueError(f"costs='roofline' knows no set-up of {chip.name}; give a function: see seaway.costs")

    def _estimate(self, signature: Signature, chip: Chip) -> Kernel:
        work = signature.work() if signature.work is not None else None
        if work is None or not (chip.peak_flops and chip.hbm_bandwidth):
            unknown = f"nothing is known of the cost of {signature.name!r}; it is taken to be 1 ms"
            warnings.warn(unknown, stacklevel=2)
            return Kernel(signature.name, 1_000_000, source="assumed")
        seconds = max(work.flops / chip.peak_flops, work.hbm_bytes / chip.hbm_bandwidth)
        return Kernel(
            signature.name, max(LAUNCH, round(seconds * SECOND)),
            flops=work.flops, hbm_bytes=work.hbm_bytes, source="estimate",
        )  # fmt: skip

    def table(self) -> list[dict[str, Any]]:
        """Rows for `session.costs()`: one for each computation, and kind of devices where its time differs."""
        return [
            {
                "computation": signature.name, "devices": signature.slice.devices, "chip": chip,
                "duration_ns": kernel.on(kind).duration, "collectives": len(kernel.collectives),
                "flops": kernel.flops, "hbm_bytes": kernel.hbm_bytes, "source": kernel.source,
            }
            for signature, kernel in self.kernels.items()
            for kind, chip in self._chips(signature, kernel)
        ]  # fmt: skip

    def _chips(self, signature: Signature, kernel: Kernel) -> Iterable[tuple[str, str]]:
        """(kind, names of chips) for each time that the kernel has."""
        chips = {kind: chip.name for kind, chip in self._idle.chips(_spec(signature.slice)).items()}
        times = dict(kernel.durations)
        return [(kind, chips[kind]) for kind in chips if kind in times] or [("", ", ".join(chips.values()))]


def _spec(home: Slice) -> SliceSpec:
    return home.spec("")
