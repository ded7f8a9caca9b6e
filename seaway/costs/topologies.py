"""Parses names of TPU topologies such as `v3:32x32`: the generation, and the chips along each axis of its torus."""

import re
from difflib import get_close_matches
from math import prod

import msgspec

from sim.hardware import Chip, Setup, chips, setups

from ..errors import CostError
from .hlo import Rates

NAME = re.compile(r"([a-z0-9]+):(\d+(?:x\d+){0,2})", re.IGNORECASE)


class CompilerGeneration(msgspec.Struct, frozen=True):
    """A TPU generation: the compiler's name for it, its axes and its devices."""

    name: str
    chip: str  # in sim's table
    axes: int
    per_chip: int  # devices
    vector: int  # elementwise operations a cycle and device
    options: dict[str, object] = {}


# A vector unit is 8 by 128 lanes. The compiler's cycles for long chains of elementwise operations show 2 a lane and
# cycle on a v3 core and 4 on a v5e. For each of the two cores of a v5p, "How to Scale Your Model" says 4.
LANES = 8 * 128
GENERATIONS = {
    "v3": CompilerGeneration("v3", "v3", 2, 2, 2 * LANES),
    # the two cores of a v4 chip are one device, as in JAX on a real v4
    "v4": CompilerGeneration("v4", "v4", 3, 1, 2 * 2 * LANES, {"chip_config_name": "megacore"}),
    "v5e": CompilerGeneration("v5e", "v5e", 2, 1, 4 * LANES),
    "v5p": CompilerGeneration("v5p", "v5p", 3, 1, 2 * 4 * LANES),
    "v6e": CompilerGeneration("v6e", "v6e", 2, 1, 4 * LANES),
    "7x": CompilerGeneration("tpu7x", "7x", 3, 2, 4 * LANES),
}
ALIASES = {"v5litepod": "v5e", "v5lite": "v5e", "v5": "v5p", "v6": "v6e", "v7x": "7x", "tpu7x": "7x"}


class Topology(msgspec.Struct, frozen=True):
    name: str  # as the compiler wants it
    generation: str
    shape: tuple[int, ...]  # in chips
    devices: int
    options: dict[str, object] = {}

    @property
    def chip(self) -> Chip:
        return chips.chip(GENERATIONS[self.generation].chip)

    @property
    def setup(self) -> Setup:
        """A simulated cluster of this one island. Each chip has a host to itself, which collectives do not notice."""
        share = GENERATIONS[self.generation].per_chip
        torus = [*self.shape[:-1], self.shape[-1] * share]
        island = {"kind": self.chip.name, "hosts": prod(self.shape), "devices_per_host": share, "torus": torus}
        return setups.load({"name": self.name, "island": [island]})


def rates(chip: Chip, efficiency: float) -> Rates:
    vector = next((one.vector for one in GENERATIONS.values() if chips.chip(one.chip).name == chip.name), 0)
    return Rates(chip.peak_flops * efficiency, chip.hbm_bandwidth, chip.clock_hz, vector * chip.clock_hz)


def find(text: str) -> Topology:
    match = NAME.fullmatch(text.strip())
    if match is None:
        raise CostError(f"no topology {text!r}; write a generation and its chips along each axis: {_examples(text)}")
    word, sizes = match[1].lower(), tuple(int(size) for size in match[2].split("x"))
    generation = GENERATIONS.get(ALIASES.get(word, word))
    if generation is None:
        near = get_close_matches(word, [*GENERATIONS, *ALIASES], 1, 0.4)
        hint = f"nearest: {ALIASES.get(near[0], near[0])!r}; " if near else ""
        raise CostError(f"no TPU generation {match[1]!r} in {text!r}; {hint}there is: {', '.join(GENERATIONS)}")
    return _made(text, ALIASES.get(word, word), generation, sizes)


def _made(text: str, key: str, generation: CompilerGeneration, sizes: tuple[int, ...]) -> Topology:
    if len(sizes) == 2 and generation.axes == 3:
        sizes = (*sizes, 1)
    if len(sizes) != generation.axes or min(sizes) < 1:
        raise CostError(f"topology {text!r}: a {key} has {generation.axes} axes, as in {example(key, 16)!r}")
    options = dict(generation.options)
    if sizes[0] % 2 or sizes[1] % 2:  # not whole hosts of 2x2 chips
        if prod(sizes) > 4:
            near = f"{key}:{'x'.join(str(size + size % 2 if axis < 2 else size) for axis, size in enumerate(sizes))}"
            raise CostError(f"topology {text!r} is not whole hosts of 2x2 chips; nearest: {near!r}")
        options["chips_per_host_bounds"] = [*sizes, 1][:3]
    name = f"{generation.name}:{'x'.join(map(str, sizes))}"
    return Topology(name, key, sizes, prod(sizes) * generation.per_chip, options)


def example(key: str, devices: int) -> str:
    """A topology of that generation with at least that many devices, as square as possible."""
    generation = GENERATIONS[key]
    sizes = [2, 2, 1][: generation.axes] if devices > generation.per_chip else [1] * generation.axes
    while prod(sizes) * generation.per_chip < devices:
        smallest = min(range(len(sizes)), key=lambda axis: sizes[axis])
        sizes[smallest] *= 2
    return f"{key}:{'x'.join(map(str, sorted(sizes) if generation.axes == 2 else sizes))}"


def _examples(text: str) -> str:
    shown = [example(key, 16) for key in GENERATIONS]
    near = get_close_matches(text.lower(), shown, 1, 0.5)
    return (f"nearest: {near[0]!r}; " if near else "") + ", ".join(map(repr, shown))


def check_devices(where: Topology, devices: int) -> None:
    """A computation fills the topology, or runs on one device of it."""
    if devices not in (1, where.devices):
        raise CostError(
            f"the mesh has {devices} devices and topology {where.name!r} has {where.devices}; "
            f"for {devices} take {example(where.generation, devices)!r}, or change mesh="
        )
