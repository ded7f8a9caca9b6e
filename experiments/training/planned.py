"""A training step that follows a plan: its parts, their prices, and its simulated time."""

import msgspec

from core.model import SliceSpec
from seaway.costs import Cost, IdleCluster
from sim.hardware import Profile, load

from ..pricing.jobs import Costed, Job
from ..pricing.rooflines import Plan, Priced, combined
from ..pricing.shapes import Part, stages
from .drive import train
from .pipelines import Pipeline, pipeline
from .steps import Pricing

KINDS = ("forward", "backward", "update")
Costs = dict[str, Cost]


def parts(plan: Plan) -> list[Part]:
    """The parts of all stages: equal ones, or what `shapes.stages` does if layers cannot be divided so."""
    model, count = plan.model, plan.stages * plan.chunks
    each, odd = divmod(model.layers, count)
    if odd:
        return stages(model, count)
    return [Part(model, each, at == 0, at == count - 1) for at in range(count)]


def costs(plan: Plan) -> Costs:
    """By part and kind."""
    priced = Priced(plan)
    found: Costs = {}
    for part in dict.fromkeys(parts(plan)):
        forward, backward = priced.layers(part.layers)
        backward = combined("backward", (backward, 1), *[(priced.head(), 1)] * part.last)
        found |= dict(zip(_keys(part), (forward, backward, priced.update(part)), strict=True))
    return found


def _keys(part: Part) -> list[str]:
    return [f"{part.name}/{kind}" for kind in KINDS]


def step_seconds(plan: Plan, known: Costs, profile: Profile) -> float:
    """The simulated time of a step.

    Once a pipeline is full, each further micro-batch (with interleaved stages: each further round of them) takes
    equally long. So instead of a long step two short ones are simulated, and extended to the whole.
    """
    few = plan.stages if plan.chunks > 1 else 2
    if plan.microbatches <= 2 * few:
        return _simulated(plan, known, profile)
    one, two = (
        _simulated(msgspec.structs.replace(plan, microbatches=count), known, profile) for count in (few, 2 * few)
    )
    return one + (two - one) / few * (plan.microbatches - few)


def _simulated(plan: Plan, known: Costs, profile: Profile) -> float:
    """Replicas are alike: as many as share a host are simulated, with collectives as long as all of them take."""
    whole = load(plan.topology)
    idle, of_host = IdleCluster(whole), whole.cluster.islands[0].devices_per_host
    some = msgspec.structs.replace(plan, data=min(plan.data, max(1, of_host // plan.tensor)))
    jobs = [Costed(part, *(Job(key, plan.tensor) for key in _keys(part))) for part in parts(plan)]
    slices, rows = [_slice(some, at) for at in range(plan.stages)], some.data * plan.microbatch
    of = Pipeline(jobs, slices, plan.microbatches, rows, plan.length, plan.schedule, tensor=plan.tensor)

    def priced(job: Job) -> Cost:
        return Cost.stated(idle.time(known[job.key].kernel, _slice(plan, 0)), job.key)

    setup = load(f"{plan.topology.rpartition('-')[0]}-{some.devices}")
    return train(pipeline(of, Pricing(source=priced)), setup, profile, steps=1).step_ns / 1e9


def _slice(plan: Plan, at: int) -> SliceSpec:
    return SliceSpec(f"stage {at}", plan.data * plan.tensor, (plan.data, plan.tensor), exclusive=True)


def work(plan: Plan, known: Costs, computing: float = 1.0, overlap: bool = True, free: bool = False) -> float:
    """Seconds that the busiest slice works in a step, if all computation took `computing` times as long, no collective
    were hidden (`overlap`), or all collectives took no time (`free`)."""
    idle = IdleCluster(load(plan.topology))
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
