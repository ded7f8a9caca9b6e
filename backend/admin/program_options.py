"""Options of our programs: each with its name, its help, and its default, which says of what type it is.

Neighbours: `agent_cli`, `controller_cli`, `auth.trust`.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import Any

Add = Callable[..., None]


def adder(parser: argparse.ArgumentParser) -> Add:
    """What adds an option. A default of False makes a switch; `more` is argparse's."""

    def add(name: str, words: str, default: Any = "", **more: Any) -> None:
        if default is False:
            parser.add_argument(name, action="store_true", help=words)
        else:
            parser.add_argument(name, type=type(default), default=default, help=words, **more)

    return add


def add_process_options(add: Add) -> None:
    """What controllers and agents have in common."""
    for each in ("ca", "cert", "key"):
        add(f"--{each}", "PEM file, for mutual TLS")
    add("--with-parent", "end when the standard input closes", False)
    add("--verbose", "log what happens", False)


def begin_log(verbose: bool) -> None:
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(name)s %(levelname)s %(message)s")
