"""Adds up how much of each bin of time is covered by intervals, without a loop over bins or intervals.

The part of a bin that intervals cover is the difference of two sums, one over their starts and one over their ends.
`bincount` makes both for all intervals at once. Where all times of a gang lie in one bin, their sum is enough.
"""

import numpy as np

from .times import Bools, Floats, Ints


def covered(
    low: Ints, high: Ints, edges: Ints, keys: Ints | None = None, count: int = 1, weights: Ints | None = None
) -> Floats:
    """[key, bin]: how much of each bin the intervals cover, summed over the intervals of a key."""
    return _after(low, edges, keys, count, weights) - _after(high, edges, keys, count, weights)


def _after(at: Ints, edges: Ints, keys: Ints | None, count: int, weights: Ints | None) -> Floats:
    """[key, bin]: how much of a bin comes after each of these times, summed over the times of a key."""
    bins = len(edges) - 1
    at = np.clip(at, edges[0], edges[-1])
    which = np.searchsorted(edges, at, "right") - 1  # a time at the very end is in no bin
    rest = np.append(edges[1:], edges[-1])[which] - at
    if weights is not None:
        rest = rest * weights
    if keys is not None:
        which = which + keys * (bins + 1)
    size = count * (bins + 1)
    number = np.bincount(which, weights, size).reshape(count, bins + 1)[:, :bins]
    inside = np.bincount(which, rest, size).reshape(count, bins + 1)[:, :bins]
    before = np.cumsum(number, axis=1) - number
    return np.asarray(before * np.diff(edges) + inside, dtype=np.float64)


def covered_by_hosts(low: Ints, high: Ints, edges: Ints, keys: Ints, count: int, devices_per_host: Ints) -> Floats:
    """`covered` for intervals [gang, host], with a key for each gang and a weight for each host."""
    which, inside = bins_around(low.min(axis=1), high.max(axis=1), edges)
    spent = (high[inside] - low[inside]) @ devices_per_host
    found = in_bins(spent, which[inside], edges, keys[inside], count)
    cut = np.flatnonzero(~inside)
    if len(cut):
        hosts = len(devices_per_host)
        ends = np.broadcast_to(high[cut], (len(cut), hosts))
        weights = np.tile(devices_per_host, len(cut))
        found += covered(low[cut].ravel(), ends.ravel(), edges, np.repeat(keys[cut], hosts), count, weights)
    return found


def covered_of_each_host(low: Ints, high: Ints, edges: Ints) -> Floats:
    """[host, bin]: `covered` for intervals [gang, host], by host."""
    hosts = low.shape[1]
    found = np.zeros((hosts, len(edges) - 1))
    which, inside = bins_around(low.min(axis=1), high.max(axis=1), edges)
    for each in np.unique(which[inside]).tolist():
        mine = inside & (which == each)
        found[:, each] += (high[mine] - low[mine]).sum(axis=0)
    cut = np.flatnonzero(~inside)
    if len(cut):
        ends = np.broadcast_to(high[cut], (len(cut), hosts))
        keys = np.tile(np.arange(hosts), len(cut))
        found += covered(low[cut].ravel(), ends.ravel(), edges, keys, hosts)
    return found


def bins_around(first: Ints, last: Ints, edges: Ints) -> tuple[Ints, Bools]:
    """(the bin that each begins in, whether it ends there too). Then a gang's hosts need not be looked up singly."""
    which = np.clip(np.searchsorted(edges, first, "right") - 1, 0, len(edges) - 2)
    return which, (first >= edges[which]) & (last <= edges[which + 1])


def in_bins(spent: Ints, which: Ints, edges: Ints, keys: Ints, count: int) -> Floats:
    """[key, bin]: the sums of times that were each spent in one bin."""
    bins = len(edges) - 1
    found = np.bincount(keys * bins + which, spent, count * bins).reshape(count, bins)
    return found.astype(np.float64)  # of nothing, `bincount` makes integers
