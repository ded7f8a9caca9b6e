"""The command line `seaway`: one file a command, each with `add(commands)`, which declares options and a function."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

# gRPC reads this when it is imported. What goes wrong with a connection is said once, by us.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from .. import __version__
from ..errors import SeawayError
from . import calibrating, cluster, dashboard, door, parity, replaying, simulate, status, top, whatif

COMMANDS = (simulate, cluster, door, status, dashboard, top, replaying, parity, whatif, calibrating)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the process's status: 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(prog="seaway", description="One controller for islands of accelerators.")
    parser.add_argument("--version", action="version", version=f"seaway {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    given_arguments = list(sys.argv[1:] if arguments is None else arguments)
    at = given_arguments.index("--") if "--" in given_arguments else len(given_arguments)
    given = parser.parse_args(given_arguments[:at])
    given.own = given_arguments[at + 1 :]  # arguments of the program that a command runs
    try:
        return int(given.run(given))
    except (SeawayError, ValueError) as error:
        print(f"seaway: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
