"""Buffers made of shards of other buffers, on real devices: they share memory, and each outlives the other.
`test_pjrt.py` runs these tests in a child process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from core.model.place import Grid, Place, line
from core.model.plan import Layout
from core.model.program import Out
from core.protocol import effects as e

from .pjrt_rig import Rig, value
from .pjrt_stage import ARRAY, DEVICES, ROWS, adding, layout, rig, shared

__all__ = ["rig", "shared"]  # fixtures

SPLIT = value((8, 4), ("x", ""))  # a row on each device
EIGHT = layout(SPLIT, mesh=(DEVICES,))
ONE = value((1, 4))
ALONE = {device: layout(ONE, line(0, device, 1), (1,)) for device in range(DEVICES)}


def view(rig: Rig, where: Layout, shards: Mapping[int, int]) -> int:
    number = rig.buffer()
    rig.devices.view(e.MakeView(number, where, tuple(shards.items()), ()))
    return number


def rows(rig: Rig) -> dict[int, int]:
    """A buffer on each device."""
    return {device: rig.literal(where, ARRAY[device : device + 1]) for device, where in ALONE.items()}


def addresses(rig: Rig, number: int) -> list[int]:
    rig.settle()
    held = rig.devices._store.get(number)
    assert held is not None
    return [part.data.unsafe_buffer_pointer() for part in held.array.addressable_shards]


def used(rig: Rig) -> Any:
    rig.settle()
    return sum(rig.devices._store.bytes.values())


def test_an_array_made_of_eight_is_their_memory(rig: Rig) -> None:
    sources = rows(rig)
    before = used(rig)
    whole = view(rig, EIGHT, sources)
    np.testing.assert_array_equal(rig.array(whole, EIGHT), ARRAY)
    assert addresses(rig, whole) == [addresses(rig, source)[0] for source in sources.values()]
    assert used(rig) == before


def test_a_shard_by_itself_is_the_memory_of_its_array(rig: Rig) -> None:
    whole = rig.literal(EIGHT, ARRAY)
    for device, where in ALONE.items():
        shard = view(rig, where, {device: whole})
        np.testing.assert_array_equal(rig.array(shard, where), ARRAY[device : device + 1])
        assert addresses(rig, shard) == addresses(rig, whole)[device : device + 1]


def test_devices_may_be_in_any_order(rig: Rig) -> None:
    sources = rows(rig)
    place = Place(0, (Grid(6, (2,), (1,)), Grid(2, (2,), (1,))))
    where = layout(value((4, 4), ("x", "")), place, (4,))
    found = view(rig, where, {device: sources[device] for device in (2, 3, 6, 7)})
    np.testing.assert_array_equal(rig.array(found, where), ARRAY[[6, 7, 2, 3]])


def test_numbers_on_their_devices_are_a_row_of_them(rig: Rig) -> None:
    number = value(())
    homes = {device: layout(number, line(0, device, 1), (1,)) for device in range(DEVICES)}
    sources = {device: rig.literal(where, np.float32(device)) for device, where in homes.items()}
    copies = layout(number, mesh=(DEVICES,))
    found = view(rig, copies, sources)
    rig.settle()
    held = rig.devices._store.get(found)
    assert held is not None
    assert [float(part.data) for part in held.array.addressable_shards] == list(range(DEVICES))


@pytest.mark.parametrize("first", ["the view", "the sources"])
def test_either_may_be_freed_first(rig: Rig, first: str) -> None:
    before, count = used(rig), len(rig.devices._store)
    sources = rows(rig)
    whole = view(rig, EIGHT, sources)
    if first == "the view":
        rig.devices.free(whole, 1)
        np.testing.assert_array_equal(rig.array(sources[3], ALONE[3]), ARRAY[3:4])
        for source in sources.values():
            rig.devices.free(source, 1)
    else:
        for source in sources.values():
            rig.devices.free(source, 1)
        np.testing.assert_array_equal(rig.array(whole, EIGHT), ARRAY)
        rig.devices.free(whole, 1)
    assert (used(rig), len(rig.devices._store)) == (before, count)


def test_a_gang_reads_a_view_and_takes_over_nothing_that_it_was_not_given(rig: Rig) -> None:
    """Code that may take over its argument is launched without: the shards stay."""
    plan = rig.ready(adding(donate=(0,)), Out(0), ident=71)
    where = layout(ROWS)
    source = rig.literal(where, ARRAY)
    whole = view(rig, where, dict.fromkeys(range(DEVICES), source))
    _, (made,) = rig.launch(plan, 0, [whole], donate=False)
    assert rig.wait(e.Finished).blame is None
    np.testing.assert_array_equal(rig.array(made, where), ARRAY + ARRAY.sum())
    np.testing.assert_array_equal(rig.array(source, where), ARRAY)
    np.testing.assert_array_equal(rig.array(whole, where), ARRAY)


def test_what_spoils_a_source_spoils_its_views_and_a_missing_source_too(rig: Rig) -> None:
    sources = rows(rig)
    whole = view(rig, EIGHT, sources)
    shard = view(rig, ALONE[2], {2: whole})
    other = view(rig, ALONE[3], {3: sources[3]})
    rig.devices.spoil(sources[2], "its sender is gone")
    lacking = view(rig, EIGHT, sources | {5: 999_999})
    rig.settle()
    for number in (whole, shard):
        with pytest.raises(LookupError, match="its sender is gone"):
            rig.devices.shards(number)
    np.testing.assert_array_equal(rig.array(other, ALONE[3]), ARRAY[3:4])
    with pytest.raises(LookupError, match="buffer 999999, of which it has a shard, is not on this host"):
        rig.devices.shards(lacking)


def test_keys_of_random_numbers_are_shared_too(rig: Rig) -> None:
    like, one = value((8,), ("x",), dtype="key<fry>"), value((1,), dtype="key<fry>")
    where = layout(like, mesh=(DEVICES,))
    keys = np.arange(8, dtype=np.uint64)
    whole = rig.received(where, keys)
    home = layout(one, line(0, 4, 1), (1,))
    shard = view(rig, home, {4: whole})
    assert rig.array(shard, home).tolist() == [4]
    again = view(rig, where, dict.fromkeys(range(DEVICES), whole) | {4: shard})
    assert rig.array(again, where).tolist() == keys.tolist()


def test_views_are_views_again_in_another_world(rig: Rig) -> None:
    sources = rows(rig)
    whole = view(rig, EIGHT, sources)
    shard = view(rig, ALONE[2], {2: whole})
    before, store = used(rig), rig.devices._store
    for change in (store.to_host, store.to_devices):
        rig.devices._line.ask(change)
    np.testing.assert_array_equal(rig.array(whole, EIGHT), ARRAY)
    assert addresses(rig, whole) == [addresses(rig, source)[0] for source in sources.values()]
    assert addresses(rig, shard) == addresses(rig, whole)[2:3]
    assert used(rig) == before
