"""A process of the gRPC driver: an endpoint in an asyncio loop, its streams to others, its one timer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import grpc
import grpc.aio
import msgspec

from core import effects as e
from core import peers, wire
from core.dataplane import Chunk
from core.endpoint import ConnectionDown, ConnectionUp, Dial, Endpoint, Hang, Hello, PacketCame, Write

from .ends import host_name

STREAM = "/seaway.Skeleton/Stream"  # between any two processes
KEEP = "/seaway.Skeleton/Keep"  # a client leaves code with the controller's process, ...
FIND = "/seaway.Skeleton/Find"  # ... and hosts find it there, by the hash of its contents
LOOPBACK = "127.0.0.1:0"
CONTROLLER = "controller"
OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.so_reuseport", 0)]


class Parcel(msgspec.Struct, frozen=True, array_like=True):
    """What the driver puts on a stream."""


class Packet(Parcel, frozen=True, tag=1):
    packet: bytes
    contents: bytes = b""  # of a chunk


class Address(Parcel, frozen=True, tag=2):
    """Where a name is. It goes ahead, on one stream, of the messages that use it."""

    name: str
    address: str


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Packet | Address).decode
Read = Callable[[], Awaitable[Any]]
Put = Callable[[bytes], Awaitable[Any]]


def service(path: str, handler: grpc.RpcMethodHandler) -> grpc.GenericRpcHandler:
    _, kind, method = path.split("/")
    return grpc.method_handlers_generic_handler(kind, {method: handler})


def world_name(island: int, epoch: int) -> str:
    return f"world/{island}/{epoch}"


def peer_name(peer: int) -> str:
    """Of those who are dialled."""
    return CONTROLLER if peer == peers.CONTROLLER else host_name(peer)


class Node:
    """`perform` carries out what is no affair of connections; `contents` gives the bytes of a chunk that
    leaves. `me`: by which number a peer that we dial is to call us; `met`: a peer has come, and where it can
    be reached."""

    def __init__(
        self, endpoint: Endpoint, perform: Callable[[Any], None], me: Callable[[int], int],
        contents: Callable[[Chunk], bytes] = lambda chunk: b"",
        met: Callable[[int, str], None] = lambda peer, address: None,
    ) -> None:  # fmt: skip
        self.endpoint, self._perform, self._contents = endpoint, perform, contents
        self._me, self._met = me, met
        self.loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[None] = self.loop.create_future()
        self.server = grpc.aio.server(options=OPTIONS)
        self.address = ""
        self.directory: dict[str, str] = {}  # where a name is
        self._announced: dict[str, str] = {}
        self.cargo = b""  # contents of the chunk that is being taken
        self._outboxes: dict[int, asyncio.Queue[bytes | None]] = {}
        self._wanted: dict[int, asyncio.Task[None]] = {}  # peers that we dial
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._encoded: tuple[msgspec.Struct | None, bytes] = (None, b"")

    # --- life -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        handler = grpc.stream_stream_rpc_method_handler(self._accept)
        self.server.add_generic_rpc_handlers([service(STREAM, handler)])
        self.address = f"127.0.0.1:{self.server.add_insecure_port(LOOPBACK)}"
        await self.server.start()
        self._obey(self.endpoint.start(self.now()))

    async def stop(self) -> None:
        for task in (*self._tasks, *self._wanted.values()):
            task.cancel()
        await self.server.stop(grace=0)

    def task(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def unless_it_fails(self, work: Coroutine[Any, Any, Any]) -> None:
        wait: list[asyncio.Future[Any]] = [asyncio.ensure_future(work), self.failure]
        await asyncio.wait(wait, return_when=asyncio.FIRST_COMPLETED)
        if self.failure.done():
            self.failure.result()

    def fail(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)

    @staticmethod
    def now() -> int:
        return time.monotonic_ns()

    # --- the machine ----------------------------------------------------------------------------------------

    def post(self, event: e.Effect) -> None:
        """From any thread."""
        self.loop.call_soon_threadsafe(self.feed, event)

    def feed(self, event: e.Effect) -> None:
        if self.failure.done():
            return
        try:
            self._obey(self.endpoint.handle(event, self.now()))
        except Exception as error:
            self.fail(error)

    def _obey(self, effects: list[e.Effect]) -> None:
        for effect in effects:
            match effect:
                case Write():
                    self._write(effect)
                case Dial(peer):
                    if peer not in self._wanted:
                        self._wanted[peer] = asyncio.create_task(self._dial(peer))
                case Hang(peer):
                    self._wanted.pop(peer, None)
                    if peer in self._outboxes:
                        self._outboxes[peer].put_nowait(None)
                case _:
                    self._perform(effect)
        if self._timer:
            self._timer.cancel()
        at = self.endpoint.next_wakeup()
        if at is not None:
            delay = max(0, at - self.now()) / 1e9
            self._timer = self.loop.call_later(delay, self.feed, e.Wakeup())

    def _write(self, write: Write) -> None:
        outbox, packet = self._outboxes.get(write.peer), write.packet
        if outbox is None:
            return  # a connection just lost: its ConnectionDown is on the way
        if isinstance(packet, Hello) or packet.message is None:
            parcel = Packet(wire.encode_packet(packet))
        else:
            if self._encoded[0] is not packet.message:
                self._encoded = packet.message, wire.encode(packet.message)
            contents = self._contents(packet.message) if isinstance(packet.message, Chunk) else b""
            parcel = Packet(wire.encode_packet(packet, self._encoded[1]), contents)
        outbox.put_nowait(_encode(parcel))

    # --- streams --------------------------------------------------------------------------------------------

    def announce(self, name: str, address: str) -> None:
        """To all, now and later."""
        self._announced[name] = address
        for outbox in self._outboxes.values():
            outbox.put_nowait(_encode(Address(name, address)))

    async def _accept(self, _: object, context: grpc.aio.ServicerContext) -> None:
        said = dict(context.invocation_metadata() or ())
        peer = int(said["peer"])
        self._met(peer, str(said["address"]))
        await self._talk(peer, context.read, context.write)

    async def _dial(self, peer: int) -> None:
        while self._wanted.get(peer) is asyncio.current_task():
            if address := self.directory.get(peer_name(peer)):
                said = (("peer", str(self._me(peer))), ("address", self.address))
                async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
                    call = channel.stream_stream(STREAM)(metadata=said)
                    await self._talk(peer, call.read, call.write)
            await asyncio.sleep(0.05)

    async def _talk(self, peer: int, read: Read, put: Put) -> None:
        """The life of one connection, whoever dialled."""
        outbox = self._outboxes[peer] = asyncio.Queue()
        for name, address in self._announced.items():
            outbox.put_nowait(_encode(Address(name, address)))
        self.feed(ConnectionUp(peer))
        work = self._send(put, outbox), self._read(peer, read, outbox)
        ends = [asyncio.create_task(each) for each in work]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            if self._outboxes.get(peer) is outbox:
                del self._outboxes[peer]
                self.feed(ConnectionDown(peer))

    @staticmethod
    async def _send(put: Put, outbox: asyncio.Queue[bytes | None]) -> None:
        while (data := await outbox.get()) is not None:
            await put(data)

    async def _read(self, peer: int, read: Read, outbox: object) -> None:
        while (data := await read()) is not grpc.aio.EOF and self._outboxes.get(peer) is outbox:
            try:
                parcel = _decode(data)
                if isinstance(parcel, Packet):
                    self.cargo = parcel.contents
                    self.feed(PacketCame(peer, wire.decode_packet(parcel.packet)))
                else:
                    self.directory[parcel.name] = parcel.address
            except (wire.Unreadable, msgspec.DecodeError) as error:
                self.feed(e.Malformed(peer, str(error)))
