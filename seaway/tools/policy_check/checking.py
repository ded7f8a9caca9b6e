"""Plays a policy in random worlds until it does something wrong, and says what, in the smallest world that shows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from random import Random

import msgspec

from core.schedule.policy import Placement, Policy, definers

from ...errors import WrongPolicy
from ...sessions.simulated import Policies, policy_of
from .placement_worlds import PlacementWorld, crowded_slices, draw_slices
from .playing import PlayedWorld, play
from .playing_placements import play_slices
from .random_worlds import PolicyWorld, crowded, draw
from .shrinking import World, shrink

CROWDED = 8  # one world in so many is crowded: these take longer
LINES = 12  # of the trace, at its beginning and at its end


class CheckedPolicy(msgspec.Struct, frozen=True):
    """A policy in which nothing wrong was found."""

    policy: str
    worlds: int
    asked: int

    def __repr__(self) -> str:
        return f"{self.policy}: asked {self.asked:,} times in {self.worlds} random worlds, and nothing was wrong"


def checked(policy: Policies, *, worlds: int, seed: int, may_starve: bool, max_reserved: int) -> CheckedPolicy:
    """See `sw.policies.check`. Only a placement that has a `pick` of its own is shown gangs, too."""
    make: Callable[[], Policy] = policy_of(policy)
    first, asked = make(), 0
    for number in range(worlds):
        rng, crowds = Random(f"{seed} {number}"), number % CROWDED == CROWDED - 1
        where = f"world {number} of seed {seed}"
        if definers(first, "pick") != [Placement]:
            play_gangs = partial(play, make=make, limit=max_reserved, may_starve=may_starve)
            asked += _judged(first, (crowded if crowds else draw)(rng), play_gangs, where)
        if isinstance(first, Placement):
            play_one = partial(play_slices, make=make, may_starve=may_starve)
            asked += _judged(first, (crowded_slices if crowds else draw_slices)(rng), play_one, where)
    return CheckedPolicy(type(first).__name__, worlds, asked)


def _judged(policy: Policy, world: World, play: Callable[[World], PlayedWorld], where: str) -> int:
    """How often the policy was asked in this world, if nothing was wrong."""
    played = play(world)
    if played.found is None:
        return played.asked
    kind = played.found.kind

    def goes_wrong(smaller: World) -> tuple[bool, int]:
        again = play(smaller)
        return again.found is not None and again.found.kind == kind, again.asked

    small = shrink(world, goes_wrong)
    again = play(small)
    raise WrongPolicy(_text(type(policy).__name__, small, again if again.found else played, where))


def _text(name: str, world: PolicyWorld | PlacementWorld, played: PlayedWorld, where: str) -> str:
    assert played.found is not None
    head = f"policy {name}: {played.found.text}\n{where}, made as small as possible: {world}"
    log = played.log
    if len(log) > 2 * LINES:
        log = [*log[:LINES], f"{'...':>12}  and {len(log) - 2 * LINES} more", *log[-LINES:]]
    return "\n".join(chain([head], (f"  {line}" for line in log)))
