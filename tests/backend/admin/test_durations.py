"""How long computations take is known of gangs that waited behind others on the same devices, and of no others."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from backend.admin.durations import durations
from core.record.trace import FAILED, Trace


class Gang(NamedTuple):
    entered: int
    ended: int
    step: str = "f"
    place: int = 0
    failed: bool = False


def traced(*gangs: Gang) -> Trace:
    """Places 0 and 1 are two halves of what place 2 is."""
    trace = Trace()
    for place, devices in enumerate(((0, 2), (2, 4), (0, 4))):
        trace.place(place, 0, (devices,))
    for seq, gang in enumerate(gangs):
        trace.gang(
            seq, 1, gang.step, 0, gang.place, entered=gang.entered, ended=gang.ended,
            flags=FAILED if gang.failed else 0,
        )  # fmt: skip
    return trace


@pytest.mark.parametrize(
    ("gangs", "found"),
    [
        ((), {}),
        ((Gang(0, 50),), {}),  # how long it was on its way, nobody knows
        ((Gang(0, 50), Gang(1, 80), Gang(2, 100)), {"f": (2, 25)}),
        ((Gang(0, 50), Gang(60, 80)), {}),  # the devices had nothing to do before it came
        ((Gang(0, 50), Gang(1, 80), Gang(2, 80)), {"f": (2, 15)}),  # told of together
        ((Gang(0, 50), Gang(1, 80), Gang(2, 80, "g")), {}),  # and who took how long, nobody knows
        # Behind one alone, the devices may have been idle until it came: five times 60, and three times 20.
        (
            (
                *(Gang(max(0, 60 * at - 1), 60 * at + 60) for at in range(5)),
                *(Gang(299, 320 + 20 * at) for at in range(4)),
            ),
            {"f": (3, 20)},
        ),
        ((Gang(0, 50), Gang(1, 80, failed=True), Gang(2, 100)), {"f": (1, 20)}),
        ((Gang(0, 50), Gang(0, 70, "g", 1), Gang(1, 80)), {"f": (1, 30)}),  # other devices
        ((Gang(0, 50), Gang(0, 70, "g", 2), Gang(1, 80)), {}),  # which have had these meanwhile
        ((Gang(0, 50), Gang(1, -1)), {}),
    ],
)
def test_times_are_those_of_gangs_that_waited(
    gangs: tuple[Gang, ...], found: dict[str, tuple[int, int]]
) -> None:
    assert durations(traced(*gangs)) == found
