"""What a door and a simulation know of each other: the seam below which the clock is not this machine's.

    door --line, speaks, waits, works--> SimulationPort, SimulatedLine      which let simulated time pass
    door <--Describe-------------------- SimulationPort                     what code is, to price it

The door has JAX and knows no simulator. Neighbours: `simulated_process`, `simulated_devices`, `described_code` are the
door's side; `seaway.sessions.simulated_door` is the other.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from backend.contents import StableHLOCode

from ..cluster import SessionIsland, SessionLine


@dataclass(frozen=True)
class ServedSimulation:
    """`islands`: of each session. `kind`: what its devices are called. `name`: of sessions' clients. `values`: computed
    arrays have contents ("compute": this process does), "zeros", or "shapes"."""

    islands: tuple[SessionIsland, ...]
    kind: str
    name: str = "jax"
    weight: int = 1
    priority: int = 0
    values: str = "shapes"

    @property
    def devices(self) -> int:
        return sum(each.devices for each in self.islands)

    @property
    def largest(self) -> SessionIsland:
        return max(self.islands, key=lambda each: each.devices)


class DescribedCode(NamedTuple):
    """`answer`: to the code's question. `text`: HLO of one device, "" if the code has no program; `partitioned`: it is
    as it was before passes that are only for CPUs. `memory`: on each device, by XLA's names."""

    answer: bytes
    name: str = ""
    devices: int = 0
    text: str = ""
    partitioned: bool = False
    memory: Mapping[str, int] = {}


Describe = Callable[[StableHLOCode], Awaitable[DescribedCode]]  # raises StatusError


class WaitingLine(Protocol):
    """What is told of a program's waiting."""

    def now(self) -> int:
        """Nanoseconds of simulated time."""

    def speaks(self) -> None:
        """The program has said something, so it did not wait just now."""

    def waits(self) -> None:
        """It waits for one thing more, which simulated time will bring."""

    def waited(self) -> None: ...

    def works(self) -> None:
        """It waits for one thing more, which takes real time, and no simulated time."""

    def worked(self) -> None: ...

    def calling(self, resume: Callable[[], None]) -> bool:
        """Whether its Python thread is still busy with a call in simulated time; if so, `resume` will be called."""


class SimulatedLine(SessionLine, WaitingLine, Protocol):
    """One session's client of core."""


class SimulationPort(Protocol):
    def line(self, name: str, weight: int, priority: int) -> SimulatedLine: ...
