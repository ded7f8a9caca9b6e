"""Chooses devices that stand for all in a picture: some of every group that ran the same gangs."""

from __future__ import annotations

import numpy as np

from .facts import Facts
from .times import Ints


def spread(facts: Facts, count: int) -> Ints:
    """`count` devices, sorted: at least one of each group if there are enough, the rest in proportion to its size."""
    if count < 1:
        raise ValueError(f"a sample of {count} devices; at least one is needed")
    every = facts.devices
    if count >= len(every):
        return every
    groups = facts.groups
    if count < len(groups):
        return _even(every, count)
    sizes = np.array([group.size for group in groups], dtype=np.int64)
    exact = 1 + (count - len(groups)) * (sizes - 1) / max(int((sizes - 1).sum()), 1)
    numbers = np.floor(exact).astype(np.int64)
    short = count - int(numbers.sum())
    numbers[np.argsort(numbers - exact, kind="stable")[:short]] += 1  # the largest remainders
    picked = [_even(group.numbers, int(n)) for group, n in zip(groups, numbers, strict=True)]
    return np.sort(np.concatenate(picked))


def _even(devices: Ints, count: int) -> Ints:
    return devices[np.arange(count) * len(devices) // count]
