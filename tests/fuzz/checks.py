"""Checkers that only the fuzzer uses, because they read the controller's internal state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.model import spans
from core.model.place import device_spans
from core.model.plan import Gang
from tests.invariants import Checker, Entered, EpochFormed, Observation

if TYPE_CHECKING:
    from tests.world.world import World


class Windows(Checker):
    """Checks that no device has more gangs ahead than the dispatch window allows."""

    name = "window"
    sees = (Entered,)

    def __init__(self, controller: Any) -> None:
        self._controller = controller

    def saw(self, seen: Observation, now: int) -> None:
        assert isinstance(seen, Entered)
        config, places = self._controller.state.config, []
        for flight in self._controller.in_flight.on(seen.island):
            step = flight.run.plan.steps[flight.step] if flight.kind == "gang" else None
            if isinstance(step, Gang):
                places.append((device_spans(step.place), step.cost))
        for device in spans.items(seen.devices):
            costs = [cost for place, cost in places if spans.contains(place, device)]
            # It is not known which gang entered last, so the check allows for the costliest.
            ahead, before = len(costs), sum(costs) - max(costs)
            if ahead > config.window and (ahead > config.window_most or before >= config.window_span):
                self.fail(
                    f"device {device} has {ahead} gangs in the order that take {sum(costs)} ns, and the window is "
                    f"{config.window}, or {config.window_most} within {config.window_span} ns"
                )


class Members(Checker):
    """Checks that the steps in an island's order wait only for members: no other host would report their end."""

    name = "members"
    sees = (EpochFormed,)

    def __init__(self, controller: Any) -> None:
        self._controller = controller

    def saw(self, seen: Observation, now: int) -> None:
        """Do nothing: `look` checks."""

    def look(self, now: int) -> None:
        for island in self._controller.state.islands:
            if island.phase == "running":
                for flight in self._controller.in_flight.on(island.island.index):
                    strangers = spans.minus(flight.left, island.members)
                    if strangers:
                        self.fail(f"{flight.kind} {flight.seq} waits for hosts {spans.text(strangers)}, not members")


class LiveController:
    """The internal state of the current controller, also after a restart, for the checkers that read it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.machine, name)
