"""Plays a policy in random worlds until it does something wrong, and says what, in the smallest world that shows it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from random import Random

import msgspec

from core.model import spans
from core.schedule.policy import Policy

from ...errors import WrongPolicy
from ...sessions.simulated import Policies, policy_of
from .playing import PlayedWorld, play
from .random_worlds import PolicyWorld, crowded, draw
from .shrinking import shrink

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
    """See `sw.policies.check`."""
    make: Callable[[], Policy] = policy_of(policy)
    name = type(make()).__name__
    asked = 0
    for number in range(worlds):
        world = _world(seed, number)
        played = play(world, make, max_reserved, may_starve)
        asked += played.asked
        if played.found is not None:
            kind = played.found.kind

            def goes_wrong(smaller: PolicyWorld, kind: str = kind) -> tuple[bool, int]:
                again = play(smaller, make, max_reserved, may_starve)
                return again.found is not None and again.found.kind == kind, again.asked

            small = shrink(world, goes_wrong)
            again = play(small, make, max_reserved, may_starve)
            raise WrongPolicy(_text(name, small, again if again.found else played, f"world {number} of seed {seed}"))
    return CheckedPolicy(name, worlds, asked)


def _world(seed: int, number: int) -> PolicyWorld:
    rng = Random(f"{seed} {number}")
    return crowded(rng) if number % CROWDED == CROWDED - 1 else draw(rng)


def _text(name: str, world: PolicyWorld, played: PlayedWorld, where: str) -> str:
    assert played.found is not None
    gangs = len(world.gangs)
    devices = spans.text(spans.union(*(gang.devices for gang in world.gangs)))
    head = (
        f"policy {name}: {played.found.text}\n"
        f"{where}, made as small as possible: {gangs} gang{'s' * (gangs != 1)} on devices {devices}, "
        f"{world.window} may be ahead on a device"
    )
    log = played.log
    if len(log) > 2 * LINES:
        log = [*log[:LINES], f"{'...':>12}  and {len(log) - 2 * LINES} more", *log[-LINES:]]
    return "\n".join(chain([head], (f"  {line}" for line in log)))
