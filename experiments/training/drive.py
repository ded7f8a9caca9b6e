"""Simulates a training client: it makes the state and calls step after step, with the next queued while one runs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from core.client import Blocked, Client, Submitted
from core.model import Node, Program, spans
from core.protocol import effects as e
from sim.hardware import COSTS, Profile, Setup
from sim.hosts import SimClient
from sim.simulation import Simulation

from .steps import Step

STEPS = 3  # the first fills pipelines and caches and is not counted, unless it is the only one
AHEAD = 1  # steps queued behind the running one
CHUNK = 64 << 20  # bytes of a chunk of a transfer


class Failed(Exception):
    """A training run failed. The text says why."""


class Trained(NamedTuple):
    step_ns: float  # from one step's end to the next
    tokens_per_s: float
    busy: float  # busy part of the devices' time in all steps but the first
    moved_bytes: int  # bytes between hosts in a step
    sim: Simulation
    window: tuple[int, int]  # of the last step


def train(step: Step, setup: Setup, profile: Profile, *, steps: int = STEPS, seed: int = 0) -> Trained:
    sim = Simulation(setup, profile=profile, seed=seed, chunk=CHUNK)
    sim.kernels.update(step.kernels)
    user = _User(sim.client("trainer"), sim)
    state = user.run(user.register(step.start), (), 0)
    user.wait(0)
    began = sim.contents.moved
    program, kept = user.register(step.step), _kept(step.step)
    made: tuple[int, ...] = tuple(name for index, name in enumerate(state) if index not in kept)
    for _ in range(steps):
        turn = iter(made)
        args = tuple(name if index in kept else next(turn) for index, name in enumerate(state))
        made = user.run(program, args, AHEAD)
    user.wait(0)
    ends = user.ends[min(1, steps - 1) :]
    took = (ends[-1] - ends[0]) / (len(ends) - 1)
    moved = (sim.contents.moved - began) // steps
    return Trained(took, step.tokens * 1e9 / took, _busy(sim, ends[0], ends[-1]), moved, sim, (ends[-2], ends[-1]))


def _kept(program: Program) -> set[int]:
    return set(range(len(program.args))) - set(program.donate_args)


def _busy(sim: Simulation, since: int, until: int) -> float:
    gangs = sim.trace.gangs
    started, ended = (np.asarray(gangs.column(name)) for name in ("started", "ended"))
    widths = {key: spans.count(place.devices) for key, place in sim.trace.places.items()}
    wide = np.array([widths[key] for key in gangs.column("place")])
    inside = np.clip(ended, since, until) - np.clip(started, since, until)
    return float((inside * wide)[ended >= 0].sum() / ((until - since) * sim.cluster.devices))


class _User:
    """One client that drives the simulation alone."""

    def __init__(self, client: SimClient, sim: Simulation) -> None:
        self.client, self.sim = client, sim
        self.ends: list[int] = []
        self._open = 0
        client.on_effect = self._heard

    def _heard(self, effect: e.Command) -> None:
        if isinstance(effect, e.RunEnded):
            self._open -= 1
            self.ends.append(self.sim.now)
            if effect.blame is not None:
                raise Failed(str(effect.blame))
        elif isinstance(effect, e.CallRefused):
            raise Failed(str(effect.blame))

    def register(self, program: Program) -> int:
        return int(self._call(lambda client, now: client.register(program, now)))

    def run(self, program: int, args: tuple[int, ...], ahead: int) -> tuple[int, ...]:
        """Wait until at most `ahead` runs are under way, then submit one. Returns names of the results."""
        self.wait(ahead)
        found: Submitted = self._call(lambda client, now: client.submit(program, args, now))
        self._open += 1
        return found.results

    def wait(self, ahead: int) -> None:
        self.sim.run(until=lambda: self._open <= ahead)

    def _call(self, act: Callable[[Client, int], Any]) -> Any:
        while isinstance(found := self.client.call(act), Blocked):
            self.wait(self._open - 1)
        return found


# --- the parts of a step ----------------------------------------------------------------------------------------------

# A run without some costs is faster by what these cost:
#
# compute       time a core computes, by its compiler's estimate and the chip's efficiency; the mean over all cores
# collectives   time a core spends in collectives of its own slice
# bubbles       the rest of a step if messages and transfers take no time: cores that wait for others, because of the
#               schedule
# transfers     time added by links and the network between slices
# control       time added by clients, controller and hosts

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
