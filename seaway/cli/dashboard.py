"""`seaway dashboard`: a page in the browser that shows what a cluster does, or what a saved trace or event log has."""

import argparse
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from ..dashboard import LiveSource, LogSource, PageServer, controller_source
from ..errors import SeawayError
from ..trace import trace_source
from .status import access_of, add_access, address_of

DEFAULT = "127.0.0.1:29000"


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "dashboard",
        help="show what goes on in a page of the browser",
        description="Serves a page that shows a running cluster, or a saved trace or event log, until Ctrl-C.",
        epilog="On another machine: ssh -L 29100:127.0.0.1:29100 HEAD, and open the link that is printed there.",
    )
    option = parser.add_argument
    option(
        "what", nargs="?", default=DEFAULT, metavar="ADDRESS | FOLDER | LOG",
        help="the controller's address (%(default)s); or a trace that trace.save() wrote; or an event log",
    )  # fmt: skip
    option(
        "--bind", default="", metavar="ADDRESS:PORT",
        help="where the page is (127.0.0.1:29100, or another port if that is taken)",
    )  # fmt: skip
    option("--partial", action="store_true", help="accept an event log that was cut short")
    option(
        "--policy", default="", metavar="POLICY",
        help="an event log's policy, if it was a program's own: FILE.py:NAME or module:NAME",
    )  # fmt: skip
    add_access(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    page = PageServer(source_of(given), given.bind)
    print(f"{page.source.title}\n  {page.link}", flush=True)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    try:
        over.wait()
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        page.close()


def source_of(given: argparse.Namespace) -> LiveSource:
    """A folder is a trace, a file is an event log, and anything else is an address."""
    path = Path(given.what)
    if path.is_dir():
        return trace_source.TraceSource.opened(path)
    if path.is_file():
        if (path.parent / "trace.json").is_file():
            raise SeawayError(
                f"dashboard {given.what!r}: this file is part of a trace, so name its folder: {path.parent}"
            )
        print(f"replaying {path} ...", file=sys.stderr, flush=True)
        return LogSource(path, partial=given.partial, policy=given.policy)
    if "/" in given.what.removeprefix("grpc://") or (path.suffix and ":" not in given.what):
        raise SeawayError(f"dashboard {given.what!r}: there is no such folder or file, and it is no address")
    try:
        return controller_source.ControllerSource(address_of(given.what, "dashboard"), access_of(given))
    except SeawayError as error:
        if ":" in given.what:
            raise
        raise SeawayError(f"{error} There is no folder or file {given.what!r} either.") from None
