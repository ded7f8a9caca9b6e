"""Policies by name: those that are here, and those that an installed package brings.

A package gives its policies names by entry points of the group `seaway.policies`. Core does not look for packages:
the caller of `named` passes what finds them, and it is called only when a name is none of ours.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ...model import Impossible
from .base import Policy
from .best_fit import BestFit
from .deadline import Deadline
from .fifo import Fifo
from .placement import BestKind, FirstFit, InTurn, Spread
from .priority import Priority
from .round_robin import RoundRobin
from .shortest import Shortest
from .stride import Stride

ENTRY_POINTS = "seaway.policies"  # the group
POLICIES: dict[str, type[Policy]] = {
    "fifo": Fifo,
    "stride": Stride,
    "priority": Priority,
    "shortest": Shortest,
    "deadline": Deadline,
    "round_robin": RoundRobin,
    "first_fit": FirstFit,
    "in_turn": InTurn,
    "best_fit": BestFit,
    "best_kind": BestKind,
    "spread": Spread,
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "stride": ("lead",),
    "priority": ("age", "preempt"),
    "shortest": ("stretch",),
    "round_robin": ("lead",),
}
UNITS = {"": 1, "ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


class InstalledPolicy(Protocol):
    """An entry point, as `importlib.metadata` has it."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str: ...
    def load(self) -> Any: ...


FindInstalled = Callable[[], Iterable[InstalledPolicy]]


def _nothing() -> Iterable[InstalledPolicy]:
    return ()


def named(text: str, installed: FindInstalled = _nothing) -> Policy:
    """Return the policy that `name` or `name:option=value,...` describes.

    A value is a whole number, and may have a unit of time. `installed` finds the policies of installed packages.
    """
    name, _, rest = text.strip().partition(":")
    name = _plain(name)
    if name in POLICIES:
        return POLICIES[name](**_options(name, rest, OPTIONS.get(name, ())))
    found = {entry.value: entry for entry in installed() if _plain(entry.name) == name}
    if not found:
        known = names(installed)
        raise Impossible(f"no policy is called {name!r}; there are {', '.join(known)}{_nearest(name, known)}")
    if len(found) > 1:
        raise Impossible(
            f"installed packages call several policies {name!r}: {', '.join(found)}; name the one you mean by its "
            f"module, module:NAME"
        )
    return _made(name, next(iter(found.values())), _options(name, rest, None))


def names(installed: FindInstalled = _nothing) -> list[str]:
    """The names that `named` knows: ours first."""
    return list(dict.fromkeys([*POLICIES, *(_plain(entry.name) for entry in installed())]))


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _made(name: str, entry: InstalledPolicy, options: Mapping[str, int]) -> Policy:
    where = f"policy {name!r}, which is {entry.value} of an installed package,"
    try:
        made = entry.load()(**options)
    except Exception as error:  # somebody else's code
        raise Impossible(f"{where} cannot be made: {type(error).__name__}: {error}") from None
    if not isinstance(made, Policy):
        raise Impossible(f"{where} makes a {type(made).__name__}, which is no Policy")
    return made


def _options(name: str, text: str, known: tuple[str, ...] | None) -> dict[str, int]:
    """`known`: the options that there are; None: the policy's own class will say."""
    options: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        option, _, value = (piece.strip() for piece in part.partition("="))
        if known is not None and option not in known:
            has = f"its options: {', '.join(known)}" if known else "it has none"
            raise Impossible(f"policy {name!r} has no option {option!r}; {has}{_nearest(option, known)}")
        options[option] = _number(name, option, value)
    return options


def _number(name: str, option: str, value: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", value)
    if match is None or match[2] not in UNITS:
        asked = f"{value!r} for option {option!r} of policy {name!r}"
        raise Impossible(f"{asked}: give a whole number, with ns, us, ms or s for a time, like 10ms")
    return int(match[1]) * UNITS[match[2]]


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
