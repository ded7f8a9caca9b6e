"""The command line `seaway`: one file a command, each with `add(commands)`, which declares options and a function.

Only the file of the command that is called is imported: an agent needs no simulator, and starts in a third of the time.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

# gRPC reads this when it is imported. What goes wrong with a connection is said once, by us.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

from .. import __version__
from ..errors import SeawayError, nearest

WIDEST = 1_000  # characters of a line of an error
# The file of each command, in the order in which `seaway --help` lists them. Those of `backend` are programs.
COMMANDS = {
    "simulate": "simulate",
    "sweep": "sweep",
    "controller": "backend.server.controller_cli",
    "agent": "backend.agent.agent_cli",
    "up": "cluster",
    "down": "cluster",
    "door": "door",
    "status": "status",
    "cancel": "status",
    "cordon": "operating",
    "uncordon": "operating",
    "drain": "operating",
    "grow": "operating",
    "move": "operating",
    "suspend": "operating",
    "resume": "operating",
    "token": "account_commands",
    "usage": "account_commands",
    "dashboard": "dashboard",
    "top": "top",
    "log": "replaying",
    "replay": "replaying",
    "parity": "parity",
    "whatif": "whatif",
    "checkpoint": "checkpoint_command",
    "calibrate": "calibrating",
}


def shown(error: BaseException) -> str:
    """The error's text for a terminal. It may quote a file or a stranger: what is not printable is escaped, and a line
    that is too long loses its middle."""
    lines = []
    for line in str(error).split("\n"):
        plain = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)
        lines.append(plain if len(plain) <= WIDEST else f"{plain[: WIDEST // 2]} ... {plain[-WIDEST // 3 :]}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return the process's status: 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    parser = argparse.ArgumentParser(prog="seaway", description="One controller for islands of accelerators.")
    parser.add_argument("--version", action="version", version=f"seaway {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    given_arguments = list(sys.argv[1:] if arguments is None else arguments)
    called = given_arguments[0] if given_arguments and given_arguments[0] in COMMANDS else None
    declare(commands, [called] if called else COMMANDS)
    at = given_arguments.index("--") if "--" in given_arguments else len(given_arguments)
    given, unknown = parser.parse_known_args(given_arguments[:at])
    if unknown:
        _refuse(commands.choices[given_arguments[0]], unknown)
    given.own = given_arguments[at + 1 :]  # arguments of the program that a command runs
    try:
        return int(given.run(given))
    except (SeawayError, ValueError) as error:
        print(f"seaway: {shown(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # who read what it prints has heard enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def declare(commands: Any, names: Iterable[str] = COMMANDS) -> None:
    """Declare these commands, with their options, and others of the same files."""
    for file, name in {COMMANDS[name]: name for name in names}.items():
        if not file.startswith("backend."):
            import_module(f".{file}", __name__).add(commands)
            continue
        program = import_module(file)
        options = program.options()
        parser = commands.add_parser(
            name, parents=[options], conflict_handler="resolve", add_help=False, help=str(options.description)
        )
        # On the original command line, which the program may need to restart itself.
        parser.set_defaults(run=lambda given, program=program: program.main(sys.argv[2:]))


def _refuse(command: argparse.ArgumentParser, unknown: Sequence[str]) -> None:
    """argparse would show the usage of `seaway`, which has no options, and not that of the command."""
    known = [option for action in command._actions for option in action.option_strings]
    near = nearest(unknown[0].partition("=")[0], known) if unknown[0].startswith("-") else ""
    command.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
