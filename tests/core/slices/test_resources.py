"""`Resources` as its callers see it: slices are bound, shared, exclusive, wait, are released and are moved."""

from __future__ import annotations

import pytest

from core.model.errors import Illegal, Impossible
from core.model.place import Grid, Place, line
from core.model.program import SliceSpec
from core.model.topology import PRESETS, Cluster, Island, small
from core.slices.resources import BoundSlice, Moved, MustWait, Resources


def all_up(cluster: Cluster) -> Resources:
    found = Resources(cluster)
    for host in range(cluster.hosts):
        found.host_joined(host)
    return found


def bound(answer: BoundSlice | MustWait) -> list[int]:
    assert isinstance(answer, BoundSlice), answer
    return list(answer.place.devices())


def waits(answer: BoundSlice | MustWait) -> str:
    assert isinstance(answer, MustWait), answer
    return answer.reason


def slice_spec(devices: int, name: str = "s", **more: object) -> SliceSpec:
    return SliceSpec(name, devices, **more)  # type: ignore[arg-type]


def exclusive(devices: int, name: str = "s", **more: object) -> SliceSpec:
    return slice_spec(devices, name, exclusive=True, **more)


# --- sharing ------------------------------------------------------------------------------------------------


def test_slices_share_devices_and_the_least_loaded_devices_are_taken_first() -> None:
    r = all_up(small(hosts=2, devices_per_host=2))
    assert bound(r.bind(1, slice_spec(2))) == [0, 1]
    assert bound(r.bind(2, slice_spec(2))) == [2, 3]
    assert bound(r.bind(3, slice_spec(4))) == [0, 1, 2, 3]
    assert bound(r.bind(4, slice_spec(1))) == [0]
    assert [r.load(device) for device in range(4)] == [3, 2, 2, 2]
    assert bound(r.bind(5, slice_spec(1))) == [1]


def test_slices_of_one_session_share_devices_like_those_of_several() -> None:
    r = all_up(small(hosts=2, devices_per_host=1))
    assert [bound(r.bind(1, slice_spec(1, name))) for name in "abc"] == [[0], [1], [0]]


def test_a_slice_is_bound_at_first_use_and_keeps_its_devices() -> None:
    r = all_up(small(hosts=2, devices_per_host=2))
    first = r.bind(1, slice_spec(2))
    assert r.bind(2, slice_spec(2)) != first
    assert r.bind(1, slice_spec(2)) == first
    assert r.place(1, "s") == line(0, 0, 2)
    assert r.place(1, "t") is None
    assert [r.load(device) for device in range(4)] == [1, 1, 1, 1]


def test_one_name_in_a_session_is_one_slice() -> None:
    r = all_up(small(hosts=2, devices_per_host=2))
    r.bind(1, slice_spec(2))
    with pytest.raises(Impossible, match=r"slice 's' is bound as 2 devices; now it asks for 3 devices: release"):
        r.bind(1, slice_spec(3))
    assert r.place(1, "s") == line(0, 0, 2)
    assert r.release(1, "s")
    assert bound(r.bind(1, slice_spec(3))) == [0, 1, 2]


def test_the_requested_kind_and_island_are_respected() -> None:
    gpu = Island(name="gpu", hosts=1, devices_per_host=4, kind="h100")
    r = all_up(Cluster((Island(name="cpu", hosts=2, devices_per_host=2), gpu)))
    assert bound(r.bind(1, slice_spec(2, "a", kind="h100"))) == [4, 5]
    assert bound(r.bind(1, slice_spec(2, "b", island="gpu"))) == [6, 7]
    assert bound(r.bind(1, slice_spec(2, "c", kind="cpu"))) == [0, 1]
    assert bound(r.bind(1, slice_spec(2, "d"))) == [2, 3]


def test_spread_takes_a_device_of_every_host() -> None:
    r = all_up(small(hosts=4, devices_per_host=4))
    assert bound(r.bind(1, slice_spec(4, layout="spread"))) == [0, 4, 8, 12]
    assert bound(r.bind(2, slice_spec(6, layout="spread"))) == [1, 2, 5, 6, 9, 13]


