"""Chance, as pure functions: the same (seed, who, which) draws the same number in whatever order they are asked.

A generator's state would depend on the order of the draws, and so on how the model is formulated. These do
not: an island of 512 state machines and one vector of 512 clocks see the same jitter. Scalars and numpy vectors
go through the same arithmetic on 64 bits.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
MASK = (1 << 64) - 1
_STEP, _ONE, _TWO = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_U = np.uint64


class Noise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is not the same each time. All zero: the machine of the data sheet."""

    latency: int = 0  # nanoseconds: each message takes up to so much longer, uniformly
    compute: float = 0.0  # each gang takes up to this fraction longer, uniformly
    stragglers: float = 0.0  # this fraction of all hosts has devices ...
    straggler_factor: float = 1.2  # ... that take so many times as long, all the time

    def __post_init__(self) -> None:
        if self.latency < 0 or self.compute < 0:
            raise ValueError("noise: `latency` and `compute` are not negative")
        if not 0 <= self.stragglers <= 1:
            raise ValueError(f"noise: `stragglers` is a fraction of the hosts, not {self.stragglers}")
        if self.straggler_factor < 1:
            raise ValueError(f"noise: `straggler_factor` is at least 1, not {self.straggler_factor}")


def mix(x: int) -> int:
    """splitmix64's finaliser."""
    x = ((x ^ (x >> 30)) * _ONE) & MASK
    x = ((x ^ (x >> 27)) * _TWO) & MASK
    return x ^ (x >> 31)


def key(seed: int, who: int) -> int:
    """Of one source of chance: a link, a host, an island."""
    return mix((mix((seed + _STEP) & MASK) + who * _STEP) & MASK)


def below(limit: int, source: int, which: int) -> int:
    """Uniform in [0, limit), of at most 32 bits."""
    return (mix((source + which * _STEP) & MASK) >> 32) * limit >> 32


def fraction(source: int, which: int) -> float:
    """Uniform in [0, 1)."""
    return (mix((source + which * _STEP) & MASK) >> 11) / (1 << 53)


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> _U(30))) * _U(_ONE)
    x = (x ^ (x >> _U(27))) * _U(_TWO)
    return x ^ (x >> _U(31))


def keys(seed: int, who: Ints) -> NDArray[np.uint64]:
    """`key` of many."""
    first = _U(mix((seed + _STEP) & MASK))
    return _mix(first + who.astype(np.uint64) * _U(_STEP))


def each_below(limit: int, sources: NDArray[np.uint64], which: Ints) -> Ints:
    """`below` of many."""
    drawn = _mix(sources + which.astype(np.uint64) * _U(_STEP)) >> _U(32)
    return ((drawn * _U(limit)) >> _U(32)).astype(np.int64)
