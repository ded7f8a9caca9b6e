"""Durations are known only for gangs that waited behind others on the same devices."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from backend.admin.trace_export import durations, durations_of
from core.record.trace import FAILED, Trace


class Gang(NamedTuple):
    entered: int
    ended: int
    step: str = "f"
    place: int = 0
    failed: bool = False
    client: int = 0


def traced(*gangs: Gang) -> Trace:
    """A trace of these gangs. Places 0 and 1 are the two halves of place 2."""
    trace = Trace()
    for place, devices in enumerate(((0, 2), (2, 4), (0, 4))):
        trace.place(place, 0, (devices,))
    for run, gang in enumerate(gangs):
        trace.submitted(run, gang.client, run, gang.step, 0)
    for seq, gang in enumerate(gangs):
        trace.gang(
            seq, seq, gang.step, 0, gang.place, entered=gang.entered, ended=gang.ended,
            flags=FAILED if gang.failed else 0,
        )  # fmt: skip
    return trace


@pytest.mark.parametrize(
    ("gangs", "found"),
    [
        ((), {}),
        ((Gang(0, 50),), {}),  # how long it was on its way is unknown
        ((Gang(0, 50), Gang(1, 80), Gang(2, 100)), {"f": (2, 25)}),
        ((Gang(0, 50), Gang(60, 80)), {}),  # the devices were idle before it came
        ((Gang(0, 50), Gang(1, 80), Gang(2, 80)), {"f": (2, 15)}),  # reported together
        ((Gang(0, 50), Gang(1, 80), Gang(2, 80, "g")), {}),  # how long each of them took is unknown
        # Behind a single gang, the devices may have been idle until the next came: five times 60, and three times 20.
        (
            (
                *(Gang(max(0, 60 * at - 1), 60 * at + 60) for at in range(5)),
                *(Gang(299, 320 + 20 * at) for at in range(4)),
            ),
            {"f": (3, 20)},
        ),
        ((Gang(0, 50), Gang(1, 80, failed=True), Gang(2, 100)), {"f": (1, 20)}),
        ((Gang(0, 50), Gang(0, 70, "g", 1), Gang(1, 80)), {"f": (1, 30)}),  # on other devices
        ((Gang(0, 50), Gang(0, 70, "g", 2), Gang(1, 80)), {}),  # the other gang had these devices meanwhile
        ((Gang(0, 50), Gang(1, -1)), {}),
    ],
)
def test_times_are_those_of_gangs_that_waited(gangs: tuple[Gang, ...], found: dict[str, tuple[int, int]]) -> None:
    assert durations(traced(*gangs)) == found


def test_steps_of_two_clients_that_have_one_name_have_a_time_each() -> None:
    """Their gangs take turns: those of client 1 take 10, those of client 2 take 20."""
    first = [Gang(at, 50 + at * 30, client=1) for at in range(1, 5)]
    second = [Gang(at, 70 + at * 30, client=2) for at in range(1, 5)]
    trace = traced(Gang(0, 50), *(gang for pair in zip(first, second, strict=True) for gang in pair))
    assert durations_of(trace, {1, 2, 3}) == {1: {"f": (3, 10)}, 2: {"f": (4, 20)}}
    assert durations_of(trace, {2}) == {2: {"f": (4, 20)}}
    assert durations(trace) == {"f": (7, 16)}
