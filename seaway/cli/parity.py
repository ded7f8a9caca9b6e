"""`seaway parity program.py`: runs a user's program in a simulation and on real devices here, and compares the two."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.scratch_folder import ScratchFolder
from backend.server import HELP, policy_from

from ..wording import plural
from .simulate import Copy, load

if TYPE_CHECKING:
    from ..sessions import Session
    from ..tools.parity import Comparison, ParityShape, Program


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "parity",
        help="compare a program simulated and on real devices",
        description="Runs PROGRAM as __main__ in a simulated session and on real devices of this machine, with the "
        "same cluster, policy and settings. Compares the scheduler's decisions and the commands that hosts received. "
        "The exit status is 0 if all are equal.",
        epilog="The program's own arguments come after `--`. Example: seaway parity step.py --hosts 4 --policy stride",
    )
    option = parser.add_argument
    option("program", type=Path, help="a Python file")
    option("--cluster", default="", help="C, 2xv3-64, ..., or a TOML file; default: made from the next three options")
    option("--hosts", type=int, help="hosts on each island (2)")
    option("--devices-per-host", type=int, help="devices of each host (2)")
    option("--islands", type=int, help="islands (1)")
    option("--platform", choices=("timed", "cpu"), default="timed",
              help="real devices: timed ones, which only wait, or this machine's CPU (default: timed)")  # fmt: skip
    option("--policy", default="fifo", help=HELP)
    option("--dispatch", choices=("parallel", "sequential"), default="parallel", help="default: parallel")
    option("--profile", default="seaway", help="the simulator's host costs: seaway, paper, or a TOML file")
    option("--keep", type=Path, metavar="FOLDER", help="keep the real run's event log here")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    from ..tools.parity import parity_runs

    names = {"hosts": given.hosts, "devices_per_host": given.devices_per_host, "islands": given.islands}
    for name, number in names.items():
        if number is not None and number < 1:
            raise ValueError(f"--{name.replace('_', '-')} {number}: at least 1")
    setup = parity_runs.setup_of(given.cluster, **{key: value for key, value in names.items() if value is not None})
    shape = parity_runs.ParityShape(
        setup, policy_from(given.policy), given.platform, dispatch=given.dispatch, profile=given.profile,
        values="shapes" if given.platform == "timed" else "compute",
    )  # fmt: skip
    cluster = shape.cluster
    islands, hosts = plural(len(cluster.islands), "island"), plural(cluster.hosts, "host")
    print(f"{islands}, {hosts}, {plural(cluster.devices, 'device')} ({given.platform}); policy {given.policy}")

    ran: list[Copy] = []

    def program(session: Session) -> None:
        (copy,) = load(given.program, given.own, [1])
        ran.append(copy)
        session.spawn(copy, name=given.program.stem).join()

    try:
        found = _compared(given, shape, program)
    except Exception as error:
        if not ran or ran[-1].raised is not error:
            raise
        where = "real devices" if len(ran) == 2 else "simulated devices"
        print(f"seaway: the program failed on {where}", file=sys.stderr)
        ran[-1].show(error)
        return 1
    if not any(found.gangs):
        print(
            "seaway: no gangs ran, simulated or on real devices, so nothing was compared; does the program open a "
            "session of its own? It must run in the session that this command opens",
            file=sys.stderr,
        )
        return 1
    print("\n".join(found.lines()), end="\n\n")
    print("equal" if found.equal else "not equal: docs/parity.md says where to expect that")
    return 0 if found.equal else 1


def _compared(given: argparse.Namespace, shape: ParityShape, program: Program) -> Comparison:
    from ..tools.parity import parity_runs

    with ScratchFolder("parity") as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        simulated = parity_runs.simulated(shape, program)
        parity_runs.real(shape, program, folder)
        return parity_runs.judged(shape, simulated, folder)
