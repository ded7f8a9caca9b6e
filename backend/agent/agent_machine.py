"""What an agent has to know of its machine: its place in a TPU slice, its own address, and how it keeps memory.

The place is known by the environment variables of Cloud TPU, GKE and Slurm:

TPU_WORKER_ID          this host's rank in its slice
TPU_WORKER_HOSTNAMES   all hosts of the slice, in order of their ranks
MEGASCALE_SLICE_ID     which slice, if there are several
SLURM_PROCID           the rank, if Slurm started this process
"""

import ctypes
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from ..auth import AccessRefused, is_loopback

log = logging.getLogger("seaway.agent")


class TpuSeat(NamedTuple):
    """A host's place. rank: within the slice, which is an island; -1: unknown."""

    rank: int = -1
    island: str = ""


def seat(env: Mapping[str, str] = os.environ) -> TpuSeat:
    """This host's place. Raises Refused if the variables contradict each other."""
    rank = _number(env, "TPU_WORKER_ID")
    if rank < 0:
        return TpuSeat(_number(env, "SLURM_PROCID"))
    names = [name for name in env.get("TPU_WORKER_HOSTNAMES", "").split(",") if name.strip()]
    if names and rank >= len(names):
        raise AccessRefused(f"TPU_WORKER_ID is {rank}, but TPU_WORKER_HOSTNAMES names only {len(names)} hosts")
    number = _number(env, "MEGASCALE_SLICE_ID")
    return TpuSeat(rank, f"slice{number}" if number >= 0 else "")


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "").strip()
    if not text:
        return -1
    if not text.isdigit():
        raise AccessRefused(f"{name}={text!r} is no whole number")
    return int(text)


# --- its address ---------------------------------------------------------------------------------------------------


def direct_address(advertised: str, bind: str, controller: str) -> str:
    """Where other hosts reach what JAX itself listens to: on any port, so that no proxy can be put before it. The first
    of these that is an address of this machine: what the agent advertises, where it listens, and from where it reaches
    the controller. A name that the machine has for itself alone (127.0.1.1, on Debian) is none."""
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
        for family, kind, protocol, _, place in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM):
            with suppress(OSError), socket.socket(family, kind, protocol) as trial:
                trial.connect(place)  # a datagram's: nothing is sent
                return str(trial.getsockname()[0])
    return "127.0.0.1"


# --- its memory ----------------------------------------------------------------------------------------------------

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)
SETTINGS = {
    MMAP_THRESHOLD: 32 << 20,  # smaller blocks come from a heap; this is the largest value that glibc allows
    TOP_PAD: 16 << 20,  # free memory at the top of a thread's heap that is kept
    TRIM_THRESHOLD: 1 << 30,  # free memory at the end of the first heap that is kept
}
OWN = ("MALLOC_", "GLIBC_TUNABLES")  # if a variable with such a name is set, the user's settings hold


def keep_what_is_freed(environment: Mapping[str, str] = os.environ) -> bool:
    """Makes this process keep the memory that it frees, up to the most that was in use at one time. glibc gives it back
    to the system, so the next gangs would write to pages that were never used, each with a page fault: products of
    matrices took 0.83 to 0.9 of the time without that, sums of arrays 0.71 to 0.75. Call it before there are other
    threads. False: there is no glibc, or the user has set how memory is kept."""
    if any(name.startswith(OWN) for name in environment):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(mallopt(what, value) == 1 for what, value in SETTINGS.items())
