"""A get takes each shard once, from the lowest host that has it, and no host looks beyond its own devices for that."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model import Layout, Place, Sharding, Shards, canonical, line, shard_bytes, spans
from core.transfer import from_client, from_hosts, hosts_of, pieces, senders_to_client, to_client
from tests.core.model.test_resharding import Alike, pairs
from tests.laws import examples

CLIENT = 7
DEVICES = 2048


class Counting(Alike):
    """Hosts that note which devices and hosts they are asked about."""

    def __init__(self, devices_per_host: int) -> None:
        super().__init__(devices_per_host)
        self.asked: list[int] = []

    def host_of(self, device: int) -> int:
        self.asked.append(device)
        return super().host_of(device)


def holders(layout: Layout, hosts: Alike) -> dict[int, set[int]]:
    """Return, for each shard, the hosts that have it, by the definition of a layout."""
    shards = Shards(layout)
    found: dict[int, set[int]] = {}
    for virtual, device in enumerate(layout.place.devices()):
        found.setdefault(shards.ordinal(shards.shard_of(virtual)), set()).add(hosts.host_of(device))
    return found


@given(pairs(), st.sampled_from([1, 2, 3, 4]))
@examples(300)
def test_each_shard_comes_once_from_the_lowest_host_that_has_it(
    pair: tuple[Layout, Layout], devices_per_host: int
) -> None:
    layout, hosts = pair[0], Alike(devices_per_host)
    nbytes = shard_bytes(layout)
    expected = sorted((min(having), shard, nbytes) for shard, having in holders(layout, hosts).items())
    assert list(from_hosts(layout, hosts)) == expected
    for host in range(32 // devices_per_host):
        mine = [(-CLIENT, shard, nbytes) for sender, shard, _ in expected if sender == host]
        assert list(to_client(layout, CLIENT, host, hosts)) == mine
    assert list(spans.items(senders_to_client(layout, hosts))) == sorted({host for host, *_ in expected})


@given(pairs(), st.sampled_from([1, 2, 3, 4]))
def test_a_put_gives_each_host_each_of_its_shards_once(pair: tuple[Layout, Layout], devices_per_host: int) -> None:
    layout, hosts = pair[0], Alike(devices_per_host)
    having = holders(layout, hosts)
    for host in hosts_of(layout.place, hosts):
        mine = sorted(shard for shard in having if host in having[shard])
        assert list(from_client(layout, CLIENT, host, hosts)) == [
            (-CLIENT, shard, shard_bytes(layout)) for shard in mine
        ]


@given(pairs(), st.sampled_from([1, 2, 4]))
def test_layouts_with_one_canonical_form_have_the_same_senders(
    pair: tuple[Layout, Layout], devices_per_host: int
) -> None:
    layout, hosts = pair[0], Alike(devices_per_host)
    assert from_hosts(canonical(layout), hosts) == from_hosts(layout, hosts)


# --- what it costs ------------------------------------------------------------------------------------------


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield the numbers of devices of all passes over a layout's devices. Nothing is remembered from before."""
    found: list[int] = []
    numbers = pieces._shard_numbers

    def noted(mesh: tuple[int, ...], split: tuple[int, ...]) -> list[int]:
        found.append(prod(mesh))
        return numbers(mesh, split)

    pieces._senders.cache_clear()
    monkeypatch.setattr(pieces, "_shard_numbers", noted)
    yield found
    pieces._senders.cache_clear()


def large(*dims: tuple[int, ...], size: int = 1, place: Place | None = None) -> Layout:
    """An array on 512 hosts, which the mesh axes `dims` split."""
    mesh, sharding = (64, 32), Sharding(dims)
    shape = tuple(size * prod(mesh[axis] for axis in axes) for axes in dims)
    return Layout(shape, "float32", place or line(0, 0, DEVICES), mesh, sharding)


@pytest.mark.parametrize("dims", [(), ((0, 1),), ((0,),), ((1,),), ((1,), (0,))])
def test_no_host_looks_beyond_its_own_devices(dims: tuple[tuple[int, ...], ...], passes: list[int]) -> None:
    hosts, layout = Counting(4), large(*dims)
    for host in range(DEVICES // 4):
        to_client(layout, CLIENT, host, hosts)
    assert not hosts.asked
    from_hosts(layout, hosts)
    assert len(hosts.asked) == Shards(layout).count  # it asks about each sender once, and not about each replica
    assert passes == [DEVICES]


def test_a_pass_serves_arrays_of_all_sizes(passes: list[int]) -> None:
    hosts = Alike(4)
    for size in range(1, 100):
        assert len(from_hosts(large((0,), (1,), size=size), hosts)) == DEVICES
        assert len(from_hosts(large((0, 1), size=size), hosts)) == DEVICES  # the same devices have the same shards
    assert passes == [DEVICES]


def test_what_is_remembered_is_bounded(passes: list[int]) -> None:
    many = [large((0,), place=line(0, 4 * number, DEVICES)) for number in range(pieces.KEPT + 1)]
    for layout in (*many, *many[1:]):
        from_hosts(layout, Alike(4))
    assert len(passes) == len(many)
    from_hosts(many[0], Alike(4))
    assert len(passes) == len(many) + 1
