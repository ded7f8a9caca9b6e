"""Scenes in which arrays move between slices, of an island or of two: in chains, there and back, in pipelines, to
slices of other sizes and shardings, small and long, some with little memory.
"""

from __future__ import annotations

from random import Random

from core.model.program import Program, SliceSpec
from sim.engine.jitter import Noise
from tests.core import build
from tests.core.build import Build, Handle
from tests.sim.scene import POLICIES, US, Scene

HOSTS = (2, 4, 6, 8, 16)
COSTS = (3 * US, 40 * US, 700 * US)
LENGTHS = (1, 4, 30, 300, 1000, 5000)  # numbers for each device: from a few bytes to more than is granted at once


def draw(seed: int, hosts: int = 0) -> Scene:
    rng = Random(f"moves {seed}")
    hosts, per_host, islands = hosts or rng.choice(HOSTS), rng.choice((2, 4, 8)), rng.choice((1, 1, 2))
    slices = _slices(rng, hosts * per_host, islands)
    programs = [
        rng.choice((_chain, _chain, _fan, _pipeline))(rng, slices, f"p{number}") for number in range(rng.randint(1, 3))
    ]
    troubles = [(rng.randint(1, 3000) * US, "slow", rng.randrange(hosts))] if rng.random() < 0.2 else []
    return Scene(
        seed, hosts, per_host, islands, rng.randrange(len(POLICIES)), rng.choice((2, 5, 100)),
        Noise(compute=rng.choice((0.0, 0.1)), stragglers=rng.choice((0.0, 0.0, 0.3))), slices, programs,
        rng.randint(1, 3), rng.randint(4, 12), troubles, feeds=rng.choice((0.0, 0.5, 0.9)),
        setup=rng.choice(("A", "B", "B")), memory=rng.choice((0, 0, 1 << 18)), chunk=1 << rng.choice((12, 12, 16)),
        oversubscription=rng.choice((1.0, 1.0, 1.0, 8.0)),
    )  # fmt: skip


def draw_parts(seed: int) -> Scene:
    """Arrays move between a slice and sub-slices of it, which share devices."""
    drawn = draw(seed)
    rng = Random(f"parts {seed}")
    devices = drawn.hosts * drawn.devices_per_host
    whole = SliceSpec("s0", rng.choice((devices, rng.randint(1, devices))))
    slices = [whole]
    for number in range(1, rng.randint(2, 4)):
        picks = rng.sample(range(whole.devices), rng.choice((1, min(2, whole.devices), whole.devices)))
        slices.append(SliceSpec(f"s{number}", len(picks), of="s0", picks=tuple(picks)))
    drawn.slices, drawn.tell = slices, True
    drawn.programs = [rng.choice((_chain, _fan))(rng, slices, f"p{n}") for n in range(rng.randint(1, 3))]
    return drawn


def _slices(rng: Random, devices: int, islands: int) -> list[SliceSpec]:
    """Slices of one size, which share no device if there are enough, and some of other sizes."""
    number = rng.randint(2, 4)
    size = max(1, devices * islands // number // rng.choice((1, 1, 2)))
    sizes = [min(devices, size)] * number
    if rng.random() < 0.4:
        sizes[rng.randrange(number)] = rng.randint(1, devices)
    return [SliceSpec(f"s{at}", size) for at, size in enumerate(sizes)]


def _on(slices: list[SliceSpec], name: str) -> Build:
    b = Build(name)
    b.slices += slices
    return b


def _length(rng: Random, slices: list[SliceSpec]) -> int:
    """So many numbers that each slice can split them."""
    length = rng.choice(LENGTHS)
    for spec in slices:
        length *= spec.devices if length % spec.devices else 1
    return length if length < 200_000 else slices[0].devices * 16


def _split(rng: Random, length: int, spec: SliceSpec) -> str:
    return rng.choice(("0", "0", "0", "")) if length % spec.devices == 0 else ""


def _chain(rng: Random, slices: list[SliceSpec], name: str) -> Program:
    """A value that goes from slice to slice."""
    b, length = _on(slices, name), _length(rng, slices)
    x = b.arg(slices[0].name, length, split=_split(rng, length, slices[0]), donate=rng.random() < 0.2)
    collective = rng.random() < 0.7
    for number in range(rng.randint(2, 7)):
        x = _step(rng, b, f"f{number}", rng.choice(slices), [x], length, collective)
    return b.program(x)


def _fan(rng: Random, slices: list[SliceSpec], name: str) -> Program:
    """Values that several slices read, and that come together."""
    b, length = _on(slices, name), _length(rng, slices)
    x = b.arg(slices[0].name, length, split=_split(rng, length, slices[0]))
    collective = rng.random() < 0.7
    parts = [_step(rng, b, f"f{at}", spec, [x], length, collective) for at, spec in enumerate(slices)]
    again = [_step(rng, b, f"g{at}", rng.choice(slices), [part], length, collective) for at, part in enumerate(parts)]
    return b.program(_step(rng, b, "all", rng.choice(slices), again, length, collective), again[0])


def _step(
    rng: Random, b: Build, name: str, spec: SliceSpec, inputs: list[Handle], length: int, collective: bool
) -> Handle:
    split = _split(rng, length, spec)
    made = b.value(spec.name, length, split=split)
    wants = [split] * len(inputs)
    return b.call(name, spec.name, inputs, [made], wants=wants, cost=rng.choice(COSTS), collective=collective)


def _pipeline(rng: Random, slices: list[SliceSpec], name: str) -> Program:
    made = build.pipeline(
        len(slices), rng.randint(1, 3), rng.choice(("gpipe", "1f1b")), min(spec.devices for spec in slices)
    )
    return Program(name, made.slices, made.computations, made.args, made.nodes, made.results, made.donate_args)
