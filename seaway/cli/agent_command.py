"""`seaway agent`: a host of a cluster, a program of `backend.agent`, which declares its options."""

from __future__ import annotations

import sys
from typing import Any

from backend.agent import agent_cli


def add(commands: Any) -> None:
    program = agent_cli.options()
    parser = commands.add_parser(
        "agent", parents=[program], conflict_handler="resolve", add_help=False, help=str(program.description)
    )
    # On the original command line, which the program may need to restart itself.
    parser.set_defaults(run=lambda given: agent_cli.main(sys.argv[2:]))
