"""The data plane of the world: which buffer each transfer reads or fills on each host, and the contents under way."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import msgspec

from core.model.resharding import numbered
from core.protocol import effects
from core.protocol.dataplane import Chunk, Grant, Spoilt
from core.protocol.messages import Blame
from core.protocol.peers import CONTROLLER, end_of
from tests.invariants import observations as o

from . import contents
from .devices import DAMAGED, Buffer, Fabric
from .filling import ClusterHosts, Content, Filling

Key = tuple[int, int, int, int, int]


class MovedBuffers:
    """A host's buffers of one transfer. `firsts`: what the numbers of each one's pieces are counted from."""

    def __init__(self, buffers: list[Buffer], said: effects.OpenSend | effects.OpenRecv) -> None:
        self.buffers = buffers
        self.firsts = [first for first, *_ in numbered(said.sources, said.targets)] if len(buffers) > 1 else [0]

    def numbers(self) -> dict[int, None]:
        return dict.fromkeys(buffer.number for buffer in self.buffers)

    def array_of(self, piece: int) -> int:
        return bisect_right(self.firsts, piece) - 1

    def pieces_of(self, array: int, pieces: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
        first = self.firsts[array]
        return tuple((who, at - first, size) for who, at, size in pieces if self.array_of(at) == array)


class DataPlane:
    def __init__(self, fabric: Fabric, hosts: ClusterHosts, observe: Callable[[o.Observation], None] | None) -> None:
        self._fabric = fabric
        self._hosts = hosts
        self._observe = observe
        self._sources: dict[tuple[int, int], MovedBuffers] = {}  # (host, transfer)
        self._targets: dict[tuple[int, int], MovedBuffers] = {}
        self._sparse: dict[int, Content] = {}  # transfer -> contents of its sources
        self._cargo: dict[Key, Content] = {}  # contents under way
        self.moved = 0  # bytes that arrived

    def forget(self, host: int) -> None:
        for table in (self._sources, self._targets):
            for key in [key for key in table if key[0] == host]:
                del table[key]

    # --- events of a host's machines --------------------------------------------------------------------

    def opened_send(self, host: int, said: effects.OpenSend) -> None:
        if said.blame is not None:
            return  # the buffer is not read; its maker may never have run here
        moved = self._moved(host, said, f"send {said.transfer}")
        if moved is not None:
            self._sources[host, said.transfer] = moved

    def opened_recv(self, host: int, said: effects.OpenRecv) -> None:
        moved = self._moved(host, said, f"recv {said.transfer}")
        if moved is None:
            return
        self._targets[host, said.transfer] = moved
        for number, buffer in enumerate(moved.buffers):
            pieces = said.pieces if said.sparse else moved.pieces_of(number, said.pieces)
            buffer.filling = Filling(
                said.transfer, host, buffer.layout, pieces,
                sparse=said.sparse, hosts=self._hosts, sparse_source=self._sparse.get,
            )  # fmt: skip
        self.see(o.TransferOpened(said.transfer, host, said.pieces, said.sparse))

    def _moved(self, host: int, said: effects.OpenSend | effects.OpenRecv, why: str) -> MovedBuffers | None:
        buffers = [self._buffer(host, number, why) for number in said.buffers]
        for number in dict.fromkeys(said.buffers):
            self.see(o.BufferUsed(host, number, why))
        return None if None in buffers else MovedBuffers([each for each in buffers if each], said)

    def sent(self, host: int, transfer: int) -> None:
        moved = self._sources.pop((host, transfer), None)
        for number in moved.numbers() if moved is not None else ():
            self.see(o.BufferUnused(host, number, f"send {transfer}"))

    def received(self, host: int, transfer: int, blame: Blame | None) -> None:
        moved = self._targets.pop((host, transfer), None)
        if moved is not None:
            self.see(o.TransferOver(transfer, host, blame))
            for number in moved.numbers():
                self.see(o.BufferUnused(host, number, f"recv {transfer}"))

    def count_rows(self, host: int, said: effects.CountRows) -> effects.RowsCounted:
        """Read from the data where rows go. The first replica of a shard sends them."""
        mine = self._fabric.hosts[host]
        buffer = mine.buffers[said.buffer]
        digest, source = buffer.read() or 0, buffer.layout
        self._sparse[said.transfer] = (digest, source)
        here = set(contents.virtual(source, mine.devices))
        to = contents.devices(said.target.place)
        pieces = sorted(
            (self._hosts.host_of(to[t]), s * len(to) + t, contents.row_bytes(digest, s, t))
            for s, t in contents.rows(digest, source, said.target)
            if s in here
        )
        return effects.RowsCounted(said.transfer, tuple(pieces))

    # --- contents under way -----------------------------------------------------------------------------

    def said(self, message: msgspec.Struct, host: int = -1) -> None:
        """A machine sends this message. The contents of a host's chunk are those of its buffer now."""
        if isinstance(message, Grant):
            self.see(o.Granted(message.transfer, message.sender, message.receiver, message.nbytes))
        elif isinstance(message, Chunk):
            self.see(o.ChunkSent(message.transfer, message.sender, message.receiver, message.nbytes))
            if host >= 0:
                self.load(message, self._take(host, message))

    def heard(self, receiver: int, event: Any) -> None:
        """A machine has received this event."""
        if isinstance(event, effects.MessageReceived) and isinstance(event.message, Spoilt):
            self.see(o.SpoiltReceived(event.message.transfer, event.message.sender, receiver))
        elif isinstance(event, effects.Disconnected) and event.peer != CONTROLLER:
            self.see(o.PeerLost(receiver, end_of(event.peer)))

    def load(self, chunk: Chunk, content: Content) -> None:
        """Keep the contents of a chunk while it is under way. They are unloaded only if the chunk is used."""
        self._cargo[_key(chunk)] = content

    def unload(self, chunk: Chunk) -> Content:
        return self._cargo.pop(_key(chunk), (contents.torn("no contents", _key(chunk)), None))

    def _take(self, host: int, chunk: Chunk) -> Content:
        moved = self._sources.get((host, chunk.transfer))
        if moved is None:
            self._fabric.complain(f"host {host} sends {chunk} of a transfer that it has not open")
            return contents.torn("no source", chunk.transfer), None
        array = moved.array_of(chunk.piece)
        buffer = moved.buffers[array]
        if self._fabric.unreadable(self._fabric.hosts[host], buffer.number):
            self._fabric.clock.after(0, self._fabric.tell, host, effects.SourceLost(chunk, array, DAMAGED))
            return contents.torn("no file", buffer.number), buffer.layout
        digest = buffer.read()
        return (contents.torn("void", buffer.number) if digest is None else digest), buffer.layout

    def write(self, host: int, chunk: Chunk) -> None:
        """Write the contents of a chunk into a host's buffer."""
        content = self.unload(chunk)
        moved = self._targets.get((host, chunk.transfer))
        number = 0 if moved is None else moved.array_of(chunk.piece)
        filling = None if moved is None else moved.buffers[number].filling
        if moved is None or filling is None:
            self._fabric.complain(f"host {host} takes {chunk} of a transfer that it has not open")
            return
        self.arrived(chunk)
        filling.arrive(chunk.sender, chunk.piece - moved.firsts[number], chunk.offset, chunk.nbytes, content)

    def arrived(self, chunk: Chunk) -> None:
        self.moved += chunk.nbytes
        self.see(o.ChunkArrived(chunk.transfer, chunk.sender, chunk.receiver, chunk.piece, chunk.offset, chunk.nbytes))

    # --- inside -----------------------------------------------------------------------------------------

    def _buffer(self, host: int, number: int, why: str) -> Buffer | None:
        buffer = self._fabric.hosts[host].buffers.get(number)
        if buffer is None:
            self._fabric.complain(f"{why}: buffer {number} is not on host {host}")
        return buffer

    def see(self, seen: o.Observation) -> None:
        if self._observe:
            self._observe(seen)


def _key(chunk: Chunk) -> Key:
    return chunk.transfer, chunk.sender, chunk.receiver, chunk.piece, chunk.offset
