"""Which methods of `Policy` a policy writes itself. Methods that it inherits do nothing, and are not called."""

from __future__ import annotations

from .base import Policy

HOOKS = (
    "entered", "finished", "joined", "left", "gone", "merged", "split", "ended",
)  # fmt: skip


def writes(policy: Policy, method: str) -> bool:
    """Whether the policy writes this method, and does not inherit the one that does nothing."""
    own: object = getattr(policy, "__dict__", {}).get(method)
    return own is not None or getattr(type(policy), method, None) is not getattr(Policy, method)


def definers(policy: Policy, method: str) -> list[type]:
    """Return the class that defines this method of the policy, in a list; [] if the object itself does."""
    if method in getattr(policy, "__dict__", {}):
        return []
    return [kind for kind in type(policy).__mro__ if method in vars(kind)][:1]
