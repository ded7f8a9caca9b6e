"""`seaway door --simulate`: the options of a door whose devices are simulated, and what it serves.

Neighbours: `door`, whose options these are too; `seaway.sessions.simulated_door`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.auth import Rules
from backend.door import ServedSimulation, session_devices_of
from backend.server import HELP, policy_from

from ..errors import SeawayError
from ..wording import plural

if TYPE_CHECKING:
    from ..sessions import Session

MOST = 4096  # devices that JAX's client and XLA's compiler can be given
MOST_COMPUTED = 256  # devices that this process has threads for
OPTIONS = ("values", "trace", "policy", "profile", "seed")  # that belong to --simulate


def add(door: argparse.ArgumentParser) -> None:
    door.add_argument(
        "--simulate", default="", metavar="CLUSTER",
        help="serve the devices of a simulated cluster: A, B, C, v4-512, 2xv3-1024, ..., or a TOML file",
    )  # fmt: skip
    for option, metavar, words in (
        ("--policy", "POLICY", f"{HELP} (default: fifo)"),
        ("--profile", "PROFILE", "host costs: paper, seaway, or a TOML file (default: the cluster file's, or paper)"),
    ):  # fmt: skip
        door.add_argument(option, default="", metavar=metavar, help=f"with --simulate: {words}")
    door.add_argument(
        "--values", choices=("shapes", "compute"),
        help="with --simulate: contents of arrays: none, or computed on this machine's CPU (default: shapes)",
    )  # fmt: skip
    door.add_argument(
        "--seed", type=int, default=0, help="with --simulate: of what is random in the simulation (0)"
    )
    door.add_argument(
        "--trace", type=Path, metavar="FOLDER",
        help="with --simulate: write the trace there, when the last program has ended and when the door ends",
    )  # fmt: skip


def prepared(given: argparse.Namespace, name: str) -> tuple[Session, ServedSimulation]:
    """A session on the cluster that is to be simulated, and what programs get of it. `name`: of programs."""
    from ..sessions.simulated import simulate

    policy: Any = policy_from(given.policy or "fifo")
    session = simulate(
        given.simulate, policy=policy, profile=given.profile or None, seed=given.seed, progress=False
    )
    setup = session.simulation.setup
    devices = session_devices_of(setup.cluster, given.devices or 0, given.island)
    computes = given.values == "compute"
    _check(devices, computes)
    kinds = {
        chip.name
        for island, chip in zip(setup.cluster.islands, setup.chips, strict=True)
        if given.island in ("", island.name)
    }
    return session, ServedSimulation(
        devices, " or ".join(sorted(kinds)), given.island, name, given.weight, given.priority, computes
    )


def serve(
    simulated: tuple[Session, ServedSimulation], trace: Path | None, address: str, rules: Rules,
    memory: int | None, ready: Callable[[str], None],
) -> None:  # fmt: skip
    """Until SIGTERM or Ctrl-C. Raises SeawayError, ListenRefused."""
    from ..sessions.simulated_door import serve_simulation

    session, options = simulated
    try:
        serve_simulation(session, options, address, trace=trace, rules=rules, memory=memory, ready=ready)
    except FileExistsError as error:
        raise SeawayError(f"--trace {trace}: {error}") from None
    if trace is not None:
        print(f"wrote {trace}: {plural(len(session.driver.trace().core), 'gang')}")


def _check(devices: int, computes: bool) -> None:
    if devices > MOST:
        raise SeawayError(
            f"each program would have {devices:,} devices, and a door simulates at most {MOST:,}: give --devices, or "
            "--island of a smaller island"
        )
    if computes and devices > MOST_COMPUTED:
        raise SeawayError(
            f"--values compute: this machine's CPU stands for each of a program's {devices:,} devices, of which it can "
            f"be {MOST_COMPUTED}: give --devices {MOST_COMPUTED} or less, or leave --values out to simulate shapes"
        )
