"""In any interleaving, each byte arrives once and in its place, within the pool, and nothing waits for ever."""

from collections import deque

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from core import protocol as p
from core.protocol.dataplane import Chunk, Grant
from core.transfer.credits import at_once
from core.transfer.transfer_machine import Transfer
from tests.laws import examples

CHUNK = 10
BOOM = p.Blame("user", "boom")

Piece = tuple[int, int, int, int]  # sender, receiver, piece, nbytes


class Net:
    """Transfer machines with FIFO pipes between them. It checks what is granted and what arrives."""

    def __init__(self, nodes: int, pool: int) -> None:
        self.pool = pool
        self.nodes = [Transfer(node, pool, CHUNK) for node in range(nodes)]
        self.pipes: dict[tuple[int, int], deque[msgspec.Struct]] = {}
        self.promised = [0] * nodes
        self.short: set[tuple[int, int]] = set()  # transfer, receiver: what takes nothing of the pool
        self.got: dict[tuple[int, int, int, int], int] = {}  # transfer, sender, receiver, piece -> bytes
        self.received: dict[tuple[int, int], p.Blame | None] = {}  # transfer, node
        self.sent: list[tuple[int, int]] = []

    def tell(self, node: int, event: p.Effect) -> None:
        if isinstance(event, p.OpenRecv) and not event.sparse:
            if sum([nbytes for *_, nbytes in event.pieces]) <= at_once(self.pool, CHUNK):
                self.short.add((event.transfer, node))
        for effect in self.nodes[node].handle(event, 0):
            match effect:
                case p.Send(peers=(peer,), message=message):
                    if isinstance(message, Grant) and (message.transfer, node) not in self.short:
                        self.promised[node] += message.nbytes
                        assert self.promised[node] <= self.pool
                    self.pipes.setdefault((node, peer), deque()).append(message)
                case p.Fill(chunk=chunk):
                    self.fill(node, chunk)
                case p.Received(transfer=transfer, blame=blame):
                    assert (transfer, node) not in self.received
                    self.received[transfer, node] = blame
                case p.Sent(transfer=transfer):
                    assert (transfer, node) not in self.sent
                    self.sent.append((transfer, node))
                case _:
                    assert not isinstance(effect, p.Close), effect

    def fill(self, node: int, chunk: Chunk) -> None:
        key = (chunk.transfer, chunk.sender, node, chunk.piece)
        assert (chunk.transfer, node) not in self.received
        assert chunk.offset == self.got.get(key, 0)
        self.got[key] = chunk.offset + chunk.nbytes

    def step(self, at: int) -> bool:
        full = [pair for pair, pipe in self.pipes.items() if pipe]
        if not full:
            return False
        sender, receiver = full[at % len(full)]
        message = self.pipes[sender, receiver].popleft()
        if isinstance(message, Chunk):
            assert message.nbytes <= CHUNK
        if isinstance(message, Chunk) and (message.transfer, receiver) not in self.short:
            self.promised[receiver] -= message.nbytes
        self.tell(receiver, p.MessageReceived(sender, message))
        return True


def pieces_of(nodes: int, sparse: bool) -> st.SearchStrategy[list[Piece]]:
    node = st.integers(0, nodes - 1)
    sizes = st.one_of(st.integers(0, 3 * CHUNK), st.integers(0, 12 * CHUNK))
    pairs = st.lists(st.tuples(node, node, sizes), min_size=0 if sparse else 1, max_size=6)
    return pairs.map(lambda drawn: [(s, r, at, size) for at, (s, r, size) in enumerate(drawn)])


