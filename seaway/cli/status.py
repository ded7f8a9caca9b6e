"""`seaway status` shows a cluster's state once, as a table or as JSON. `seaway cancel` ends runs."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import grpc
import msgspec

from backend.auth import Access, AccessRefused, place_of, read
from backend.node import CallError, ask
from backend.wire import CancelCall, CancelReply, Report, Status

from ..errors import SeawayError
from ..wording import plural

PATIENCE = 5.0  # seconds for an answer
CLOCKS = 8  # hosts whose clocks are shown
WAITS = 5  # stalls, and waits, that are shown
LATE = 3  # late gangs shown in an island's row


def add(commands: Any) -> None:
    status = commands.add_parser("status", help="show a cluster's islands, hosts, clients, and what is late")
    status.add_argument("address", nargs="?", default="127.0.0.1:29000", help="the controller's address (%(default)s)")
    status.add_argument("--json", action="store_true", help="print JSON, for scripts")
    add_access(status)
    status.set_defaults(run=_status)
    cancel = commands.add_parser("cancel", help="end a client's runs; the client stays connected and keeps its buffers")
    cancel.add_argument("address", help="the controller's address")
    cancel.add_argument("client", help="the client's number or name, as `seaway status` shows them")
    cancel.add_argument(
        "--run", dest="which", type=int, default=0, help="end only this run, by the client's number for it"
    )
    add_access(cancel)
    cancel.set_defaults(run=_cancel)


def add_access(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--token-file", default="", help="a file with the cluster's token, or an account's")
    for each in ("ca", "cert", "key"):
        parser.add_argument(f"--{each}", default="", help="PEM file, for mutual TLS")


def access_of(given: argparse.Namespace) -> Access:
    return read(given.token_file, given.ca, given.cert, given.key)


def address_of(text: str, command: str) -> str:
    """The controller's place, from what somebody typed."""
    try:
        return place_of(text)
    except AccessRefused as refused:
        raise SeawayError(f"{command} {text!r}: {refused}, or head:29000") from None


def _cancel(given: argparse.Namespace) -> int:
    place, access = address_of(given.address, "cancel"), access_of(given)
    done: CancelReply = asked(place, access, CancelCall(given.client, given.which))
    print(f"client {done.client}: {plural(len(done.runs), 'run')} cancelled")
    return 0


def _status(given: argparse.Namespace) -> int:
    found = look(address_of(given.address, "status"), access_of(given))
    print(json.dumps(found, indent=1) if given.json else table(found))
    return 0


def look(address: str, access: Access) -> dict[str, Any]:
    """The controller's status report. Raises SeawayError if no controller answers."""
    report: Report = asked(address, access, Status())
    found: dict[str, Any] = json.loads(report.json)
    return found


def asked(address: str, access: Access, request: msgspec.Struct) -> Any:
    async def ask_for_it() -> Any:
        channel = access.channel(address)
        try:
            return await ask(channel, access, request, timeout=PATIENCE)
        finally:
            await channel.close()

    try:
        return asyncio.run(ask_for_it())
    except CallError as wrong:
        if wrong.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            heard = "" if wrong.code == grpc.StatusCode.DEADLINE_EXCEEDED else f": {wrong}"
            raise SeawayError(
                f"no controller answers at {address} (waited {PATIENCE:g} s){heard}. Is `seaway controller` or `seaway "
                f"up` running there, is its port open to this machine, and has it certificates that --ca, --cert and "
                f"--key should name here?"
            ) from None
        raise SeawayError(f"the controller at {address} says: {wrong}") from None


def table(found: dict[str, Any]) -> str:
    lines = [f"{'island':<12}{'phase':<10}{'epoch':>6}{'hosts':>9}{'devices':>9}{'under way':>11}  late"]
    lines += [_island(island) for island in found["islands"]]
    for each in found["islands"]:
        if broken := each.get("broken"):
            lines.append(
                f"island {each['name']!r} breaks again and again, for {broken['seconds']:.0f} s: {broken['reason']}"
            )
    lines += _on_the_way(found)
    lines += _reserved(found["islands"])
    lines += _stalls(found)
    lines += _clocks(found["islands"])
    lines.append(f"{'client':<8}{'name':<16}{'weight':>7}{'programs':>10}{'runs':>7}")
    lines += [
        f"{each['client']:<8}{each['name']:<16}{each['weight']:>7}{each['programs']:>10}{each['runs']:>7}"
        for each in found["clients"]
    ]
    through = found["contents_through_controller"]
    lines.append(
        f"{plural(found['buffers'], 'buffer')}; {through} bytes of contents have passed through the controller"
    )
    lost = (found.get("record") or {}).get("lost")
    lines += [f"NOT RECORDED: {lost}"] if lost else []
    lines += [f"NOT KEPT: {text}" for text in found.get("unkept", ())]
    refused = ", ".join(f"{count} ({kind})" for kind, count in found.get("refusals", {}).items() if count)
    if refused:
        lines.append(f"refused: {refused}; see the controller's log for names and addresses")
    return "\n".join([*lines, *(f"  {text}" for text in found["said"][-3:])])


