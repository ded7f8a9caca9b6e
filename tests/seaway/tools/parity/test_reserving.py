"""Policies that keep devices free decide in the simulator and on real (timed) devices, over real gRPC, also while a
host dies: devices are told what was commanded, and nothing waits for devices that are kept for nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.model.program import Program
from core.schedule.policy import Policy, Ready, Reserve, Ticket
from tests.core.build import Build
from tests.reserving.backfill import EasyBackfill
from tests.reserving.gang_reservation import GangReservation

from . import rig
from .rig import S, Scene
from .shapes import DEVICES
from .test_parity import beyond_order, dies_and_returns

POLICIES = (EasyBackfill, GangReservation)


def scene(kind: type[Policy], reserved: list[Reserve]) -> Scene:
    """One client has all devices, those before and behind it half of them. `reserved` gets each answer that keeps
    devices."""

    class Noting(kind):  # type: ignore[valid-type, misc]
        def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
            found: Ticket | Reserve = super().pick(ready, now)
            if isinstance(found, Reserve):
                reserved.append(found)
            return found

    half = DEVICES // 2
    return Scene(Noting, [chain(half, S // 50), chain(DEVICES, S // 50), chain(half, S // 20)], window=8)


def chain(devices: int, cost: int) -> Program:
    b = Build(f"chain on {devices}", s=devices)
    x = b.arg("s", devices, split="0")
    for number in range(3):
        x = b.call(f"{cost} on {devices}", "s", [x], cost=cost, node=f"step {number}")
    return b.program(x)


@pytest.mark.parametrize("kind", POLICIES)
def test_a_policy_that_reserves_is_the_same_in_both(kind: type[Policy], tmp_path: Path) -> None:
    simulated: list[Reserve] = []
    rig.simulated(scene(kind, simulated))
    either: list[Reserve] = []
    free, devices = rig.both(scene(kind, either), tmp_path)
    assert simulated, "it kept devices"
    assert len(either) > len(simulated), "on real devices, too"
    assert not beyond_order(free), rig.text(free)
    assert devices.equal, rig.text(devices)


@pytest.mark.parametrize("kind", [EasyBackfill, pytest.param(GangReservation, marks=pytest.mark.full)])
def test_devices_that_are_kept_when_a_host_dies_are_kept_no_longer(kind: type[Policy], tmp_path: Path) -> None:
    reserved: list[Reserve] = []
    played = scene(kind, reserved)
    asyncio.run(rig.real(played, tmp_path, play=dies_and_returns(tmp_path), lease=2 * S))
    seen, devices = rig.judged(played, tmp_path)
    assert reserved
    assert devices.equal, rig.text(devices)
    assert sum(map(len, seen.orders)) > 1