def events(transfer: int, pieces: list[Piece], nodes: int, sparse: bool) -> list[tuple[str, int, p.Effect]]:
    """Return the events that executors give for one transfer, unordered, as (kind, node, event)."""
    found: list[tuple[str, int, p.Effect]] = []
    for node in range(nodes):
        out = tuple((r, at, size) for s, r, at, size in pieces if s == node)
        into = tuple((s, at, size) for s, r, at, size in pieces if r == node)
        if out:
            found.append(("send", node, p.OpenSend(transfer, (transfer,), out, None, ())))
        if into or sparse:
            said = p.OpenRecv(transfer, transfer, (transfer,), () if sparse else into, sparse, ())
            found.append(("recv", node, said))
        if sparse:
            found.append(("expect", node, p.ExpectRecv(transfer, len(into), ())))
    return found


@examples(80)
@given(st.integers(1, 4), st.integers(2, 8), st.data())
def test_all_bytes_arrive_and_nothing_deadlocks_in_whatever_order_halves_open(
    nodes: int, chunks: int, data: st.DataObject
) -> None:
    """The worst case for credits: a source exists only when its host has received all earlier transfers."""
    net = Net(nodes, chunks * CHUNK)
    plans = {
        transfer: (data.draw(st.booleans()), data.draw(pieces_of(nodes, False)))
        for transfer in range(1, data.draw(st.integers(1, 6)) + 1)
    }
    free: list[tuple[int, p.Effect]] = []
    sends: list[tuple[int, int, p.Effect]] = []
    for transfer, (sparse, pieces) in plans.items():
        for what, node, event in events(transfer, pieces, nodes, sparse):
            if what == "send":
                sends.append((transfer, node, event))
            else:
                free.append((node, event))
    awaited = {(event.transfer, node) for node, event in free if isinstance(event, p.OpenRecv)}
    for node, event in data.draw(st.permutations(free)):
        net.tell(node, event)
        for at in data.draw(st.lists(st.integers(0, 30), max_size=4)):
            net.step(at)
    while True:
        ready = [
            (transfer, node, event)
            for transfer, node, event in sends
            if all(key in net.received for key in awaited if key[0] < transfer and key[1] == node)
        ]
        if ready:
            transfer, node, event = ready[data.draw(st.integers(0, len(ready) - 1))]
            sends.remove((transfer, node, event))
            net.tell(node, event)
        elif not net.step(data.draw(st.integers(0, 30))):
            break
    assert not sends
    assert net.received == dict.fromkeys(awaited)
    everything = {(transfer, s, r, at): size for transfer, (_, pieces) in plans.items() for s, r, at, size in pieces}
    assert net.got == everything
    assert len(net.sent) == len({(transfer, s) for transfer, s, _, _ in everything})
    assert all(node.pool.out == 0 for node in net.nodes)
    assert net.promised == [0] * nodes


@examples(120)
@given(st.integers(1, 3), st.data())
def test_every_half_ends_exactly_once_even_with_dropped_transfers_and_spoilt_sources(
    nodes: int, data: st.DataObject
) -> None:
    net = Net(nodes, 1 << 30)
    said: list[tuple[int, p.Effect]] = []
    halves: list[tuple[str, int, int]] = []
    for transfer in range(1, data.draw(st.integers(1, 4)) + 1):
        sparse = data.draw(st.booleans())
        dropped = data.draw(st.booleans())
        for what, node, event in events(transfer, data.draw(pieces_of(nodes, sparse)), nodes, sparse):
            if isinstance(event, p.OpenSend) and data.draw(st.integers(0, 3)) == 0:
                event = msgspec.structs.replace(event, blame=BOOM)
            said.append((node, event))
            if what != "expect":
                halves.append((what, transfer, node))
        said += [(node, p.DropTransfer(transfer, BOOM, ())) for node in range(nodes) if dropped]
    for node, event in data.draw(st.permutations(said)):
        net.tell(node, event)
        for at in data.draw(st.lists(st.integers(0, 30), max_size=4)):
            net.step(at)
    while net.step(0):
        pass
    assert sorted(net.received) == sorted((t, node) for what, t, node in halves if what == "recv")
    assert sorted(net.sent) == sorted((t, node) for what, t, node in halves if what == "send")
    assert all(node.pool.out == 0 for node in net.nodes)
