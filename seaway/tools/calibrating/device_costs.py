"""Measures devices: times of matrix products, sums of arrays and sums over all devices give flops, bytes and links.

Each is run in a loop inside a gang. Two calls that differ only in the number of rounds differ by the time of those
rounds, so the cost of a call cancels. All devices compute at once, as in any gang. `timed` devices compute nothing.
`measuring` makes a chip's figures of the result.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .fitting import FittedCost, middle

AXIS = "device"
MATRICES, QUICK_MATRICES = (256, 512, 1024), (256,)
ARRAY, QUICK_ARRAY = 1 << 22, 1 << 20  # float32
SUMS, QUICK_SUMS = (1, 1 << 14, 1 << 18), (1, 1 << 16)
AIM = 0.06  # seconds that the rounds of a call should take
FEW = 4
MOST = 4096


class Reached(NamedTuple):
    """Per second and device."""

    flops: FittedCost
    bytes: FittedCost


class SumOver(NamedTuple):
    """A sum over so many devices, of so many bytes on each."""

    devices: int
    nbytes: int
    ns: float


def measured(devices: int, repeats: int, quick: bool) -> Reached:
    """What devices reach in an open session, by themselves."""
    products = [
        rate(2 * size**3, rounds(product, (size, size), devices, repeats))
        for size in (QUICK_MATRICES if quick else MATRICES)
    ]
    wide = QUICK_ARRAY if quick else ARRAY
    return Reached(max(products), rate(3 * 4 * wide, rounds(addition, (wide,), devices, repeats)))


def sums(devices: int, repeats: int, quick: bool) -> list[SumOver]:
    """Sums over all devices of an open session; none if it has only one."""
    return [
        SumOver(devices, 4 * size, rounds(over_all, (size,), devices, repeats).value)
        for size in (QUICK_SUMS if quick else SUMS)
        if devices > 1
    ]


def rate(work: float, time: FittedCost) -> FittedCost:
    """Work per second, for work that takes some nanoseconds."""
    return FittedCost(work * 1e9 / time.value if time.value else 0.0, time.spread)


def product(x: Any) -> Any:
    return x @ x / x.shape[0]


def addition(x: Any) -> Any:
    """Read two arrays and write one. The reverse of `x` counts as a second array: no compiler merges the two reads."""
    return x + x[::-1]


def over_all(x: Any) -> Any:
    import jax

    lax: Any = jax.lax
    return lax.pmean(x, AXIS)


def rounds(work: Callable[[Any], Any], shape: Sequence[int], devices: int, repeats: int) -> FittedCost:
    """Nanoseconds of one round, from the difference between long and short calls."""
    import seaway as sw

    home = sw.slice(devices=devices)
    x = sw.put(np.ones((devices, *shape), np.float32), devices=home)
    short, long = looped(work, 1, home), looped(work, 1 + FEW, home)
    many = FEW
    each = max(1e-7, (_took(long, x) - _took(short, x)) / FEW)
    if each * FEW < AIM:
        many = min(MOST, max(FEW, round(AIM / each)))
        long = looped(work, 1 + many, home)
        _took(long, x)
    found = []
    for _ in range(repeats):
        base = statistics.median(_once(short, x) for _ in range(2))
        found.append(max(0.0, (_once(long, x) - base) / many))
    return middle([1e9 * each for each in found])


def looped(work: Callable[[Any], Any], many: int, home: Any) -> Any:
    import seaway as sw

    def repeated(x: Any) -> Any:
        import jax

        return jax.lax.fori_loop(0, many, lambda _, y: work(y), x)

    repeated.__name__ = f"{work.__name__}{many}"
    return sw.pmap(repeated, AXIS, devices=home)


def _took(call: Any, x: Any) -> float:
    """Seconds of a second call, since the first one compiles."""
    _once(call, x)
    return _once(call, x)


def _once(call: Any, x: Any) -> float:
    begun = time.perf_counter()
    call(x).block_until_ready()
    return time.perf_counter() - begun
