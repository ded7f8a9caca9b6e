"""Sockets of streams: connected, listening, and set as streams need them.

An address is host:port, with brackets around an IPv6 host, or `unix:` and a path. Neighbours: `dialling`, `listener`.
"""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

BACKLOG = 1024  # connections that wait to be taken
IDLE, AGAIN, TRIES = 20, 5, 3  # seconds of silence until TCP asks if the other machine is there; how often


async def connected(loop: asyncio.AbstractEventLoop, address: str) -> socket.socket:
    """A socket that is connected to this address. Raises OSError."""
    if address.startswith("unix:"):
        found: list[tuple[int, Any]] = [(socket.AF_UNIX, address.removeprefix("unix:"))]
    else:
        port = address.rpartition(":")[2]
        infos = await loop.getaddrinfo(machine_of(address), port, type=socket.SOCK_STREAM)
        found = [(family, place) for family, _, _, _, place in infos]
    for number, (family, place) in enumerate(found):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            as_it_should_be(sock)
            await loop.sock_connect(sock, place)
            return sock
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError) or number == len(found) - 1:
                raise
    raise OSError(f"{address} is no address of a machine")


def machine_of(address: str) -> str:
    """The host of an address, for which a certificate has to be; a Unix socket is on this machine."""
    return "localhost" if address.startswith("unix:") else address.rpartition(":")[0].strip("[]")


def as_it_should_be(sock: socket.socket) -> None:
    """Small messages go at once; a machine that has gone without a word is noticed."""
    sock.setblocking(False)
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", IDLE), ("TCP_KEEPINTVL", AGAIN), ("TCP_KEEPCNT", TRIES)):
        with suppress(AttributeError, OSError):  # not every system has them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def end_unacknowledged(sock: socket.socket, seconds: float) -> None:
    """The system ends the connection when the other machine has not taken for so long what was written."""
    if sock.family != socket.AF_UNIX:
        with suppress(AttributeError, OSError):  # not every system has it
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))


def listening(address: str) -> socket.socket:
    """A socket that listens at this address. Raises OSError."""
    family: int
    at: Any
    if address.startswith("unix:"):
        family, at = socket.AF_UNIX, address.removeprefix("unix:")
        _remove_left(at)
    else:
        host, _, port = address.rpartition(":")
        found = socket.getaddrinfo(
            host.strip("[]") or None, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, at = found[0]
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:  # the port of a process that has just ended is free
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(at)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    made.setblocking(False)
    return made


def _remove_left(path: str) -> None:
    """Removes the socket of a process that has ended without removing it."""
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX) as tried:
        try:
            tried.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
        except OSError:
            pass  # whether it may be used is seen next


def named(family: int, place: Any) -> str:
    """A peer's address as gRPC writes it."""
    if family == socket.AF_UNIX:
        return "unix:"
    host, port = place[:2]
    return f"ipv6:%5B{host}%5D:{port}" if family == socket.AF_INET6 else f"ipv4:{host}:{port}"
