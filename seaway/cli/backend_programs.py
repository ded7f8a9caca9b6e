"""Commands that are programs of `backend`, which declares their options."""

from __future__ import annotations

import sys
from typing import Any


def add_program(commands: Any, name: str, program: Any) -> None:
    """`program`: a module with `options` and `main`."""
    options = program.options()
    parser = commands.add_parser(
        name, parents=[options], conflict_handler="resolve", add_help=False, help=str(options.description)
    )
    # On the original command line, which the program may need to restart itself.
    parser.set_defaults(run=lambda given: program.main(sys.argv[2:]))
