"""What operators do with hosts and with clients' slices: `grow`, `cordon`, `drain`, `move`, `suspend`, and back.

Each asks the controller once, and then shows how far that has come until it is done; Ctrl-C ends only the showing.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backend.plain_files import plain_bytes
from backend.wire import GrowCall, OperateCall, OperateReply

from ..errors import SeawayError
from ..wording import plural
from .status import access_of, add_access, address_of, asked, look

EVERY = 0.2  # seconds between looks


def add(commands: Any) -> None:
    host = "its number, or its agent's name"
    client = "its number or name, as `seaway status` shows them"
    cordon = _command(commands, "cordon", "give a host no new slices; those that it has stay", host=host)
    cordon.set_defaults(run=lambda given: _host(given, "cordon"))
    lift = _command(commands, "uncordon", "give a host slices again, and let a drained one come back", host=host)
    lift.set_defaults(run=lambda given: _host(given, "uncordon"))
    drain = _command(commands, "drain", "move all slices away from a host; then its agent ends", host=host)
    deadline = "leave after so many seconds, and lose what is left there; default: as long as it takes"
    drain.add_argument("--deadline", type=float, default=0.0, metavar="SECONDS", help=deadline)
    drain.set_defaults(run=lambda given: _host(given, "drain"))
    grow = _command(commands, "grow", "let agents join as hosts that were not there when the controller started",
                    file="the cluster's file, with what there is and behind it the new hosts and islands")  # fmt: skip
    grow.set_defaults(run=_grow)
    move = _command(commands, "move", "move a client's slices, with their arrays, to other devices", client=client)
    move.add_argument("--away", action="append", default=[], metavar="HOST", help="not to this host; may be repeated")
    move.add_argument("--island", default="", help="to this island; default: the best place on any")
    move.set_defaults(run=lambda given: _slices(given, "move"))
    rest = _command(commands, "suspend", "take a client's arrays to host memory: its devices are free", client=client)
    rest.set_defaults(run=lambda given: _slices(given, "suspend"))
    back = _command(commands, "resume", "let a suspended client go on", client=client)
    back.set_defaults(run=lambda given: _slices(given, "resume"))
    for each in (move, rest, back):
        each.add_argument("--slice", default="", help="only this slice; default: all that the client has")
    for each in (drain, move, rest, back):
        each.add_argument("--no-wait", action="store_true", help="return as soon as it has begun")


def _command(commands: Any, name: str, about: str, **subject: str) -> argparse.ArgumentParser:
    found: argparse.ArgumentParser = commands.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}."
    )
    found.add_argument("address", help="the controller's address")
    for what, text in subject.items():
        found.add_argument(what, help=text)
    add_access(found)
    return found


def _host(given: argparse.Namespace, action: Any) -> int:
    place, access = address_of(given.address, action), access_of(given)
    seconds = given.deadline if action == "drain" else 0.0
    done: OperateReply = asked(place, access, OperateCall(action, host=given.host, seconds=seconds))
    words = {"cordon": "is cordoned", "uncordon": "is not cordoned any more", "drain": "drains"}
    print(f"host {done.number} {words[action]}", flush=True)
    if action == "drain" and not given.no_wait:
        _follow(lambda: _draining(look(place, access), done.number))
        print(f"host {done.number} has left", flush=True)
    return 0


def _grow(given: argparse.Namespace) -> int:
    try:
        data = plain_bytes(Path(given.file))
    except OSError as error:
        raise SeawayError(f"cannot read {given.file}: {error.strerror}") from None
    place, access = address_of(given.address, "grow"), access_of(given)
    done: OperateReply = asked(place, access, GrowCall(data, given.file))
    print(f"the cluster has {plural(done.number, 'host')} now: start agents for those that are new", flush=True)
    return 0


def _draining(found: dict[str, Any], number: int) -> str:
    """What it waits for; "": it has left."""
    host = next(host for island in found["islands"] for host in island["hosts"] if host["host"] == number)
    if host["drains"]:
        return f"waits for {host['drains']['waits'] or 'slices that are being moved'}"
    return "waits for what is in flight on its island" if host["member"] and host["drained"] else ""


def _slices(given: argparse.Namespace, action: Any) -> int:
    place, access = address_of(given.address, action), access_of(given)
    request = OperateCall(
        action, client=given.client, slice=given.slice,
        hosts=tuple(given.away) if action == "move" else (), island=given.island if action == "move" else "",
    )  # fmt: skip
    done: OperateReply = asked(place, access, request)
    if not given.no_wait:
        rest = "" if action == "resume" else "is suspended"
        _follow(lambda: _moving(look(place, access), done.number, given.slice, rest))
        for each in look(place, access)["not_moved"] if action != "resume" else ():
            if each["client"] == done.number and (not given.slice or f"'{given.slice}'" in each["reason"]):
                raise SeawayError(f"client {done.number}: {each['reason']}")
    words = {"move": "moved", "suspend": "suspended", "resume": "resumed"}
    begun = "is being " if given.no_wait else ""
    print(f"client {done.number}: {f'slice {given.slice!r} ' if given.slice else ''}{begun}{words[action]}", flush=True)
    return 0


def _moving(found: dict[str, Any], number: int, name: str, end: str) -> str:
    """What goes on with a client's slices; "": nothing, or what was asked for (`end`) has been reached."""
    for each in found["moving"]:
        if each["client"] == number and (not name or name in each["slices"]) and each["state"] != end:
            waits = f", and waits for {each['waits']}" if each["waits"] else ""
            return f"slice {', '.join(map(repr, each['slices']))} {each['state']}{waits}"
    return ""


def _follow(words: Callable[[], str]) -> None:
    """Print what goes on whenever that changes, until nothing does."""
    said = ""
    while text := words():
        if text != said:
            said = text
            print(f"  {text}", flush=True)
        time.sleep(EVERY)
