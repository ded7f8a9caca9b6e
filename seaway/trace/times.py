"""Parses and prints times ("1.5ms" is 1,500,000), and turns windows and bins into integer nanoseconds.

Core counts integer nanoseconds. Frames show microseconds, as floats, since those are what people compare.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from core.model import Impossible

from .. import units
from ..units import Nanoseconds, Time

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Span = tuple[Nanoseconds, Nanoseconds]
Window = tuple[Time | None, Time | None] | None
Bins = int | Time | Sequence[Time]

MAX_BINS = 1_000_000
UNITS = (("h", 3_600_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000))


def nanoseconds(what: Time) -> int:
    """Nanoseconds, from a text such as "330us", a timedelta, or a time of a trace. Some are negative: those of an
    overlay count from its time 0."""
    if isinstance(what, Nanoseconds):
        return int(what)
    sign = 1
    if isinstance(what, str):
        words = what.strip()
        sign, what = -1 if words.startswith("-") else 1, words.lstrip("+-")
    elif isinstance(what, timedelta) and what < timedelta(0):
        sign, what = -1, -what
    try:
        return sign * units.duration(what, "a time")
    except Impossible as error:
        raise ValueError(str(error)) from None


def span_of(low: int, high: int) -> Span:
    """A window as a trace hands it out."""
    return Nanoseconds(low), Nanoseconds(high)


def text(duration: float) -> str:
    """A duration with three digits and a unit: 330 µs, 1.32 s."""
    for name, scale in UNITS:
        if abs(duration) >= scale:
            value = duration / scale
            return f"{value:,.0f} {name}" if abs(value) >= 100 else f"{value:.3g} {name}"
    return f"{duration:.0f} ns"


def unit(duration: float) -> tuple[str, int]:
    """The unit for an axis of this length: (name, nanoseconds)."""
    for name, scale in UNITS:
        if duration >= 2 * scale:
            return name, scale
    return "ns", 1


def window_of(window: Window, span: tuple[int, int]) -> Span:
    """The window in nanoseconds. An open end is the trace's."""
    if window is None:
        return span_of(*span)
    try:
        first, last = window
    except (TypeError, ValueError):
        raise ValueError(f"a window is a pair of times, (from, to); not {window!r}") from None
    low = span[0] if first is None else nanoseconds(first)
    high = span[1] if last is None else nanoseconds(last)
    if low >= high:
        there = f"the trace is from {text(span[0])} to {text(span[1])}"
        raise ValueError(f"the window from {text(low)} to {text(high)} is empty; {there}")
    return span_of(low, high)


def as_bins(edges: Ints) -> list[Nanoseconds]:
    return [Nanoseconds(edge) for edge in edges]


def edges_of(bins: Bins, window: tuple[int, int]) -> Ints:
    """Edges of bins. `bins`: how many; or their width, such as "1ms" (the last may be narrower); or the edges."""
    low, high = window
    if isinstance(bins, int | np.integer) and not isinstance(bins, Nanoseconds):
        if bins < 1:
            raise ValueError(f"{bins} bins; at least one is needed")
        count = min(int(bins), high - low)  # a bin is at least a nanosecond wide
        _bounded(count)
        # Integer arithmetic keeps edges exact at large times.
        return low + (high - low) * np.arange(count + 1, dtype=np.int64) // count
    if isinstance(bins, str | timedelta | Nanoseconds):
        width = nanoseconds(bins)
        if width < 1:
            raise ValueError(f"bins of {bins!r}; they need a width of at least a nanosecond")
        _bounded((high - low) // width)
        edges = np.arange(low, high, width, dtype=np.int64)
        return np.append(edges, high)
    edges = np.array([nanoseconds(time) for time in np.atleast_1d(np.asarray(bins, dtype=object))], dtype=np.int64)
    if len(edges) < 2 or (np.diff(edges) <= 0).any():
        raise ValueError("edges of bins must be at least two, and increasing")
    return edges


def _bounded(count: int) -> None:
    if count > MAX_BINS:
        raise ValueError(f"{count:,} bins; at most {MAX_BINS:,}: take wider ones, or a shorter window")


def micros(times: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Nanoseconds as microseconds; unknown (negative) times as NaN."""
    found = times / 1_000
    found[times < 0] = np.nan
    return np.asarray(found, dtype=np.float64)
