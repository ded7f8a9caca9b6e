"""Bugs in what keeps devices free for a policy, planted for the fuzzer to find.

They are searched from seed `RESERVES` on, where most policies reserve. Neighbours: `planted` and others like it have
other bugs; `planting` searches them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from core.controller.policy_news import PolicyNews
from core.controller.trace_rows import Tracing
from core.record import Trace
from core.schedule.contention import Contention
from core.schedule.reservations import Reservations
from seaway.trace import busy
from seaway.trace.busy import reserved

from .draw import RESERVES
from .planting import Patch, bug, every, nothing


@bug("devices kept for good", "one in ten reservations that end leaves its queues closed", first=RESERVES)
def _(put: Patch) -> None:
    put(Contention, "let_go", every(10, Contention.let_go, nothing))


@bug("no bound on a reservation", "a policy may keep devices free for as long as it likes", first=RESERVES)
def _(put: Patch) -> None:
    put(Reservations, "_overdue", nothing)


@bug("nobody wakes up", "the time until which devices are kept is not waited for", first=RESERVES)
def _(put: Patch) -> None:
    put(PolicyNews, "_wake", nothing)


@bug(
    "the bound begins anew",
    "whenever a policy is asked again, it may keep devices for as long once more",
    first=RESERVES,
)
def _(put: Patch) -> None:
    release = Reservations.release

    def anew(self: Reservations) -> None:
        release(self)
        self._bounds.clear()

    put(Reservations, "release", anew)


@bug("a reservation without an end", "one in ten reservations that end is not ended in the trace", first=RESERVES)
def _(put: Patch) -> None:
    put(Tracing, "unreserved", every(10, Tracing.unreserved, nothing))


@bug("reserved for nobody", "the trace says of one in five reservations that it is in favour of nobody", first=RESERVES)
def _(put: Patch) -> None:
    reserved = Trace.reserved

    def nobodys(self: Trace, place: int, client: int, now: int) -> int:
        return reserved(self, place, -1, now)

    put(Trace, "reserved", every(5, reserved, nobodys))


@bug(
    "busy and reserved",
    "`utilization` counts as reserved what gangs spent on devices that are kept free",
    first=RESERVES,
)
def _(put: Patch) -> None:
    def all_of_it(facts: Any, group: Any, edges: Any, available: int, used: Any, *more: Any, **named: Any) -> Any:
        return reserved(facts, group, edges, available, lambda fine: np.zeros_like(used(fine)), *more, **named)

    put(busy, "reserved", all_of_it)