def test_a_mesh_lies_on_the_torus_in_order() -> None:
    r = all_up(Cluster.from_table(PRESETS["C"]))
    island = r.cluster.island("c2")
    coords = [island.coords(device) for device in bound(r.bind(1, slice_spec(16, mesh=(4, 4), island="c2")))]
    assert coords == [(x, y) for x in range(4) for y in range(4)]
    coords = [island.coords(device) for device in bound(r.bind(1, slice_spec(8, "t", mesh=(4, 2), island="c2")))]
    assert coords == [(x, 4 + y) for y in range(4) for x in range(2)]  # rotated, so that it is on one host


# --- release ------------------------------------------------------------------------------------------------


def test_release_gives_back_exactly_what_was_bound() -> None:
    r = all_up(small(hosts=2, devices_per_host=2))
    r.bind(1, slice_spec(3, "a"))
    before = [r.load(device) for device in range(4)]
    r.bind(1, slice_spec(4, "b"))
    assert r.release(1, "b")
    assert [r.load(device) for device in range(4)] == before
    assert not r.release(1, "b")
    r.bind(2, slice_spec(2))
    r.release_session(1)
    assert [(b.session, b.spec.name) for b in r._bindings.values()] == [(2, "s")]
    assert sum(r.load(device) for device in range(4)) == 2


# --- exclusive slices ---------------------------------------------------------------------------------------


def test_an_exclusive_slice_shares_no_device() -> None:
    r = all_up(small(hosts=2, devices_per_host=2))
    assert bound(r.bind(1, exclusive(2))) == [0, 1]
    assert bound(r.bind(2, slice_spec(2))) == [2, 3]
    assert waits(r.bind(3, slice_spec(3))) == "waits for devices 0-2 of island 'i0', bound by slice 's' of session 1"
    text = "waits for devices 0-1 of island 'i0', bound by slice 's' of session 1, "
    text += "claimed before by slice 's' of session 3"
    assert waits(r.bind(4, exclusive(2))) == text
    assert r.bind(4, exclusive(2)) == MustWait(text)
    r.release(1, "s")
    assert r.retry() == [(3, "s", BoundSlice(line(0, 0, 3)))]
    assert waits(r.bind(4, exclusive(2))).endswith("devices 0-1 of island 'i0', bound by slice 's' of session 3")
    r.release(3, "s")
    assert r.retry() == [(4, "s", BoundSlice(line(0, 0, 2)))]
    assert r.retry() == []


def test_a_waiting_slice_is_not_starved_by_later_ones() -> None:
    r = all_up(small(hosts=2, devices_per_host=1))
    r.bind(1, slice_spec(1))
    r.bind(2, slice_spec(1))
    waits(r.bind(3, exclusive(1)))  # claims device 0
    assert bound(r.bind(4, slice_spec(1))) == [1]  # so later slices go elsewhere, though that is more loaded,
    waits(r.bind(5, slice_spec(2)))  # or wait behind it
    r.release(1, "s")
    assert r.retry() == [(3, "s", BoundSlice(line(0, 0, 1)))]
    r.release(3, "s")
    assert r.retry() == [(5, "s", BoundSlice(line(0, 0, 2)))]


def test_waiting_slices_that_can_share_do_not_wait_for_each_other() -> None:
    r = all_up(small(hosts=2, devices_per_host=1))
    r.bind(1, exclusive(1))
    waits(r.bind(2, slice_spec(2)))
    assert bound(r.bind(3, slice_spec(1))) == [1]
    waits(r.bind(4, exclusive(2)))
    assert waits(r.bind(5, slice_spec(1))).endswith(
        "bound by slice 's' of session 1, claimed before by slice 's' of session 4"
    )


def test_a_slice_that_lacks_hosts_keeps_no_devices_from_others() -> None:
    r = all_up(small(hosts=2, devices_per_host=1))
    r.host_lost(1)
    assert waits(r.bind(1, exclusive(2))) == "waits for hosts 1 of island 'i0' (lost)"
    assert bound(r.bind(2, exclusive(1))) == [0]
    r.host_joined(1)
    r.release(2, "s")
    assert r.retry() == [(1, "s", BoundSlice(line(0, 0, 2)))]


