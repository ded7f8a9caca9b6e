"""This machine's address at which other hosts reach it directly, for what JAX itself listens to.

Others may reach an agent through a proxy or a translated address, which `--advertise` names; but what JAX opens takes
any port, so nothing can be put before it. Neighbours: `agent`; `pjrt.gloo`, which listens.
"""

from __future__ import annotations

import logging
import socket
from contextlib import suppress

from ..auth import is_loopback

log = logging.getLogger("seaway.agent")


def direct_address(advertised: str, bind: str, controller: str) -> str:
    """The first of these that is an address of this machine: what the agent advertises, where it listens, and from
    where it reaches the controller. A name that the machine has for itself alone (127.0.1.1, on Debian) is none."""
    for named in (advertised, bind.rpartition(":")[0]):
        found = _own(named.strip("[]"))
        if found:
            break
    else:
        found = _towards(controller)
    if not is_loopback(f"{advertised}:0") and _own(advertised.strip("[]")) != found:
        log.warning(
            "%s, where others reach this agent, is no address of this machine. Collectives between CPU hosts do not go "
            "through it: they listen at %s, on ports of their own, and other hosts of the island must reach that",
            advertised, found,
        )  # fmt: skip
    return found


def _own(name: str) -> str:
    """The numeric address for this name, if sockets can be bound to it and others may know it; else ""."""
    if not name:
        return ""
    with suppress(OSError):
        for family, kind, protocol, _, place in socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM):
            address = str(place[0])
            local = is_loopback(f"[{address}]:0")
            if address in ("0.0.0.0", "::") or (local and not is_loopback(f"{name}:0")):
                continue
            with suppress(OSError), socket.socket(family, kind, protocol) as trial:
                trial.bind(place)
                return address
    return ""


def _towards(controller: str) -> str:
    """The address from which this machine reaches the controller."""
    host, _, port = controller.rpartition(":")
    with suppress(OSError):
        for family, kind, protocol, _, place in socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_DGRAM
        ):
            with suppress(OSError), socket.socket(family, kind, protocol) as trial:
                trial.connect(place)  # a datagram's: nothing is sent
                return str(trial.getsockname()[0])
    return "127.0.0.1"
