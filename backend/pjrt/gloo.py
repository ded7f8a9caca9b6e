"""Gloo, which carries the collectives of CPU hosts: the address where it listens, and its connections.

JAX lets Gloo listen at what the machine's own name resolves to. That is 127.0.1.1 on a stock Debian, where no other
machine reaches it; so Gloo is made here, with the address that the agent names.

A connection that is cut without a word gives no error: TCP waits for a quarter of an hour, and a receiver for ever. So
the kernel asks the peers for a sign of life, and ends a connection whose peer gives none for the length of the lease.
A computation may take as long as it likes, since the kernel answers for its process. Accepted connections inherit this
from the listener; those that Gloo opens are found in the kernel's table, some times in each lease.

When a world is over, its connections are ended: what waits in its collectives ends at once, and does not keep the
world's threads and memory. Only a collective that waits for a member which has not connected yet does not end so: as
long as there is one, connections are made in the place of such members. Gloo keeps what nobody awaits until its
listener is gone, with the world. Neighbour: `world`.
"""

import dataclasses
import importlib
import logging
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

log = logging.getLogger("seaway.pjrt")
OWN = Path("/proc/self")
KEYS = "seaway/gloo"  # where the members of a world name their listeners
LOOKS = 8  # in a lease: how often connections are looked for
SHARE = 8  # connections in the place of members take no more than this part of the files that may be open
MADE, TRIED, LISTENS = "01", "02", "0A"  # states, in the kernel's table


class TcpSocket(NamedTuple):
    """As the kernel's table writes it: the ends are `ADDRESS:PORT` in hexadecimal."""

    local: str
    remote: str
    state: str
    inode: str


