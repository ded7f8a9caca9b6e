"""`seaway door --simulate`: the options of a door whose devices are simulated, and what it serves.

Neighbours: `door`, whose options these are too; `seaway.sessions.simulated_door`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.auth import Rules
from backend.door import ClusterRefused, ServedSimulation, session_islands_of
from backend.server import HELP, policy_from

from ..errors import SeawayError
from ..wording import plural

if TYPE_CHECKING:
    from ..sessions import Session

MOST = 4096  # devices that JAX's client and XLA's compiler can be given
MOST_COMPUTED = 256  # devices that this process has threads for
ALSO = ("name", "weight", "priority")  # what programs at another address may have of their own
OPTIONS = ("values", "trace", "policy", "profile", "seed", "also")  # that belong to --simulate


def add(door: argparse.ArgumentParser) -> None:
    option = door.add_argument
    option(
        "--simulate", default="", metavar="CLUSTER",
        help="serve the devices of a simulated cluster: A, B, C, v4-512, 2xv3-1024, ..., or a TOML file",
    )  # fmt: skip
    for each, metavar, words in (
        ("--policy", "POLICY", f"{HELP} (default: fifo)"),
        ("--profile", "PROFILE", "host costs: paper, seaway, ideal, or a TOML file (default: the cluster's, or paper)"),
    ):
        option(each, default="", metavar=metavar, help=f"with --simulate: {words}")
    option(
        "--values", choices=("shapes", "zeros", "compute"),
        help="with --simulate: contents of computed arrays: none, so that to read them is an error; zeros; or computed "
        "on this machine's CPU (default: shapes)",
    )  # fmt: skip
    option(
        "--also", action="append", default=[], metavar="ADDRESS,name=NAME[,weight=N][,priority=N]",
        help="with --simulate: listen there, too, for programs that have another name, weight or priority in the same "
        "simulation; may be repeated",
    )  # fmt: skip
    option("--seed", type=int, default=0, help="with --simulate: of what is random in the simulation (0)")
    option(
        "--trace", type=Path, metavar="FOLDER",
        help="with --simulate: write the trace there, when the last program has ended and when the door ends",
    )  # fmt: skip


def prepared(given: argparse.Namespace, name: str, address: str) -> tuple[Session, dict[str, ServedSimulation]]:
    """A session on the cluster that is to be simulated, and what programs get of it, by the door's addresses. `name`:
    of programs at its own address."""
    from ..sessions.simulated import simulate

    policy: Any = policy_from(given.policy or "fifo")
    session = simulate(given.simulate, policy=policy, profile=given.profile or None, seed=given.seed, progress=False)
    setup = session.simulation.setup
    try:
        islands = session_islands_of(setup.cluster, given.devices or 0, given.islands)
    except ClusterRefused as refused:
        raise SeawayError(f"--simulate {given.simulate}: {refused}") from None
    _check(sum(each.devices for each in islands), given.values == "compute")
    kinds = {
        chip.name
        for island, chip in zip(setup.cluster.islands, setup.chips, strict=True)
        if island.name in [each.name for each in islands] or not given.islands
    }
    if len(islands) > 1 and len(kinds) > 1:
        raise SeawayError(
            f"--islands {given.islands}: in a simulation, a program's devices are of one kind, and these are of "
            f"{' and '.join(sorted(kinds))}"
        )
    values = given.values or "shapes"
    options = ServedSimulation(islands, " or ".join(sorted(kinds)), name, given.weight, given.priority, values)
    return session, _doors(address, options, given.also)


def _doors(address: str, options: ServedSimulation, more: Sequence[str]) -> dict[str, ServedSimulation]:
    doors = {address: options}
    for each in more:
        also, changed = _also(each, options)
        if also in doors or changed.name in [other.name for other in doors.values()]:
            raise SeawayError(f"--also {each}: each address of a door is given once, and so is each name")
        doors[also] = changed
    return doors


def _also(text: str, options: ServedSimulation) -> tuple[str, ServedSimulation]:
    """An address, and what programs there get: `unix:bob.sock,name=bob,weight=2,priority=1`."""
    address, *changes = text.split(",")
    found: dict[str, Any] = {}
    for each in changes:
        key, _, value = each.partition("=")
        if key not in ALSO or not value or key in found:
            raise SeawayError(f"--also {text}: an address, and then name=, weight= or priority=, each once")
        if key != "name":
            try:
                found[key] = int(value)
            except ValueError:
                raise SeawayError(f"--also {text}: {key} is a whole number") from None
        else:
            found[key] = value
    if "name" not in found:
        raise SeawayError(f"--also {text}: give the programs there a name, as {address},name=bob")
    if found.get("weight", 1) < 1:
        raise SeawayError(f"--also {text}: a share is a whole number of at least 1")
    return listening(address, "--also"), replace(options, **found)


def listening(address: str, option: str) -> str:
    """The address as programs find it from any folder."""
    if address.startswith("unix:"):
        address = f"unix:{Path(address.removeprefix('unix:')).absolute()}"
    if address != address.lower():
        raise SeawayError(
            f"{option} {address}: JAX reads JAX_BACKEND_TARGET in lower case, so no program would find this door; "
            "give a path without capital letters"
        )
    return address


def serve(
    simulated: tuple[Session, dict[str, ServedSimulation]], trace: Path | None, rules: Rules, memory: int | None,
    ready: Callable[[str, str], None],
) -> None:  # fmt: skip
    """Until SIGTERM or Ctrl-C. `ready` is told each address, and what programs there are called, if there are several.
    Raises SeawayError, ListenRefused."""
    from ..sessions.simulated_door import serve_simulation
    from ..trace import step_table

    session, doors = simulated
    zeros = next(iter(doors.values())).values == "zeros"
    if zeros:
        print("Nothing is computed (--values zeros): each array that a program computes is read as zeros.\n")
    names = iter([each.name if len(doors) > 1 else "" for each in doors.values()])
    try:
        serve_simulation(
            session, doors, trace=trace, rules=rules, memory=memory, ready=lambda address: ready(address, next(names))
        )
    except FileExistsError as error:
        raise SeawayError(f"--trace {trace}: {error}") from None
    if trace is not None:
        print(f"wrote {trace}: {plural(len(session.driver.trace().core), 'gang')}")
    table = step_table(session.driver.trace())
    if table:
        print(table)
        print(
            "Only these times mean anything, and the trace's: a program's own clock tells how long this machine took."
        )
    if zeros:
        print("Losses and other results that programs printed mean nothing: they were zeros (--values zeros).")


def _check(devices: int, computes: bool) -> None:
    if devices > MOST:
        raise SeawayError(
            f"each program would have {devices:,} devices, and a door simulates at most {MOST:,}: give --devices, or "
            "--islands with fewer devices"
        )
    if computes and devices > MOST_COMPUTED:
        raise SeawayError(
            f"--values compute: this machine's CPU stands for each of a program's {devices:,} devices, of which it can "
            f"be {MOST_COMPUTED}: give --devices {MOST_COMPUTED} or less, or --values zeros, so that contents "
            "read as zeros"
        )
