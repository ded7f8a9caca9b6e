"""JAX's coordination service as a process of its own, so that the death of a host does not end its island's others.

`python -m backend.coordination.service --members N` prints the port where members meet (`meeting`) and serves
until its standard input closes. JAX has no public way to run the service apart from member 0; `serve` uses internals.

Neither port checks tokens, and the service speaks plain gRPC (see docs/security.md): let only members reach them.
"""

import argparse
import asyncio
import importlib
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..process_title import show_as
from .rendezvous import LONGEST, Rendezvous

# heartbeats are off: core's leases tell which members are alive; see `pjrt.world`
FOREVER_S = 10**8
SHUTDOWN_S = 1  # members leave at any time, and do not wait for each other


def options() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m backend.coordination.service",
        description="The coordination service of one collective world. Prints its port; ends with its standard input.",
    )
    found.add_argument("--world", default="", metavar="NAME", help="the world's name, for `ps`")
    found.add_argument("--members", type=int, required=True, help="how many processes will join")
    found.add_argument(
        "--bind", default="127.0.0.1", metavar="ADDRESS", help="where to listen: an address, or address:port"
    )
    return found


def address_and_port(bind: str) -> tuple[str, int]:
    address, colon, port = bind.rpartition(":")
    if not colon or bind.endswith("]"):
        address, port = bind, "0"
    return address, int(port)


def hold_port(address: str) -> socket.socket:
    """JAX's service cannot report which port it got: so this holds a port that both sockets may bind."""
    held = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind((address.strip("[]"), 0))
    return held


def serve(address: str, members: int) -> Any:
    inside: Any = importlib.import_module("jaxlib._jax")
    return inside.get_distributed_runtime_service(
        address, members, heartbeat_timeout=FOREVER_S, cluster_register_timeout=FOREVER_S,
        shutdown_timeout=SHUTDOWN_S, recoverable=True,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    chosen = options().parse_args(words)
    if chosen.members < 1:
        print(f"coordination: --members {chosen.members}: a world has at least one", file=sys.stderr)
        return 2
    try:
        address, port = address_and_port(chosen.bind)
        held = hold_port(address)
        service_port = held.getsockname()[1]
        service = serve(f"{address}:{service_port}", chosen.members)  # noqa: F841 - serves while this reference exists
        held.close()
        show_as("coordination", words)
        with suppress(KeyboardInterrupt):  # a terminal's Ctrl-C reaches this process, too; its parent ends it
            asyncio.run(meet(address, port, Rendezvous(chosen.members, service_port)))
    except (OSError, ValueError) as error:
        print(f"coordination: --bind {chosen.bind}: {error}", file=sys.stderr)
        return 2
    # At once, without shutting `service` down: an orderly shutdown tells the members, and JAX aborts them.
    os._exit(0)


async def meet(address: str, port: int, meeting: Rendezvous) -> None:
    """Serves the meeting until the standard input closes."""
    server = await asyncio.start_server(meeting.come, address.strip("[]"), port, limit=LONGEST)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    sys.exit(main())
