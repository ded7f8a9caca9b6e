"""One of core's machines on the network: its endpoint in an asyncio loop, its streams, its one timer, its lock.

    user's thread, device threads --feed, post--> Node --Write--> Connection, or a NearLane
    Connection, when bytes have come --> PacketReceived --> Node --other commands--> perform

Any thread may call `feed`: the machine is only used under `lock`. What a turn of the machine says is written when the
turn is over, in the same thread: one call of the system for each connection. Connections are read in the loop. Either
end may have begun a stream; the endpoint decides which end dials.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from core.link import (
    ConnectionDown,
    ConnectionUp,
    Dial,
    Endpoint,
    Hand,
    HangUp,
    Hello,
    NearDown,
    NearUp,
    PacketReceived,
    PeerMoved,
    Write,
)
from core.link import codec as wire
from core.protocol import CONTROLLER, Chunk, end_of
from core.protocol import effects as e

from ..auth import READING, SLICE, Access, RefusalLogger, TurnGate
from ..streams import Connection, LentReading, Load, StreamRefused, dial
from ..wire import Address, Opening, Pass, framing, versions
from .near_lane import NearLane
from .traffic import Traffic

log = logging.getLogger("seaway.node")
RETRY = 0.05  # seconds between attempts to reach a peer, at first
RETRY_MOST = 1.0  # ... and at last, or half of what an attempt may take
GOODBYE = 2.0  # seconds for the last messages on a connection that is given up: its peer may never read them
REFUSED = ("token", "name", "version")  # by the controller: it would say the same again
T = TypeVar("T")


class Names(Protocol):
    """The names of processes on streams: a driver knows them, and core does not."""

    def mine(self, peer: int) -> tuple[str, str]:
        """The name that this process uses towards a peer that it dials, and the proof of it."""

    def name_of(self, peer: int) -> str:
        """The name of a peer that this process dials, as in the directory."""

    def peer_of(self, name: str, proof: str) -> int | None:
        """The peer that calls under this name; None if the name or its proof is wrong."""

    def beside(self, peer: int, message: msgspec.Struct) -> list[Address | Pass]:
        """What must precede a message on the same stream."""


class NetworkNode:
    """`perform` carries out commands that do not concern connections, under the lock. `contents` returns
    the bytes of a chunk to send, or a function that reads them, in a copying thread. `room` says where those of a chunk
    that comes belong, if that is known, under the lock. `found` hears of connections."""

    def __init__(
        self, endpoint: Endpoint, perform: Callable[[Any], None], names: Names, *, access: Access,
        failed: Callable[[BaseException], None],
        contents: Callable[[Chunk], Load | framing.Contents] = lambda chunk: b"",
        room: Callable[[Chunk], memoryview | None] = lambda chunk: None,
        refusals: RefusalLogger | None = None, gate: TurnGate | None = None,
        found: Callable[[int], None] = lambda peer: None,
    ) -> None:  # fmt: skip
        self.refusals, self.gate = refusals or RefusalLogger(), gate or TurnGate()
        self.endpoint, self._perform, self._contents, self._room = endpoint, perform, contents, room
        self.names, self.access, self._failed, self._found = names, access, failed, found
        self.lock = threading.RLock()
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.directory: dict[str, str] = {}
        self.near: dict[str, NetworkNode] = {}  # nodes of this process, by name: reached without a stream
        self.passes: dict[str, str] = {}  # passes that this process was given: name -> proof
        self.contents: framing.Contents = b""
        self.carried = [0, 0]  # bytes of contents: received, sent
        self.traffic = Traffic()
        self._announced: dict[str, str] = {}
        self._outboxes: dict[int, Connection | NearLane] = {}
        self._written: list[Connection | NearLane] = []  # to be flushed when the turn is over
        self._urgent: Connection | None = None  # to be flushed before: contents that somebody may wait for
        self._turns = 0  # how many turns of the machine are inside each other
        self._behind: deque[e.Event] = deque()  # what follows from the commands of this turn
        self._readers = set[int]()  # threads that take frames: what these cause is written behind the last
        self._lent: dict[int, LentReading] = {}  # streams that another thread reads when it has nothing to do
        self._wanted: dict[int, asyncio.Task[None]] = {}
        self._dialled: dict[int, Connection] = {}  # streams that this process began
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due: int | None = None
        self._armed: int | None = None  # for when the timer is set: later requests wait until it rings
        self._encoded: tuple[msgspec.Struct | None, bytes] = (None, b"")
        self.patient = False  # what this turn says to a near peer may wait for the loop
        self.stopped = False

    # --- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        with self.lock:
            self._carry_out(self.endpoint.start(self.now()))

    async def stop(self) -> None:
        self.stopped = True
        if self._timer:
            self._timer.cancel()
        tasks = [*self._tasks, *self._wanted.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for outbox in list(self._outboxes.values()):
            outbox.close("this process ends")
        self.refusals.close()
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
        with self.lock:
            self._turns += 1
            try:
                self._carry_out(self.endpoint.handle(event, time.monotonic_ns()))
                while self._behind:
                    self._carry_out(self.endpoint.handle(self._behind.popleft(), time.monotonic_ns()))
            except Exception as error:
                self._failed(error)
            finally:
                self._turns -= 1
                written = self._to_flush() if self._written else ()
        for outbox in written:
            outbox.flush()

    def follow(self, event: e.Event) -> None:
        """Feeds an event behind the commands that this thread carries out, if it does: before what they say is sent."""
        with self.lock:
            if self._turns:
                self._behind.append(event)
            else:
                self.feed(event)

    def turn(self, act: Callable[..., T], *arguments: Any) -> T:
        """Calls `act` under the lock; then writes what it has said."""
        self._begin_turn()
        try:
            return act(*arguments)
        finally:
            self._end_turn()

    def _begin_turn(self) -> None:
        self.lock.acquire()
        self._turns += 1

    def _end_turn(self) -> None:
        self._turns -= 1
        written = self._to_flush()
        self.lock.release()
        for outbox in written:
            outbox.flush()

    def _to_flush(self) -> Sequence[Connection | NearLane]:
        """What is to be flushed when the lock has been released: nothing, if this turn is inside another one, or this
        thread takes further frames."""
        if self._turns or threading.get_ident() in self._readers:
            return ()
        written, self._written = self._written, []
        urgent, self._urgent = self._urgent, None
        return written if urgent is None else [urgent, *written]

    def _carry_out(self, effects: list[e.Command]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Write:
                self._write(effect)  # type: ignore[arg-type]
            elif kind is Hand:
                self._hand(effect)  # type: ignore[arg-type]
            elif isinstance(effect, Dial):
                self._in_loop(self._want, effect.peer)
            elif isinstance(effect, HangUp):
                self._in_loop(self._hang, effect.peer, effect.reason, effect.breach)
            else:
                self._perform(effect)
        due = self._due = self.endpoint.next_wakeup()
        if due is not None and (self._armed is None or due < self._armed):
            self._armed = due
            self._in_loop(self._arm)

    def soon(self, act: Callable[[], Any]) -> None:
        """Calls `act` in the loop, from any thread. From the loop's own, this needs no call of the system."""
        if threading.get_ident() == self._thread:
            self.loop.call_soon(act)
        else:
            self.loop.call_soon_threadsafe(act)

    def _in_loop(self, act: Callable[..., Any], *arguments: Any) -> None:
        if threading.get_ident() == self._thread:
            act(*arguments)
        else:
            self.loop.call_soon_threadsafe(act, *arguments)

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
        armed = self._armed  # the earliest request, from any thread
        if armed is not None and not self.stopped:
            self._timer = self.loop.call_later(max(0, armed - self.now()) / 1e9, self._ring)

    def _ring(self) -> None:
        with self.lock:
            due = self._armed = self._due
            if due is not None and due > self.now():  # what the timer was set for has been put off
                self._arm()
                return
            self._armed = None
        self.feed(e.Wakeup())

    def _write(self, write: Write) -> None:
        outbox, packet = self._outboxes.get(write.peer), write.packet
        if outbox is None:
            return  # the connection was just lost: its ConnectionDown is on the way
        assert isinstance(outbox, Connection)
        self._written.append(outbox)
        if isinstance(packet, Hello) or packet.message is None:
            outbox.put(framing.PACKET, wire.encode_packet(packet))
            return
        message = packet.message
        for said in self.names.beside(write.peer, message):
            outbox.mention(said)
        first = self._encoded[0] is not message
        if first:
            self._encoded = message, wire.encode(message)
        self.traffic.ordered(message, first)
        contents: Load | framing.Contents = b""
        if isinstance(message, Chunk):
            contents = self._contents(message)
            self.carried[1] += message.nbytes
            self._urgent = self._urgent or outbox
        outbox.put(framing.PACKET, wire.encode_packet(packet, self._encoded[1]), contents)

    def _hand(self, hand: Hand) -> None:
        outbox = self._outboxes.get(hand.peer)
        if isinstance(outbox, NearLane):
            self._written.append(outbox)
            for said in self.names.beside(hand.peer, hand.message):
                outbox.put(said)
            self.traffic.said_near(hand.message)
            outbox.patient = self.patient
            outbox.put(hand.message)

    def connected(self, peer: int) -> bool:
        outbox = self._outboxes.get(peer)
        return outbox is not None and not outbox.hung

    # --- streams --------------------------------------------------------------------------------------------

    def announce(self, name: str, address: str) -> None:
        """Tells an address to all peers, now and when they connect later."""
        with self.lock:
            self.directory[name] = self._announced[name] = address
            for outbox in self._outboxes.values():
                outbox.say(Address(name, address))

    def _want(self, peer: int) -> None:
        if peer not in self._wanted and not self.stopped:
            self._wanted[peer] = self.loop.create_task(self._dial(peer))

    def _hang(self, peer: int, reason: str = "", breach: str = "") -> None:
        self._wanted.pop(peer, None)
        outbox = self._outboxes.get(peer)
        if breach:
            at, called = (outbox.address, outbox.called) if isinstance(outbox, Connection) else ("", f"peer {peer}")
            self.refusals.refuse(breach, at or "this process", called, reason)
        if outbox is not None:
            outbox.end()
            self.loop.call_later(GOODBYE, outbox.close)

    def admit(self, opening: Opening, connection: Connection) -> int:
        """The peer that opens a stream to us. Raises StreamRefused if it may not."""
        name = opening.name
        peer = self.names.peer_of(name, opening.proof)
        if peer is None:
            raise StreamRefused("name", f"no process here is called {name!r}")
        if other := versions.refusal({versions.HEADER: opening.version}):
            raise StreamRefused("version", other)
        if peer in self._dialled and self.connected(peer) and self.endpoint.keeps_ours(peer):
            raise StreamRefused("duplicate", f"{name!r} has a stream from here")
        return peer

    def accept(self, peer: int, connection: Connection) -> None:
        """Takes a stream that was admitted."""
        if self.stopped:
            connection.close()
            return
        self.loop.call_later(READING, self._said_something, connection)
        self._run(peer, connection)

    def _said_something(self, connection: Connection) -> None:
        """Every process of Seaway begins with a Hello."""
        if connection.silent and not connection.over.is_set():
            why = f"it said nothing for {READING:g} s"
            self.refusals.refuse("malformed", connection.address, connection.called, why)
            connection.close(why)

    async def _dial(self, peer: int) -> None:
        pause, most = RETRY, min(RETRY_MOST, self.endpoint.attempt / 2e9)
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
                await self._connect(peer, address, called)
            pause = RETRY if time.monotonic() - begun > most else min(2 * pause, most)
            await asyncio.sleep(pause)

    async def _connect(self, peer: int, address: str, called: str) -> None:
        """Opens a stream and stays until it is over."""
        name, proof = self.names.mine(peer)
        try:
            connection = await dial(
                address, self.access, name, proof, called=called, within=self.endpoint.attempt / 1e9
            )
        except StreamRefused as refused:
            if peer == CONTROLLER and refused.kind in REFUSED:
                self._failed(PermissionError(f"{address} refuses us: {refused}"))
            return
        except (OSError, wire.Unreadable) as error:
            log.debug("%s at %s is not reached: %s", called, address, error)
            return
        try:
            wanted = self._wanted.get(peer) is asyncio.current_task()  # it may have been hung up meanwhile
            if wanted and (not self.connected(peer) or self.endpoint.keeps_ours(peer)):
                self._dialled[peer] = connection
                self._run(peer, connection)
                await connection.over.wait()
        finally:
            if self._dialled.get(peer) is connection:
                del self._dialled[peer]
            connection.close()

    def _run(self, peer: int, connection: Connection) -> None:
        """Runs one connection, from either end, until it is over."""
        connection.ended = lambda: self._down(peer, connection)
        connection.wrote = self.traffic.wrote
        connection.reader.room_for = lambda message, nbytes: self._room_for(peer, message, nbytes)
        self._up(peer, connection)
        connection.start(lambda: self._arrived(peer, connection), self.endpoint.unacknowledged / 1e9)
        if (lent := self._lent.get(peer)) is not None:
            lent.offer(connection)

    def lend(self, peer: int, lent: LentReading) -> None:
        """Lends the streams to this peer, from now on."""
        self._lent[peer] = lent

    async def _connect_near(self, peer: int, near: NetworkNode) -> None:
        """Runs lanes to and from a node of this process, which identifies this node as it would on a stream."""
        us = near.names.peer_of(*self.names.mine(peer))
        if us is None:
            self._failed(PermissionError(f"{self.names.mine(peer)[0]!r} is not known to that node"))
            return
        there = NearLane(self.loop, lambda said: near._take_near(us, here, said))
        here = NearLane(self.loop, lambda said: self._take_near(peer, there, said))
        here.put(NearUp(peer))
        there.put(NearUp(us))
        near._up(us, here)
        self._up(peer, there)
        there.flush()
        here.flush()
        ends = [asyncio.ensure_future(lane.over.wait()) for lane in (here, there)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for lane, end in zip((here, there), ends, strict=True):
                lane.over.set()
                end.cancel()
            near._down(us, here)
            self._down(peer, there)

    def _up(self, peer: int, outbox: Connection | NearLane) -> None:
        with self.lock:
            before = self._outboxes.get(peer)
            self._outboxes[peer] = outbox
            for name, address in self._announced.items():
                outbox.say(Address(name, address))
        if before is not None:
            before.close("the peer has given it up")
        if isinstance(outbox, Connection):
            self.feed(ConnectionUp(peer))
        self._found(peer)

    def _down(self, peer: int, outbox: Connection | NearLane) -> None:
        with self.lock:
            current = self._outboxes.get(peer) is outbox
            if current:
                del self._outboxes[peer]
        if current:
            self.feed(ConnectionDown(peer) if isinstance(outbox, Connection) else NearDown(peer))

    def _take_near(self, peer: int, back: NearLane, said: Any) -> bool:
        if self._outboxes.get(peer) is not back or self.stopped:
            return False
        if isinstance(said, NearUp):
            self.feed(said)
        elif isinstance(said, (Address, Pass)):
            self._hear(peer, said)
        else:
            self.traffic.near_in += 1
            self.feed(e.MessageReceived(peer, said))
        return True

    def _arrived(self, peer: int, connection: Connection) -> None:
        """Takes the frames that have come. After SLICE, or one frame that takes longer, others have a turn."""
        begun, number, nbytes = time.monotonic_ns(), 0, 0
        me, hurried = threading.get_ident(), False
        self._readers.add(me)
        try:
            while (frame := connection.next()) is not None:
                self._take(peer, frame)
                if not hurried and (urgent := self._urgent) is not None:
                    hurried = True  # contents that follow from others of these frames are written with the rest
                    urgent.flush()
                number += 1
                nbytes += len(frame.message) + len(frame.contents)
                if time.monotonic_ns() - begun > SLICE:
                    connection.rest_for_others()
                    break
        except framing.TooLarge as error:
            self.refusals.refuse("oversized", connection.address, connection.called, str(error))
            connection.close(str(error))
        except wire.Unreadable as error:
            self.feed(e.Malformed(peer, str(error)))
        finally:
            self._readers.discard(me)
            if number:
                connection.silent = False
                self.traffic.took(number, nbytes)
            self._begin_turn()
            self._end_turn()  # writes

    def _room_for(self, peer: int, message: bytes, nbytes: int) -> memoryview | None:
        """Contents of a transfer that is open here are received where they belong; only its sender may write there."""
        try:
            chunk = getattr(wire.decode_packet(message), "message", None)
        except wire.Unreadable:
            return None  # that is found when all has come
        if type(chunk) is not Chunk or chunk.nbytes != nbytes or chunk.sender != end_of(peer):
            return None
        with self.lock:
            return self._room(chunk)

    def _take(self, peer: int, frame: framing.StreamFrame) -> None:
        if frame.kind == framing.PACKET:
            packet = wire.decode_packet(frame.message)
            with self.lock:
                self.contents = frame.contents
                self.carried[0] += len(frame.contents)
                self.traffic.heard(getattr(packet, "message", None))
                self.feed(PacketReceived(peer, packet))
                self.contents = b""
        elif frame.kind in (framing.ADDRESS, framing.PASS):
            self._hear(peer, framing.read(frame.kind, frame.message))
        else:
            raise wire.Unreadable(f"a frame of kind {frame.kind} has no place within a stream")

    def _hear(self, peer: int, said: Any) -> None:
        """Takes in what a driver says to another one."""
        if peer != CONTROLLER:
            self.feed(e.Malformed(peer, f"only the controller sends a {type(said).__name__}"))
        elif isinstance(said, Address):
            self._learn(said.name, said.address)
        else:
            self.passes[said.name] = said.proof

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
