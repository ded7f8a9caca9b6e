"""The baseline of `transfers`: sends bytes over one TCP connection between two processes, with nothing around them.

Both ends block. The receiver receives into one array and answers each with one byte, and then the sender sends the
next. So this is the least time of a hop on this machine.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from backend.admin import Children

from ..frame import processes

DONE = b"k"


def receiver(sizes: list[int], times: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        processes.say(port=server.getsockname()[1])
        caller, _ = server.accept()
        with caller:
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for size in sizes:
                room = memoryview(bytearray(size))
                for _ in range(times + 1):
                    came = 0
                    while came < size:
                        came += caller.recv_into(room[came:])
                    caller.sendall(DONE)


def sender(port: int, sizes: list[int], chunk: int, times: int) -> list[list[float]]:
    found: list[list[float]] = []
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for size in sizes:
            content = memoryview(b"x" * size)
            found.append([])
            for turn in range(times + 1):
                begun = time.perf_counter()
                for at in range(0, size, chunk):
                    sock.sendall(content[at : at + chunk])
                assert sock.recv(1) == DONE
                if turn:
                    found[-1].append(time.perf_counter() - begun)
    return found


def hops(sizes: Sequence[int], chunk: int, times: int) -> dict[int, list[float]]:
    """Seconds of each hop, by size in bytes, without the first of each size."""
    with TemporaryDirectory() as folder:
        children = Children(Path(folder))
        try:
            port = processes.heard(processes.start(children, receiver, list(sizes), times))["port"]
            sent = processes.start(children, sender, port, list(sizes), chunk, times)
            return dict(zip(sizes, processes.heard(sent), strict=True))
        finally:
            children.end_all()
