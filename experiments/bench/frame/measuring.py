"""Measures by turns: a machine's speed changes from second to second, so all that is compared takes turns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Found = TypeVar("Found")


def in_turns(rounds: int, works: Mapping[Key, Callable[[], Found]]) -> dict[Key, list[Found]]:
    """What each of these returns, by round. They run one after another in each round."""
    found: dict[Key, list[Found]] = {key: [] for key in works}
    for _ in range(rounds):
        for key, work in works.items():
            found[key].append(work())
    return found
