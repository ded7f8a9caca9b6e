"""Makes a world in which a policy did something wrong smaller, as long as the same goes wrong there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from .random_worlds import MS, PLACES, ComingGang, PolicyWorld

TRIES = 400  # smaller worlds that are played
BUDGET = 30_000  # questions to the policy in all of these: a count, so that the result is the same on any machine

PLAINER: tuple[dict[str, object], ...] = (
    {"patience": 0}, {"due": 0}, {"priority": 0}, {"weight": 1}, {"again": 0}, {"at": 0},
    {"cost": 10 * MS, "lasts": 10 * MS}, {"devices": PLACES[0]}, {"client": 0},
)  # fmt: skip


def shrink(world: PolicyWorld, goes_wrong: Callable[[PolicyWorld], tuple[bool, int]]) -> PolicyWorld:
    """`goes_wrong`: whether the same goes wrong in this world, and how often the policy was asked to find out."""
    tries = asked = 0
    shrunk = True
    while shrunk:
        shrunk = False
        for smaller in _smaller(world):
            tries += 1
            if tries > TRIES or asked > BUDGET:
                return world
            wrong, more = goes_wrong(smaller)
            asked += more
            if wrong:
                world, shrunk = smaller, True
                break
    return world


def _smaller(world: PolicyWorld) -> Iterator[PolicyWorld]:
    """Worlds that are a little simpler, those with much less first."""
    gangs = world.gangs
    if any(gang.again for gang in gangs):
        yield PolicyWorld(world.window, tuple(msgspec.structs.replace(gang, again=0) for gang in gangs))
    first = min(gang.at for gang in gangs)
    if first:
        yield PolicyWorld(world.window, tuple(msgspec.structs.replace(gang, at=gang.at - first) for gang in gangs))
    size = len(gangs) // 2
    while size:
        for at in range(0, len(gangs), size):
            rest = gangs[:at] + gangs[at + size :]
            if rest:
                yield PolicyWorld(world.window, rest)
        size //= 2
    if world.window > 1:
        yield PolicyWorld(1, gangs)
    for at, gang in enumerate(gangs):
        for plainer in _plainer(gang):
            yield PolicyWorld(world.window, (*gangs[:at], plainer, *gangs[at + 1 :]))


def _plainer(gang: ComingGang) -> Iterator[ComingGang]:
    for change in PLAINER:
        found = msgspec.structs.replace(gang, **change)
        if found != gang:
            yield found
    if gang.lasts != gang.cost:
        yield msgspec.structs.replace(gang, lasts=gang.cost)
