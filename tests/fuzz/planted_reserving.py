"""Bugs in what keeps devices free for a policy, planted for the fuzzer to find.

They are searched from seed `RESERVES` on, where most policies reserve. Neighbours: `planted` and others like it have
other bugs; `planting` searches them.
"""

from __future__ import annotations

from core.controller.policy_news import PolicyNews
from core.schedule.contention import Contention
from core.schedule.reservations import Reservations

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
