"""What a baseline is asked to do, what comes of it, and where its host costs are read.

A call of a program runs one computation (`opbyop`), a chain of them (`chained`), or one that holds as many
(`fused`); each output is the next input.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Literal, cast

import msgspec
import simpy

from core.model import Impossible, line

from ..engine import Noise
from ..hardware import Kernel, Profile, Setup, figure, kernel_time, known_keys, nearest, packaged, subtable

Mode = Literal["opbyop", "chained", "fused"]
MODES: tuple[Mode, ...] = ("opbyop", "chained", "fused")
SYSTEMS = ("jax", "tf1", "ray")
UNITS = {"ahead": "number"}  # of what is no time


class Work(msgspec.Struct, frozen=True):
    kernel: Kernel
    mode: Mode = "opbyop"
    nodes: int = 128  # in a call, unless it is one by one
    nbytes: int = 4  # of a computation's result, on each device

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise Impossible(f"mode {self.mode!r} is unknown; {nearest(self.mode, MODES)}")
        if self.nodes < 1:
            raise Impossible(f"a program of {self.nodes} computations does nothing; `nodes` is at least 1")

    @property
    def launches(self) -> int:
        """What a host enqueues in a call."""
        return self.nodes if self.mode == "chained" else 1

    @property
    def computations(self) -> int:
        """In a call."""
        return 1 if self.mode == "opbyop" else self.nodes

    @property
    def launched(self) -> Kernel:
        return fused(self.kernel, self.nodes) if self.mode == "fused" else self.kernel


def fused(kernel: Kernel, times: int) -> Kernel:
    """One that does the same so many times in a row."""
    collectives = tuple(
        msgspec.structs.replace(each, count=each.count * times) for each in kernel.collectives
    )
    return msgspec.structs.replace(
        kernel, name=f"{times} x {kernel.name}", duration=kernel.duration * times, collectives=collectives,
        flops=kernel.flops * times, hbm_bytes=kernel.hbm_bytes * times,
    )  # fmt: skip


class Outcome(msgspec.Struct, frozen=True):
    """When each call's last computation had ended, in nanoseconds."""

    system: str
    hosts: int
    devices: int
    computations: int  # in a call
    ends: tuple[int, ...]

    @property
    def per_second(self) -> float:
        """Computations a second, without the first third of the calls: pipelines fill."""
        first = len(self.ends) // 3
        took = self.ends[-1] - self.ends[first]
        return (len(self.ends) - 1 - first) * self.computations * 1e9 / took


class Costs(dict[str, int]):
    """Of one system, by name: nanoseconds, but for `ahead`. `sources`: where each comes from."""

    sources: dict[str, str]


def costs_of(system: str) -> Costs:
    table = packaged("systems")[system]
    who = f"sim/data/systems/{system}.toml"
    known_keys(who, table, ("costs",))
    found = Costs()
    found.sources = {}
    for key, value in subtable(who, table, "costs").items():
        found[key], found.sources[key] = figure(f"{who} [costs]", key, value, UNITS.get(key, "time"), "")
        if not found.sources[key]:
            raise Impossible(f"{who} [costs]: `{key}` has no source")
    return found


class Model:
    """What the models share: the hardware, and one island's devices, which run what they get in order."""

    def __init__(
        self, setup: Setup, work: Work, profile: Profile, costs: Mapping[str, int], noise: Noise, seed: int
    ) -> None:
        if len(setup.cluster.islands) != 1:
            raise Impossible(
                f"the baselines run on one island; {setup.name!r} has {len(setup.cluster.islands)}"
            )
        island, chip = setup.cluster.islands[0], setup.chips[0]
        self.env = simpy.Environment(initial_time=0)
        self.setup, self.work, self.profile, self.costs = setup, work, profile, costs
        self.noise, self.seed = noise, seed
        self.hosts, self.devices = island.hosts, island.devices
        self.latency, self.pcie = setup.dcn.latency, chip.pcie_latency
        self.took = kernel_time(work.launched, line(0, 0, island.devices), island, chip)
        self.host_bytes = work.nbytes * island.devices_per_host
        self.pcie_bandwidth = chip.pcie_bandwidth * island.devices_per_host
        self._free = 0
        self.ends: list[int] = []

    def launched(self, ready: int) -> int:
        """The gang is at the head of all queues at `ready`, or when the devices are free; returns its end."""
        self._free = max(ready, self._free) + self.took
        return self._free

    def until(self, time: int) -> simpy.Event:
        return self.env.timeout(max(0, time - int(self.env.now)))

    def program(self, calls: int) -> simpy.events.ProcessGenerator:
        raise NotImplementedError


def run(
    system: str, setup: Setup, work: Work, profile: Profile, *, calls: int = 30, noise: Noise | None = None,
    seed: int = 0, costs: Mapping[str, int] | None = None,
) -> Outcome:  # fmt: skip
    """The system's rate of steady work, after `calls` calls of the program."""
    if system not in SYSTEMS:
        raise Impossible(f"no baseline {system!r}; {nearest(system, SYSTEMS)}")
    if calls < 3:
        raise Impossible(f"{calls} calls have no steady rate; at least 3 are wanted")
    kind = cast(type[Model], import_module(f"sim.baselines.{system}_like").System)
    model = kind(setup, work, profile, costs or costs_of(system), noise or Noise(), seed)
    model.env.run(until=model.env.process(model.program(calls)))
    return Outcome(system, model.hosts, model.devices, work.computations, tuple(model.ends))