def test_a_waiting_slice_that_is_released_leaves_the_queue() -> None:
    r = all_up(small(hosts=1, devices_per_host=2))
    r.bind(1, slice_spec(2))
    waits(r.bind(2, exclusive(2)))
    waits(r.bind(3, slice_spec(1)))
    r.release_session(2)
    assert r.retry() == [(3, "s", BoundSlice(line(0, 0, 1)))]
    assert r.waiting() == ()


# --- impossible slices and waiting slices -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (slice_spec(9), "9 devices. The nearest that would fit: 8 devices"),
        (slice_spec(0), "0 devices. The nearest that would fit: 1 device"),
        (slice_spec(2, kind="v33"), "2 devices, kind 'v33'. The nearest that would fit: 2 devices, kind 'v3'"),
        (slice_spec(2, island="podd"), "island 'podd'. The nearest that would fit: 2 devices, on island 'pod'"),
        (slice_spec(2, kind="v3", island="few"), "island 'few'. The nearest that would fit: 2 devices, kind 'v3'"),
        (slice_spec(8, mesh=(2, 3)), "but a mesh 2x3 has 6. The nearest that would fit: 6 devices as a mesh 2x3"),
        (slice_spec(5, mesh=(5, 1)), "a mesh 5x1. The nearest that would fit: 4 devices as a mesh 4x1"),
        (slice_spec(6, mesh=(-2, -3)), "at least one device. The nearest that would fit: 6 devices as a mesh 2x3"),
        (exclusive(7, mesh=(7, 1)), "The nearest that would fit: 4 devices as a mesh 4x1, exclusive"),
    ],
)
def test_an_impossible_slice_is_refused_with_what_would_fit(spec: SliceSpec, text: str) -> None:
    pod = Island(name="pod", hosts=2, devices_per_host=4, kind="v3", torus=(2, 4), wraps=(False, False))
    r = Resources(Cluster((pod, Island(name="few", hosts=1, devices_per_host=2))))
    with pytest.raises(Impossible) as refused:
        r.bind(1, spec)
    there = "there is island 'pod': 2 hosts x 4 v3, torus 2x4; island 'few': 1 hosts x 2 cpu. "
    assert str(refused.value).startswith(there)
    assert text in str(refused.value)
    assert not r._bindings


def test_a_slice_that_waits_for_hosts_names_them() -> None:
    r = Resources(small(hosts=4, devices_per_host=1))
    assert waits(r.bind(1, slice_spec(3))) == "waits for hosts 0-3 of island 'i0' (absent)"
    for host in (0, 1, 3):
        r.host_joined(host)
    assert r.retry() == [(1, "s", BoundSlice(Place(0, ((line(0, 0, 2).grids[0]), line(0, 3, 1).grids[0]))))]
    r.host_draining(0)
    r.device_lost(1)
    text = "waits for hosts 2 of island 'i0' (absent); hosts 0 of island 'i0' (draining); "
    assert waits(r.bind(2, slice_spec(2))) == text + "devices 1 of island 'i0' (lost)"
    assert bound(r.bind(3, slice_spec(1))) == [3]


def test_only_hosts_of_the_table_can_join_and_leave() -> None:
    r = Resources(small(hosts=2, devices_per_host=2))
    for wrong in (r.host_draining, r.host_lost, r.device_lost):
        with pytest.raises(Illegal, match="is absent: it cannot be"):
            wrong(0)
    r.host_joined(0)
    r.device_lost(1)
    assert [r.usable(device) for device in range(4)] == [True, False, False, False]
    r.host_lost(0)
    r.host_lost(0)  # a second time
    with pytest.raises(Illegal, match="host 0 is lost: it cannot be draining"):
        r.host_draining(0)
    assert not r.usable(0)
    r.host_joined(0)  # back, with all its devices
    assert [r.usable(device) for device in range(4)] == [True, True, False, False]
    with pytest.raises(Impossible, match="no host 2"):
        r.host_joined(2)


