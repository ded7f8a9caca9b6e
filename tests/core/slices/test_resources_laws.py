"""Laws of `Resources` under any sequence of calls and failures, checked against oracles."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.model.errors import Illegal, Impossible
from core.model.program import SliceSpec
from core.model.topology import Cluster, Island, small
from core.slices.resources import BoundSlice, MustWait, Resources
from tests.coordinates import device_at
from tests.laws import examples

from .test_resources import all_up

KINDS: list[Literal["packed", "spread"]] = ["packed", "spread"]
MESHES = [(), (), (2, 2), (1, 2), (2, 1), (2, 3), (4, 2)]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    islands = []
    for index in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            wraps = (draw(st.booleans()), draw(st.booleans()))
            islands.append(
                Island(name=f"i{index}", hosts=4, devices_per_host=2, torus=(4, 2), block=(1, 2), wraps=wraps,
                       spares=draw(st.integers(0, 1)), kind="v3")
            )  # fmt: skip
        else:
            hosts = draw(st.integers(1, 4))
            spares = draw(st.integers(0, hosts - 1))
            islands.append(
                Island(name=f"i{index}", hosts=hosts, devices_per_host=draw(st.integers(1, 3)), spares=spares)
            )
    return Cluster(tuple(islands))


@st.composite
def slices(draw: st.DrawFn) -> SliceSpec:
    mesh = draw(st.sampled_from(MESHES))
    count = mesh[0] * mesh[1] if mesh else draw(st.integers(1, 6))
    island, kind = draw(st.sampled_from([("", ""), ("", ""), ("i0", ""), ("i1", ""), ("", "v3")]))
    name = draw(st.sampled_from("ab"))
    layout = draw(st.sampled_from(KINDS))
    exclusive = draw(st.sampled_from([False, False, True]))
    return SliceSpec(name, count, mesh, kind, island, layout, exclusive)


STEPS = st.one_of(
    st.tuples(st.just("bind"), st.integers(1, 4), slices()),
    st.tuples(st.just("bind"), st.integers(1, 4), slices()),
    st.tuples(st.just("release"), st.integers(1, 4), st.sampled_from("ab")),
    st.tuples(st.just("release_session"), st.integers(1, 4), st.none()),
    st.tuples(st.sampled_from(["host_joined", "host_draining", "host_lost"]), st.integers(0, 7), st.none()),
    st.tuples(st.just("device_lost"), st.integers(0, 23), st.none()),
    st.tuples(st.sampled_from(["cordon", "lift"]), st.integers(0, 7), st.none()),
    st.tuples(
        st.sampled_from(["go", "go", "come", "stay", "park", "unpark"]), st.integers(1, 4), st.sampled_from("ab")
    ),
    st.tuples(st.just("turn"), st.none(), st.none()),
)


def make_call(r: Resources, step: tuple[str, object, object]) -> object:
    """Make one call. An error is an answer too."""
    what, first, second = step
    try:
        if what == "turn":
            return turn(r)
        if what in ("cordon", "lift"):
            r.cordon(int(str(first)) % r.cluster.hosts, what == "cordon")
            return None
        if what in ("go", "come", "stay", "park", "unpark"):
            return relocate(r, what, int(str(first)), str(second))
        call = getattr(r, what)
        return call(first) if second is None else call(first, second)
    except (Illegal, Impossible) as refused:
        return str(refused)


def relocate(r: Resources, what: str, session: int, name: str) -> object:
    """What `relocation` does with slices, one thing after another."""
    binding = r.binding(session, name)
    if binding is None or binding.place is None:
        return None
    if what == "go" and binding.target is None and (target := r.elsewhere(session, name)):
        r.aim(session, name, target)
    if what in ("come", "stay"):
        r.arrived(session, name, moved=what == "come")
    if what == "park" and not binding.target:
        r.park(session, name)
    if what == "unpark" and binding.parked and not binding.target:
        r.unpark(session, name)
    return r.binding(session, name)


def turn(r: Resources) -> object:
    moved = [r.remap(island.index) for island in r.cluster.islands]
    return moved, r.retry()


def check(r: Resources, settled: bool) -> None:
    """Check what holds after every call, and what holds when all slices that had to move have moved."""
    carried = dict.fromkeys(range(r.cluster.devices), 0)
    holders: dict[int, list[bool]] = {}
    for binding in r._bindings.values():
        if binding.place is None:
            assert binding.reason.startswith("waits for ")
            assert len(binding.reason) > len("waits for ")
            continue
        spec, island = binding.spec, r.cluster.islands[binding.place.island]
        devices = list(binding.place.devices())
        assert len(set(devices)) == spec.devices == binding.place.size
        assert all(island == r.cluster.island_of_device(device) for device in devices)
        assert spec.island in ("", island.name)
        assert spec.kind in ("", island.kind)
        assert not settled or all(r.usable(device) for device in devices)
        target = list(binding.target.devices()) if binding.target else []
        for device in (*(devices if not binding.parked else ()), *target):
            carried[device] += 1
        for device in dict.fromkeys([*(devices if not binding.parked else ()), *target]):
            holders.setdefault(device, []).append(spec.exclusive)
    assert {device: r.load(device) for device in carried} == carried
    assert all(len(held) == 1 for held in holders.values() if any(held))
    assert [b.key for b in r.waiting()] == [b.key for b in r._bindings.values() if b.place is None]


@given(clusters(), st.lists(STEPS, max_size=25), st.booleans())
@examples(250)
def test_loads_and_slices_are_consistent_under_any_calls(
    cluster: Cluster, steps: list[tuple[str, object, object]], up: bool
) -> None:
    """Loads are those of the bound slices, exclusive slices overlap no others, and devices are distinct and alive.
    A slice that is being moved has both places, and one that is parked has none.

    The same calls give the same results. In the end all hosts come back, and each slice that waits is bound when the
    others are released.
    """
    r, again = ((all_up if up else Resources)(cluster) for _ in range(2))
    for step in steps:
        assert make_call(r, step) == make_call(again, step)
        check(r, settled=step[0] == "turn")
    assert r._bindings == again._bindings

    for host in range(cluster.hosts):
        r.cordon(host, False)
        r.host_joined(host)
    for binding in list(r._bindings.values()):
        relocate(r, "stay", *binding.key)
        relocate(r, "unpark", *binding.key)
    turn(r)
    check(r, settled=True)
    while r._bindings:
        for binding in [b for b in r._bindings.values() if b.place]:
            r.release(*binding.key)
        served = r.retry()
        assert bool(served) == bool(r._bindings), "they wait for each other"
        check(r, settled=False)
    assert all(r.load(device) == 0 for device in range(cluster.devices))


@given(clusters(), slices())
@examples(150)
def test_impossible_if_and_only_if_an_empty_cluster_that_is_whole_has_no_place(
    cluster: Cluster, spec: SliceSpec
) -> None:
    """This holds even if no host has joined yet; then the slice waits."""
    empty = Resources(cluster)
    whole = all_up(cluster)
    try:
        answer = empty.bind(1, spec)
    except Impossible:
        with pytest.raises(Impossible):
            whole.bind(1, spec)
        assert not any(room(island, spec) for island in cluster.islands)
    else:
        assert isinstance(answer, MustWait)
        assert isinstance(whole.bind(1, spec), BoundSlice)
        assert any(room(island, spec) for island in cluster.islands)


def room(island: Island, spec: SliceSpec) -> bool:
    """Whether the mesh fits on a two-axis torus of `clusters`, by trying every orientation at every cell."""
    if spec.island not in ("", island.name) or spec.kind not in ("", island.kind):
        return False
    good = set(range(island.base_device, island.base_device + island.regular * island.devices_per_host))
    if not island.torus or not spec.mesh or spec.layout == "spread":
        return spec.devices <= len(good)
    tall, wide = island.torus
    for high, broad in (spec.mesh, spec.mesh[::-1]):
        for x in range(tall if island.wraps[0] else max(0, tall - high + 1)):
            for y in range(wide if island.wraps[1] else max(0, wide - broad + 1)):
                cells = {((x + i) % tall, (y + j) % wide) for i in range(high) for j in range(broad)}
                if len(cells) == spec.devices and {device_at(island, cell) for cell in cells} <= good:
                    return True
    return False


@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=12))
@examples(100)
def test_an_exclusive_slice_is_served_however_many_come_after_it(others: list[tuple[int, bool]]) -> None:
    """The slices that were there before are released one by one. It does not wait for any slice that comes later."""
    r = all_up(small(hosts=2, devices_per_host=2))
    for session, (devices, exclusive) in enumerate(others):
        r.bind(session, SliceSpec("s", devices, exclusive=exclusive))
    r.bind(100, SliceSpec("s", 3, exclusive=True))
    newcomer = 101
    for session in range(len(others)):
        r.bind(newcomer, SliceSpec("s", 1 + newcomer % 4))
        newcomer += 1
        r.release(session, "s")
        r.retry()
    assert r.place(100, "s") is not None
