"""Sets of small integers as sorted, disjoint, half-open spans: `((0, 512),)` is five bytes for 512 hosts.

Every message that names a set of hosts or devices uses spans, so its size follows the shape of the set and not the
number of its members. All functions are pure and expect their arguments in normal form (see `normal`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter

Spans = tuple[tuple[int, int], ...]

EMPTY: Spans = ()


def one(item: int) -> Spans:
    return ((item, item + 1),)


def normal(pairs: Iterable[tuple[int, int]]) -> Spans:
    """Sort the spans, drop the empty ones and merge those that touch or overlap."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pairs):
        if low >= high:
            continue
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def is_normal(pairs: Spans) -> bool:
    """Whether `normal` would change nothing."""
    end: int | None = None
    for low, high in pairs:
        if low >= high or (end is not None and low <= end):
            return False
        end = high
    return True


def of(items: Iterable[int]) -> Spans:
    return normal([(item, item + 1) for item in items])


def union(*many: Spans) -> Spans:
    return normal([pair for spans in many for pair in spans])


def meet(left: Spans, right: Spans) -> Spans:
    """Return the items that are in both sets."""
    found: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if low < high:
            found.append((low, high))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def minus(left: Spans, right: Spans) -> Spans:
    """Return the items that are in `left` and not in `right`."""
    if left == right:
        return EMPTY
    if len(left) == len(right) == 1:
        (low, high), (start, stop) = left[0], right[0]
        if start <= low < stop < high:  # the first of them, as when hosts report one after another
            return ((stop, high),)
    rest: list[tuple[int, int]] = []
    j = 0
    for low, high in left:
        while j < len(right) and right[j][1] <= low:
            j += 1
        k = j
        while k < len(right) and right[k][0] < high:
            if low < right[k][0]:
                rest.append((low, right[k][0]))
            low = max(low, right[k][1])
            k += 1
        if low < high:
            rest.append((low, high))
    return tuple(rest)


def overlap(left: Spans, right: Spans) -> bool:
    if len(left) > len(right):
        left, right = right, left
    for low, high in left:
        # the first span that starts after `low`, or there and ends later
        at = bisect_right(right, (low, high))
        if (at and right[at - 1][1] > low) or (at < len(right) and right[at][0] < high):
            return True
    return False


def within(left: Spans, right: Spans) -> bool:
    """Whether every item of `left` is in `right`."""
    if left == right:
        return True
    for low, high in left:
        at = bisect_right(right, low, key=itemgetter(0))
        if not at or right[at - 1][1] < high:
            return False
    return True


def contains(spans: Spans, item: int) -> bool:
    for low, high in spans:  # noqa: SIM110 - called for each message, and faster than any()
        if low <= item < high:
            return True
    return False


def count(spans: Spans) -> int:
    return sum([high - low for low, high in spans])


def items(spans: Spans) -> Iterator[int]:
    for low, high in spans:
        yield from range(low, high)


def at(spans: Spans, index: int) -> int:
    """Return this one of the items, counted from the lowest."""
    for low, high in spans:
        if index < high - low:
            return low + index
        index -= high - low
    raise IndexError(f"{count(spans)} items have none at {index + count(spans)}")


def index(spans: Spans, item: int) -> int:
    """Return how many of the items are lower than this one."""
    return sum([min(high, item) - low for low, high in spans if low < item])


def pieces(sets: Iterable[Spans]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield what is in the same of these sets, in order: (first, one past the last, the numbers of the sets)."""
    edges: dict[int, list[int]] = {}  # item -> sets with a span that begins there (~number: that ends there)
    for number, spans in enumerate(sets):
        for low, high in spans:
            edges.setdefault(low, []).append(number)
            edges.setdefault(high, []).append(~number)
    begun, here = 0, set[int]()
    for item in sorted(edges):
        if here:
            yield begun, item, tuple(sorted(here))
        begun = item
        for edge in edges[item]:
            if edge < 0:
                here.discard(~edge)
            else:
                here.add(edge)


def shift(spans: Spans, by: int) -> Spans:
    return tuple((low + by, high + by) for low, high in spans)


def text(spans: Spans) -> str:
    """Return the set as people read it: `0-3, 7`."""
    return ", ".join(f"{low}" if high == low + 1 else f"{low}-{high - 1}" for low, high in spans) or "none"
