"""What a step's time is made of: it is run again without this and that, and what it then saves is what that took.

compute       what a core computes, by its compiler's estimate and the chip's efficiency, the mean over all cores
collectives   what a core spends in collectives of its own slice
bubbles       the rest of a step where messages cost nothing and links carry all in no time: cores that wait for
              others, because of the schedule
transfers     what links and the network between slices add to that
control       what clients, controller and hosts add to that
"""

from __future__ import annotations

from collections.abc import Callable

from core.model import Node
from sim.hardware import COSTS, Profile, Setup

from .drive import Trained, train
from .steps import Step

PARTS = ("compute", "collectives", "bubbles", "transfers", "control")


def ablation(
    make: Callable[[bool], Step], setup: Setup, profile: Profile, **how: int
) -> tuple[Trained, dict[str, float]]:
    """`make(light)`: the step, or the same without bytes between slices. Seconds of a step, by part."""
    step = make(False)
    whole = train(step, setup, profile, **how)
    free = profile.changed(**dict.fromkeys(COSTS, 0))
    uncontrolled = train(step, setup, free, **how)
    light = train(make(True), setup, free, **how)
    busy = whole.busy * whole.step_ns
    compute = computing(step, setup.cluster.devices)
    parts = {
        "compute": compute,
        "collectives": busy - compute,
        "bubbles": light.step_ns - busy,
        "transfers": uncontrolled.step_ns - light.step_ns,
        "control": whole.step_ns - uncontrolled.step_ns,
    }
    return whole, {f"{name}_s": round(ns / 1e9, 6) for name, ns in parts.items()}


def computing(step: Step, cores: int) -> float:
    """Nanoseconds of a step in which the mean core computes."""
    program = step.step
    work = 0
    for node in program.nodes:
        assert isinstance(node, Node)
        kernel = step.kernels[program.computations[node.computation].key]
        work += kernel.duration * program.slices[node.slice].devices
    return work / cores
