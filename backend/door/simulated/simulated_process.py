"""A door to a simulated cluster, as a process: `run_simulated_door`, until SIGTERM or Ctrl-C.

    JAX programs --> sessions --> SimulatedDevices --> clients of core in a simulation, which `begin` makes
                                                   --> contents: computed by devices of this process, or none

Neighbours: `door_process`, the same for devices that exist; `cluster_opening` opens sessions; `simulation_port`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...auth import Rules
from ...streams import run
from ..server import environment, machine_bytes, serve_until, told_to_stop
from ..session import SessionDevices, SessionLimits
from .simulated_devices import ShapesOnly
from .simulation_port import Describe, ServedSimulation, SimulationPort

if TYPE_CHECKING:
    from ..cluster import ClusterDevices, SessionLine, StepTimes
    from .simulated_devices import SessionContents


Doors = Mapping[str, ServedSimulation]  # by address; the first is the one that is always there


def run_simulated_door(
    doors: Doors, begin: Callable[[Describe], SimulationPort], *, rules: Rules, memory: int | None = None,
    ready: Callable[[str], None],
) -> None:  # fmt: skip
    """All serve one simulation, with as many devices each. `begin` is called on the loop's thread. `rules`: what
    programs may call, and what compiling them may take; `memory`: bytes of contents that a session may have, None: half
    of this machine's. `ready` is told each address. Raises ListenRefused."""
    options = next(iter(doors.values()))
    computes = options.values == "compute"
    os.environ.update(environment(options.devices if computes else 1, os.environ))
    os.environ["JAX_PLATFORMS"] = "cpu"  # this machine's other devices are for others

    async def serve() -> None:
        from ..cluster import ClusterSessions
        from .described_code import CodeDescriber

        stop = told_to_stop()
        describer = CodeDescriber(options.largest.devices, options.kind, rules)
        describer.warm()
        contents: SessionContents = ShapesOnly(zeros=options.values == "zeros")
        end, limits = _nothing, SessionLimits()
        if computes:
            contents, end = _computed(options.devices, rules)
            limits = SessionLimits(array_bytes=memory or machine_bytes() // 2)
        simulation = begin(describer.of)
        sessions = {
            address: ClusterSessions(SimulationSource(each, simulation, contents), rules.more, limits)
            for address, each in doors.items()
        }
        try:
            await serve_until(stop, sessions, ready)
        finally:
            describer.end()
            end()

    run(serve())


def _computed(count: int, rules: Rules) -> tuple[SessionContents, Callable[[], None]]:
    """What this process's CPU devices compute, and what ends them. Programs have been read and compiled by a child of
    the describer's before they come here."""
    from ..local import LocalDevices, on_loop

    threads = int(os.environ["NPROC"])
    local = LocalDevices(on_loop(), count=count, rules=rules, trusted=True, threads=threads)
    return local, local.end


def _nothing() -> None:
    pass


class SimulationSource:
    """Implements `cluster_opening.SessionSource`."""

    def __init__(self, options: ServedSimulation, simulation: SimulationPort, contents: SessionContents) -> None:
        self._options, self._simulation, self._contents = options, simulation, contents
        self.name, self.islands = options.name, options.islands

    def line(self, name: str) -> tuple[SessionLine, Callable[[ClusterDevices], SessionDevices]]:
        from .simulated_devices import SimulatedDevices

        line = self._simulation.line(name, self._options.weight, self._options.priority)
        return line, lambda devices: SimulatedDevices(devices, self._contents, line)

    async def seen(self) -> Mapping[SessionLine, StepTimes]:
        """Nothing: what programs take was known before they ran."""
        return {}
