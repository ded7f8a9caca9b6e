"""One of core's machines on the network: its endpoint in an asyncio loop, its streams, its one timer, its lock.

    user's thread, device threads --feed, post--> Node --Write--> outbox --sender--> gRPC stream, or a near Lane
    gRPC stream --reader--> PacketReceived --> Node --other commands--> perform

Any thread may call `feed`: the machine is only used under `lock`. Connections live in the loop. A stream is one gRPC
call, which either end may have begun; the endpoint decides which end dials.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import grpc
import grpc.aio
import msgspec

from core.link import (
    ConnectionDown,
    ConnectionUp,
    Dial,
    Endpoint,
    Frame,
    HangUp,
    Hello,
    PacketReceived,
    PeerMoved,
    Write,
)
from core.link import codec as wire
from core.protocol import CONTROLLER, Chunk
from core.protocol import effects as e

from ..auth import OPTIONS, SLICE, Access, Busy, RefusalLogger, TurnGate
from ..wire import Address, Packet, envelopes, versions
from . import calls
from .loopback import LoopbackLane
from .send_queue import Load, SendQueue
from .traffic import Traffic

STREAM = "/seaway.Node/Stream"
RETRY = 0.05  # seconds between attempts to reach a peer, at first
RETRY_MOST = 1.0
GOODBYE = 2.0  # seconds for the last messages on a connection that is given up: its peer may never read them
REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, versions.OTHER)

Read = Callable[[], Awaitable[Any]]
Put = Callable[[bytes], Awaitable[Any]]


class Names(Protocol):
    """The names of processes on streams: a driver knows them, and core does not."""

    def mine(self, peer: int) -> tuple[str, str]:
        """The name that this process uses towards a peer that it dials, and the proof of it."""

    def name_of(self, peer: int) -> str:
        """The name of a peer that this process dials, as in the directory."""

    def peer_of(self, name: str, proof: str) -> int | None:
        """The peer that calls under this name; None if the name or its proof is wrong."""

    def beside(self, peer: int, message: msgspec.Struct) -> list[envelopes.Any]:
        """What must precede a message on the same stream."""


class NetworkNode:
    """`perform` carries out commands that do not concern connections, under the lock. `contents` returns a
    function that reads the bytes of a chunk to send; it runs in a copying thread. `found` is told of each new
    connection."""

    def __init__(
        self, endpoint: Endpoint, perform: Callable[[Any], None], names: Names, *, access: Access,
        contents: Callable[[Chunk], Load] = lambda chunk: bytes, failed: Callable[[BaseException], None],
        door: RefusalLogger | None = None, gate: TurnGate | None = None,
        found: Callable[[int], None] = lambda peer: None,
    ) -> None:  # fmt: skip
        self.door, self.gate = door or RefusalLogger(), gate or TurnGate()
        self.endpoint, self._perform, self._contents = endpoint, perform, contents
        self.names, self.access, self._failed, self._found = names, access, failed, found
        self.lock = threading.RLock()
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        # the name that asyncio's debug mode uses
        self.loop._thread_id = self._thread  # type: ignore[attr-defined]
        self.directory: dict[str, str] = {}
        self.near: dict[str, NetworkNode] = {}  # nodes of this loop, by name: reached without a stream
        self.passes: dict[str, str] = {}  # passes that this process was given: name -> proof
        self.cargo = b""
        self.carried = [0, 0]  # bytes of contents: received, sent
        self.traffic = Traffic()
        self._announced: dict[str, str] = {}
        self._outboxes: dict[int, SendQueue | LoopbackLane] = {}
        self._wanted: dict[int, asyncio.Task[None]] = {}
        self._dialled: set[int] = set()  # peers to which this process began the stream
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due: int | None = None
        self._encoded: tuple[msgspec.Struct | None, bytes] = (None, b"")
        self.stopped = False

    # --- life -----------------------------------------------------------------------------------------------

    def serve(self, server: grpc.aio.Server) -> None:
        """Lets this server accept streams of other processes."""
        handler = grpc.stream_stream_rpc_method_handler(self._accept)
        _, service, method = STREAM.split("/")
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])

    def start(self) -> None:
        with self.lock:
            self._carry_out(self.endpoint.start(self.now()))

    async def stop(self) -> None:
        self.stopped = True
        if self._timer:
            self._timer.cancel()
        for outbox in self._outboxes.values():
            outbox.over.set()
        tasks = [*self._tasks, *self._wanted.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()
        self.door.close()
        self.gate.close()

    def task(self, work: Any) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed(task.exception())  # type: ignore[arg-type]

    @staticmethod
    def now() -> int:
        return time.monotonic_ns()

    # --- the machine ----------------------------------------------------------------------------------------

    def post(self, event: e.Event) -> None:
        if not self.stopped:
            self.loop.call_soon_threadsafe(self.feed, event)

    def feed(self, event: e.Event) -> None:
        if self.stopped:
            return
        try:
            with self.lock:
                self._carry_out(self.endpoint.handle(event, self.now()))
        except Exception as error:
            self._failed(error)

    def _carry_out(self, effects: list[e.Command]) -> None:
        for effect in effects:
            match effect:
                case Write():
                    self._write(effect)
                case Dial(peer):
                    self._in_loop(self._want, peer)
                case HangUp(peer, reason, breach):
                    self._in_loop(self._hang, peer, reason, breach)
                case _:
                    self._perform(effect)
        due = self.endpoint.next_wakeup()
        if due is not None and due != self._due:
            self._due = due
            self._in_loop(self._arm)

    def _in_loop(self, act: Callable[..., Any], *arguments: Any) -> None:
        if threading.get_ident() == self._thread:
            act(*arguments)
        else:
            self.loop.call_soon_threadsafe(act, *arguments)

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
        due = self._due  # the latest request, from any thread
        if due is not None and not self.stopped:
            self._timer = self.loop.call_later(max(0, due - self.now()) / 1e9, self._ring)

    def _ring(self) -> None:
        self._due = None
        self.feed(e.Wakeup())

    def _write(self, write: Write) -> None:
        outbox, packet = self._outboxes.get(write.peer), write.packet
        if outbox is None:
            return  # the connection was just lost: its ConnectionDown is on the way
        if isinstance(outbox, LoopbackLane):
            if isinstance(packet, Frame) and packet.message is not None:
                for parcel in self.names.beside(write.peer, packet.message):
                    outbox.put(parcel)
                self.traffic.said_near(packet.message)
            outbox.put(packet)
            return
        if isinstance(packet, Hello) or packet.message is None:
            outbox.put(Packet(wire.encode_packet(packet)))
            return
        message = packet.message
        for parcel in self.names.beside(write.peer, message):
            outbox.put(parcel)
        first = self._encoded[0] is not message
        if first:
            self._encoded = message, wire.encode(message)
        self.traffic.ordered(message, first)
        load = self._contents(message) if isinstance(message, Chunk) else None
        if isinstance(message, Chunk):
            self.carried[1] += message.nbytes
        outbox.put(Packet(wire.encode_packet(packet, self._encoded[1])), load)

    def connected(self, peer: int) -> bool:
        outbox = self._outboxes.get(peer)
        return outbox is not None and not outbox.hung

    # --- streams --------------------------------------------------------------------------------------------

    def announce(self, name: str, address: str) -> None:
        """Tells an address to all peers, now and when they connect later."""
        with self.lock:
            self.directory[name] = self._announced[name] = address
            for outbox in self._outboxes.values():
                outbox.put(Address(name, address))

    def _want(self, peer: int) -> None:
        if peer not in self._wanted and not self.stopped:
            self._wanted[peer] = self.loop.create_task(self._dial(peer))

    def _hang(self, peer: int, reason: str = "", breach: str = "") -> None:
        self._wanted.pop(peer, None)
        outbox = self._outboxes.get(peer)
        if breach:
            at, called = (
                (outbox.address, outbox.called) if isinstance(outbox, SendQueue) else ("", f"peer {peer}")
            )
            self.door.refuse(breach, at or "this process", called, reason)
        if outbox is not None:
            outbox.hung = True
            outbox.put(None)
            self.loop.call_later(GOODBYE, outbox.over.set)

    async def _accept(self, _: object, context: calls.Context) -> None:
        said, at = calls.shown_in(context), context.peer()
        called = f"a stream as {said.get('name', '')!r}"
        known = self.access.accepts(said)
        try:
            async with self.gate.turn(at, strange=not known):
                peer = await self._admitted(said, at, called, known, context)
        except Busy as busy:
            await calls.refuse(self.door, context, at, "busy", called, str(busy), calls.FULL)
        outbox = SendQueue(self.loop, at, called)
        try:
            await self._talk(peer, context.read, context.write, GOODBYE, outbox)
        finally:
            if outbox.silent and said["name"].startswith("who/"):  # every Seaway process begins with a Hello
                why = f"it ended before its first message: {calls.LARGE}"
                self.door.refuse("oversized", at, called, why)

    async def _admitted(
        self, said: dict[str, str], at: str, called: str, known: bool, context: calls.Context
    ) -> int:
        """The peer that opens a stream; refuses the stream if the caller may not."""
        name, refuse = said.get("name", ""), partial(calls.refuse, self.door, context, at)
        peer = self.names.peer_of(name, said.get("proof", "")) if known else None
        if not known:
            await refuse("token", called, calls.NO_TOKEN, grpc.StatusCode.UNAUTHENTICATED)
        elif peer is None:
            await refuse(
                "name", called, f"no process here is called {name!r}", grpc.StatusCode.PERMISSION_DENIED
            )
        elif other := versions.refusal(said):
            await refuse("version", called, other, versions.OTHER)
        elif peer in self._dialled and self.connected(peer) and self.endpoint.keeps_ours(peer):
            await refuse(
                "duplicate", called, f"{name!r} has a stream from here", grpc.StatusCode.ALREADY_EXISTS
            )
        else:
            return peer
        raise AssertionError("refused")

    async def _dial(self, peer: int) -> None:
        pause = RETRY
        while self._wanted.get(peer) is asyncio.current_task() and not self.stopped:
            called = self.names.name_of(peer)
            address, near = self.directory.get(called), self.near.get(called)
            begun = time.monotonic()
            if self.connected(peer):
                pass  # by a stream that the peer began
            elif near is not None:
                if not near.stopped:
                    await self._connect_near(peer, near)
            elif address:
                name, proof = self.names.mine(peer)
                shown = (("name", name), ("proof", proof), *self.access.shown())
                call = self._channel(address).stream_stream(STREAM)(metadata=shown)
                try:
                    await call.wait_for_connection()
                    if not self.connected(peer) or self.endpoint.keeps_ours(peer):
                        self._dialled.add(peer)
                        await self._talk(
                            peer, call.read, call.write, 0, SendQueue(self.loop, address, called)
                        )
                except grpc.aio.AioRpcError as error:
                    if peer == CONTROLLER and error.code() in REFUSED:
                        self._failed(PermissionError(f"{address} refuses us: {error.details()}"))
                finally:
                    self._dialled.discard(peer)
                    call.cancel()
            pause = RETRY if time.monotonic() - begun > RETRY_MOST else min(2 * pause, RETRY_MOST)
            await asyncio.sleep(pause)

    def _channel(self, address: str) -> grpc.aio.Channel:
        found = self._channels.get(address)
        if found is None:
            found = self._channels[address] = self.access.channel(address)
        return found

    async def _talk(self, peer: int, read: Read, put: Put, grace: float, outbox: SendQueue) -> None:
        """Runs one connection, from either end, until it is over. `grace`: seconds for a message that is half
        written. A call that came to us cannot be ended in the middle of a message: the caller would wait for its
        end for ever."""
        self._up(peer, outbox)
        ends = [
            asyncio.ensure_future(self._send(put, outbox)),
            asyncio.ensure_future(self._read(peer, read, outbox)),
            asyncio.ensure_future(outbox.over.wait()),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._down(peer, outbox)  # at once: gRPC may cancel this task again, in any `await` below
            outbox.over.set()
            try:
                if outbox.writing and grace:
                    await asyncio.wait(ends[:1], timeout=grace)
            finally:
                for end in ends:
                    end.cancel()
                await asyncio.gather(*ends, return_exceptions=True)

    async def _connect_near(self, peer: int, near: NetworkNode) -> None:
        """Runs a connection with a node of the same loop, which identifies this node as it would on a stream."""
        us = near.names.peer_of(*self.names.mine(peer))
        if us is None:
            self._failed(PermissionError(f"{self.names.mine(peer)[0]!r} is not known to that node"))
            return
        there = LoopbackLane(self.loop, lambda parcel: near._take_near(us, here, parcel))
        here = LoopbackLane(self.loop, lambda parcel: self._take_near(peer, there, parcel))
        near._up(us, here)
        self._up(peer, there)
        ends = [asyncio.ensure_future(lane.over.wait()) for lane in (here, there)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for lane, end in zip((here, there), ends, strict=True):
                lane.over.set()
                end.cancel()
            near._down(us, here)
            self._down(peer, there)

    def _up(self, peer: int, outbox: SendQueue | LoopbackLane) -> None:
        with self.lock:
            before = self._outboxes.get(peer)
            if before is not None:
                before.over.set()  # the peer has given up the old connection
            self._outboxes[peer] = outbox
            for name, address in self._announced.items():
                outbox.put(Address(name, address))
        self.feed(ConnectionUp(peer))
        self._found(peer)

    def _down(self, peer: int, outbox: SendQueue | LoopbackLane) -> None:
        with self.lock:
            current = self._outboxes.get(peer) is outbox
            if current:
                del self._outboxes[peer]
        if current:
            self.feed(ConnectionDown(peer))

    def _take_near(self, peer: int, back: LoopbackLane, parcel: Any) -> bool:
        if self._outboxes.get(peer) is not back or self.stopped:
            return False
        if isinstance(parcel, (Frame, Hello)):
            self.traffic.near_in += isinstance(parcel, Frame) and parcel.message is not None
            self.feed(PacketReceived(peer, parcel))
        else:
            self._take(peer, parcel)
        return True

    async def _send(self, put: Put, outbox: SendQueue) -> None:
        while not outbox.over.is_set() and (batch := await outbox.take()):
            data = envelopes.encode(batch)
            self.traffic.wrote(len(batch), len(data))
            outbox.writing = True
            await put(data)
            outbox.writing = False
            if pause := outbox.pause(len(batch), len(data)):
                await asyncio.sleep(pause)

    async def _read(self, peer: int, read: Read, outbox: SendQueue) -> None:
        """Reads messages. A talkative peer takes at most SLICE of the loop, or one parcel: then others have a
        turn."""
        while self._outboxes.get(peer) is outbox and (data := await read()) is not grpc.aio.EOF:
            try:
                begun, outbox.silent = time.monotonic_ns(), False
                batch = envelopes.decode(data)
                self.traffic.took(len(batch), len(data))
                for parcel in batch:
                    if time.monotonic_ns() - begun > SLICE:
                        await asyncio.sleep(0)
                        begun = time.monotonic_ns()
                        if self._outboxes.get(peer) is not outbox:
                            return
                    self._take(peer, parcel)
            except wire.Unreadable as error:
                self.feed(e.Malformed(peer, str(error)))
                return

    def _take(self, peer: int, parcel: envelopes.Any) -> None:
        if isinstance(parcel, Packet):
            packet = wire.decode_packet(parcel.packet)
            with self.lock:
                self.cargo = parcel.contents
                self.carried[0] += len(parcel.contents)
                self.traffic.heard(getattr(packet, "message", None))
                self.feed(PacketReceived(peer, packet))
                self.cargo = b""
        elif peer != CONTROLLER:
            self.feed(e.Malformed(peer, f"only the controller sends a {type(parcel).__name__}"))
        elif isinstance(parcel, Address):
            self._learn(parcel.name, parcel.address)
        else:
            self.passes[parcel.name] = parcel.proof

    def _learn(self, name: str, address: str) -> None:
        """Takes in an address. A host that started again elsewhere will not read the link of its old process: that
        link ends now, and not a lease later. A host that has connected to us meanwhile has a new link already."""
        before = self.directory.get(name, address)
        self.directory[name] = address
        kind, _, number = name.partition("/")
        if before == address or kind != "host":
            return
        peer = int(number)
        if self.endpoint.linked(peer) and (peer in self._dialled or not self.connected(peer)):
            self.feed(PeerMoved(peer))


def new_server() -> grpc.aio.Server:
    return grpc.aio.server(options=OPTIONS)
