"""Makes a world in which a policy did something wrong smaller, as long as the same goes wrong there."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from msgspec.structs import replace

from .placement_worlds import PlacementWorld
from .random_worlds import PolicyWorld

TRIES = 400  # smaller worlds that are played
BUDGET = 30_000  # questions to the policy in all of these: a count, so that the result is the same on any machine
World = TypeVar("World", PolicyWorld, PlacementWorld)


def shrink(world: World, goes_wrong: Callable[[World], tuple[bool, int]]) -> World:
    """`goes_wrong`: whether the same goes wrong in this world, and how often the policy was asked to find out."""
    tries = asked = 0
    shrunk = True
    while shrunk:
        shrunk = False
        for smaller in _smaller(world):
            if smaller == world:
                continue
            tries += 1
            if tries > TRIES or asked > BUDGET:
                return world
            wrong, more = goes_wrong(smaller)
            asked += more
            if wrong:
                world, shrunk = smaller, True
                break
    return world


def _smaller(world: Any) -> Iterator[Any]:
    """Worlds that are a little simpler, those with much less first."""
    coming = world.coming
    yield replace(world, coming=tuple(replace(each, again=0) for each in coming))
    first = min(each.at for each in coming)
    yield replace(world, coming=tuple(replace(each, at=each.at - first) for each in coming))
    size = len(coming) // 2
    while size:
        for at in range(0, len(coming), size):
            rest = coming[:at] + coming[at + size :]
            if rest:
                yield replace(world, coming=rest)
        size //= 2
    yield from world.plainer()
    for place, each in enumerate(coming):
        for change in each.PLAINER:
            yield replace(world, coming=(*coming[:place], replace(each, **change), *coming[place + 1 :]))
