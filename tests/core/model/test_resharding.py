"""A resharding brings each element exactly once to each shard that must hold it, for any two layouts."""

from collections.abc import Sequence
from math import lcm, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.place import Grid, Place, line
from core.model.plan import Layout
from core.model.program import ITEM_BYTES, Sharding
from core.model.resharding import (
    Piece,
    all_pieces,
    canonical,
    is_local,
    numbered,
    receives,
    receives_by_host,
    sends,
    sends_by_host,
    shard_bytes,
    virtual_index,
)
from tests.laws import examples

Box = tuple[slice, ...]


class Alike:
    """Hosts with equally many devices."""

    def __init__(self, devices_per_host: int) -> None:
        self.devices_per_host = devices_per_host

    def host_of(self, device: int) -> int:
        return device // self.devices_per_host

    def devices_of(self, host: int) -> range:
        return range(host * self.devices_per_host, (host + 1) * self.devices_per_host)


# --- the oracle: element by element, sharing no arithmetic with core --------------------------------------


def box(layout: Layout, device: int) -> Box:
    """Return the box that a virtual device holds, by the definition of a sharding."""
    at = np.unravel_index(device, layout.mesh) if layout.mesh else ()
    found = []
    for dimension, size in enumerate(layout.shape):
        low, high = 0, size
        axes = layout.sharding.dims[dimension] if layout.sharding.dims else ()
        for axis in axes:  # major first: each axis splits the part that the axes before it have left
            step = (high - low) // layout.mesh[axis]
            low, high = low + int(at[axis]) * step, low + (int(at[axis]) + 1) * step
        found.append(slice(low, high))
    return tuple(found)


def boxes(layout: Layout) -> list[Box]:
    return [box(layout, device) for device in range(layout.place.size)]


def inside(piece: Piece, whole: Box) -> bool:
    return all(
        low.start <= start and start + extent <= low.stop
        for start, extent, low in zip(piece.start, piece.shape, whole, strict=True)
    )


def region(piece: Piece) -> Box:
    return tuple(slice(start, start + extent) for start, extent in zip(piece.start, piece.shape, strict=True))


# --- drawing layouts --------------------------------------------------------------------------------------

MESHES = [(1,), (2,), (3,), (4,), (8,), (2, 2), (4, 2), (2, 3), (1, 4), (2, 2, 2), (2, 1, 3)]


@st.composite
def shardings(draw: st.DrawFn, mesh: tuple[int, ...], rank: int) -> Sharding:
    axes = draw(st.permutations(range(len(mesh))))
    dims: list[list[int]] = [[] for _ in range(rank)]
    for axis in axes:
        dimension = draw(st.integers(-1, rank - 1))  # -1: replicates
        if dimension >= 0:
            dims[dimension].append(axis)
    return Sharding(tuple(map(tuple, dims))) if draw(st.booleans()) or any(dims) else Sharding()


