"""The work that a baseline is given, its outcome, and its host costs.

A call of a program runs one computation (`opbyop`), a chain of them (`chained`), or one that is as large as the chain
(`fused`); each output is the next input.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec
import simpy

from core.model import Impossible, line

from ..hardware import Kernel, Profile, Setup, figure, kernel_time, known_keys, nearest, packaged, subtable

Mode = Literal["opbyop", "chained", "fused"]
MODES: tuple[Mode, ...] = ("opbyop", "chained", "fused")
UNITS = {"ahead": "number"}  # of costs that are no times


class BaselineWork(msgspec.Struct, frozen=True):
    kernel: Kernel
    mode: Mode = "opbyop"
    nodes: int = 128  # computations in a call, except for `opbyop`
    nbytes: int = 4  # of a computation's result, on each device

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise Impossible(f"mode {self.mode!r} is unknown; {nearest(self.mode, MODES)}")
        if self.nodes < 1:
            raise Impossible(f"a program of {self.nodes} computations does nothing; `nodes` is at least 1")

    @property
    def launches(self) -> int:
        """How many launches a host enqueues in a call."""
        return self.nodes if self.mode == "chained" else 1

    @property
    def computations(self) -> int:
        """How many computations a call runs."""
        return 1 if self.mode == "opbyop" else self.nodes

    @property
    def launched(self) -> Kernel:
        return fused(self.kernel, self.nodes) if self.mode == "fused" else self.kernel


def fused(kernel: Kernel, times: int) -> Kernel:
    """A kernel that does the same `times` times in a row."""
    collectives = tuple(msgspec.structs.replace(each, count=each.count * times) for each in kernel.collectives)
    return msgspec.structs.replace(
        kernel, name=f"{times} x {kernel.name}", duration=kernel.duration * times, collectives=collectives,
        flops=kernel.flops * times, hbm_bytes=kernel.hbm_bytes * times,
    )  # fmt: skip


class Outcome(msgspec.Struct, frozen=True):
    """`ends`: when the last computation of each call ended, in nanoseconds."""

    system: str
    hosts: int
    devices: int
    computations: int  # in a call
    ends: tuple[int, ...]

    @property
    def per_second(self) -> float:
        """Computations a second, without the first third of the calls, in which pipelines fill."""
        first = len(self.ends) // 3
        took = self.ends[-1] - self.ends[first]
        return (len(self.ends) - 1 - first) * self.computations * 1e9 / took


class BaselineCosts(dict[str, int]):
    """The costs of one system, by name: nanoseconds, except `ahead`. `sources`: where each comes from."""

    sources: dict[str, str]


def costs_of(system: str) -> BaselineCosts:
    table = packaged("systems")[system]
    label = f"sim/data/systems/{system}.toml"
    known_keys(label, table, ("costs",))
    found = BaselineCosts()
    found.sources = {}
    for key, value in subtable(label, table, "costs").items():
        found[key], found.sources[key] = figure(f"{label} [costs]", key, value, UNITS.get(key, "time"), "")
        if not found.sources[key]:
            raise Impossible(f"{label} [costs]: `{key}` has no source")
    return found


class Model:
    """What all baselines have: the hardware, and one island's devices, which run gangs in order."""

    def __init__(self, setup: Setup, work: BaselineWork, profile: Profile, costs: Mapping[str, int]) -> None:
        if len(setup.cluster.islands) != 1:
            raise Impossible(f"the baselines run on one island; {setup.name!r} has {len(setup.cluster.islands)}")
        island, chip = setup.cluster.islands[0], setup.chips[0]
        self.env = simpy.Environment(initial_time=0)
        self.work, self.profile, self.costs = work, profile, costs
        self.hosts, self.devices = island.hosts, island.devices
        self.latency, self.pcie = setup.dcn.latency, chip.pcie_latency
        self.took = kernel_time(work.launched, line(0, 0, island.devices), island, chip)
        self.host_bytes = work.nbytes * island.devices_per_host
        self.pcie_bandwidth = chip.pcie_bandwidth * island.devices_per_host
        self._free = 0
        self.ends: list[int] = []

    def launched(self, ready: int) -> int:
        """Runs a gang that heads all queues at `ready`, as soon as the devices are free; returns its end."""
        self._free = max(ready, self._free) + self.took
        return self._free

    def until(self, time: int) -> simpy.Event:
        return self.env.timeout(max(0, time - int(self.env.now)))

    def program(self, calls: int) -> simpy.events.ProcessGenerator:
        raise NotImplementedError
