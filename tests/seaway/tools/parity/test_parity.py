"""A program simulated and on real (timed) devices, over real gRPC: core decides the same, and devices are told it.

Policies x dispatch x shapes. If several clients share one place, and all calls have arrived before anything enters, the
order follows from the policy, and must be equal. If gangs of one island share no device, their order depends on which
device is free first. In that case the order is compared for one run after another, and for many at once all but the
order. What devices were told is always compared, and also when a host dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from core.schedule.policy import named
from seaway.tools.parity import compare
from seaway.tools.parity.compare import Comparison
from tests.backend.cluster import Cluster, wait_until

from . import rig, shapes
from .rig import S, Scene

POLICIES = ("fifo", "stride", "priority:age=0", "round_robin")  # none that depends on the clock
DISPATCH = ("parallel", "sequential")
# Each policy with each dispatch, and each shape with each dispatch and two policies: in the default run.
PAIRS = {
    ("fifo", "parallel", "chain"), ("fifo", "sequential", "irregular"), ("fifo", "parallel", "crossing"),
    ("stride", "sequential", "chain"), ("stride", "parallel", "resharding"), ("stride", "parallel", "fan-out"),
    ("priority:age=0", "parallel", "irregular"), ("priority:age=0", "sequential", "pipeline"),
    ("priority:age=0", "sequential", "crossing"), ("round_robin", "sequential", "resharding"),
    ("round_robin", "parallel", "pipeline"), ("round_robin", "sequential", "fan-out"),
}  # fmt: skip


def cases(names: Any) -> list[Any]:
    found = []
    for case in product(POLICIES, DISPATCH, names):
        marks = () if case in PAIRS else (pytest.mark.full,)
        found.append(pytest.param(*case, marks=marks, id="-".join(case)))
    return found


def scene(policy: str, dispatch: str, shape: str, **options: Any) -> Scene:
    islands = 2 if shape == "crossing" else 1
    return Scene(lambda: named(policy), shapes.ALL[shape](), dispatch, islands=islands, **options)


@pytest.mark.parametrize(("policy", "dispatch", "shape"), cases(shapes.ONE_PLACE))
def test_clients_that_share_a_place_get_the_same_order(policy: str, dispatch: str, shape: str, tmp_path: Path) -> None:
    free, devices = rig.both(scene(policy, dispatch, shape), tmp_path)
    assert free.equal, rig.text(free)
    assert devices.equal, rig.text(devices)


@pytest.mark.parametrize("policy", ["stride", "round_robin"])
def test_a_cluster_that_has_grown_meanwhile_decides_the_same(policy: str, tmp_path: Path) -> None:
    """The clients' programs send arrays between the island that was there and the one that has come."""
    free, devices = rig.both(scene(policy, "parallel", "crossing", one_by_one=True, grows=True), tmp_path)
    assert free.equal, rig.text(free)
    assert devices.equal, rig.text(devices)


@pytest.mark.parametrize(("policy", "dispatch", "shape"), cases(shapes.SEVERAL))
def test_runs_one_after_another_get_the_same_order(policy: str, dispatch: str, shape: str, tmp_path: Path) -> None:
    """Only where a whole run enters at once, as in parallel dispatch. Otherwise steps enter when hosts have reported,
    and hosts of other places may be sooner or later."""
    free, devices = rig.both(scene(policy, dispatch, shape, one_by_one=True, runs=2, window=8), tmp_path)
    assert free.equal or (dispatch == "sequential" and not beyond_order(free)), rig.text(free)
    assert devices.equal, rig.text(devices)


@pytest.mark.parametrize(("policy", "dispatch", "shape"), cases(shapes.SEVERAL))
def test_many_runs_over_several_places_differ_only_in_their_order(
    policy: str, dispatch: str, shape: str, tmp_path: Path
) -> None:
    free, devices = rig.both(scene(policy, dispatch, shape), tmp_path)
    assert not beyond_order(free), rig.text(free)
    assert devices.equal, rig.text(devices)


def beyond_order(found: Comparison) -> list[str]:
    return [row.what for row in found.rows if not row.equal and not row.what.startswith("order of island")]


def test_another_policy_is_detected_at_once(tmp_path: Path) -> None:
    one = rig.simulated(scene("fifo", "parallel", "chain"))
    other = rig.simulated(scene("round_robin", "parallel", "chain"))
    found = compare.compare(one, other, ("fifo", "round robin"))
    assert [row.what for row in found.rows if not row.equal] == ["order of island 'i0', 49 gangs"]
    (difference,) = found.differences
    assert "the first decision that differs on island 'i0' is number" in difference
    said = difference.splitlines()
    assert said[1:4:2] == ["  fifo:", "         1  client 'user-0', run 1 of 'chain', step 0 'step 0'"]
    assert said[4] == "  >      2  client 'user-0', run 1 of 'chain', step 1 'step 1'"
    assert said[-1] == "  >      2  client 'user-1', run 1 of 'chain', step 0 'step 0'"


@pytest.mark.parametrize(
    ("policy", "dispatch", "shape"),
    [
        pytest.param(*case, id="-".join(case),
                     marks=() if case == ("stride", "parallel", "crossing") else (pytest.mark.full,))
        for case in product(POLICIES, DISPATCH, shapes.ALL)
    ],
)  # fmt: skip
def test_devices_are_told_what_was_commanded_even_when_a_host_dies(
    policy: str, dispatch: str, shape: str, tmp_path: Path
) -> None:
    played = scene(policy, dispatch, shape, window=8)
    victim = played.hosts * played.islands - 1
    asyncio.run(rig.real(played, tmp_path, play=dies_and_returns(tmp_path), lease=2 * S))
    seen, devices = rig.judged(played, tmp_path)
    assert devices.equal, rig.text(devices)
    assert sum(map(len, seen.orders)) > 1
    assert any(text.startswith(f"host {victim} of island") for text in seen.told)


def dies_and_returns(folder: Path) -> Callable[[Scene, Cluster], Awaitable[None]]:
    """All is submitted; the last host dies when the first run has ended, and an agent takes its place."""

    async def play(what: Scene, found: Cluster) -> None:
        hosts = what.hosts * what.islands
        runs = await rig.submit_all(what, found)
        await runs[0][0].ended(runs[0][1])
        await found.agents[hosts - 1].stop()
        await wait_until(lambda: members(found) < hosts)
        again = await rig.start(what, found, folder, hosts - 1)
        again.devices.open()  # type: ignore[attr-defined]
        await wait_until(found.server.ready)
        for user, run in runs:
            await user.ended(run)
        await rig.leave(found)

    return play


def members(found: Cluster) -> int:
    controller = found.server.controller
    return sum(high - low for island in controller.state.islands for low, high in island.members)
