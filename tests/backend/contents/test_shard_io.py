"""Arrays that are cut into pieces and assembled again are the same, for all layouts and places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.contents import HostPieces, local_shards, shard_io
from backend.contents.shard_io import ArraySink, ContentsMismatch, Overflow, ShardSource, Sink
from core.model import spans
from core.model.place import line
from core.model.plan import Layout
from core.model.program import ITEM_BYTES, Sharding
from core.model.resharding import Shards, receives_by_host, sends_by_host, virtual_index
from core.protocol import effects as e
from core.protocol.dataplane import Chunk
from core.transfer.pieces import from_client, from_hosts, hosts_of, senders_to_client, to_client
from tests.core.model.test_resharding import Alike, box, pairs, together, typed

CLIENT = 7
DTYPES = ["float32", "bool", "bfloat16", "float8_e4m3fn", "int8", "complex128", "key<fry>"]


def array_of(layout: Layout, seed: int = 0) -> Any:
    """An array whose elements differ from their neighbours, as far as the type allows."""
    dtype = shard_io.numpy_dtype(layout.dtype)
    raw = np.random.default_rng(seed).integers(0, 256, prod(layout.shape) * dtype.itemsize, np.uint8)
    return (raw & 1 if layout.dtype == "bool" else raw).view(dtype).reshape(layout.shape)


def shards_of(layout: Layout, array: Any, host: int, hosts: Alike) -> dict[tuple[int, ...], Any]:
    """The shards that a host has."""
    every = shard_io.cut(layout, array)
    return {index: every[index] for index in local_shards(layout, hosts.devices_of(host))}


def chunks(transfer: int, ends: tuple[int, int], piece: int, nbytes: int, size: int) -> Iterator[Chunk]:
    for offset in range(0, nbytes, size) if nbytes else (0,):
        yield Chunk(transfer, *ends, piece, offset, min(size, nbytes - offset))


def filled(sink: Sink, chunk: Chunk, contents: memoryview) -> None:
    """As a stream does: every second chunk is received where it belongs, if the sink has said where."""
    room = sink.room(chunk) if chunk.offset // max(1, chunk.nbytes) % 2 else None
    if room is not None:
        room[:] = contents
        contents = room
    sink.fill(chunk, contents)


def check(layout: Layout, array: Any, host: int, hosts: Alike, got: Mapping[Any, Any]) -> None:
    """Check that each device of the host has its box of the array, by the definition of a sharding."""
    where = local_shards(layout, hosts.devices_of(host))
    assert set(got) == set(where)
    for index, devices in where.items():
        for device in devices:
            want = array[(*box(layout, virtual_index(layout.place, device)), ...)]
            assert got[index].dtype == want.dtype
            assert got[index].tobytes() == np.ascontiguousarray(want).tobytes()
            assert got[index].shape == want.shape


@given(pairs(), st.integers(1, 4), st.sampled_from(DTYPES), st.integers(1, 40))
def test_a_move_reproduces_the_array(
    pair: tuple[Layout, Layout], devices_per_host: int, dtype: str, chunk_size: int
) -> None:
    source, target = (typed(each, dtype) for each in pair)
    hosts, array = Alike(devices_per_host), array_of(source)
    senders = {
        host: ShardSource(
            e.OpenSend(1, (2,), sends_by_host((source,), (target,), host, hosts), None, (), (source,), (target,)),
            HostPieces(host, hosts), lambda _, host=host: shards_of(source, array, host, hosts),  # type: ignore[misc]
        )
        for host in hosts_of(source.place, hosts)
    }  # fmt: skip
    for host in hosts_of(target.place, hosts):
        pieces = receives_by_host((source,), (target,), host, hosts)
        sink = Sink(e.OpenRecv(1, 0, (3,), pieces, False, (), (source,), (target,)), HostPieces(host, hosts))
        for sender, piece, nbytes in reversed(pieces):
            for chunk in chunks(1, (sender, host), piece, nbytes, chunk_size):
                filled(sink, chunk, senders[sender].bytes_of(chunk))
        check(target, array, host, hosts, sink.shards(0))


@given(together(DTYPES), st.integers(1, 4), st.integers(1, 40))
def test_arrays_that_go_as_one_all_arrive_unchanged(
    moved: tuple[tuple[Layout, ...], tuple[Layout, ...]], devices_per_host: int, chunk_size: int
) -> None:
    """Chunks of all pieces take turns."""
    sources, targets = moved
    hosts, arrays = Alike(devices_per_host), [array_of(source, seed) for seed, source in enumerate(sources)]
    buffers, filling = (12, 5, 9)[: len(arrays)], (4, 13, 6)[: len(arrays)]
    givers, takers = hosts_of(sources[0].place, hosts), hosts_of(targets[0].place, hosts)
    known = {host: HostPieces(host, hosts) for host in {*givers, *takers}}
    asked = []  # host, buffer

    def sender(host: int) -> ShardSource:
        def fetch(buffer: int) -> dict[Any, Any]:
            asked.append((host, buffer))
            at = buffers.index(buffer)
            return shards_of(sources[at], arrays[at], host, hosts)

        pieces = sends_by_host(sources, targets, host, hosts)
        return ShardSource(e.OpenSend(1, buffers, pieces, None, (), sources, targets), known[host], fetch)

    senders = {host: sender(host) for host in givers}
    for host in takers:
        pieces = receives_by_host(sources, targets, host, hosts)
        sink = Sink(e.OpenRecv(1, 0, filling, pieces, False, (), sources, targets), known[host])
        coming = [chunk for at, number, nbytes in pieces for chunk in chunks(1, (at, host), number, nbytes, chunk_size)]
        for chunk in sorted(coming, key=lambda chunk: chunk.offset):
            filled(sink, chunk, senders[chunk.sender].bytes_of(chunk))
        for at, (target, array) in enumerate(zip(targets, arrays, strict=True)):
            check(target, array, host, hosts, sink.shards(at))
    assert len(set(asked)) == len(asked)


@given(pairs(), st.integers(1, 4), st.sampled_from(DTYPES), st.integers(1, 40))
def test_a_put_and_a_get_bring_the_array_there_and_back(
    pair: tuple[Layout, Layout], devices_per_host: int, dtype: str, chunk_size: int
) -> None:
    layout = typed(pair[0], dtype)
    hosts, array = Alike(devices_per_host), array_of(layout)
    put = tuple(piece for host in hosts_of(layout.place, hosts) for piece in from_client(layout, CLIENT, host, hosts))
    offered = ShardSource(e.OpenSend(1, (3,), put, None, (), (layout,)), None, lambda _: shard_io.cut(layout, array))
    wanted = ArraySink(e.OpenRecv(2, 2, (3,), from_hosts(layout, hosts), False, (), (), (layout,)))
    for host in hosts_of(layout.place, hosts):
        pieces = from_client(layout, CLIENT, host, hosts)
        sink = Sink(e.OpenRecv(1, 0, (3,), pieces, False, (), (), (layout,)), HostPieces(host, hosts))
        for client, piece, nbytes in pieces:
            for chunk in chunks(1, (client, host), piece, nbytes, chunk_size):
                filled(sink, chunk, offered.bytes_of(chunk))
        shards = sink.shards(0)
        check(layout, array, host, hosts, shards)
        back = to_client(layout, CLIENT, host, hosts)
        source = ShardSource(
            e.OpenSend(2, (3,), back, None, (), (layout,)),
            HostPieces(host, hosts),
            lambda _, shards=shards: shards,  # type: ignore[misc]
        )
        for client, piece, nbytes in back:
            for chunk in chunks(2, (host, client), piece, nbytes, chunk_size):
                filled(wanted, chunk, source.bytes_of(chunk))
    assert wanted.array().tobytes() == array.tobytes()


@given(pairs(), st.integers(1, 4), st.sampled_from(DTYPES), st.data())
def test_a_get_of_one_shard_brings_that_shard_and_no_other(
    pair: tuple[Layout, Layout], devices_per_host: int, dtype: str, data: st.DataObject
) -> None:
    layout = typed(pair[0], dtype)
    hosts, array, shards = Alike(devices_per_host), array_of(layout), Shards(layout)
    only = data.draw(st.integers(0, shards.count - 1))
    (expected,) = from_hosts(layout, hosts, only)
    wanted = ArraySink(e.OpenRecv(2, 2, (3,), (expected,), False, (), (), (layout,)), only)
    sent = []
    for host in hosts_of(layout.place, hosts):
        back = to_client(layout, CLIENT, host, hosts, only)
        sent += [(host, piece, nbytes) for _, piece, nbytes in back]
        shelf = shards_of(layout, array, host, hosts)
        send = e.OpenSend(2, (3,), back, None, (), (layout,))
        source = ShardSource(send, HostPieces(host, hosts), lambda _, shelf=shelf: shelf)  # type: ignore[misc]
        for client, piece, nbytes in back:
            for chunk in chunks(2, (host, client), piece, nbytes, 7):
                filled(wanted, chunk, source.bytes_of(chunk))
    assert sent == [expected]
    assert senders_to_client(layout, hosts, only) == spans.one(expected[0])
    part = array[shard_io.box_of(shards, shard_io.index_of(shards, only))]
    found = wanted.array()
    assert (found.shape, found.dtype) == (part.shape, part.dtype)
    assert found.tobytes() == np.ascontiguousarray(part).tobytes()


HOSTS = Alike(1)
HERE = HostPieces(0, HOSTS)
HALVES = Layout((8, 3), "int32", line(0, 0, 2), (2,), Sharding(((0,), ())))
QUARTERS = Layout((8, 3), "int32", line(0, 4, 4), (4,), Sharding(((0,), ())))


def halves(
    fetch: Any, pieces: tuple[tuple[int, int, int], ...] = (), targets: tuple[Layout, ...] = (), **options: Any
) -> ShardSource:
    return ShardSource(e.OpenSend(1, (2,), pieces, None, (), (HALVES,), targets), HERE, fetch, **options)


def test_each_shard_is_fetched_once_and_only_when_it_is_needed() -> None:
    asked = []

    def fetch(buffer: int) -> dict[Any, Any]:
        asked.append(buffer)
        return shards_of(HALVES, array_of(HALVES), 0, HOSTS)

    source = halves(fetch, ((-CLIENT, 0, 48),))
    assert not asked
    first = source.bytes_of(Chunk(1, 0, -CLIENT, 0, 0, 20))
    rest = source.bytes_of(Chunk(1, 0, -CLIENT, 0, 20, 28))
    assert bytes(first) + bytes(rest) == array_of(HALVES)[:4].tobytes()
    assert source.bytes_of(Chunk(1, 0, -CLIENT, 0, 0, 20)) == first  # a chunk that is sent again
    assert asked == [2]


def test_a_chunk_is_at_hand_if_its_shard_can_be_had_and_lies_in_one_piece() -> None:
    """If the shard has gone meanwhile, whoever loads it says so."""
    wide = Layout((2, 1 << 18), "uint8", line(0, 0, 1), (1,), Sharding())
    shelf, there = shards_of(wide, array_of(wide), 0, HOSTS), lambda buffer: buffer == 2
    for dims, lies_in_one in ((((), (0,)), False), (((0,), ()), True)):
        target = Layout(wide.shape, wide.dtype, line(0, 4, 2), (2,), Sharding(dims))
        send = e.OpenSend(1, (2,), sends_by_host((wide,), (target,), 0, HOSTS), None, (), (wide,), (target,))
        _, piece, nbytes = send.pieces[0]
        chunk = Chunk(1, 0, 4, piece, 0, nbytes)
        assert nbytes > shard_io.SMALL
        assert ShardSource(send, HERE, lambda _: shelf).at_hand(chunk, there) == lies_in_one
        assert not ShardSource(send, HERE, lambda _: shelf).at_hand(chunk, lambda buffer: False)
        assert not ShardSource(send, HERE, lambda _: {}).at_hand(chunk, there)


@pytest.mark.parametrize(("piece", "offset", "nbytes"), [(1, 0, 4), (0, 40, 9), (0, -4, 4)])
def test_bytes_outside_the_source_are_refused(piece: int, offset: int, nbytes: int) -> None:
    source = halves(lambda _: shards_of(HALVES, array_of(HALVES), 0, HOSTS), ((-CLIENT, 0, 48),))
    with pytest.raises(ContentsMismatch, match="is not part of transfer 1, which sends"):
        source.bytes_of(Chunk(1, 0, -CLIENT, piece, offset, nbytes))


@pytest.mark.parametrize(
    ("sender", "piece", "offset", "nbytes", "contents"),
    [(1, 0, 0, 4, 4), (-CLIENT, 1, 0, 4, 4), (-CLIENT, 0, 46, 4, 4), (-CLIENT, 0, -1, 4, 4), (-CLIENT, 0, 0, 4, 5)],
    ids=["a stranger's", "another shard's", "beyond the end", "before the start", "longer than said"],
)
def test_contents_for_an_unknown_place_are_refused(
    sender: int, piece: int, offset: int, nbytes: int, contents: int
) -> None:
    pieces = from_client(HALVES, CLIENT, 0, HOSTS)
    sink = Sink(e.OpenRecv(1, 0, (3,), pieces, False, (), (), (HALVES,)), HERE)
    chunk = Chunk(1, sender, 0, piece, offset, nbytes)
    assert sink.room(chunk) is None or contents != nbytes
    with pytest.raises(ContentsMismatch, match="transfer 1"):
        sink.fill(chunk, b"x" * contents)


def test_what_is_received_where_it_belongs_is_there() -> None:
    pieces = from_client(HALVES, CLIENT, 0, HOSTS)
    sink, chunk = Sink(e.OpenRecv(1, 0, (3,), pieces, False, (), (), (HALVES,)), HERE), Chunk(1, -CLIENT, 0, 0, 0, 48)
    room = sink.room(chunk)
    assert room is not None
    room[:] = bytes(range(48))
    with pytest.raises(ContentsMismatch, match="48 bytes are missing"):
        sink.shards(0)  # until core has seen it
    sink.fill(chunk, room)
    (shard,) = sink.shards(0).values()
    assert shard.tobytes() == bytes(range(48))
    assert np.shares_memory(shard, np.frombuffer(room, np.uint8))
    assert sink.room(chunk) is None, "what has come is not written to again"


def test_an_incomplete_shard_is_not_handed_on() -> None:
    pieces = from_client(HALVES, CLIENT, 0, HOSTS)
    sink = Sink(e.OpenRecv(1, 0, (3,), pieces, False, (), (), (HALVES,)), HERE)
    sink.fill(Chunk(1, -CLIENT, 0, 0, 0, 40), b"x" * 40)
    with pytest.raises(ContentsMismatch, match="8 bytes are missing"):
        sink.shards(0)


def test_an_array_that_cannot_be_read_is_asked_for_once_and_those_that_go_with_it_arrive() -> None:
    asked, here = [], {(0, 0): np.arange(12, dtype=np.int32).reshape(4, 3)}

    def fetch(buffer: int) -> dict[Any, Any]:
        asked.append(buffer)
        if buffer == 5:
            raise OSError("its file is damaged")
        return here

    both = (HALVES, HALVES)
    pieces = sends_by_host(both, both, 0, HOSTS)
    source = ShardSource(e.OpenSend(1, (5, 6), pieces, None, (), both, both), HERE, fetch)
    sink = Sink(e.OpenRecv(1, 0, (7, 8), receives_by_host(both, both, 0, HOSTS), False, (), both, both), HERE)
    for host, piece, nbytes in pieces:
        for chunk in chunks(1, (0, host), piece, nbytes, 16):
            if source.array_of(piece) == 0:
                with pytest.raises((OSError, LookupError), match="its file is damaged"):
                    source.bytes_of(chunk)
            else:
                sink.fill(chunk, source.bytes_of(chunk))
    assert asked == [5, 6]
    with pytest.raises(ContentsMismatch, match="48 bytes are missing"):
        sink.shards(0)
    assert np.array_equal(sink.shards(1)[0, 0], here[0, 0])


def test_arriving_shards_are_aligned_so_that_devices_can_use_the_memory_as_it_is() -> None:
    pieces = from_client(HALVES, CLIENT, 0, HOSTS)
    sink = Sink(e.OpenRecv(1, 0, (3,), pieces, False, (), (), (HALVES,)), HERE)
    sink.fill(Chunk(1, -CLIENT, 0, 0, 0, 48), bytes(48))
    (shard,) = sink.shards(0).values()
    assert shard.ctypes.data % shard_io.ALIGN == 0


# --- sparse exchange --------------------------------------------------------------------------------------------


def exchange(rows: Any, capacity: int) -> dict[int, Any]:
    """Return what each target host gets of these rows of HALVES. A row's first word names the shard of QUARTERS."""
    target = Layout((4 * capacity, 3), "int32", QUARTERS.place, QUARTERS.mesh, QUARTERS.sharding)
    row = rows.shape[1] * ITEM_BYTES["int32"]
    recv = e.OpenRecv(1, 0, (3,), (), True, (), (HALVES,), (target,))
    sinks = {host: Sink(recv, HostPieces(host, HOSTS)) for host in range(4, 8)}
    for host in (1, 0):
        mine = rows[host * 4 : host * 4 + 4]
        pieces = tuple(
            (4 + to, host * 4 + to, int((mine[:, 0] == to).sum()) * row) for to in range(4) if to in mine[:, 0]
        )
        send = e.OpenSend(1, (2,), pieces, None, (), (HALVES,), (target,))
        source = ShardSource(send, HostPieces(host, HOSTS), lambda _, at=(host, 0), mine=mine: {at: mine}, sparse=True)  # type: ignore[misc]
        for receiver, piece, nbytes in pieces:
            for chunk in chunks(1, (host, receiver), piece, nbytes, 7):
                sinks[receiver].fill(chunk, source.bytes_of(chunk))
    return {host: next(iter(sink.shards(0).values())) for host, sink in sinks.items()}


def test_rows_go_where_their_first_word_says_in_the_order_of_their_sources() -> None:
    to = np.array([2, 0, 2, -1, 3, 2, 0, 2], np.int32)
    rows = np.stack([to, np.arange(8, dtype=np.int32), 10 * to], axis=1)
    got = exchange(rows, capacity=5)
    assert got[4][:, 1].tolist() == [1, 6, -1, -1, -1]
    assert got[5][:, 1].tolist() == [-1] * 5
    assert got[6].tolist() == [[2, 0, 20], [2, 2, 20], [2, 5, 20], [2, 7, 20], [0, -1, 0]]
    assert got[7][:, 1].tolist() == [4, -1, -1, -1, -1]


def test_too_many_rows_for_a_shard_are_an_error_that_names_both_numbers() -> None:
    rows = np.stack([np.full(8, 2, np.int32), np.arange(8, dtype=np.int32), np.zeros(8, np.int32)], axis=1)
    with pytest.raises(Overflow, match="8 rows go to shard 2, and its capacity is 3; raise `capacity`"):
        exchange(rows, capacity=3)
