"""Policies choose which client's gang enters next. There is one file for each; `base` says how to write your own.

`named` makes a policy from a text that a user writes on a command line or in a file: `stride`, `priority:age=10ms`.
"""

from __future__ import annotations

import difflib
import re

from ...model import Impossible
from .base import Board, Policy, Ready, Ticket
from .deadline import Deadline
from .fifo import Fifo
from .priority import Priority
from .round_robin import RoundRobin
from .shortest import Shortest
from .stride import Stride

__all__ = [
    "POLICIES",
    "Board",
    "Deadline",
    "Fifo",
    "Policy",
    "Priority",
    "Ready",
    "RoundRobin",
    "Shortest",
    "Stride",
    "Ticket",
    "named",
]

POLICIES: dict[str, type[Policy]] = {
    "fifo": Fifo,
    "stride": Stride,
    "priority": Priority,
    "shortest": Shortest,
    "deadline": Deadline,
    "round_robin": RoundRobin,
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "stride": ("lead",),
    "priority": ("age",),
    "shortest": ("stretch",),
    "round_robin": ("lead",),
}
UNITS = {"": 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def named(text: str) -> Policy:
    """Return the policy that `name` or `name:option=value,...` describes.

    A value is a whole number, and may have a unit of time.
    """
    name, _, rest = text.strip().partition(":")
    name = name.strip().lower().replace("-", "_")
    if name not in POLICIES:
        raise Impossible(
            f"no policy is called {name!r}; there are {', '.join(POLICIES)}{_nearest(name, POLICIES)}"
        )
    options: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        option, _, value = (piece.strip() for piece in part.partition("="))
        known = OPTIONS.get(name, ())
        if option not in known:
            has = f"its options: {', '.join(known)}" if known else "it has none"
            raise Impossible(f"policy {name!r} has no option {option!r}; {has}{_nearest(option, known)}")
        options[option] = _number(name, option, value)
    return POLICIES[name](**options)


def _number(name: str, option: str, value: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", value)
    if match is None or match[2] not in UNITS:
        asked = f"{value!r} for option {option!r} of policy {name!r}"
        raise Impossible(f"{asked}: give a whole number, with ns, us, ms or s for a time, like 10ms")
    return int(match[1]) * UNITS[match[2]]


def _nearest(name: str, known: dict[str, type[Policy]] | tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