# --- moving -------------------------------------------------------------------------------------------------


def test_only_slices_that_lost_a_device_move() -> None:
    r = all_up(small(hosts=3, devices_per_host=2))
    for session in (1, 2, 3):
        r.bind(session, slice_spec(2))
    assert r.remap(0) == []
    r.host_lost(1)
    assert r.remap(0) == [Moved(2, "s", line(0, 2, 2), BoundSlice(line(0, 0, 2)).place)]
    assert [r.load(device) for device in range(6)] == [2, 2, 0, 0, 1, 1]
    r.device_lost(5)
    assert r.remap(0) == [Moved(3, "s", line(0, 4, 2), line(0, 0, 2))]
    r.host_joined(1)
    assert r.remap(0) == []
    r.host_draining(0)
    assert [(m.session, m.new) for m in r.remap(0)] == [(s, line(0, 2, 2)) for s in (1, 2, 3)]


def test_a_slice_moves_to_another_island_only_if_it_named_none_and_its_own_has_no_room() -> None:
    r = all_up(small(hosts=2, devices_per_host=2, islands=2))
    r.bind(1, slice_spec(4, island="i0"))
    r.bind(2, slice_spec(4))  # on i1, which has no slices
    r.bind(3, slice_spec(4, island="i1"))
    r.host_lost(2)
    away, stuck = r.remap(1)
    assert away == Moved(2, "s", line(1, 4, 4), line(0, 0, 4))
    assert stuck == Moved(3, "s", line(1, 4, 4), MustWait("waits for hosts 2 of island 'i1' (lost)"))
    assert r.place(3, "s") is None
    r.host_joined(2)
    assert r.retry() == [(3, "s", BoundSlice(line(1, 4, 4)))]


def test_what_needs_a_slice_is_not_to_wait_for_hosts_if_that_is_what_the_slice_says() -> None:
    r = all_up(small(hosts=2, devices_per_host=2, islands=2))
    spec = slice_spec(4, island="i1", absent="fail")
    part = SliceSpec("part", 1, of="s", picks=(3,))
    r.bind(1, spec)
    r.bind(1, part)
    r.host_lost(2)
    down = MustWait("is down: it waits for hosts 2 of island 'i1' (lost)", fails=True)
    of_part = MustWait("is down: it is a part of slice 's', which waits for hosts 2 of island 'i1' (lost)", fails=True)
    assert [each.new for each in r.remap(1)] == [down, of_part]
    assert (r.bind(1, spec), r.bind(1, part)) == (down, of_part)
    r.host_joined(2)
    assert bound(r.bind(2, slice_spec(4, island="i1", exclusive=True))) == [4, 5, 6, 7]
    r.retry()
    waits(r.bind(1, spec))
    assert r.bind(1, spec) == MustWait(r.waiting()[0].reason)  # hosts are up, and another has their devices


def test_a_slice_that_must_move_stays_on_its_island_even_if_others_are_less_loaded() -> None:
    r = all_up(small(hosts=2, devices_per_host=1, islands=2))
    r.bind(1, slice_spec(1))
    r.bind(2, slice_spec(1, island="i0"))
    r.host_lost(0)
    assert r.remap(0) == [Moved(1, "s", line(0, 0, 1), line(0, 1, 1))]


def test_a_slice_that_had_to_move_is_bound_before_later_ones() -> None:
    r = all_up(small(hosts=2, devices_per_host=1))
    r.bind(1, exclusive(1))
    r.bind(2, exclusive(1))
    waits(r.bind(3, exclusive(1)))
    r.host_lost(1)
    assert isinstance(r.remap(0)[0].new, MustWait)
    assert [b.session for b in r.waiting()] == [2, 3]
    r.release(1, "s")
    assert r.retry() == [(2, "s", BoundSlice(line(0, 0, 1)))]


