"""The program of the controller, which runs until SIGTERM, Ctrl-C or its parent's end.

    seaway controller

`--state` keeps what must outlive the process: the number of its starts, so that ids of an earlier start are never
mistaken for its own, and the secret by which agents know it. Clients and agents reconnect by themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from core.controller import ON_DEVICES, Bounds, Config
from core.model import Cluster, Impossible, small
from core.record import Trace

from ..admin import add_process_options, adder, begin_log, end_with_parent, metrics
from ..auth import AccessRefused, read, read_accounts
from ..contents import LIMIT
from ..process_title import show_as
from ..scratch_folder import ScratchFolder
from ..streams import collect_rarely, run
from .cluster_file import at_start, keep_larger, read_cluster
from .cluster_status import figures_of
from .eventlogs import KEPT, next_log
from .policy_loading import HELP, policy_from
from .server import LEASE, Server
from .state_folder import HeldFolder, remembered

DRAIN = 10.0  # seconds for runs under way to end, on SIGTERM
SAID = 0.1  # seconds for clients to receive these ends
ORDERLY = 2.0  # seconds for all that, when the parent has ended
TRACE = 256  # MiB: about three million gangs
ABSENT = 30.0  # fewest seconds that runs wait for absent hosts
HARD = 600.0  # seconds: a first step can take long, and how long is unknown


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """What `seaway up` takes, too."""
    add = adder(parser)
    add("--cluster", "a TOML file with the cluster's islands; or give:", metavar="FILE")
    add("--islands", "number of islands (1)", 1)
    add("--hosts", "hosts of each island (1)", 1)
    add("--devices-per-host", "devices of each host (1)", 1)
    add("--policy", HELP, "fifo")
    add("--window", "gangs enqueued ahead on a device (%(default)s); with 1 it idles between gangs", Config().window)
    add("--token-file", "a file with the cluster's token")
    figures = "serve figures for Prometheus; only to this machine, unless an address is given"
    add("--metrics-port", figures, metavar="[ADDRESS:]PORT")


def options() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="seaway controller", description="The one controller of a Seaway cluster.")
    add_cluster_options(found)
    add = adder(found)
    where = "where to listen; port 0: any free port (%(default)s)"
    add("--bind", where, "127.0.0.1:29000", metavar="ADDRESS:PORT")
    add("--fanout", "hosts to which a process writes (%(default)s)", Config().fanout)
    add("--lease", "seconds of silence after which a process counts as gone (%(default)s)", LEASE / 1e9)
    people = "a file of accounts, each with a token or certificate, a role and limits; needs --token-file"
    add("--accounts", people, metavar="FILE")
    add("--state", "keeps state for later starts; default: keep none", metavar="FOLDER")
    anew = "begin anew with this --state: agents enrol again, and lose their arrays; clients' sessions end"
    add("--forget", anew, False)
    records = "where each start of the controller records its events, in ev.1, ev.2 ..., for `seaway replay`"
    add("--record", records, metavar="FOLDER")
    kept = "most of earlier starts' records; the oldest are deleted, the last one never; 0: no limit (%(default)s)"
    add("--record-limit", kept, KEPT >> 20, metavar="MIB")
    add_process_options(add)
    bound = "a step is given up when it takes this much longer than its stated cost (%(default)g)"
    add("--hard-bound", bound, HARD, metavar="SECONDS")
    code = (
        "most clients' code that is kept, here and in --state; the oldest unused code is dropped; 0: no limit "
        "(%(default)s)"
    )
    add("--code-limit", code, LIMIT >> 20, metavar="MIB")
    trace = "most memory of the trace; beyond it, the oldest runs are dropped; 0: no limit (%(default)s)"
    add("--trace-limit", trace, TRACE, metavar="MIB")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    chosen = options().parse_args(words)
    begin_log(chosen.verbose)
    if chosen.with_parent:
        end_with_parent(in_order=ORDERLY)
    try:
        return run(serve(chosen, words))
    except (AccessRefused, Impossible) as error:
        print(f"seaway controller: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


async def serve(chosen: argparse.Namespace, words: Sequence[str]) -> int:
    access = read(chosen.token_file, chosen.ca, chosen.cert, chosen.key)
    if chosen.accounts:
        access = msgspec.structs.replace(access, people=read_accounts(chosen.accounts))
    config = msgspec.structs.replace(
        ON_DEVICES, window=chosen.window, fanout=chosen.fanout, bounds=bounds_of(chosen.hard_bound)
    )
    if chosen.metrics_port:
        metrics.place_of(chosen.metrics_port)
    recorded = next_log(Path(chosen.record) if chosen.record else None, mebibytes(chosen, "record_limit"))
    held = HeldFolder(Path(chosen.state)) if chosen.state else nullcontext()
    with held, recorded as record, ScratchFolder() as folder:
        kept = Path(chosen.state) if chosen.state else None
        cluster = at_start(None if chosen.forget else kept, cluster_of(chosen))
        state = remembered(kept, chosen.forget)
        server = Server(
            cluster, folder=Path(folder), policy=policy_from(chosen.policy), config=config, access=access,
            bind=chosen.bind, lease=round(chosen.lease * 1e9), incarnation=state.starts, starts=state.ids,
            secret=state.secret, kept=kept,
            trace=Trace(mebibytes(chosen, "trace_limit")),
            code=mebibytes(chosen, "code_limit") or sys.maxsize, record=record,
        )  # fmt: skip
        address = await server.start()
        keep_larger(kept, server.cluster)  # now that it is known to start with it
        collect_rarely()
        show_as("controller", words)
        print(f"controller at {address}: {server.cluster.describe()}", flush=True)
        figures = None
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(told.wait()), server.failure]
        try:
            if chosen.metrics_port:
                figures = await _figures(chosen.metrics_port, server)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            await _drained(server)
            return 1 if server.failure.done() else 0
        finally:
            if figures is not None:
                figures.close()
            await server.stop()
            if server.unrecorded():
                print(f"seaway controller: {server.unrecorded()}", file=sys.stderr, flush=True)


async def _drained(server: Server) -> None:
    """Waits a while for runs to end, including those that are submitted meanwhile."""
    until = time.monotonic() + DRAIN
    while server.controller.left()["runs"] and not server.failure.done() and time.monotonic() < until:
        await asyncio.sleep(0.02)
    await asyncio.sleep(SAID)


async def _figures(place: str, server: Server) -> asyncio.Server:
    def look() -> dict[str, Any]:
        with server.node.lock:
            return figures_of(server)

    found = await metrics.serve(place, look, lambda: not server.failure.done())
    if not metrics.protected(place):
        logging.getLogger("seaway.controller").warning(
            "--metrics-port %s: any process that can reach it may read it", place
        )
    print(f"metrics at http://{metrics.address_of(found)}/metrics", flush=True)
    return found


def mebibytes(chosen: argparse.Namespace, name: str) -> int:
    if getattr(chosen, name) < 0:
        raise Impossible(f"--{name.replace('_', '-')} {getattr(chosen, name)}: mebibytes, or 0 for no limit")
    return int(getattr(chosen, name)) << 20


def bounds_of(seconds: float) -> Bounds:
    """The bounds. The hard bound is a multiple of the soft one, which scales with a step's stated cost."""
    if not seconds > 0:
        raise Impossible(f"--hard-bound {seconds:g}: seconds, more than 0")
    floor = min(Bounds().floor, round(seconds * 1e9))
    return Bounds(floor=floor, hard=max(1, round(seconds * 1e9 / floor)), absent=round(max(seconds, ABSENT) * 1e9))


def cluster_of(chosen: argparse.Namespace) -> Cluster:
    if chosen.cluster:
        return read_cluster(Path(chosen.cluster))
    for name in ("islands", "hosts", "devices_per_host"):
        if getattr(chosen, name) < 1:
            raise Impossible(f"--{name.replace('_', '-')} {getattr(chosen, name)}: at least 1")
    return small(chosen.hosts, chosen.devices_per_host, chosen.islands)
