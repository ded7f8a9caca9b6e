"""`seaway top`: what goes on in a cluster, in a terminal, again and again: for ssh, where no browser is at hand."""

from __future__ import annotations

import argparse
import time
from typing import Any

from core.record import LiveLook

from ..dashboard import Unavailable, controller_source, recent
from ..errors import SeawayError
from .status import access_of, add_access, address_of

EVERY = 1.0  # seconds between two looks
NEEDS = "seaway top draws with rich: pip install 'seaway[top]'; without it, `watch seaway status` shows the cluster"


def add(commands: Any) -> None:
    parser = commands.add_parser("top", help="show what goes on, in this terminal, until Ctrl-C")
    option = parser.add_argument
    option("address", nargs="?", default="127.0.0.1:29000", help="the controller's address (%(default)s)")
    option("--window", type=int, default=10, metavar="SECONDS", help="of which shares are (%(default)s)")
    option("--once", action="store_true", help="print it once: the latest gangs, up to a window, and end")
    add_access(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    try:
        from rich.console import Console
        from rich.live import Live

        from ..dashboard import terminal
    except ImportError:
        raise SeawayError(NEEDS) from None
    if given.window < 1:
        raise SeawayError(f"--window {given.window}: seconds, at least 1")
    source = controller_source.ControllerSource(address_of(given.address, "top"), access_of(given))
    latest: LiveLook | None = None
    seen = recent.RecentUse(given.window * recent.S)

    def look() -> Any:
        """What the terminal shows: the cluster, or why it does not answer, if it has answered before."""
        nonlocal latest
        try:
            latest = source.look(seen.request())
        except Unavailable as why:
            if latest is None:
                raise SeawayError(str(why)) from None
            return str(why)
        seen.take(latest)
        return terminal.screen(source.title, source.islands, latest, seen)

    try:
        if given.once:
            Console().print(look())
            return 0
        with Live(screen=True, auto_refresh=False) as live:
            while True:
                live.update(look(), refresh=True)
                time.sleep(EVERY)
    finally:
        source.close()
