"""Sub-slices as callers of `Resources` see them: they lie, wait, move and end with the slice that has their devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model import device_spans, spans
from core.model.errors import Impossible
from core.model.place import Grid, Place, line
from core.model.program import SliceSpec
from core.model.resharding import virtual_index
from core.model.topology import small
from core.slices.grids import compact
from core.slices.resources import BoundSlice, Moved, MustWait, Resources

from .test_resources import all_up, bound, exclusive, slice_spec, waits


def part_of(name: str, *picks: int, of: str = "s", **more: object) -> SliceSpec:
    return SliceSpec(name, len(picks), of=of, picks=picks, **more)  # type: ignore[arg-type]


def test_a_sub_slice_has_the_devices_that_it_picks_in_this_order() -> None:
    r = all_up(small(hosts=2, devices_per_host=4))
    assert bound(r.bind(1, slice_spec(4, "other"))) == [0, 1, 2, 3]
    assert bound(r.bind(1, slice_spec(4))) == [4, 5, 6, 7]
    assert bound(r.bind(1, part_of("part", 3, 1))) == [7, 5]
    assert bound(r.bind(1, part_of("one", 0))) == [4]
    assert r.place(1, "part") == Place(0, (Grid(7, (2,), (-2,)),))
    assert r.knows(1, "part")


def test_a_sub_slice_adds_no_load_and_takes_nothing_from_others() -> None:
    r = all_up(small(hosts=2, devices_per_host=2))
    r.bind(1, exclusive(2))
    r.bind(1, part_of("part", 1, 0))
    assert [r.load(device) for device in range(4)] == [1, 1, 0, 0]
    assert bound(r.bind(2, exclusive(2))) == [2, 3]


def test_a_sub_slice_waits_while_its_parent_waits_and_is_bound_with_it() -> None:
    r = all_up(small(hosts=1, devices_per_host=4))
    r.bind(1, exclusive(4))
    blockers = waits(r.bind(2, exclusive(4)))
    assert waits(r.bind(2, part_of("part", 2, 3))) == f"is a part of slice 's', which {blockers}"
    assert not r.lacks_hosts(2, "part")
    assert r.place(2, "part") is None
    r.release(1, "s")
    assert r.retry() == [(2, "s", BoundSlice(line(0, 0, 4))), (2, "part", BoundSlice(line(0, 2, 2)))]
    assert bound(r.bind(2, part_of("part", 2, 3))) == [2, 3]


def test_a_sub_slice_lacks_hosts_when_its_parent_does() -> None:
    r = Resources(small(hosts=2, devices_per_host=1))
    r.host_joined(0)
    r.bind(1, slice_spec(2))
    assert "hosts 1 of island" in waits(r.bind(1, part_of("part", 0)))
    assert r.lacks_hosts(1, "part")
    r.refusals.refused("agent-b", 0, "it is of another version", 5)
    assert r.renewed() == {
        (1, "s"): r.waiting()[0].reason,
        (1, "part"): f"is a part of slice 's', which {r.waiting()[0].reason}",
    }


def test_a_sub_slice_moves_with_its_parent() -> None:
    r = all_up(small(hosts=3, devices_per_host=2))
    r.bind(1, slice_spec(2))
    r.bind(1, part_of("part", 1))
    r.host_lost(0)
    assert r.remap(0) == [Moved(1, "s", line(0, 0, 2), line(0, 2, 2)), Moved(1, "part", line(0, 1, 1), line(0, 3, 1))]
    assert bound(r.bind(1, part_of("part", 1))) == [3]


def test_a_sub_slice_waits_when_its_parent_has_lost_its_place() -> None:
    r = all_up(small(hosts=1, devices_per_host=2))
    r.bind(1, slice_spec(2))
    r.bind(1, part_of("part", 1))
    r.host_lost(0)
    whole, part = r.remap(0)
    assert isinstance(whole.new, MustWait)
    assert part == Moved(1, "part", line(0, 1, 1), MustWait(f"is a part of slice 's', which {whole.new.reason}"))
    r.host_joined(0)
    assert [name for _, name, _ in r.retry()] == ["s", "part"]


def test_a_sub_slice_is_released_with_its_parent_or_alone() -> None:
    r = all_up(small(hosts=1, devices_per_host=4))
    r.bind(1, slice_spec(4))
    for name, pick in (("a", 0), ("b", 1), ("c", 2)):
        r.bind(1, part_of(name, pick))
    version = r.version
    assert r.release(1, "b") == ("b",)
    assert r.version > version  # whoever has its place asks again
    assert not r.knows(1, "b")
    assert r.release(1, "b") == ()
    assert r.release(1, "s") == ("s", "a", "c")
    assert not r.knows(1, "a")
    with pytest.raises(Impossible, match="not bound"):
        r.bind(1, part_of("a", 0))


def test_the_sub_slices_of_a_session_end_with_it() -> None:
    r = all_up(small(hosts=1, devices_per_host=2))
    for session in (1, 2):
        r.bind(session, slice_spec(2))
        r.bind(session, part_of("part", session - 1))
    r.release_session(1)
    assert not r.knows(1, "part")
    assert r.place(2, "part") == line(0, 1, 1)


REFUSED = (
    (part_of("part", 0, of="x"), "a part of slice 'x', which this session has not bound; it has bound 's': list"),
    (part_of("part", 0, 4, 9), "slice 'part' picks devices 4, 9 of slice 's', which has devices 0 to 3"),
    (part_of("part", 0, of="known"), "'known', which is itself a part of slice 's': say which devices of"),
    (part_of("known", 2, 1), "bound as devices 1, 2 of slice 's'; now it asks for devices 2, 1 of slice 's'"),
    (part_of("s", 2, 1), "slice 's' is bound as 4 devices; now it asks for devices 2, 1 of slice 's'"),
    (slice_spec(2, "known"), "is bound as devices 1, 2 of slice 's'; now it asks for 2 devices: release it first"),
)


@pytest.mark.parametrize(("spec", "why"), REFUSED)
def test_a_sub_slice_that_cannot_be_is_refused(spec: SliceSpec, why: str) -> None:
    r = all_up(small(hosts=1, devices_per_host=4))
    r.bind(1, slice_spec(4))
    r.bind(1, part_of("known", 1, 2))
    with pytest.raises(Impossible) as refused:
        r.bind(1, spec)
    assert why in str(refused.value)


def test_a_sub_slice_of_another_session_s_slice_is_refused() -> None:
    r = all_up(small(hosts=1, devices_per_host=4))
    r.bind(1, slice_spec(4))
    with pytest.raises(Impossible, match="which this session has not bound; it has bound none"):
        r.bind(2, part_of("part", 0))


REGULAR = st.builds(
    lambda base, shape, strides: tuple(Grid(base, shape, strides).devices()),
    st.integers(100, 120), st.tuples(*[st.integers(1, 4)] * 3),
    st.tuples(*[st.integers(1, 7) | st.integers(-7, -1)] * 3),
)  # fmt: skip
ANY_ORDER = st.permutations(range(12)).flatmap(lambda order: st.integers(1, 12).map(lambda n: tuple(order[:n])))


@given(REGULAR | ANY_ORDER)
def test_any_devices_in_any_order_are_a_place(devices: tuple[int, ...]) -> None:
    """Grids may run downwards, and one may lie between another's devices."""
    devices = tuple(dict.fromkeys(devices))
    place = Place(0, compact(devices))
    assert tuple(place.devices()) == devices
    assert tuple(place.device(number) for number in range(place.size)) == devices
    assert device_spans(place) == spans.of(devices)
    known = {device: number for number, device in enumerate(devices)}
    assert [virtual_index(place, device) for device in range(60, 180)] == [
        known.get(device, -1) for device in range(60, 180)
    ]
