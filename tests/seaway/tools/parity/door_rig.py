"""A JAX program's session on a real cluster, through a door; and a simulated client that makes the same calls.

    recorded(program, folder)     leaves the controller's event log and the hosts' device logs in the folder
    simulated(workload_of(log))   the decisions of a simulated controller

Neighbours: `rig`, the same for clients of core's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from backend.server import eventlogs
from core.protocol import effects as e
from core.protocol import messages as m
from core.record import Log
from experiments.bench.frame import deployed
from experiments.bench.frame.door_server import on_cluster
from seaway.tools.parity.collect import ClusterSeen, Watched
from seaway.tools.parity.compare import Comparison
from seaway.tools.parity.parity_runs import log_of
from seaway.tools.whatif import call_durations, settings, whatif_runs
from seaway.tools.whatif.workload import Workload
from sim.hardware.profiles import profile
from sim.simulation.simulation import Simulation
from tests.backend.door.program_runs import python

from . import edge, forced, recorded_agent

HOSTS, DEVICES = 2, 2  # of each host
NAME, WEIGHT = "alice", 3
PATIENCE = 60.0  # seconds
LOOK = 0.1


# --- real -----------------------------------------------------------------------------------------------------------


class DoorSession:
    """What is left of a JAX program's session. `devices`: hosts did what they were told."""

    def __init__(self, printed: str, log: Log, seen: ClusterSeen, devices: Comparison) -> None:
        self.printed, self.log, self.seen, self.devices = printed, log, seen, devices

    @property
    def calls(self) -> list[m.Call]:
        """All calls of its client, in the order in which the controller heard them."""
        found: list[m.Call] = []
        for entry in self.log.entries:
            message = entry.event.message if isinstance(entry.event, e.MessageReceived) else None
            if isinstance(message, m.Calls):
                found += message.calls
            elif isinstance(message, m.Call):
                found.append(message)
        return found


def recorded(program: str, folder: Path) -> DoorSession:
    controller = ["--record", str(log_of(folder))]
    door = ["--name", NAME, "--weight", str(WEIGHT)]
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv(recorded_agent.FOLDER, str(folder))
        patch.setattr(deployed, "AGENT", recorded_agent.__name__)
        served = stack.enter_context(on_cluster(HOSTS, DEVICES, controller=controller, door=door))
        ended = python("-c", program, env=served.door.env)
        assert ended.code == 0, f"{ended.out}\n{ended.err[-4000:]}"
        _until(lambda: not served.cluster.status()["clients"])
        served.cluster.controller.process.terminate()  # in order: then its log is complete
        served.cluster.controller.process.wait(PATIENCE)
        log = eventlogs.read(log_of(folder) / "ev.1")
        seen, commanded = edge.read(log)

        def compared() -> Comparison:
            return forced.compare(commanded, edge.witnessed(folder, HOSTS))

        _until(lambda: compared().equal, strict=False)  # what was said last may still be on its way
        return DoorSession(ended.out, log, seen, compared())


def _until(true: Callable[[], object], strict: bool = True) -> None:
    end = time.monotonic() + (PATIENCE if strict else PATIENCE / 10)
    while not true():
        if time.monotonic() > end:
            assert not strict, "the session does not end"
            return
        time.sleep(LOOK)


# --- simulated ------------------------------------------------------------------------------------------------------


def simulated(found: Workload) -> ClusterSeen:
    """What a controller of the recorded one's cluster and settings decides when it gets these calls."""
    seen: list[Watched] = []

    class WatchedSimulation(Simulation):
        def __init__(self, *about: Any, **options: Any) -> None:
            super().__init__(*about, **options)
            seen.append(Watched(self.controller))
            self.controller_process.machine = seen[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whatif_runs, "Simulation", WatchedSimulation)
        same = settings.as_recorded(found, profile("seaway"))
        sim = whatif_runs.run(found, same, call_durations.measured(found)).simulation
    sim.run(until=lambda: not any(map(sim.controller.left().get, ("clients", "buffers", "runs"))))
    return seen[0].collector.end()
