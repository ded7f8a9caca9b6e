"""Devices that a policy kept free: the part of time in which they were reserved, and neither busy nor idle.

A reservation says that nothing may enter the order on some devices. They may be busy still, with what entered before.
So a device is reserved from when it is kept free *and* does nothing. To find this exactly, bins are cut where
reservations begin and end: in each of the smaller bins, devices are kept free all the time or not at all, and what
they did not spend on gangs was reserved.

Neighbours: `busy` puts these numbers beside its own; `charts` and `timeline` draw them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .facts import Facts
from .place_groups import PlaceGroup
from .times import Floats, Ints


class KeptTimes(NamedTuple):
    """When a group of devices was kept free, and for whom; in order, and one after the other."""

    low: Ints
    high: Ints
    clients: Ints  # rows of the table of clients; -1: nobody in particular


def kept_times(facts: Facts, group: PlaceGroup) -> KeptTimes:
    table = facts.reservations
    rows = np.flatnonzero(np.isin(table["place"], group.places))
    rows = rows[np.argsort(table["since"][rows], kind="stable")]
    since, until = table["since"][rows].astype(np.int64), facts.until_now(table["until"][rows])
    return KeptTimes(since, until, facts.client_rows(table["client"][rows]))


def reserved(
    facts: Facts, group: PlaceGroup, edges: Ints, available: int, used: Callable[[Ints], Floats],
    by_client: bool = False,
) -> Floats:  # fmt: skip
    """[key, bin]: device time that was reserved. `available`: devices behind each key. `used`: what [key, bin] devices
    spent on gangs, for such edges. `by_client`: `used` has one key, and the result has one for each client."""
    kept = kept_times(facts, group)
    bins = len(edges) - 1
    if not len(kept.low):
        return np.zeros((len(facts.client_names) if by_client else 1, bins))
    inside = [np.clip(each, edges[0], edges[-1]) for each in (kept.low, kept.high)]
    fine = np.unique(np.concatenate([edges, *inside]))
    begins = fine[:-1]
    which = np.searchsorted(kept.low, begins, "right") - 1
    held = (which >= 0) & (begins < kept.high[which])
    unused = (np.diff(fine) * available - used(fine)).clip(0) * held
    coarse = np.searchsorted(edges, begins, "right") - 1
    if by_client:
        whose = np.where(held, kept.clients[which], -1)
        found = np.zeros((len(facts.client_names), bins))
        known = whose >= 0
        np.add.at(found, (whose[known], coarse[known]), unused[0][known])
        return found
    found = np.zeros((len(unused), bins))
    for key, row in enumerate(unused):
        found[key] = np.bincount(coarse, row, bins)
    return found
