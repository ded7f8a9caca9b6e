"""Divides a step's time into parts, by running it again without some costs; the time saved is the part of that cost.

compute       time a core computes, by its compiler's estimate and the chip's efficiency; the mean over all cores
collectives   time a core spends in collectives of its own slice
bubbles       the rest of a step if messages and transfers take no time: cores that wait for others, because of the
              schedule
transfers     time added by links and the network between slices
control       time added by clients, controller and hosts
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
    """(the run, seconds of a step by part). `make(light)`: makes the step; light: without bytes between slices."""
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
    """Nanoseconds of a step that a core computes, on average."""
    program = step.step
    work = 0
    for node in program.nodes:
        assert isinstance(node, Node)
        kernel = step.kernels[program.computations[node.computation].key]
        work += kernel.duration * program.slices[node.slice].devices
    return work / cores