def test_spares_stay_out_until_a_host_fails() -> None:
    r = all_up(Cluster((Island(name="i", hosts=3, devices_per_host=2, spares=1),)))
    with pytest.raises(Impossible, match=r"1 of the hosts spare.*nearest that would fit: 4 devices"):
        r.bind(1, slice_spec(6))
    for session in (1, 2):
        r.bind(session, slice_spec(4))
    assert [r.load(device) for device in range(6)] == [2, 2, 2, 2, 0, 0]
    r.host_lost(0)
    assert [moved.new for moved in r.remap(0)] == [line(0, 2, 4)] * 2
    assert bound(r.bind(3, slice_spec(4))) == [2, 3, 4, 5]  # the spare replaces the lost host
    r.host_joined(0)
    assert bound(r.bind(4, slice_spec(4))) == [0, 1, 2, 3]
    r.release_session(3)
    assert bound(r.bind(5, slice_spec(2))) == [0, 1]  # the spare is not used any more


def test_the_spare_that_carries_slices_is_the_one_that_replaces_a_host() -> None:
    r = all_up(Cluster((Island(name="i", hosts=4, devices_per_host=1, spares=2),)))
    r.bind(1, slice_spec(2))
    r.host_lost(2)
    r.host_lost(0)
    assert [moved.new for moved in r.remap(0)] == [Place(0, (Grid(1, (2,), (2,)),))]
    r.host_joined(2)
    assert bound(r.bind(2, slice_spec(2))) == [1, 3]


def test_one_spare_replaces_one_host() -> None:
    r = all_up(Cluster((Island(name="i", hosts=4, devices_per_host=1, spares=2),)))
    r.host_lost(0)
    assert bound(r.bind(1, exclusive(2))) == [1, 2]
    assert waits(r.bind(2, slice_spec(1))).startswith("waits for devices 1 of island 'i', bound by slice 's'")
    r.host_lost(2)
    assert r.remap(0) == [Moved(1, "s", line(0, 1, 2), Place(0, (Grid(1, (2,), (2,)),)))]


def test_a_block_of_the_torus_moves_onto_spares() -> None:
    island = Island(name="i", hosts=6, devices_per_host=1, torus=(3, 2), block=(1, 1), spares=2)
    r = all_up(Cluster((island,)))
    assert bound(r.bind(1, slice_spec(4, mesh=(2, 2)))) == [0, 1, 2, 3]
    r.host_lost(0)
    (moved,) = r.remap(0)
    assert moved.new == line(0, 2, 4)  # two spares for one host: otherwise it is not a block


def test_a_claim_is_kept_while_its_devices_are_there() -> None:
    r = all_up(small(hosts=3, devices_per_host=1))
    r.bind(1, slice_spec(3))
    waits(r.bind(2, exclusive(1)))
    assert r.waiting()[0].claim == line(0, 0, 1)
    r.bind(3, slice_spec(2))
    r.host_lost(0)
    r.remap(0)
    r.retry()
    assert r.waiting()[-1].claim == line(0, 1, 1)
    r.host_joined(0)
    assert r.retry() == [(1, "s", BoundSlice(line(0, 0, 3)))]
    assert r.waiting()[0].claim == line(0, 1, 1)  # though device 0 is less loaded


def test_a_claim_on_a_spare_ends_when_the_spare_rests() -> None:
    r = all_up(Cluster((Island(name="i", hosts=3, devices_per_host=1, spares=1),)))
    r.host_lost(0)
    r.bind(1, slice_spec(2))
    waits(r.bind(2, exclusive(2)))
    assert r.waiting()[0].claim == line(0, 1, 2)
    r.host_joined(0)
    assert r.retry() == []
    assert r.waiting()[0].claim == line(0, 0, 2)


def test_a_claim_does_not_bar_the_session_that_it_waits_for() -> None:
    """Otherwise both would wait for ever: the claim for the session's devices, the session for the claim."""
    resources = Resources(small(1, 4))
    resources.host_joined(0)
    assert isinstance(resources.bind(1, SliceSpec("a", 2)), BoundSlice)
    assert isinstance(resources.bind(2, SliceSpec("alone", 4, exclusive=True)), MustWait)
    assert isinstance(resources.bind(3, SliceSpec("c", 4)), MustWait)  # behind the claim
    assert isinstance(resources.bind(1, SliceSpec("b", 4)), BoundSlice)  # not behind the slice that waits for it
