"""A door for a simulated session, and the trace that is left of it.

    serve_simulation(session, {"unix:/path": options}, trace=folder, ...)      until SIGTERM or Ctrl-C

The trace is written when the last program that was there has ended, and when the door ends. Neighbours: the command
line calls this; `simulated_cluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from backend.auth import Rules
from backend.door import Describe, ServedSimulation, run_simulated_door

from ..session import Session
from .simulated_cluster import SimulatedCluster


def serve_simulation(
    session: Session, doors: Mapping[str, ServedSimulation], *, trace: Path | None, rules: Rules, memory: int | None,
    ready: Callable[[str], None],
) -> None:  # fmt: skip
    """`doors`, `rules`, `memory`: see `run_simulated_door`. Raises ListenRefused; OSError if there can be no trace
    there."""
    island = next(iter(doors.values())).island

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