def _on_the_way(found: dict[str, Any]) -> list[str]:
    """Lines for hosts that are cordoned or drain, and for slices that are not at their place."""
    lines = []
    hosts = [host for island in found["islands"] for host in island["hosts"]]
    for host in [host for host in hosts if host.get("cordoned") or host.get("drains")]:
        who, drains = f"host {host['host']} ({host['agent']})", host.get("drains")
        if drains:
            left = f"; leaves in {drains['left']:.0f} s" if drains["left"] is not None else ""
            waits = f": waits for {drains['waits']}" if drains["waits"] else ""
            lines.append(f"{who} drains, for {drains['seconds']:.0f} s{waits}{left}")
        else:
            lines.append(f"{who} has drained" if host["drained"] else f"{who} is cordoned")
    for each in found.get("moving", ()):
        waits = f": waits for {each['waits']}" if each["waits"] else ""
        names = ", ".join(map(repr, each["slices"]))
        lines.append(f"slice {names} of client {each['client']} {each['state']}, for {each['seconds']:.0f} s{waits}")
    lines += [f"client {each['client']}: {each['reason']}" for each in found.get("not_moved", ())]
    return lines


def _reserved(islands: list[dict[str, Any]]) -> list[str]:
    """Lines for devices that a policy keeps free."""
    lines = []
    for island in islands:
        for each in island.get("reserved", ())[:WAITS]:
            gang = ", ".join(filter(None, (f"program {each['program']!r}" if each["program"] else "", each["node"])))
            whose = f" for {gang} of client {each['client']!r}" if gang else ""
            lines.append(
                f"reserved for {each['seconds']:.0f} s: devices {each['devices']} of island {island['name']!r}{whose}"
            )
    return lines


def _stalls(found: dict[str, Any]) -> list[str]:
    """Lines for stalls, waits and refused agents with their times, the longest first."""
    count = sum(island["stalled"] for island in found["islands"]) + found["stalled_elsewhere"]
    lines = [f"stalled for {_wait(each)}" for each in found["stalled"][:WAITS]]
    if count > WAITS:
        lines.append(f"  and {count - WAITS} more stalls")
    lines += [f"waits for {_wait(each)}" for each in found["waits"][:WAITS]]
    if len(found["waits"]) > WAITS:
        lines.append("  and other waits")
    for each in found["refused"]:
        where = f" for island {each['island']!r}" if each["island"] else ""
        lines.append(f"refused {each['seconds_ago']:.0f} s ago: agent {each['agent']!r}{where}: {each['reason']}")
    return lines


def _wait(each: dict[str, Any]) -> str:
    what = f"program {each['program']!r}" if each["program"] else ""
    what += f"{', ' if what else ''}{each['node']}" if each["node"] else ""
    who = f" of client {each['client']!r}" if each["client"] else ""
    where = f" on island {each['island']!r}" if each["island"] else ""
    hosts = f"; hosts {each['hosts']}" if each["hosts"] and each["hosts"] not in each["reason"] else ""
    return f"{each['seconds']:.0f} s: {what}{who}{where}: {each['reason']}{hosts}"


def _clocks(islands: list[dict[str, Any]]) -> list[str]:
    """Lines for the offset of hosts' clocks from the controller's. If there are many, those with the widest bounds."""
    hosts = [host for island in islands for host in island["hosts"] if host["clock"] is not None]
    if not hosts:
        return []
    worst = sorted(hosts, key=lambda host: (-host["clock"]["bound"], host["host"]))[:CLOCKS]
    lines = [f"{'host':<8}{'clock is ahead by':>22}{'within':>12}"]
    for host in sorted(worst, key=lambda host: host["host"]):
        clock = host["clock"]
        jumps = f"  has jumped {plural(clock['jumps'], 'time')}" if clock["jumps"] else ""
        ahead, within = f"{clock['offset'] / 1e6:,.3f} ms", f"{clock['bound'] / 1e6:,.3f} ms"
        lines.append(f"{host['host']:<8}{ahead:>22}{within:>12}{jumps}")
    if len(hosts) > CLOCKS:
        lines.append(f"  and {len(hosts) - CLOCKS} hosts with narrower bounds")
    return lines


def _island(island: dict[str, Any]) -> str:
    here = sum(host["connected"] for host in island["hosts"])
    hosts = f"{here}/{len(island['hosts'])}"
    late = "; ".join(_late(each) for each in island["late"][:LATE])
    named = f"{island['name']:<12}{island['phase']:<10}{island['epoch']:>6}{hosts:>9}"
    return f"{named}{island['devices']:>9}{island['under_way']:>11}  {late}"


def _late(each: dict[str, Any]) -> str:
    what = " ".join(filter(None, (each["program"], each["node"]))) or each["reason"]
    hosts = f" on hosts {each['hosts']}" if each["hosts"] else ""
    return f"{what}{hosts} ({each['seconds']:.0f} s)"
