"""`seaway controller`: the controller of a cluster, a program of `backend.server`, which declares its options."""

from __future__ import annotations

import sys
from typing import Any

from backend.server import controller_cli


def add(commands: Any) -> None:
    program = controller_cli.options()
    parser = commands.add_parser(
        "controller",
        parents=[program],
        conflict_handler="resolve",
        add_help=False,
        help=str(program.description),
    )
    # On the original command line, which the program may need to restart itself.
    parser.set_defaults(run=lambda given: controller_cli.main(sys.argv[2:]))
