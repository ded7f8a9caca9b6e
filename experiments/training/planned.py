"""A training step that follows a plan: its parts, their prices, and its simulated time."""

from __future__ import annotations

from functools import cache

import msgspec

from core.model import SliceSpec
from seaway.costs import Cost
from seaway.sessions.simulated import IdleCluster
from sim.hardware import Profile, load

from ..pricing.jobs import Costed, Job
from ..pricing.rooflines import Plan, Priced, combined
from ..pricing.shapes import Part, stages
from .drive import train
from .pipelines import Pipeline, pipeline
from .steps import Pricing

KINDS = ("forward", "backward", "update")


def parts(plan: Plan) -> list[Part]:
    """The parts of all stages: equal ones, or what `shapes.stages` does if layers cannot be divided so."""
    model, count = plan.model, plan.stages * plan.chunks
    each, odd = divmod(model.layers, count)
    if odd:
        return stages(model, count)
    return [Part(model, each, at == 0, at == count - 1) for at in range(count)]


@cache
def costs(plan: Plan) -> dict[str, Cost]:
    """By part and kind."""
    priced = Priced(plan)
    found: dict[str, Cost] = {}
    for part in dict.fromkeys(parts(plan)):
        forward, backward = priced.layers(part.layers)
        if part.last:
            backward = combined("backward", (backward, 1), (priced.head(), 1))
        found |= dict(zip(_keys(part), (forward, backward, priced.update(part)), strict=True))
    return found


def _keys(part: Part) -> list[str]:
    return [f"{part.name}/{kind}" for kind in KINDS]


def step_seconds(plan: Plan, profile: Profile) -> float:
    """The simulated time of a step.

    From as many micro-batches as slices on, each further one takes equally long. So of a long step two shorter ones are
    simulated, and it is as much longer as it has more micro-batches.
    """
    more = plan.stages if plan.chunks > 1 else -(-plan.stages // 4)
    few, some = plan.stages, plan.stages + more
    if plan.microbatches <= some:
        return _simulated(plan, profile)
    one, other = (_simulated(msgspec.structs.replace(plan, microbatches=count), profile) for count in (few, some))
    return one + (other - one) / more * (plan.microbatches - few)


def _simulated(plan: Plan, profile: Profile) -> float:
    jobs = [Costed(part, *(Job(key, plan.tensor) for key in _keys(part))) for part in parts(plan)]
    slices, rows = [_slice(plan, at) for at in range(plan.stages)], plan.data * plan.microbatch
    of = Pipeline(jobs, slices, plan.microbatches, rows, plan.length, plan.schedule, tensor=plan.tensor)
    known = costs(msgspec.structs.replace(plan, microbatches=1))
    step = pipeline(of, Pricing(source=lambda job: known[job.key]))
    return train(step, load(plan.topology), profile, steps=1).step_ns / 1e9


def _slice(plan: Plan, at: int) -> SliceSpec:
    return SliceSpec(f"stage {at}", plan.data * plan.tensor, (plan.data, plan.tensor), exclusive=True)


def work(plan: Plan, computing: float = 1.0, overlap: bool = True, free: bool = False) -> float:
    """Seconds that the busiest slice works in a step, if all computation took `computing` times as long, no collective
    were hidden (`overlap`), or all collectives took no time (`free`)."""
    idle, known = IdleCluster(load(plan.topology)), costs(msgspec.structs.replace(plan, microbatches=1))
    total = [0] * plan.stages
    for at, part in enumerate(parts(plan)):
        for key, times in zip(_keys(part), (plan.microbatches, plan.microbatches, 1), strict=True):
            kernel = known[key].scaled(computing).kernel
            shown = () if free else kernel.collectives
            if not overlap:
                shown = tuple(msgspec.structs.replace(one, hidden=0) for one in shown)
            kernel = msgspec.structs.replace(kernel, collectives=shown)
            total[at % plan.stages] += times * idle.time(kernel, _slice(plan, 0))
    return max(total) / 1e9
