"""Computes, in bins of time, how long devices computed, waited for peers or for inputs, were kept free, or were lost.

No device intervals are made: gangs are added up by group (see `place_groups`) and by bin (see `bins`). Results are
exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from core.record import LOST

from .bins import bins_around, covered, covered_by_hosts, covered_of_each_host, in_bins
from .facts import Facts, texts
from .place_groups import PlaceGroup
from .times import Floats, Ints, micros

By = Literal["device", "host", "island", "client", "program", "step", "total"]
BYS: tuple[By, ...] = ("device", "host", "island", "client", "program", "step", "total")
MAX_ROWS = 20_000_000


def check(by: object) -> None:
    if by not in BYS:
        raise ValueError(f"by={by!r}; it is one of {', '.join(BYS)}")


class BusyTime(NamedTuple):
    """Device nanoseconds, [key, bin]."""

    busy: Floats
    skew: Floats  # from when the gang had this device until it had all its devices
    inputs: Floats  # from then until it started

    @property
    def used(self) -> Floats:
        return self.busy + self.skew + self.inputs


class Chosen(NamedTuple):
    """The selected devices of a group, and how many of them each of the group's hosts has."""

    group: PlaceGroup
    devices: Ints
    host_rows: Ints
    devices_per_host: Ints

    @property
    def hosts(self) -> Ints:
        """The hosts that have some of the devices, as indices of the group's hosts."""
        return np.flatnonzero(self.devices_per_host)


def chosen(facts: Facts, devices: Ints | None) -> list[Chosen]:
    found = []
    for group in facts.groups:
        mine = group.numbers if devices is None else np.intersect1d(group.numbers, devices)
        if len(mine):
            rows = group.host_rows(mine)
            found.append(Chosen(group, mine, rows, np.bincount(rows, minlength=len(group.hosts))))
    return found


def by_host(facts: Facts, pick: Chosen, edges: Ints) -> BusyTime:
    """[host of the selected devices, bin]: the time of one device of each host."""
    busy = busy_of_each_host(facts, pick, edges, np.zeros(len(facts.start), dtype=np.int64), 1)[:, 0]
    skew, inputs = np.zeros_like(busy), np.zeros_like(busy)
    for rows, taken, last in _waits(facts, pick, edges):
        skew += covered_of_each_host(taken, last[:, None], edges)
        inputs += covered(last, facts.start[rows], edges)
    return BusyTime(busy, skew, inputs)


def by_code(facts: Facts, pick: Chosen, edges: Ints, codes: Ints, count: int) -> BusyTime:
    """[code of the gang, bin]: the time of all selected devices together. Codes count from 0."""
    busy = busy_by_code(facts, pick, edges, codes, count)
    skew = np.zeros_like(busy)
    inputs = np.zeros_like(busy)
    weights = pick.devices_per_host[pick.hosts]
    for rows, taken, last in _waits(facts, pick, edges):
        inputs += covered(last, facts.start[rows], edges, codes[rows], count) * len(pick.devices)
        skew += covered_by_hosts(taken, last[:, None], edges, codes[rows], count, weights)
    return BusyTime(busy, skew, inputs)


def busy_by_code(facts: Facts, pick: Chosen, edges: Ints, codes: Ints, count: int) -> Floats:
    """As `by_code`, without the waits: these are what needs a time for each gang and host."""
    group = pick.group
    together = group.rows[~facts.lone[group.rows]]
    busy = covered(facts.start[together], facts.end[together], edges, codes[together], count)
    busy *= len(pick.devices)
    if len(group.lone):
        weights = pick.devices_per_host[pick.hosts]
        first, last, spent = group.lone_sums(pick.hosts, weights)
        at, inside = bins_around(first, last, edges)
        mine = codes[group.rows[group.lone]]
        busy += in_bins(spent[inside], at[inside], edges, mine[inside], count)
        for which, begins, ends in group.lone_parts(group.lone[~inside], pick.hosts):
            busy += covered_by_hosts(begins, ends, edges, codes[group.rows[which]], count, weights)
    return busy


