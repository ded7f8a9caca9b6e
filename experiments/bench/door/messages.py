"""Measures what a message costs the door's transport, against the library h2 in its place, and grpcio.

`python -m experiments.bench messages`. gRPC's own client sends messages as large as an Execute's on a stream, at most
`AHEAD` of them unanswered, and each is answered with as much as an acknowledgement. So a server reads about one message
at a time, as from a JAX program that calls in a loop. Each server is a process of its own, and they take turns. "CPU us
a message" is all CPU time of the process, from a warm-up's end on: reading, answering, and writing.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import grpc
import grpc.aio
import h2.config
import h2.connection
import h2.events
import h2.settings

from backend.admin import Children
from backend.door import (
    PREFIX,
    SERVICE,
    SESSION_METADATA,
    GrpcIfrtSessionMetadata,
    IfrtProxyVersion,
    SessionCallbacks,
    SessionLink,
    Version,
    listen_for_clients,
)
from backend.streams import new_loop

from ..frame import options
from ..frame.options import Table
from ..frame.processes import heard, in_turns, say, start

WARM, MESSAGES, ROUNDS = 500, 3_000, 5
AHEAD = 8
REQUEST, ANSWER = bytes(150), bytes(20)
METHOD = SERVICE + "IfrtSession"
ENOUGH = 1.5  # times the CPU time of ours for which a library would do
VERSION = IfrtProxyVersion(protocol_version=25, ifrt_serdes_version_number=6)
SHOWN = ((SESSION_METADATA, GrpcIfrtSessionMetadata(version=VERSION).SerializeToString()),)


class Meter:
    """Counts messages; the CPU time of those after the warm-up, once all have come."""

    def __init__(self, messages: int) -> None:
        self._left, self._messages = WARM + messages, messages
        self._begun = 0.0

    def count(self) -> None:
        self._left -= 1
        if self._left == self._messages:
            self._begun = process_time()
        elif not self._left:
            say({"us": (process_time() - self._begun) * 1e6 / self._messages})


# --- servers, each in a process of its own ----------------------------------------------------------------------------


def ours(address: str, messages: int) -> None:
    class Acknowledging:
        busy = False

        def __init__(self, version: Version, initialization: bytes, link: SessionLink) -> None:
            self.link, self.callbacks = link, SessionCallbacks()

        def receive(self, request: bytes) -> None:
            self.link.send(ANSWER)
            meter.count()

        def store(self, handle: int, data: bytes | bytearray | memoryview) -> None: ...
        def lookup(self, handle: int) -> None: ...
        def forget(self, handle: int) -> None: ...
        def ended(self, why: str) -> None: ...

    meter = Meter(messages)
    serve(lambda: listen_for_clients(Acknowledging, address))


class WithH2(asyncio.Protocol):
    """The least gRPC server of one method on the library h2."""

    def __init__(self, meter: Meter) -> None:
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        self._meter = meter
        self._buffer = bytearray()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._h2.initiate_connection()
        self._h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
        transport.write(self._h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self._h2.send_headers(event.stream_id, [(b":status", b"200"), (b"content-type", b"application/grpc")])
            elif isinstance(event, h2.events.DataReceived):
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                self._messages(event.stream_id, event.data or b"")
        self._transport.write(self._h2.data_to_send())

    def _messages(self, stream: int, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= PREFIX.size:
            _, size = PREFIX.unpack_from(self._buffer)
            if len(self._buffer) < PREFIX.size + size:
                break
            del self._buffer[: PREFIX.size + size]
            self._h2.send_data(stream, PREFIX.pack(0, len(ANSWER)) + ANSWER)
            self._meter.count()


def with_h2(address: str, messages: int) -> None:
    meter = Meter(messages)
    path = address.removeprefix("unix:")
    serve(lambda: asyncio.get_running_loop().create_unix_server(lambda: WithH2(meter), path))


def grpc_aio(address: str, messages: int) -> None:
    meter = Meter(messages)

    async def acknowledge(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
        async for _ in requests:
            meter.count()  # before the answer: after the last one the client may have gone
            yield ANSWER

    async def begin() -> object:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Only(acknowledge),))
        server.add_insecure_port(address)
        await server.start()
        return server

    serve(begin)


class Only(grpc.GenericRpcHandler):  # type: ignore[misc]
    """One method of messages to and fro, as bytes."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._method) if details.method == METHOD else None


def serve(begin: Callable[[], Awaitable[object]]) -> None:
    """Serves until the standard input closes."""

    async def work() -> None:
        kept = await begin()
        say({})
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        del kept

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work())


SERVERS: Mapping[str, Callable[[str, int], None]] = {"ours": ours, "h2 (library)": with_h2, "grpcio": grpc_aio}


# --- the client -------------------------------------------------------------------------------------------------------


def cost(server: str, messages: int) -> float:
    """CPU microseconds a message."""
    with tempfile.TemporaryDirectory() as folder:
        children, address = Children(Path(folder)), f"unix:{folder}/socket"
        child = start(children, SERVERS[server], address, messages, name=f"server-{messages}", until_told=True)
        try:
            heard(child)
            send(address, WARM + messages)
            return float(heard(child)["us"])
        finally:
            children.end_all()


def send(address: str, count: int) -> None:
    room = threading.Semaphore(AHEAD)

    def requests() -> Iterator[bytes]:
        for _ in range(count):
            room.acquire()
            yield REQUEST

    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(METHOD)(requests(), metadata=SHOWN)
        for answers, _ in enumerate(call, 1):
            room.release()
            if answers == count:
                break
        call.cancel()


def main(arguments: Sequence[str] = ()) -> None:
    parser = options.parser("messages", __doc__)
    parser.number("--rounds", ROUNDS, "turns of all servers, for medians")
    parser.number("--messages", MESSAGES, "that are measured in each turn", at_least=100)
    chosen = parser.read(arguments)
    works = {name: (lambda name=name: cost(name, chosen.messages)) for name in SERVERS}
    found = {name: median(each) for name, each in in_turns(chosen.rounds, works).items()}
    table = Table("server <14", "CPU us a message >18.1f", "x ours >9.2fx").begin()
    for name, us in found.items():
        table.row(name, us, us / found["ours"])
    library = found["h2 (library)"] / found["ours"]
    print(f"h2 costs {library:.1f} times as much as ours; {ENOUGH} times would be good enough to use it")
