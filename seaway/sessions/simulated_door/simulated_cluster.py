"""The cluster behind a door that simulates: one simulation, whose clients are the door's sessions.

    line      a client for a new session
    learn     code that a session leaves: what hosts will say of it, and what it takes on their devices
    expected  what policies are told that it takes

Hosts answer what the door has found out before they are asked: reading and compiling take real time, and no simulated
time. Neighbours: `simulated_link`, `simulated_time`; `seaway.costs`, which reads HLO.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec.structs import replace

from backend.auth import Rules
from backend.contents import stablehlo_code
from backend.door import Describe, DescribedCode, ServedSimulation, run_simulated_door
from core.model import SliceSpec
from sim.hardware import Chip, Kernel
from sim.simulation import Simulation

from ...costs import IdleCluster, text_costs
from ...errors import CostError
from ..session import Session
from .simulated_link import SimulatedLink
from .simulated_time import SimulatedTime

log = logging.getLogger("seaway.door")
ASSUMED = 1_000_000  # nanoseconds of code whose text cannot be read
LAUNCH = 1_000  # nanoseconds: no kernel is shorter


class SimulatedCluster:
    """Implements `backend.door.SimulationPort`. `island`: whose devices are priced, "": any. `empty()` is called when
    the last session has closed."""

    def __init__(self, simulation: Simulation, island: str, describe: Describe, empty: Callable[[], None]) -> None:
        self.simulation, self._island = simulation, island
        self._describe, self._empty = describe, empty
        self.time = SimulatedTime(simulation)
        self._idle = IdleCluster(simulation.setup)
        self._answers: dict[str, bytes] = {}  # by the code's hash
        simulation.about_code = lambda key: self._answers.get(key, b"")

    def line(self, name: str, weight: int, priority: int) -> SimulatedLink:
        link = SimulatedLink(self, self.simulation.client(name, weight, priority))
        self.time.links[link] = None
        link.when_closed(lambda: self._closed(link))
        return link

    def _closed(self, link: SimulatedLink) -> None:
        for code in link.codes.difference(*(each.codes for each in self.time.links)):
            self._answers.pop(code, None)
            self.simulation.kernels.pop(code, None)
        if not self.time.links:
            self._empty()

    # --- code ------------------------------------------------------------------------------------------------

    async def learn(self, key: str, blob: bytes) -> None:
        """Raises StatusError if the code is refused, or cannot be compiled."""
        if key not in self._answers:
            described = await self._describe(stablehlo_code.decode(blob))
            if described.text:
                (chip, *_) = self._idle.chips(self._slice(described.devices)).values()
                loop = asyncio.get_running_loop()
                kernel = await loop.run_in_executor(None, kernel_of_code, described, chip)
                self.simulation.kernels[key] = kernel
            self._answers[key] = described.answer

    def expected(self, code: str, devices: int) -> int:
        kernel = self.simulation.kernels.get(code)
        return ASSUMED if kernel is None else max(1, self._idle.time(kernel, self._slice(devices)))

    def _slice(self, devices: int) -> SliceSpec:
        return SliceSpec("", devices, island=self._island)


def kernel_of_code(code: DescribedCode, chip: Chip) -> Kernel:
    """What compiled code takes on a simulated device, by a roofline of its HLO."""
    try:
        cost = text_costs(
            code.text, code.name, code.devices, chip=chip, partitioned=code.partitioned, memory=code.memory
        )
    except CostError as error:
        log.warning("nothing is known of the cost of %r, which is taken to be 1 ms: %s", code.name, error)
        return Kernel(code.name, ASSUMED, source="assumed")
    for each in cost.warnings:
        log.info("%s: %s", code.name, each)
    return replace(cost.kernel, duration=max(LAUNCH, cost.kernel.duration))


def serve_simulation(
    session: Session, doors: Mapping[str, ServedSimulation], *, trace: Path | None, rules: Rules, memory: int | None,
    ready: Callable[[str], None],
) -> None:  # fmt: skip
    """Serves a door for a simulated session until SIGTERM or Ctrl-C. The trace is written when the last program that
    was there has ended, and when the door ends. `doors`, `rules`, `memory`: see `run_simulated_door`. Raises
    ListenRefused; OSError if there can be no trace there."""
    island = next(iter(doors.values())).largest.name

    def save() -> None:
        if trace is not None:
            session.driver.trace().save(trace)

    def begin(describe: Describe) -> SimulatedCluster:
        return SimulatedCluster(session.simulation, island, describe, save)

    save()  # so that a folder in which there can be none is found now
    try:
        run_simulated_door(doors, begin, rules=rules, memory=memory, ready=ready)
    finally:
        save()
        session.close(abort=True)
