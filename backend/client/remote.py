"""One client's machine in a user's process: core's client and its share of the data plane, on a node of its own.

    user's threads --act--> core.client --> Node --> controller, hosts
    user's threads <--heard-- (commands, under the node's lock; in any thread that fed the machine)

Contents of puts are kept from `offer` until the hosts have them; contents of gets from their first chunk until
`taken`. Neighbours: `node`, `shard_io`; `calls`, for requests to the controller's process beside the stream.
"""

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
import numpy as np

from core.client import Client
from core.link import for_client
from core.model import Layout, ranges
from core.protocol import CONTROLLER, Chunk
from core.protocol import effects as e

from ..auth import Access
from ..contents import Array, ArraySink, ShardSource, Shelf, cut, hash_of
from ..node import NetworkNode, calls
from ..streams import Load
from ..wire import Address, Pass, call_messages, framing

log = logging.getLogger("seaway.remote")
T = TypeVar("T")
NAMELESS = -(1 << 40)  # the name of a client's machine to itself; no peer uses it
COPYING = 600.0  # seconds to wait for the offering thread to copy the contents
CALLS_MADE = e.CallsMade()
ROOM = 1 << 20  # bytes of a message that are not code
TRIES_S = (0.2, 0.5, 1.0, 2.0, 4.0)  # seconds to wait after each call that failed


class PutOffer:
    """The future contents of a buffer that was put: promised under the lock, copied outside it. `again`: they may
    be sent more than once."""

    __slots__ = ("_array", "_here", "again")

    def __init__(self, again: bool) -> None:
        self.again = again
        self._array: Array | None = None
        self._here = threading.Event()

    def give(self, array: Array | None) -> None:
        """Sets the contents, which may not be written to any more. None: there will be none."""
        self._array = array
        self._here.set()

    def array(self) -> Array | None:
        self._here.wait(COPYING)
        return self._array

    def shards(self, layout: Layout) -> Shelf:
        """All shards of the contents, as soon as these are given; called in a copying thread. Raises LookupError if
        there will be none."""
        array = self.array()
        if array is None:
            raise LookupError("hosts request contents that were never given")
        return cut(layout, np.asarray(array))


class Head:
    """The controller's process, for unary calls. One for all clients of a process; use it in their loop."""

    def __init__(self, address: str, access: Access) -> None:
        self.address, self.access = address, access
        self._channel = access.channel(address)
        self._kept: dict[str, bytes] = {}  # code by its hash; a restarted controller may not have it
        self._checking = False

    async def ask(self, request: msgspec.Struct, timeout: float = 30.0) -> Any:
        """The answer of the controller's process. Raises CallError."""
        return await calls.ask(self._channel, self.access, request, timeout)

    async def keep(self, blobs: Iterable[bytes]) -> None:
        """Leaves code with the controller, where hosts find it by its hash; called before the message that names
        it."""
        for blob in blobs:
            name = hash_of(blob)
            if name in self._kept:
                continue
            if len(blob) > framing.MESSAGE - ROOM:
                raise calls.CallError(
                    f"the code has {len(blob):,} bytes, and {framing.MESSAGE - ROOM:,} may travel: a large array "
                    f"that the function closes over is part of its code; pass it as an argument"
                )
            kept: call_messages.KeepReply = await self.ask(call_messages.Keep(blob))
            if kept.hash != name:
                raise calls.CallError(f"the controller kept code {name[:12]} as {kept.hash[:12]}")
            self._kept[name] = blob

    def forget(self, names: Iterable[str]) -> None:
        """Nobody in this process will run this code again."""
        for name in names:
            self._kept.pop(name, None)

    async def keep_again(self) -> None:
        """Leaves code again, after a reconnect: the controller may be a new process that has none of it."""
        if self._checking or not self._kept:
            return
        self._checking = True
        try:
            for pause in TRIES_S:
                try:
                    await self._keep_missing(list(self._kept))
                    return
                except calls.CallError as wrong:
                    log.info("cannot find out which code the controller lacks: %s", wrong)
                    await asyncio.sleep(pause)
        finally:
            self._checking = False

    async def _keep_missing(self, names: list[str]) -> None:
        for first in range(0, len(names), call_messages.MOST_HASHES):
            request = call_messages.Lacks(tuple(names[first : first + call_messages.MOST_HASHES]))
            found: call_messages.Lacking = await self.ask(request)
            for name in found.hashes:
                if (blob := self._kept.get(name)) is not None:  # it may have been forgotten meanwhile
                    await self.ask(call_messages.Keep(blob))

    async def close(self) -> None:
        await self._channel.close()


