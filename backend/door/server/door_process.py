"""The door as a process: JAX's devices of this process, sessions on them, and the sockets of clients.

    run_door("unix:/run/user/1000/seaway.sock", devices=8)       until SIGTERM or Ctrl-C
    run_cluster_door(address, ServedCluster("head:29000", access))

How many CPU devices there are is set in the environment before JAX is imported: `environment`. Neighbours:
`door_server`, `door_session`, `local_devices`, `cluster_opening`; `simulated_process`, for devices that do not exist.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...auth import Rules
from ...client import Head
from ...streams import collect_rarely, run
from ...xla import DEVICE_COUNT, xla_flags
from ..cluster import ServedCluster
from ..session import SessionDevices, SessionLimits, opening
from .door_server import DoorServer, listen_for_clients
from .ifrt_service import TransportLimits

if TYPE_CHECKING:
    from ..cluster import ClusterSessions, WatchOf

# of XLA's pool for CPU devices, at least: with fewer, programs of many devices wait for each other
THREADS = 32
DEFAULT_RULES = Rules()


def environment(devices: int | None, given: Mapping[str, str]) -> dict[str, str]:
    """What JAX has to find in the environment: this many CPU devices, and threads for them. None: what there is."""
    changes = {"NPROC": str(max(THREADS, 4 * (devices or 1)))}
    if devices is not None:
        changes["XLA_FLAGS"] = " ".join([*xla_flags(given), f"{DEVICE_COUNT}={devices}"])
    if given.get("JAX_PLATFORMS", "").startswith("proxy"):  # set for the user's programs, not for this one
        changes["JAX_PLATFORMS"] = given["JAX_PLATFORMS"].partition(",")[2] or "cpu"
    if "TF_CPP_MIN_LOG_LEVEL" not in given:  # errors of clients' programs are told to the clients
        changes["TF_CPP_MIN_LOG_LEVEL"] = "3"
    return changes


def variables(address: str) -> dict[str, str]:
    """What a JAX program has to find in its environment."""
    return {
        "JAX_PLATFORMS": "proxy,cpu",
        "JAX_BACKEND_TARGET": f"grpc://{address}",
        "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
    }


def run_door(
    address: str,
    *,
    devices: int | None = None,
    rules: Rules = DEFAULT_RULES,
    trusted: bool = False,
    memory: int | None = None,
    persist: Path | None = None,
    ready: Callable[[str], None],
) -> None:
    """Serves until SIGTERM or SIGINT. `rules`: what programs may call, and what compiling them may take; `trusted`:
    they are compiled in this process; `memory`: bytes of arrays that a session may have, None: half of
    the machine's for CPU devices; `persist`: the folder below which they may have files written; `ready` is told the
    address. Raises ListenRefused."""
    os.environ.update(environment(devices, os.environ))

    async def serve() -> None:
        from ..local import LocalDevices, on_loop

        stop, threads = told_to_stop(), int(os.environ["NPROC"])
        local = LocalDevices(on_loop(), count=devices, rules=rules, trusted=trusted, threads=threads)

        def devices_of_session() -> LocalDevices:
            local.warm()
            return local

        limits = replace(_limits(memory, local), persist=persist)
        transport = TransportLimits(arriving_bytes=limits.host_bytes)
        server = await listen_for_clients(opening(devices_of_session, limits), address, limits=transport)
        collect_rarely()
        try:
            ready(server.address)
            await stop.wait()
        finally:
            server.close()
            local.end()

    run(serve())


def _limits(memory: int | None, devices: SessionDevices) -> SessionLimits:
    """What a session may have. Accelerators say themselves when their memory is full."""
    if memory is None:
        memory = machine_bytes() // 2 if devices.platform.name == "cpu" else SessionLimits.array_bytes
    return SessionLimits(array_bytes=memory, host_bytes=min(SessionLimits.host_bytes, machine_bytes() // 2))


def machine_bytes() -> int:
    """Memory of this machine, or of the container that this process is in."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            found = min(found, int(Path(path).read_text(encoding="ascii")))
    return found


def run_cluster_door(
    address: str, options: ServedCluster, *, more: Collection[str] = (), persist: Path | None = None,
    ready: Callable[[str], None], watch: WatchOf | None = None,
) -> None:  # fmt: skip
    """The same with the devices of a cluster. `watch`: makes what a new session tells of its calls. Raises
    ListenRefused, ClusterRefused."""
    os.environ.update(environment(None, os.environ))
    run(_serve_cluster(address, options, more, SessionLimits(persist=persist), ready, watch))


async def _serve_cluster(
    address: str, options: ServedCluster, more: Collection[str], limits: SessionLimits, ready: Callable[[str], None],
    watch: WatchOf | None,
) -> None:  # fmt: skip
    from ..cluster import ClusterSessions, RemoteSource, find_cluster

    loop, stop = asyncio.get_running_loop(), told_to_stop()
    head = Head(options.address, options.access)
    try:
        finding, stopping = loop.create_task(find_cluster(head, options)), loop.create_task(stop.wait())
        await asyncio.wait((finding, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            finding.cancel()
            return
        described, islands = await finding
        sessions = ClusterSessions(RemoteSource(head, described, options, islands), more, limits, watch)
        await serve_until(stop, {address: sessions}, ready)
    finally:
        await head.close()


async def serve_until(
    stop: asyncio.Event, sessions: Mapping[str, ClusterSessions], ready: Callable[[str], None]
) -> None:
    """Serves programs at these addresses until `stop` is set, and ends their sessions. Raises ListenRefused."""
    servers: list[DoorServer] = []
    try:
        for address, each in sessions.items():
            servers.append(await listen_for_clients(each, address))
        collect_rarely()
        for server in servers:
            ready(server.address)
        await stop.wait()
    finally:
        for server in servers:
            server.close()
        for each in sessions.values():
            await each.end()


def told_to_stop() -> asyncio.Event:
    """Set by SIGTERM and Ctrl-C."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
