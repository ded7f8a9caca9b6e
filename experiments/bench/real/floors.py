"""Measures what this machine allows at best: messages without core, JAX's call by itself, and both without Seaway.

`python -m experiments.bench floors [--hosts 2] [--repeats 5]`. Where `real` misses an aim, these say how much of it is
ours.

1. A message of 150 bytes to another process and its echo: over Seaway's streams, and over a socket whose ends block.
2. A computation of one small array on one device, enqueued in each of the ways that JAX has, from the public one to
   the runtime's own.
3. Fig 5's step on several hosts with the least controller: it sends a number a gang over a socket, and each member of
   a JAX world enqueues a step for each number and answers. Compare it with `real`'s OpByOp.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from backend.admin import Child, Children, cpu_of
from backend.auth import Access, RefusalLogger, TurnGate
from backend.streams import Connection, Listener, dial, run
from backend.wire import framing

from ..frame import options, processes
from ..frame.jax_world import JaxWorld
from ..frame.table import Table
from .real import WINDOW, step

MESSAGE = bytes(150)
MESSAGES = 20_000  # of a measurement; a tenth of them with one under way
CALLS = 3_000
STEPS = 4_096
NUMBER = 8  # bytes


class Echoed(NamedTuple):
    """Microseconds of a message and its echo: by the clock, and CPU at either end."""

    clock: float
    here: float
    there: float


# --- messages ---------------------------------------------------------------------------------------------------------


def echo_streams() -> None:
    """Echoes what comes on a stream, in the loop of an agent, as an agent answers."""

    async def work() -> None:
        listener = Listener(Access(), RefusalLogger(), TurnGate())
        address = listener.open("127.0.0.1:0")

        def accept(peer: int, connection: Connection) -> None:
            def arrived() -> None:
                while (frame := connection.next()) is not None:
                    connection.put(framing.PACKET, frame.message)
                connection.flush()

            connection.start(arrived)

        listener.start(lambda opening, connection: 0, accept)
        processes.say(address=address)
        await asyncio.Event().wait()

    run(work())


def echo_sockets() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        processes.say(address=server.getsockname()[1])
        caller, _ = server.accept()
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := caller.recv(1 << 16):
            caller.sendall(data)


class Stream:
    """The other end of `echo_streams`: any thread writes, a loop in a thread of its own reads, as a user's session."""

    def __init__(self, address: str) -> None:
        self._came = threading.Semaphore(0)
        ready = threading.Event()
        threading.Thread(target=run, args=(self._run(address, ready),), daemon=True).start()
        ready.wait()

    async def _run(self, address: str, ready: threading.Event) -> None:
        self._connection = await dial(address, Access(), "bench", "")
        self._connection.start(self._arrived)
        ready.set()
        await asyncio.Event().wait()

    def _arrived(self) -> None:
        while self._connection.next() is not None:
            self._came.release()

    def say(self) -> None:
        self._connection.put(framing.PACKET, MESSAGE)
        self._connection.flush()

    def hear(self) -> None:
        self._came.acquire()


class Socket:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = 0  # bytes that have come beyond the last message

    def say(self) -> None:
        self._socket.sendall(MESSAGE)

    def hear(self) -> None:
        while self._rest < len(MESSAGE):
            self._rest += len(self._socket.recv(1 << 16))
        self._rest -= len(MESSAGE)


def echoed(end: Stream | Socket, child: Child, ahead: int, messages: int) -> Echoed:
    begun, here, there = time.perf_counter(), time.process_time(), cpu_of(child.pid)
    for number in range(messages):
        end.say()
        if number >= ahead - 1:
            end.hear()
    for _ in range(min(ahead - 1, messages)):
        end.hear()
    took = time.perf_counter() - begun, time.process_time() - here, (cpu_of(child.pid) - there) / 1e9
    return Echoed(*(each * 1e6 / messages for each in took))


@contextmanager
def started() -> Iterator[Children]:
    with TemporaryDirectory() as folder:
        children = Children(Path(folder))
        try:
            yield children
        finally:
            children.end_all()


