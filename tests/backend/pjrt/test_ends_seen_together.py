"""When launches ended that were seen to be over all at once: the devices ran them one after the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest

from backend.devices import GangTimes
from backend.pjrt.completions import Completions, Flight
from core.protocol import effects as e


class Token:
    """What a launch makes last, in place of JAX's array; it is ready when somebody says so."""

    def __init__(self, over: threading.Event) -> None:
        self.over = over

    def is_ready(self) -> bool:
        return self.over.is_set()

    def block_until_ready(self) -> None:
        self.over.wait()


def ends(enqueued: Sequence[int], devices: Sequence[Sequence[int]], seen: int) -> list[int]:
    """When these launches ended, by the records; all are over when the waiting thread looks, at `seen`."""
    over, told, clock = threading.Event(), list[e.Event](), [0]
    stamps = GangTimes(lambda: clock[0])
    completions = Completions(told.append, stamps=stamps)
    for number, (begun, mine) in enumerate(zip(enqueued, devices, strict=True)):
        flight = Flight(
            number, Token(over), (), multi=False, together=False, name="g", run=0, enqueued=begun, devices=mine
        )
        completions.add(flight)
    clock[0] = seen
    over.set()
    until = time.monotonic() + 20
    while len(told) < len(enqueued) and time.monotonic() < until:
        time.sleep(0.001)
    completions.end()
    return [int(row["ended"]) for row in stamps.of([(0, 1)])]


@pytest.mark.parametrize(
    ("enqueued", "devices", "ended"),
    [
        ([0], [[0]], [300]),
        ([0, 10, 20], [[0], [0], [0]], [100, 200, 300]),  # evenly
        ([0, 10, 240], [[0], [0], [0]], [100, 200, 300]),
        ([0, 10, 280], [[0], [0], [0]], [100, 200, 300]),  # the last one began late: 280 to 300
        ([0, 0], [[0], [1]], [300, 300]),  # each had a device of its own
        ([0, 0, 0], [[0], [0], [0, 1]], [150, 300, 300]),
    ],
)
def test_time_is_divided_evenly_among_launches_that_are_over_together(
    enqueued: list[int], devices: list[list[int]], ended: list[int]
) -> None:
    assert ends(enqueued, devices, 300) == ended


def test_no_end_is_before_its_launch_was_enqueued() -> None:
    assert ends([0, 290, 295], [[0]] * 3, 300) == [100, 295, 300]
