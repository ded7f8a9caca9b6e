"""A scheduler on devices that take exactly the time they are told: gangs come at given times, and the clock jumps.

Devices are lists of gangs that run in order. It says when each gang entered, started and ended, and which devices were
reserved when, by looking at the scheduler after each event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from core.model import spans
from core.model.atoms import Atoms
from core.schedule.policy import Policy
from core.schedule.scheduler import Scheduler, Ticket


class Kept(NamedTuple):
    since: int
    until: int
    devices: frozenset[int]


class TimedGang:
    """A gang, and what became of it; times that have not come are -1."""

    def __init__(self, ticket: Ticket, devices: frozenset[int], lasts: int) -> None:
        self.ticket, self.devices, self.lasts = ticket, devices, lasts
        self.entered = self.started = self.ended = -1


class TimedWorld:
    def __init__(self, policy: Policy | type[Policy], window: int = 1, max_reserved: int = 1 << 60) -> None:
        self.atoms = Atoms()
        self.scheduler = Scheduler(self.atoms, policy, window, max_reserved=max_reserved)
        self.now = 0
        self.gangs: list[TimedGang] = []  # in the order in which they come
        self.order: list[TimedGang] = []  # as they entered
        self.kept: list[Kept] = []
        self.overruns: list[str] = []
        self._to_come: list[tuple[int, TimedGang]] = []
        self._keeps: dict[frozenset[int], int] = {}

    def comes(
        self, at: int, client: int, devices: Iterable[int], cost: int, *, lasts: int = 0, priority: int = 0,
        deadline: int = 0, weight: int = 1,
    ) -> TimedGang:  # fmt: skip
        """`lasts`: how long it really takes, if that is not its cost."""
        place = frozenset(devices)
        number = len(self.gangs) + 1
        ticket = Ticket(
            number, 0, client, self.atoms.intern_devices(spans.of(place)), cost, weight, priority, deadline, at
        )
        gang = TimedGang(ticket, place, lasts or cost)
        self.gangs.append(gang)
        self._to_come.append((at, gang))
        return gang

    def run(self) -> TimedWorld:
        """Until nothing is left to happen."""
        while (at := self._next()) is not None:
            assert at >= self.now
            self.now = at
            for gang in [gang for when, gang in self._to_come if when == at]:
                self.scheduler.offer(gang.ticket, at)
            self._to_come = [each for each in self._to_come if each[0] > at]
            for gang in [each for each in self.order if each.started >= 0 > each.ended]:
                if gang.started + gang.lasts == at:
                    gang.ended = at
                    self.scheduler.finished(gang.ticket, at)
            self.scheduler.wakeup(at)
            self._enter()
            self._look()
        assert not self.scheduler.faults, self.scheduler.faults
        return self

    def _next(self) -> int | None:
        times = [at for at, _ in self._to_come]
        times += [each.started + each.lasts for each in self.order if each.started >= 0 > each.ended]
        due = self.scheduler.next_wakeup()
        return min([*times, *([] if due is None else [due])], default=None)

    def _enter(self) -> None:
        while (ticket := self.scheduler.pick(self.now)) is not None:
            gang = self.gangs[ticket.run - 1]
            gang.entered = self.now
            self.order.append(gang)
        self.overruns += self.scheduler.overruns()
        left = [gang for gang in self.order if gang.ended < 0]
        for at, gang in enumerate(left):
            if gang.started < 0 and all(gang.devices.isdisjoint(other.devices) for other in left[:at]):
                gang.started = self.now

    def _look(self) -> None:
        now = {frozenset(spans.items(each.devices)) for each in self.scheduler.reserved}
        for devices in [each for each in self._keeps if each not in now]:
            self.kept.append(Kept(self._keeps.pop(devices), self.now, devices))
        for devices in now:
            self._keeps.setdefault(devices, self.now)
