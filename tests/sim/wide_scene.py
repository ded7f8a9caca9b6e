"""Scenes on 4 to 64 hosts, with the programs that users write: steps that feed on one another, arrays at each call,
many parameters, many slices and overlapping ones, pipelines. Clients read results, and dispatch in both ways.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from core.model.program import Program, SliceSpec
from sim.engine.jitter import Noise
from tests.core import build
from tests.core.build import Build
from tests.sim.scene import MS, POLICIES, US, Scene

HOSTS = (4, 6, 8, 16, 32, 64)
COSTS = (3 * US, 40 * US, 700 * US)


def draw(seed: int, *, kind: str = "", hosts: int = 0, faults: bool = False) -> Scene:
    """kind: one of `KINDS`; hosts: how many. Both are drawn if they are not given. faults: one island has some."""
    rng = Random(f"wide {seed}")
    hosts = hosts or rng.choice(HOSTS)
    devices_per_host = rng.choice((2, 4, 8))
    kinds = [kind] if kind else rng.sample(sorted(KINDS), rng.choice((1, 1, 2)))
    programs: list[Program] = []
    for each in kinds:
        programs += KINDS[each](rng, hosts * devices_per_host)
    noise = Noise(
        latency=rng.choice((0, 0, 9 * US)), compute=rng.choice((0.0, 0.1)), stragglers=rng.choice((0.0, 0.0, 0.3))
    )
    troubles = [(rng.randint(1, 3000) * US, "slow", rng.randrange(hosts))] if rng.random() < 0.2 else []
    if faults:  # on the second island
        at, whom = rng.randint(1, 20) * MS, hosts + rng.randrange(hosts)
        troubles += [(at, rng.choice(("crash_host", "leave_host")), whom), (at + 5 * MS, "return_host", whom)]
    return Scene(
        seed, hosts, devices_per_host, 2 if faults else 1, rng.randrange(len(POLICIES)),
        rng.choice((2, 5, 100)), noise, [], programs, rng.randint(1, 3), rng.randint(6, 14), troubles,
        feeds=rng.choice((0.0, 0.5, 0.9)),
    )  # fmt: skip


def draw_mixed(seed: int) -> Scene:
    """Programs on overlapping slices, which keep their results and give them to later calls, beside programs on all
    hosts, puts and pipelines, with little memory."""
    rng = Random(f"mixed {seed}")
    drawn = draw(seed, kind="overlapping", hosts=rng.choice((4, 6, 8)))
    other = draw(seed, kind=rng.choice(("steps", "sharded", "pipeline")), hosts=drawn.hosts)
    if rng.random() < 0.7:
        drawn.programs += other.programs
    drawn.devices_per_host = other.devices_per_host
    drawn.feeds, drawn.acts = 0.7, rng.randint(6, 24)
    return drawn


def _steps(rng: Random, devices: int) -> list[Program]:
    """A step on all devices: its argument is an array, or so small that it comes with the call."""
    b = Build("steps", whole=devices)
    x = b.arg("whole", rng.choice((8, 1025)))
    if rng.random() < 0.5:
        x = b.call("load", "whole", [x, b.arg("whole", rng.choice((16, 2048)))], cost=3 * US)
    return [b.program(b.call("step", "whole", [x], cost=rng.choice(COSTS), collective=rng.random() < 0.8))]


def _sharded(rng: Random, devices: int) -> list[Program]:
    b = Build("sharded", whole=devices)
    x = b.arg("whole", devices * 64, split="0")
    return [b.program(b.call("step", "whole", [x], cost=rng.choice(COSTS)))]


def _parameters(rng: Random, devices: int) -> list[Program]:
    b = Build("parameters", whole=devices)
    values = [b.arg("whole", rng.choice((4, 400))) for _ in range(rng.randint(5, 24))]
    made = [each.value for each in values]
    b.call("update", "whole", values, made, cost=rng.choice(COSTS))
    return [b.program(*map(b.output, range(len(made))))]


def _slices(rng: Random, devices: int) -> list[Program]:
    """A program on each of several slices, which share no device unless there are too few."""
    number = rng.choice((3, 4, 8, 16))
    return [_on(f"slice {each}", max(1, devices // number), rng) for each in range(number)]


def _overlapping(rng: Random, devices: int) -> list[Program]:
    sizes = [rng.randint(1, devices) for _ in range(rng.randint(3, 8))]
    return [_on(f"slice {number} of {size}", size, rng) for number, size in enumerate(sizes)]


def _on(name: str, devices: int, rng: Random) -> Program:
    b = Build(name)
    b.slices.append(SliceSpec(name, devices))
    x = b.arg(name, 8)
    return b.program(b.call("step", name, [x], cost=rng.choice(COSTS), collective=rng.random() < 0.8))


def _pipeline(rng: Random, devices: int) -> list[Program]:
    stages = rng.randint(2, 4)
    made = build.pipeline(stages, rng.randint(1, 3), rng.choice(("gpipe", "1f1b")), max(1, devices // stages))
    return [msgspec.structs.replace(made, name="pipeline")]


def _transfers(rng: Random, devices: int) -> list[Program]:
    """There and back between two slices, split or not."""
    half = max(1, devices // 2)
    b = Build("transfers", here=half, there=half)
    x = b.arg("here", half * 4, split=rng.choice(("", "0")))
    x = b.call("out", "here", [x], cost=rng.choice(COSTS))
    x = b.call("away", "there", [x], cost=rng.choice(COSTS))
    return [b.program(b.call("home", "here", [x], cost=rng.choice(COSTS)))]


KINDS: dict[str, Callable[[Random, int], list[Program]]] = {
    "steps": _steps, "sharded": _sharded, "parameters": _parameters, "slices": _slices,
    "overlapping": _overlapping, "pipeline": _pipeline, "transfers": _transfers,
}  # fmt: skip
