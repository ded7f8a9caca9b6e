"""Measures by turns: a machine's speed changes from second to second, so all that is compared takes turns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Mapping
from statistics import median
from time import process_time
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


def timed(work: Callable[[], Found]) -> tuple[float, Found]:
    """(CPU seconds, what it returns)."""
    gc.collect()
    begun = process_time()
    made = work()
    return process_time() - begun, made


def cpu_seconds(work: Callable[[], object]) -> float:
    return timed(work)[0]


def medians(rounds: int, works: Mapping[Key, Callable[[], float]]) -> dict[Key, float]:
    return {key: median(found) for key, found in in_turns(rounds, works).items()}