def busy_of_each_host(facts: Facts, pick: Chosen, edges: Ints, codes: Ints, count: int) -> Floats:
    """[host of the selected devices, code of the gang, bin]: how long one device of each host was busy."""
    group, hosts = pick.group, len(pick.hosts)
    together = group.rows[~facts.lone[group.rows]]
    busy = covered(facts.start[together], facts.end[together], edges, codes[together], count)
    found = np.repeat(busy[None], hosts, axis=0)
    for which, begins, ends in group.lone_parts(group.lone, pick.hosts):
        keys = np.arange(hosts) * count + codes[group.rows[which]][:, None]
        busy = covered(begins.ravel(), ends.ravel(), edges, keys.ravel(), hosts * count)
        found += busy.reshape(found.shape)
    return found


def _waits(facts: Facts, pick: Chosen, edges: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """(gangs, [gang, host] when hosts were taken, when all were), a few gangs at a time.

    Only gangs whose waits are known and in the window, and only hosts that have some of the selected devices.
    """
    group = pick.group
    first, last = facts.gathered
    for part in group.parts():
        rows = group.rows[part]
        known = (first[rows] >= 0) & (facts.start[rows] > edges[0]) & (first[rows] < edges[-1])
        known &= (facts.start[rows] > first[rows]) & ~facts.lone[rows]
        if known.any():
            yield rows[known], group.times(part[known], pick.hosts).taken, last[rows[known]]


# --- kept free by a policy ----------------------------------------------------------------------------------


def reserved_on(
    facts: Facts, pick: Chosen, edges: Ints, by_client: bool = False, lost: bool = False
) -> Floats:  # fmt: skip
    """[0 or client, bin]: device time in which the selected devices were reserved; or, if `lost`, were not there."""

    def used(fine: Ints) -> Floats:
        return by_code(facts, pick, fine, np.zeros(len(facts.start), dtype=np.int64), 1).used

    return reserved(facts, pick.group, edges, len(pick.devices), used, by_client, lost)


def reserved_of_hosts(facts: Facts, pick: Chosen, edges: Ints, lost: bool = False) -> Floats:
    """[host of the selected devices, bin]: the reserved or lost time of one device of each host."""
    found = reserved(facts, pick.group, edges, 1, lambda fine: by_host(facts, pick, fine).used, lost=lost)
    return np.broadcast_to(found, (len(pick.hosts), len(edges) - 1))


def reserved_fraction(facts: Facts, low: int, high: int, lost: bool = False) -> float:
    """The part of all devices' time between these times in which they were reserved, or lost."""
    if not len(facts.reservations["place"]):
        return 0.0
    edges = np.array([low, high], dtype=np.int64)
    spent = sum(float(reserved_on(facts, pick, edges, lost=lost)[0, 0]) for pick in chosen(facts, None))
    return spent / max(1, len(facts.devices) * (high - low))


# --- as frames ----------------------------------------------------------------------------------------------


def utilization(facts: Facts, by: By, edges: Ints, devices: Ints | None) -> pd.DataFrame:
    """A frame with one row a key and bin."""
    if by in ("device", "host"):
        return _of_machines(facts, by, edges, chosen(facts, devices))
    every = facts.devices if devices is None else devices
    parts = _split(facts, every) if by == "island" else [("", every)]
    whole = by in ("island", "total")
    keys, codes = ([""], np.zeros(len(facts.start), dtype=np.int64)) if whole else coded(facts, by)
    found = [_of_part(facts, by, edges, chosen(facts, mine), codes, len(keys)) for _, mine in parts]
    none = np.zeros((0, len(edges) - 1))
    *spent, kept, lost = (np.concatenate([none, *(each[i] for each in found)]) for i in range(5))
    names = [name for name, _ in parts] if whole else keys
    labels: dict[str, npt.NDArray[Any]] = {} if by == "total" else {by: np.array(names, dtype=object)}
    number = np.repeat(np.array([len(mine) for _, mine in parts], dtype=np.int64), len(keys))
    return _frame(facts, edges, labels, BusyTime(*spent), (kept, lost), number)


def _of_part(
    facts: Facts, by: By, edges: Ints, picks: list[Chosen], codes: Ints, count: int
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """[code, bin]: busy, skew, inputs, reserved and lost, of some devices."""
    shape = count, len(edges) - 1
    kept, lost = np.full(shape, np.nan), np.full(shape, np.nan)  # a reservation is no program's, and a loss nobody's
    if by in ("island", "total"):
        lost[:] = sum((reserved_on(facts, pick, edges, lost=True) for pick in picks), np.zeros(shape))
    if by not in ("program", "step"):
        of_client = by == "client"
        rows = kept[: len(facts.client_names) if of_client else 1]  # gangs that are nobody's may have one more code
        rows[:] = sum((reserved_on(facts, pick, edges, of_client) for pick in picks), np.zeros_like(rows))
    return *_sum([by_code(facts, pick, edges, codes, count) for pick in picks], shape), kept, lost


def coded(facts: Facts, by: str) -> tuple[list[str], Ints]:
    """(names, each gang's index among them). Clients come in the order of joining, others as first recorded."""
    if by == "client":
        names, found = list(facts.client_names), facts.gang_clients
        return (names, found) if (found >= 0).all() else ([*names, "?"], np.where(found < 0, len(names), found))
    pairs, codes = coded_pairs(facts, facts.gangs["step"] if by == "step" else None)
    return ["/".join(pair) if by == "step" else pair[0] for pair in pairs], codes


def coded_pairs(facts: Facts, steps: npt.NDArray[np.integer] | None) -> tuple[list[tuple[str, str]], Ints]:
    """((program, step) pairs as first recorded, each gang's index among them). Without steps, a step is ""."""
    other = np.full(len(facts.start), -1) if steps is None else steps.astype(np.int64)
    pairs = np.stack([facts.gang_programs, other], axis=1)
    kinds, first, which = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    names = [(str(facts.words[p]) or "?", str(facts.words[s])) for p, s in kinds[order].tolist()]
    return names, place[which.reshape(-1)]


def _sum(many: Sequence[BusyTime], shape: tuple[int, int]) -> BusyTime:
    zero = BusyTime(np.zeros(shape), np.zeros(shape), np.zeros(shape))
    return BusyTime(*(sum((s[i] for s in many), zero[i]) for i in range(3)))


def _of_machines(facts: Facts, by: By, edges: Ints, picks: list[Chosen]) -> pd.DataFrame:
    numbers = [pick.devices if by == "device" else pick.group.hosts[pick.hosts] for pick in picks]
    keys, where = np.unique(np.concatenate(numbers or [np.empty(0, np.int64)]), return_inverse=True)
    bins = len(edges) - 1
    if len(keys) * bins > MAX_ROWS:
        raise ValueError(
            f"{len(keys):,} {by}s x {bins:,} bins would be {len(keys) * bins:,} rows; take fewer bins, "
            f"devices=..., or by='island'"
        )
    total = BusyTime(*(np.zeros((len(keys), bins)) for _ in range(3)))
    kept, lost = np.zeros((len(keys), bins)), np.zeros((len(keys), bins))
    count = np.zeros(len(keys), dtype=np.int64)
    at = 0
    for pick, mine in zip(picks, numbers, strict=True):
        rows = where[at : at + len(mine)]
        at += len(mine)
        spent = by_host(facts, pick, edges)
        hosts = np.searchsorted(pick.hosts, pick.host_rows) if by == "device" else np.arange(len(mine))
        times = np.ones(len(mine), dtype=np.int64) if by == "device" else pick.devices_per_host[pick.hosts]
        count[rows] += times
        unused = [reserved_of_hosts(facts, pick, edges, away) for away in (False, True)]
        for sum_, one in zip((*total, kept, lost), (*spent, *unused), strict=True):
            sum_[rows] += one[hosts] * times[:, None]
    machines = facts.machines
    hosts = machines.hosts_of(keys) if by == "device" else keys
    islands = np.array([*machines.names(), ""], dtype=object)[machines.island_rows_of_hosts(hosts)]
    labels = {"device": keys} if by == "device" else {}
    return _frame(facts, edges, {**labels, "host": hosts, "island": islands}, total, (kept, lost), count)


def _split(facts: Facts, devices: Ints) -> list[tuple[str, Ints]]:
    rows = facts.machines.island_rows(devices)
    return [(name, devices[rows == row]) for row, name in enumerate(facts.machines.names()) if (rows == row).any()]


def _frame(
    facts: Facts, edges: Ints, labels: dict[str, npt.NDArray[np.generic]], spent: BusyTime,
    unused: tuple[Floats, Floats], devices: Ints,
) -> pd.DataFrame:  # fmt: skip
    """`unused`: reserved, and lost."""
    keys, bins = spent.busy.shape
    columns: dict[str, npt.NDArray[np.generic] | pd.Series] = {
        "time_us": np.repeat(micros(edges[:-1]), keys), "bin_us": np.repeat(np.diff(edges) / 1_000, keys)
    }  # fmt: skip
    tiled = {name: np.tile(label, bins) for name, label in labels.items()}
    columns |= {name: texts(each) if each.dtype == object else each for name, each in tiled.items()}
    if "device" not in labels:
        columns["devices"] = np.tile(devices, bins)
    available = devices[:, None] * np.diff(edges)[None, :]
    knows = (facts.gathered[0] >= 0).any()
    for name, times in zip(("busy", "skew", "input_wait"), spent, strict=True):
        fraction = times / np.maximum(available, 1)
        if name != "busy" and not knows:
            fraction = np.full_like(fraction, np.nan)  # no recorder knew when hosts had enqueued
        columns[f"{name}_fraction"] = fraction.T.ravel()
    for name, times in zip(("reserved", "lost"), unused, strict=True):
        columns[f"{name}_fraction"] = (times / np.maximum(available, 1)).T.ravel()
    return pd.DataFrame(columns)


# --- kept free by a policy: where bins are cut -----------------------------------------------------------

# A reservation says that nothing may enter the order on some devices, which may still be busy.
# So a device is reserved while it is kept free *and* does nothing. To find this exactly, bins are cut where a
# reservation begins or ends: in each smaller bin, what devices that are kept free did not spend on gangs was reserved.


class KeptTimes(NamedTuple):
    """When a group of devices was kept free, and for whom; in order, and one after the other."""

    low: Ints
    high: Ints
    clients: Ints  # rows of the table of clients; -1: nobody in particular


def kept_times(facts: Facts, group: PlaceGroup, lost: bool = False) -> KeptTimes:
    """`lost`: instead, when the devices were not there."""
    table = facts.reservations
    rows = np.flatnonzero(np.isin(table["place"], group.places) & ((table["client"] == LOST) == lost))
    rows = rows[np.argsort(table["since"][rows], kind="stable")]
    since, until = table["since"][rows].astype(np.int64), facts.until_now(table["until"][rows])
    return KeptTimes(since, until, facts.client_rows(table["client"][rows]))


def reserved(
    facts: Facts, group: PlaceGroup, edges: Ints, available: int, used: Callable[[Ints], Floats],
    by_client: bool = False, lost: bool = False,
) -> Floats:  # fmt: skip
    """[key, bin]: device time that was reserved. `available`: devices behind each key. `used`: what [key, bin] devices
    spent on gangs, for such edges. `by_client`: `used` has one key, and the result has one for each client."""
    kept = kept_times(facts, group, lost)
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