@st.composite
def places(draw: st.DrawFn, size: int) -> Place:
    first = draw(st.integers(0, 6))
    kind = draw(st.sampled_from(["line", "strided", "two", "column-major"]))
    if kind == "strided":
        return Place(0, (Grid(first, (size,), (2,)),))
    if kind == "two" and size > 1:
        half = size // 2
        return Place(0, (Grid(first + size, (half,), (1,)), Grid(first, (size - half,), (1,))))
    if kind == "column-major" and size % 2 == 0:
        return Place(0, (Grid(first, (2, size // 2), (1, 2)),))
    return line(0, first, size)


@st.composite
def pairs(draw: st.DrawFn, ends: tuple[Place | None, Place | None] = (None, None)) -> tuple[Layout, Layout]:
    """Source and target of one array; `ends`: their places, if they are given."""
    rank = draw(st.integers(0, 3))
    meshes = [draw(st.sampled_from([mesh for mesh in MESHES if end is None or prod(mesh) == end.size])) for end in ends]
    splits = [draw(shardings(mesh, rank)) for mesh in meshes]
    shape = []
    for dimension in range(rank):
        parts = [split.parts(mesh)[dimension] for split, mesh in zip(splits, meshes, strict=True) if split.dims]
        shape.append(lcm(1, *parts) * draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, 2)))
    source, target = (
        Layout(tuple(shape), "float32", draw(places(prod(mesh))) if end is None else end, mesh, split)
        for end, mesh, split in zip(ends, meshes, splits, strict=True)
    )
    return source, target


def typed(layout: Layout, dtype: str) -> Layout:
    return Layout(layout.shape, dtype, layout.place, layout.mesh, layout.sharding)


@st.composite
def together(
    draw: st.DrawFn, dtypes: Sequence[str] = tuple(ITEM_BYTES)
) -> tuple[tuple[Layout, ...], tuple[Layout, ...]]:
    """Sources and targets of two or three arrays that go as one: all from one place, and all to one place."""
    source, target = draw(pairs())
    more = draw(st.lists(pairs((source.place, target.place)), min_size=1, max_size=2))
    drawn = [(pair, draw(st.sampled_from(dtypes))) for pair in ((source, target), *more)]
    sources, targets = (tuple(typed(pair[end], dtype) for pair, dtype in drawn) for end in range(2))
    return sources, targets


# --- laws -------------------------------------------------------------------------------------------------


@given(pairs(), st.sampled_from([1, 2, 4]))
def test_each_element_is_sent_once_to_each_shard_that_holds_it(
    pair: tuple[Layout, Layout], devices_per_host: int
) -> None:
    source, target = pair
    hosts = Alike(devices_per_host)
    every = range(32 // devices_per_host)
    sent = [piece for host in every for piece in sends(source, target, host, hosts)]
    got = [piece for host in every for piece in receives(source, target, host, hosts)]

    def key(piece: Piece) -> tuple[int, int, int]:
        return (piece.sender, piece.receiver, piece.number)

    assert sorted(sent, key=key) == sorted(got, key=key)  # both sides compute the same pieces
    assert len({piece.number for piece in sent}) == len(sent)

    count = [np.zeros(source.shape, int) for _ in range(target.place.size)]
    held, wanted = boxes(source), boxes(target)
    for piece in sent:
        assert hosts.host_of(source.place.device(piece.source)) == piece.sender
        assert inside(piece, held[piece.source])
        assert piece.nbytes == 4 * prod(piece.shape) > 0
        for device in piece.targets:
            assert hosts.host_of(target.place.device(device)) == piece.receiver
            assert inside(piece, wanted[device])
            count[device][region(piece)] += 1
    for device, whole in enumerate(wanted):
        assert (count[device][whole] == 1).all()


@given(pairs(), st.sampled_from([1, 2, 4]))
def test_an_element_is_sent_once_to_a_host_and_never_to_one_that_has_it(
    pair: tuple[Layout, Layout], devices_per_host: int
) -> None:
    source, target = pair
    hosts = Alike(devices_per_host)
    held = boxes(source)
    for host in range(32 // devices_per_host):
        crossed = np.zeros(source.shape, int)
        for piece in receives(source, target, host, hosts):
            if piece.sender != host:
                crossed[region(piece)] += 1
        here = [box for device, box in enumerate(held) if hosts.host_of(source.place.device(device)) == host]
        assert crossed.max(initial=0) <= 1
        assert all((crossed[mine] == 0).all() for mine in here)


@given(pairs(), st.sampled_from([1, 2, 4]))
@examples(60)
def test_the_pieces_of_a_move_are_those_that_each_host_receives(
    pair: tuple[Layout, Layout], devices_per_host: int
) -> None:
    source, target = pair
    hosts = Alike(devices_per_host)
    receivers = sorted({hosts.host_of(device) for device in target.place.devices()})
    assert sorted(all_pieces((source,), (target,), receivers, hosts)) == sorted(
        (sender, host, number, nbytes)
        for host in receivers
        for sender, number, nbytes in receives_by_host((source,), (target,), host, hosts)
    )


@given(together(), st.sampled_from([1, 2, 4]))
@examples(60)
def test_arrays_that_go_as_one_have_the_pieces_of_each_alone_numbered_one_after_another(
    moved: tuple[tuple[Layout, ...], tuple[Layout, ...]], devices_per_host: int
) -> None:
    sources, targets = moved
    hosts = Alike(devices_per_host)
    every = range(32 // devices_per_host)
    sent = [
        (number, host, receiver, nbytes)
        for host in every
        for receiver, number, nbytes in sends_by_host(sources, targets, host, hosts)
    ]
    got = [
        (number, sender, host, nbytes)
        for host in every
        for sender, number, nbytes in receives_by_host(sources, targets, host, hosts)
    ]
    listed = all_pieces(sources, targets, every, hosts)
    assert sorted(sent) == sorted(got)  # both sides compute the same pieces
    assert sorted(listed) == sorted((sender, receiver, number, nbytes) for number, sender, receiver, nbytes in sent)
    assert len({number for number, *_ in sent}) == len(sent)  # so also once from each sender to each receiver

    alone = []
    for first, source, target in numbered(sources, targets):
        pieces = [piece for host in every for piece in sends(source, target, host, hosts)]
        alone += sorted((first + piece.number, piece.sender, piece.receiver, piece.nbytes) for piece in pieces)
    assert sorted(sent) == alone


@given(pairs())
@examples(150)
def test_replicas_share_the_work(pair: tuple[Layout, Layout]) -> None:
    """Between disjoint devices, one for each host, the replicas of a shard send equally many pieces."""
    source, target = pair
    target = Layout(target.shape, target.dtype, line(1, 100, target.place.size), target.mesh, target.sharding)
    work = dict.fromkeys(range(source.place.size), 0)
    for host in range(32):
        for piece in sends(source, target, host, Alike(1)):
            work[piece.source] += 1
    replicas: dict[str, list[int]] = {}
    for device, whole in enumerate(boxes(source)):
        replicas.setdefault(str(whole), []).append(work[device])
    assert all(max(same) - min(same) <= 1 for same in replicas.values())


@given(pairs())
def test_canonical_layouts_are_equal_exactly_if_each_device_holds_the_same(pair: tuple[Layout, Layout]) -> None:
    one, other = pair
    other = Layout(one.shape, one.dtype, one.place, other.mesh, other.sharding)
    if prod(other.mesh) != one.place.size or 0 in one.shape:
        return
    assert (boxes(one) == boxes(other)) == (canonical(one) == canonical(other))
    assert boxes(canonical(one)) == boxes(one)
    if is_local(one, other):
        holds = zip(boxes(one), boxes(other), strict=True)
        assert all(
            mine.start <= its.start and its.stop <= mine.stop
            for have, want in holds
            for mine, its in zip(have, want, strict=True)
        )


@pytest.mark.parametrize("per_axis", [(2, 3), (4, 1), (1, 1, 3), (2, 2, 2)])
def test_a_device_knows_its_virtual_index(per_axis: tuple[int, ...]) -> None:
    for strides in ([12, 4, 1], [1, 4, 12], [4, 12, 1]):
        place = Place(0, (Grid(100, per_axis, tuple(strides[: len(per_axis)])), Grid(50, (3,), (2,))))
        known = {place.device(index): index for index in range(place.size)}
        assert [virtual_index(place, device) for device in range(200)] == [
            known.get(device, -1) for device in range(200)
        ]


# --- examples ---------------------------------------------------------------------------------------------


def layout(first: int, mesh: tuple[int, ...], *dims: tuple[int, ...], shape: tuple[int, ...] = (8, 8)) -> Layout:
    return Layout(shape, "float32", line(0, first, prod(mesh)), mesh, Sharding(dims))


def test_from_m_shards_to_n() -> None:
    """From 4 shards to 2: each target shard gets two whole source shards."""
    source, target = layout(0, (4,), (0,), ()), layout(4, (2,), (0,), ())
    assert sends_by_host((source,), (target,), 1, Alike(1)) == ((4, 1, 64),)
    assert receives_by_host((source,), (target,), 5, Alike(1)) == ((2, 6, 64), (3, 7, 64))


def test_replicas_receive_the_array_once_for_each_host() -> None:
    """From one device to eight replicas on two hosts: each host receives the array once, for four devices."""
    source, target = layout(0, (1,), (), ()), layout(4, (8,), (), ())
    found = sends(source, target, 0, Alike(4))
    assert [(piece.receiver, piece.targets) for piece in found] == [(1, (0, 1, 2, 3)), (2, (4, 5, 6, 7))]


def test_each_host_with_replicas_sends_a_part() -> None:
    """From eight replicas on two hosts to eight shards on two other hosts: each host sends to one of them."""
    source, target = layout(0, (8,), (), ()), layout(8, (8,), (0,), ())
    assert {piece.receiver for piece in sends(source, target, 0, Alike(4))} == {2}
    assert {piece.receiver for piece in sends(source, target, 1, Alike(4))} == {3}


def test_a_host_plans_only_for_itself() -> None:
    """The work of a host follows its own pieces: among 100,000 devices it is the same as among eight."""
    for devices in (8, 100_000):
        source = layout(0, (devices,), (0,), (), shape=(devices, 8))
        target = layout(devices, (devices,), (0,), (), shape=(devices, 8))
        asked: list[int] = []

        class Counting(Alike):
            def host_of(self, device: int, asked: list[int] = asked) -> int:
                asked.append(device)
                return super().host_of(device)

        assert len(sends(source, target, 1, Counting(4))) == 4
        assert len(asked) <= 8


def test_the_largest_shard_is_the_memory_that_a_device_needs() -> None:
    assert shard_bytes(layout(0, (4, 2), (0,), ())) == 4 * 2 * 8
    assert shard_bytes(layout(0, (4, 2))) == 4 * 64