class GlooConnections:
    """Those of one world. `address`: where this host listens. `lease`: seconds. `pairs`: how many connections a program
    over all of the world makes or awaits here."""

    def __init__(self, address: str, lease: float, pairs: int) -> None:
        self._address, self._lease, self._pairs = address, lease, pairs
        # connections that were made in the place of members, and are to be
        self._answered = self._answers = 0
        self._awaited: Collection[object] = ()
        self._mine = ""  # this host's listener; "" if there is none
        self._members: frozenset[str] = frozenset()  # those of all hosts
        self._protected: set[str] = set()
        self._made: set[str] = set()  # connections that there were
        self._tried: dict[str, float] = {}  # listeners that have not answered, and since when
        self._lost = False  # one of them was lost
        self._over = threading.Event()

    @contextmanager
    def used_by_jax(self, client: Any, rank: int) -> Iterator[None]:
        """If JAX makes a CPU backend in here, as it then does on all members, its collectives use these."""
        bridge: Any = importlib.import_module("jax._src.xla_bridge")
        factories = bridge._backend_factories
        usual = factories["cpu"]
        factories["cpu"] = dataclasses.replace(usual, factory=lambda: self._backend(bridge, client, rank))
        try:
            yield
        finally:
            factories["cpu"] = usual
        if self._mine:
            self._members = frozenset(listener for _, listener in client.key_value_dir_get(KEYS))
            threading.Thread(target=self._watch, name="gloo", daemon=True).start()

    def _backend(self, bridge: Any, client: Any, rank: int) -> Any:
        if bridge.config.cpu_collectives_implementation.value != "gloo":
            return bridge.make_cpu_client()
        before = {each.local for each in _sockets() if each.state == LISTENS}
        inside: Any = importlib.import_module("jaxlib._jax")
        made = inside.make_gloo_tcp_collectives(distributed_client=client, hostname=self._address)
        for each in _sockets():
            if each.state == LISTENS and each.local not in before and each.local.startswith(_written(self._address)):
                self._mine = each.local
                self._protect([each])
                client.key_value_set(f"{KEYS}/{rank}", self._mine)
        return bridge.make_cpu_client(made)

    def end(self, awaited: Collection[object]) -> None:
        """The world is over. `awaited`: what is still being computed in it; it is emptied as that ends."""
        ours = self._ours()
        made = len(self._made.union(each.inode for each in ours if each.state == MADE))
        # A program over N devices takes N numbers at each of this host's, and makes N - 1 connections.
        self._answers, self._awaited = 2 * made + self._pairs, awaited
        self._over.set()
        self._sever(ours)

    # --- the kernel's side ------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Runs until Gloo's listener is closed: then nothing of this world is left."""
        pause, turn = min(1.0, self._lease / LOOKS), 0
        while any(each.local == self._mine for each in _sockets() if each.state == LISTENS):
            ours = self._ours()
            if self._over.is_set():
                self._sever(ours)
                time.sleep(pause)
                turn += 1
                if self._awaited and not turn & (turn - 1):  # ever more seldom
                    self._answer()
                continue
            if not self._lost and self._broken(ours, time.monotonic()):
                log.warning("this host has lost a member of its world: the collectives of that world end")
                self._lost = True
            if self._lost:
                self._sever(ours)
            else:
                self._protect(ours)
            self._over.wait(pause)

    def _ours(self) -> list[TcpSocket]:
        return [
            each
            for each in _sockets()
            if each.state != LISTENS and (each.local == self._mine or each.remote in self._members)
        ]

    def _broken(self, ours: list[TcpSocket], now: float) -> bool:
        """Whether one of them was lost, or cannot be made. They last as long as the world: then it is to end, also for
        those who wait for another member, which has lost it."""
        made = {each.remote for each in ours if each.state == MADE}
        tried = {each.remote for each in ours if each.state == TRIED} - made
        self._tried = {remote: self._tried.get(remote, now) for remote in tried}
        closed = self._made - {_socket(number) for number in _numbers()}
        self._made |= {each.inode for each in ours if each.state == MADE}
        return bool(closed) or any(now - at > self._lease for at in self._tried.values())

    def _answer(self) -> None:
        """Connects to the listener in the place of members that have not, and closes at once: Gloo would wait for them
        for ever. A connection begins with the number under which it is awaited."""
        place = (self._address, int(self._mine.rpartition(":")[2], 16))
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE
        for number in range(self._answered, min(self._answers, most)):
            with suppress(OSError), socket.create_connection(place, 1.0) as connection:
                connection.sendall(struct.pack("=q", number))
        self._answered, self._answers = self._answers, self._answers + self._pairs

    def _protect(self, connections: Iterable[TcpSocket]) -> None:
        """Lets the kernel ask for signs of life, and end what gives none."""
        new = [each for each in connections if each.inode not in self._protected]
        every = max(1, round(self._lease / 4))
        for opened in _opened(new):
            with opened, suppress(OSError):
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * self._lease))
        self._protected.update(each.inode for each in new)

    @staticmethod
    def _sever(ours: list[TcpSocket]) -> None:
        for opened in _opened(ours):
            with opened, suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)


def _sockets() -> list[TcpSocket]:
    """The TCP sockets of this process, ours and those of libraries. Where there is no such table, nothing is found."""
    own = {_socket(number) for number in _numbers()}
    found = []
    for table in ("net/tcp", "net/tcp6"):
        with suppress(OSError):
            for line in (OWN / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[9] in own:
                    found.append(TcpSocket(words[1], words[2], words[3], words[9]))
    return found


def _numbers() -> list[str]:
    """The files that this process has open."""
    with suppress(OSError):
        return os.listdir(OWN / "fd")
    return []


def _socket(number: str) -> str:
    """The inode of the socket that is open under this number; "" if it is no socket, or was closed meanwhile."""
    with suppress(OSError):
        named = os.readlink(OWN / "fd" / number)
        return named[len("socket:[") : -1] if named.startswith("socket:[") else ""
    return ""


def _written(address: str) -> str:
    """An address as the table writes it, with a colon."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed)) + ":"


def _opened(connections: Iterable[TcpSocket]) -> Iterator[socket.socket]:
    """Them under other numbers, so that these stay what they are when Gloo closes its own."""
    wanted = {each.inode for each in connections}
    for number in _numbers() if wanted else ():
        if _socket(number) not in wanted:
            continue
        with suppress(OSError):  # it was closed meanwhile
            copy = os.dup(int(number))
            if _socket(str(copy)) in wanted:
                yield socket.socket(fileno=copy)
            else:
                os.close(copy)
