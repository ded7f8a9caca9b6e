"""Promises that only the fuzzer holds core to: it looks into the controller to judge them."""

from __future__ import annotations

from typing import Any

from core import spans
from core.invariants import Checker, Entered, Observation
from core.place import device_spans
from core.plan import Gang


class Windows(Checker):
    """No device has more gangs ahead than the dispatch window."""

    name = "window"
    sees = (Entered,)

    def __init__(self, books: Any, window: int) -> None:
        self._books, self._window = books, window

    def saw(self, seen: Observation, now: int) -> None:
        assert isinstance(seen, Entered)
        places = []
        for flight in self._books.flights.on(seen.island):
            step = flight.run.plan.steps[flight.step] if flight.kind == "gang" else None
            if isinstance(step, Gang):
                places.append(device_spans(step.place))
        for device in spans.items(seen.devices):
            ahead = sum(spans.contains(place, device) for place in places)
            if ahead > self._window:
                self.fail(f"device {device} has {ahead} gangs in the order, and the window is {self._window}")