class Remote:
    """A client on a node; make it in the loop. `heard` gets the machine's commands for the user; it is called
    under the lock, and must not wait. `failed` gets an internal error, or that the controller refuses us: nothing
    will come after."""

    def __init__(
        self, client: Client, lease: int, head: Head, *,
        heard: Callable[[e.Command], None], failed: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self.client = client
        self._heard = heard
        endpoint = for_client(client, NAMELESS, 1, lease)
        self.node = NetworkNode(
            endpoint, self._perform, self, access=head.access, contents=self._contents, room=self._room,
            failed=failed,
            found=lambda peer: self._found(peer, head),
        )  # fmt: skip
        self.node.directory["controller"] = head.address
        self._title = f"who/{secrets.token_hex(16)}"  # until the controller has given us a number
        self._offered: dict[int, PutOffer] = {}  # by buffer
        self._sources: dict[int, ShardSource] = {}  # by transfer
        self._sinks: dict[int, ArraySink] = {}  # by transfer
        self._shards: dict[int, int] = {}  # by request: the only shard that it wants, until its contents come
        self._arrived: dict[int, Array] = {}  # by request

    # --- any thread -----------------------------------------------------------------------------------------

    def act(self, act: Callable[[Any, int], T]) -> T:
        """Calls `act` with the client; the resulting commands have been carried out when this returns."""
        answer: T = self.node.turn(self._acted, act)
        return answer

    def _acted(self, act: Callable[[Any, int], T]) -> T:
        before = self.client.unfinished
        answer = act(self.client, time.monotonic_ns())
        self.node.patient = 0 < before < self.client.unfinished  # one more run: its user calls on, and does not wait
        self.node.feed(CALLS_MADE)
        self.node.patient = False
        return answer

    def awaited(self) -> str:
        """What the client has waited for longest, as text; "" if nothing is known."""
        with self.node.lock:
            return self.client.longest_wait(self.node.now())

    def away(self) -> float:
        """For how many seconds the controller has been out of reach; 0: it is in reach."""
        with self.node.lock:
            return self.node.endpoint.away(CONTROLLER, self.node.now()) / 1e9

    def offer(self, buffer: int, again: bool = False) -> PutOffer:
        """Promises the contents of a buffer; call it under the lock, with the call that puts the buffer. `again`:
        they are kept until the buffer is `PutContentsUnneeded`."""
        offer = self._offered[buffer] = PutOffer(again)
        return offer

    def _not_wanted(self, buffer: int) -> None:
        offer = self._offered.get(buffer)
        if offer is not None and not offer.again:
            del self._offered[buffer]

    def taken(self, request: int) -> Array | None:
        """The contents that a get has brought; only once."""
        return self._arrived.pop(request, None)

    # --- names of peers --------------------------------------------------------------------------------------

    def mine(self, peer: int) -> tuple[str, str]:
        """The controller gets the proof of the number that this client has had, if any, together with the number."""
        name = f"client/{self.client.number}"
        proof = self.node.passes.get(name, "")
        if peer == CONTROLLER:
            return self._title, f"{name}/{proof}" if proof else ""
        return name, proof

    def name_of(self, peer: int) -> str:
        return "controller" if peer == CONTROLLER else f"host/{peer}"

    def peer_of(self, name: str, proof: str) -> int | None:
        return None  # no process connects to a client

    def beside(self, peer: int, message: msgspec.Struct) -> list[Address | Pass]:
        return []

    def _found(self, peer: int, head: Head) -> None:
        if peer == CONTROLLER:
            self.node.task(head.keep_again())

    # --- commands of the machine, under the lock --------------------------------------------------------------

    def _perform(self, effect: e.Command) -> None:
        match effect:
            case e.OpenSend(transfer=transfer, buffers=(buffer,), sources=(layout,)) if buffer in self._offered:
                offer = self._offered[buffer]
                self._sources[transfer] = ShardSource(effect, None, lambda _: offer.shards(layout))
                self._not_wanted(buffer)
            case e.Sent(transfer=transfer):
                self._sources.pop(transfer, None)
            case e.GetStarted(request=request, shard=shard):
                self._shards[request] = shard
            case e.OpenRecv(transfer=transfer, buffers=(request,)):
                self._sinks[transfer] = ArraySink(effect, self._shards.pop(request))
            case e.Fill(chunk=chunk):
                self._sinks[chunk.transfer].fill(chunk, self.node.contents)
            case e.Received(transfer=transfer, request=request, blame=blame):
                sink = self._sinks.pop(transfer)
                if blame is None:
                    self._arrived[request] = sink.array()
            case e.GetAgain(transfer=transfer):
                del self._sinks[transfer]
            case _:
                self._forget(effect)
        self._heard(effect)

    def _forget(self, effect: e.Command) -> None:
        """Drops offers that will not be requested any more."""
        match effect:
            case e.CallRefused(what="put", name=buffer):
                self._not_wanted(buffer)
            case e.BuffersReady(buffers=buffers, blame=blame) if blame is not None:
                for buffer in ranges.each(buffers):
                    self._not_wanted(buffer)
            case e.PutContentsUnneeded(buffers=buffers):
                for buffer in buffers:
                    self._offered.pop(buffer, None)
            case _:
                pass

    def _room(self, chunk: Chunk) -> memoryview | None:
        sink = self._sinks.get(chunk.transfer)
        return None if sink is None else sink.room(chunk)

    def _contents(self, chunk: Chunk) -> Load:
        """A function that reads a chunk. A chunk may be sent again when its receiver has all contents and its
        source is gone; then it is empty, since the receiver does not read it."""
        source = self._sources.get(chunk.transfer)
        return bytes if source is None else lambda: source.bytes_of(chunk)

    # --- the end ------------------------------------------------------------------------------------------------

    async def leave(self, patience: float) -> None:
        """Says goodbye, waits at most so long for the answer, and stops."""
        if self.client.state in ("new", "open", "away"):
            self.act(lambda client, now: client.close(now))
        until = time.monotonic() + patience
        while self.client.state == "closing" and time.monotonic() < until:
            await asyncio.sleep(0.005)
        await self.node.stop()