def show_messages(repeats: int) -> None:
    columns = (" <34", "under way >10", "us >8.1f", "CPU here >9.1f", "CPU there >10.1f")
    table = Table(*columns).begin(f"a message of {len(MESSAGE)} bytes and its echo; medians of {repeats}")
    ends: list[tuple[str, Callable[[], None], Callable[[Any], Stream | Socket]]] = [
        ("Seaway's streams", echo_streams, Stream),
        ("a socket, both ends block", echo_sockets, Socket),
    ]
    for name, echo, opened in ends:
        with started() as children:
            child = processes.start(children, echo)
            end = opened(processes.heard(child)["address"])
            for ahead in (1, 64):
                count = MESSAGES // 10 if ahead == 1 else MESSAGES
                found = [echoed(end, child, ahead, count) for _ in range(repeats)]
                table.row(name, ahead, *(statistics.median(each) for each in zip(*found, strict=True)))


# --- JAX's call -------------------------------------------------------------------------------------------------------


def jax_calls(repeats: int) -> dict[str, float]:
    """Microseconds of a call, by the way in which it is made, each with the last one's result."""
    import jax

    x = jax.device_put(np.zeros(4, np.float32), jax.devices()[0])
    jitted = jax.jit(lambda x: x + 1)
    compiled: Any = jitted.lower(x).compile()
    inner: Any = compiled._executable
    ways: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "jitted(x)": (x, jitted),
        "Compiled.__call__ (ours)": (x, compiled),
        "MeshExecutable.call": (x, lambda x: inner.call(x)[0]),
        "its unsafe_call": (x, lambda x: inner.unsafe_call(x)[0]),
        "LoadedExecutable.execute_sharded": (
            [x], lambda arrays: inner.xla_executable.execute_sharded(arrays).consume_with_handlers([list])[0]
        ),
    }  # fmt: skip
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, (first, call) in ways.items():
            value, begun = first, time.perf_counter()
            for _ in range(CALLS):
                value = call(value)
            if turn:
                found[name].append((time.perf_counter() - begun) * 1e6 / CALLS)
    return {name: statistics.median(each) for name, each in found.items()}


def show_calls(repeats: int) -> None:
    found = processes.answer(jax_calls, repeats, env=processes.environment(1), bound=120.0)
    table = Table("a computation of one small array >34", "us a call >10.1f").begin()
    for name, took in found.items():
        table.row(name, took)


# --- both, without Seaway ---------------------------------------------------------------------------------------------


def member(address: str, rank: int, count: int, port: int) -> None:
    """A host with the least agent: it enqueues a step for each number that comes, and answers."""
    world = JaxWorld(address, rank, count)
    x = world.array(np.zeros(world.devices, np.float32))
    work = world.compiled(step, x)
    with socket.create_connection(("127.0.0.1", port)) as controller:
        controller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := controller.recv(1 << 16):
            for _ in range(len(data) // NUMBER):
                x = work(x)
            x.block_until_ready()
            controller.sendall(data)
    processes.say(done=True)
    processes.leave()


def least(hosts: int, steps: int, repeats: int) -> list[float]:
    """Steps a second of the least controller, with as many under way as in `real`."""
    with socket.create_server(("127.0.0.1", 0), backlog=hosts) as server:
        port, rates = server.getsockname()[1], list[float]()

        def control() -> None:
            members = [server.accept()[0] for _ in range(hosts)]
            for each in members:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for turn in range(repeats + 1):
                begun = time.perf_counter()
                order(members, steps)
                if turn:
                    rates.append(steps / (time.perf_counter() - begun))
            for each in members:
                each.close()

        thread = threading.Thread(target=control, daemon=True)
        thread.start()
        processes.answers(member, hosts, processes.environment(1), (port,), bound=240.0)
        thread.join()
        return rates


def order(members: Sequence[socket.socket], steps: int) -> None:
    """Sends a number a step to all members, and waits for theirs."""
    sent, ended = 0, [0] * len(members)
    while min(ended) < steps:
        room = min(WINDOW - (sent - min(ended)), steps - sent)
        if room:
            for each in members:
                each.sendall(bytes(NUMBER * room))
            sent += room
        slowest = ended.index(min(ended))
        ended[slowest] += len(members[slowest].recv(1 << 16)) // NUMBER


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("floors", __doc__)
    parser.number("--hosts", 2, "hosts of the least controller")
    parser.number("--repeats", 5, "measurements for a median")
    chosen = parser.read(arguments)
    show_messages(chosen.repeats)
    show_calls(chosen.repeats)
    rates = least(chosen.hosts, STEPS, chosen.repeats)
    print(
        f"the least controller, {chosen.hosts} hosts of one device: {statistics.median(rates):,.0f} steps/s"
    )
