"""Policies: they choose which client's gang enters an island's order next. docs/policies.md says how to write one.

Name one, with its options (`policy="stride:lead=3"`), or pass a class, or an instance. Each island gets its own:

    >>> with sw.simulate("B", hosts=2, policy=sw.policies.Priority(age=10_000_000)) as s:
    ...     with s.client("urgent", priority=1):
    ...         step = sw.synthetic("step", devices=4, duration="1ms")
    ...         _ = step(np.float32(0)).block_until_ready()

Your own is a subclass of `Policy` with a `pick`. It gets what is `Ready`, and returns one `Ticket` of it:

    >>> class Smallest(sw.policies.Policy):
    ...     def pick(self, ready, now):
    ...         return min(ready.heads(), key=lambda ticket: (ticket.cost * ticket.devices, ticket.age))
    >>> with sw.simulate("B", hosts=2, policy=Smallest) as s:
    ...     _ = step(np.float32(0)).block_until_ready()
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from core.schedule import policy as _core
from core.schedule.policy import (
    ENTRY_POINTS,
    NEVER,
    BestFit,
    BestKind,
    ClusterView,
    Deadline,
    Fifo,
    FirstFit,
    InTurn,
    IslandUse,
    Placement,
    Policy,
    Priority,
    Ready,
    Reserve,
    RoundRobin,
    RunningGang,
    Shortest,
    SliceUse,
    Spread,
    Stride,
    Ticket,
)

if TYPE_CHECKING:
    from .tools.policy_check import CheckedPolicy

__all__ = [
    "NEVER",
    "BestFit",
    "BestKind",
    "ClusterView",
    "Deadline",
    "Fifo",
    "FirstFit",
    "InTurn",
    "IslandUse",
    "Placement",
    "Policy",
    "Priority",
    "Ready",
    "Reserve",
    "RoundRobin",
    "RunningGang",
    "Shortest",
    "SliceUse",
    "Spread",
    "Stride",
    "Ticket",
    "check",
    "named",
    "names",
]


def named(text: str) -> Policy:
    """Make the policy that a text names, with its options: "stride:lead=3"."""
    return _core.named(text, lambda: entry_points(group=ENTRY_POINTS))


def names() -> list[str]:
    """The names of all policies here: Seaway's own, and those of installed packages."""
    return _core.names(lambda: entry_points(group=ENTRY_POINTS))


def check(
    policy: str | Policy | type[Policy] | Callable[[], Policy], *, worlds: int = 120, seed: int = 0,
    may_starve: bool = False, max_reserved: int = 60_000_000_000,
) -> CheckedPolicy:  # fmt: skip
    """Play a policy in random worlds, for a few seconds. Raise `sw.errors.WrongPolicy` if it does something wrong.

    The error shows the smallest world that was found in which it does so, as a trace. It is wrong to raise; to pick
    what is not ready; to change in `pick` what it got, or the policy itself; to answer otherwise than another policy
    that was made alike; to let a gang wait while 600 that came later enter on its devices; and to reserve
    devices for too long, or again and again for a moment. A `Placement` is shown slices instead, and docs/policies.md
    says what is wrong there.

    policy: its class, a function that makes it, an instance, or its name. worlds, seed: how many, and which.
    may_starve: it is meant to prefer some gangs for ever. max_reserved: nanoseconds for which it may keep devices free,
    beyond what runs there.

        >>> class Newest(sw.policies.Policy):
        ...     def pick(self, ready, now):
        ...         return max(ready.heads(), key=lambda gang: gang.number)
        >>> sw.policies.check(Newest, worlds=20, may_starve=True)
        Newest: asked 373 times in 20 random worlds, and nothing was wrong
    """
    from .tools.policy_check import checked

    return checked(policy, worlds=worlds, seed=seed, may_starve=may_starve, max_reserved=max_reserved)
