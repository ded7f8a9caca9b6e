"""Takes an order from a scheduler and checks each pick against a simple model of one island's devices.

The model has sets of devices and lists of tickets, but no atoms, lanes, heaps or domains: it computes anew each time
what the scheduler keeps in counters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from core.model import spans
from core.model.atoms import Atoms
from core.schedule.contention import Window
from core.schedule.policy import Policy
from core.schedule.scheduler import Scheduler, Ticket

EarlyEntry = Literal["always", "idle", "never"]


class OrderWorld:
    def __init__(
        self,
        policy: Policy | type[Policy],
        window: int | Window = 2,
        max_passes: int = 8,
        early: EarlyEntry = "idle",
        quiet: int = 100,
    ) -> None:
        self.atoms = Atoms()
        self.scheduler = Scheduler(self.atoms, policy, window, max_passes, early, quiet=quiet)
        self.window = Window(window) if isinstance(window, int) else window
        self.quiet = quiet
        self.early = early
        self.may_fault = False  # whether the policy is expected to fail
        self.now = 0
        self.runs = 0
        self.waiting: list[Ticket] = []
        self.flying: list[Ticket] = []
        self.order: list[Ticket] = []
        self.when: list[int] = []  # when each gang of the order entered
        self.places: dict[int, frozenset[int]] = {}

    def offer(
        self,
        client: int,
        devices: Iterable[int],
        cost: int = 10,
        *,
        run: int = 0,
        step: int = 0,
        weight: int = 1,
        priority: int = 0,
        deadline: int = 0,
        submitted: int | None = None,
        ripe: bool = True,
    ) -> Ticket:
        place = frozenset(devices)
        key = self.atoms.intern_devices(spans.of(place))
        self.places[key] = place
        self.runs += 1
        ticket = Ticket(
            run=run or self.runs, step=step, client=client, place=key, cost=cost, weight=weight,
            priority=priority, deadline=deadline, ripe=ripe,
            submitted=self.now if submitted is None else submitted,
        )  # fmt: skip
        self.scheduler.offer(ticket, self.now)
        self.waiting.append(ticket)
        return ticket

    def devices(self, ticket: Ticket) -> frozenset[int]:
        return self.places[ticket.place]

    def ahead(self, device: int) -> tuple[int, int]:
        """Return (number of gangs ahead on this device, their costs together)."""
        costs = [each.cost for each in self.flying if device in self.devices(each)]
        return len(costs), sum(costs)

    def overlap(self, one: Ticket, other: Ticket) -> bool:
        return not self.devices(one).isdisjoint(self.devices(other))

    def room(self, ticket: Ticket) -> bool:
        """Whether the window has room on each of the ticket's devices."""
        return all(not self.window.full(*self.ahead(device)) for device in self.devices(ticket))

    def held(self, ticket: Ticket) -> bool:
        """Whether the ticket must wait for its inputs."""
        if ticket.ripe or self.early == "always":
            return False
        return (
            self.early == "never"
            or any(other.ripe and self.overlap(ticket, other) for other in self.waiting)
            or any(
                self.overlap(ticket, other) and other.client != ticket.client and self.now - when < self.quiet
                for other, when in zip(self.order, self.when, strict=True)
            )
        )

    def pick(self) -> Ticket | None:
        ticket = self.scheduler.pick(self.now)
        if ticket is not None:
            assert ticket in self.waiting
            assert self.room(ticket), "a device has too many gangs ahead"
            assert not self.held(ticket), "its inputs are late, and other gangs are ready"
            self.waiting.remove(ticket)
            self.flying.append(ticket)
            self.order.append(ticket)
            self.when.append(self.now)
        return ticket

    def fill(self) -> list[Ticket]:
        """Let all gangs enter that may. Check that none was left out, and return them."""
        picked = []
        while (ticket := self.pick()) is not None:
            picked.append(ticket)
        why = {id(wait.ticket): wait.why for wait in self.scheduler.waiting()}
        assert len(why) == len(self.waiting)
        assert not self.scheduler.faults or self.may_fault
        for ticket in self.waiting:
            if self.room(ticket) and not self.held(ticket):
                assert why[id(ticket)] == "passed", f"it could enter, and did not: {why[id(ticket)]}"
                assert any(self.overlap(ticket, other) and not self.room(other) for other in self.waiting) or any(
                    why[id(other)] == "passed" for other in self.waiting if other is not ticket
                )
        return picked

    def may_finish(self) -> list[Ticket]:
        """Return the gangs that may finish now: those that are first on all their devices, which run in order."""
        return [
            ticket
            for at, ticket in enumerate(self.flying)
            if not any(self.overlap(ticket, ahead) for ahead in self.flying[:at])
        ]

    def finish(self, ticket: Ticket) -> None:
        self.now += ticket.cost
        self.flying.remove(ticket)
        self.scheduler.finished(ticket, self.now)

    def drain(self) -> None:
        """Finish gangs until none waits or runs."""
        while self.fill() or self.flying:
            if self.flying:
                self.finish(self.may_finish()[0])
        assert not [each for each in self.waiting if each.ripe or self.early == "always"]
