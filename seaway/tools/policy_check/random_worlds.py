"""Random worlds for a policy: gangs of several clients that come to eight devices, as plain values.

Times are those of real programs, milliseconds, so that policies that count waiting (`priority:age=1s`) behave as they
would. A world of `draw` is short and mixed. In a world of `crowded`, some clients always have a next gang, and others
want to run too: there it shows whether anybody starves.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, ClassVar

import msgspec

from core.model import Spans, spans

MS = 1_000_000
DEVICES = 8
PLACES: tuple[Spans, ...] = (((0, 8),), ((0, 4),), ((4, 8),), ((2, 6),), ((0, 2),), ((6, 8),), ((0, 1),), ((5, 6),))
COSTS = (5 * MS, 10 * MS, 20 * MS)
CROWD = 700  # gangs that a client of a crowded world brings, one after the other


class ComingGang(msgspec.Struct, frozen=True):
    """A gang that comes at a time."""

    PLAINER: ClassVar[tuple[dict[str, Any], ...]] = (
        {"patience": 0}, {"due": 0}, {"priority": 0}, {"weight": 1}, {"again": 0}, {"at": 0},
        {"lasts": COSTS[1]}, {"cost": COSTS[1], "lasts": COSTS[1]}, {"devices": PLACES[0]}, {"client": 0},
    )  # fmt: skip

    at: int
    client: int
    devices: Spans
    cost: int
    lasts: int  # how long it really takes
    weight: int = 1
    priority: int = 0
    due: int = 0  # its deadline, counted from when it comes; 0: none
    patience: int = 0  # it is withdrawn if it has not entered after this time; 0: it waits
    again: int = 0  # when it has entered, the next one like it comes; so many of them


class PolicyWorld(msgspec.Struct, frozen=True):
    coming: tuple[ComingGang, ...]
    window: int

    def __str__(self) -> str:
        gangs, devices = len(self.coming), spans.text(spans.union(*(gang.devices for gang in self.coming)))
        return f"{gangs} gang{'s' * (gangs != 1)} on devices {devices}, {self.window} may be ahead on a device"

    def plainer(self) -> Iterator[PolicyWorld]:
        yield PolicyWorld(self.coming, 1)


def draw(rng: Random) -> PolicyWorld:
    """A mixed world of some 20 gangs."""
    places = rng.sample(PLACES, rng.randint(1, 4))
    people = [(rng.randint(1, 4), rng.randint(0, 2)) for _ in range(rng.randint(1, 4))]
    late = rng.random() < 0.5  # whether costs are only estimates
    gangs = []
    for _ in range(rng.randint(2, 20)):
        client = rng.randrange(len(people))
        cost = rng.choice(COSTS)
        gangs.append(
            ComingGang(
                rng.choice((0, 0, rng.randint(0, 20), rng.randint(0, 200))) * MS, client, rng.choice(places), cost,
                max(1, cost * rng.choice((1, 2, 5, 10, 20)) // 5) if late else cost, *people[client],
                due=rng.choice((0, 0, 10, 50, 200)) * MS, patience=rng.choice((0, 0, 0, 0, 15)) * MS,
                again=rng.choice((0, 0, 0, 3)),
            )
        )  # fmt: skip
    return PolicyWorld(tuple(gangs), rng.choice((1, 2, 4, 8)))


def crowded(rng: Random) -> PolicyWorld:
    """Some clients always have a next gang; one comes with a single gang, on all devices or on some.

    In half of these worlds the crowd has two halves of the devices, and the gang needs both at once.
    """
    halves = rng.random() < 0.5
    places = PLACES[1:3] if halves else [rng.choice(PLACES[:6]) for _ in range(rng.randint(1, 2))]
    crowd = []
    for client, (place, cost) in enumerate(zip(places, rng.sample((5, 7, 9), len(places)), strict=True), 1):
        due, priority = rng.choice((0, 50 * MS)), rng.randint(0, 1)
        crowd += [
            ComingGang(rng.randint(0, 4) * MS, client, place, cost * MS, cost * MS, 1, priority, due=due, again=CROWD)
            for _ in range(rng.randint(1, 2))
        ]
    place = PLACES[0] if halves else rng.choice((PLACES[0], *places))
    alone = ComingGang(rng.randint(0, 50) * MS, 0, place, COSTS[1], COSTS[1])
    return PolicyWorld((*crowd, alone), rng.choice((1, 2, 4)))
