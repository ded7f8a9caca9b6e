"""Computes, in bins of time, how long devices computed, waited for peers, and waited for inputs.

No device intervals are made. The part of a bin that intervals cover is the difference of two sums, one over their
starts and one over their ends. `bincount` makes both for all gangs of a group at once, and the results are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from .facts import Facts, PlaceGroup, texts
from .times import Ints, micros

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]
By = Literal["device", "host", "island", "client", "program", "step", "total"]
BYS: tuple[By, ...] = ("device", "host", "island", "client", "program", "step", "total")
MAX_ROWS = 20_000_000


class BusyTime(NamedTuple):
    """Device nanoseconds, [key, bin]."""

    busy: Floats
    skew: Floats  # from when the gang had this device until it had all its devices
    inputs: Floats  # from then until it started


def covered(low: Ints, high: Ints, edges: Ints, keys: Ints | None = None, count: int = 1) -> Floats:
    """[key, bin]: how much of each bin the intervals cover, summed over the intervals of a key."""
    return _after(low, edges, keys, count) - _after(high, edges, keys, count)


def _after(at: Ints, edges: Ints, keys: Ints | None, count: int) -> Floats:
    """[key, bin]: how much of a bin comes after each of these times, summed over the times of a key."""
    bins = len(edges) - 1
    at = np.clip(at, edges[0], edges[-1])
    if bins == 1:  # nothing to look up
        rest = edges[1] - at
        sums = [rest.sum()] if keys is None else np.bincount(keys, weights=rest, minlength=count)
        return np.asarray(sums, dtype=np.float64).reshape(count, 1)
    which = np.searchsorted(edges, at, "right") - 1  # a time at the very end is in no bin
    rest = np.append(edges[1:], edges[-1])[which] - at
    if keys is not None:
        which = which + keys * (bins + 1)
    size = count * (bins + 1)
    number = np.bincount(which, minlength=size).reshape(count, bins + 1)[:, :bins]
    inside = np.bincount(which, weights=rest, minlength=size).reshape(count, bins + 1)[:, :bins]
    before = np.cumsum(number, axis=1) - number
    return np.asarray(before * np.diff(edges) + inside, dtype=np.float64)


class Chosen(NamedTuple):
    """The selected devices of a group, and how many of them each of the group's hosts has."""

    group: PlaceGroup
    devices: Ints
    host_rows: Ints
    devices_per_host: Ints


def chosen(facts: Facts, devices: Ints | None) -> list[Chosen]:
    found = []
    for group in facts.groups:
        mine = group.numbers if devices is None else np.intersect1d(group.numbers, devices)
        if len(mine):
            rows = group.host_rows(mine, facts)
            found.append(Chosen(group, mine, rows, np.bincount(rows, minlength=len(group.hosts))))
    return found


def by_host(facts: Facts, group: PlaceGroup, edges: Ints) -> BusyTime:
    """[host of the group, bin]: the time of one device of each host."""
    hosts = len(group.hosts)
    together = group.rows[~facts.lone[group.rows]]
    busy = covered(facts.start[together], facts.end[together], edges)
    skew = np.zeros((hosts, len(edges) - 1))
    if len(group.lone):
        keys = np.tile(np.arange(hosts), len(group.lone))
        busy = busy + covered(group.begins.ravel(), group.ends.ravel(), edges, keys, hosts)
    inputs = np.zeros_like(skew)
    for part in facts.parts(group):
        rows, taken, last = _waits(facts, group, part, edges)
        if len(rows):
            keys = np.tile(np.arange(hosts), len(rows))
            skew += covered(taken.ravel(), np.repeat(last, hosts), edges, keys, hosts)
            inputs += covered(last, facts.start[rows], edges)
    return BusyTime(np.broadcast_to(busy, skew.shape), skew, inputs)


def by_code(facts: Facts, pick: Chosen, edges: Ints, codes: Ints, count: int) -> BusyTime:
    """[code of the gang, bin]: the time of all selected devices together. Codes count from 0."""
    group, number = pick.group, len(pick.devices)
    together = group.rows[~facts.lone[group.rows]]
    busy = covered(facts.start[together], facts.end[together], edges, codes[together], count) * number
    skew = np.zeros_like(busy)
    inputs = np.zeros_like(busy)
    hosts = np.flatnonzero(pick.devices_per_host)
    for at in hosts.tolist() if len(group.lone) else ():
        mine = codes[group.rows[group.lone]]
        busy += covered(group.begins[:, at], group.ends[:, at], edges, mine, count) * int(
            pick.devices_per_host[at]
        )
    for part in facts.parts(group):
        rows, taken, last = _waits(facts, group, part, edges)
        if not len(rows):
            continue
        inputs += covered(last, facts.start[rows], edges, codes[rows], count) * number
        for devices in np.unique(pick.devices_per_host[hosts]).tolist():  # one number, as a rule
            these = taken[:, hosts[pick.devices_per_host[hosts] == devices]]
            width = these.shape[1]
            keys = np.repeat(codes[rows], width)
            skew += covered(these.ravel(), np.repeat(last, width), edges, keys, count) * devices
    return BusyTime(busy, skew, inputs)


def _waits(facts: Facts, group: PlaceGroup, part: slice, edges: Ints) -> tuple[Ints, Ints, Ints]:
    """(gangs, [gang, host] times when devices were taken, times when all were), for known waits in the window."""
    rows = group.rows[part]
    first, last = facts.gathered
    known = (first[rows] >= 0) & (facts.start[rows] > edges[0]) & (first[rows] < edges[-1])
    known &= (facts.start[rows] > first[rows]) & ~facts.lone[rows]
    return rows[known], facts.taken(group, part)[known], last[rows[known]]


# --- as frames ----------------------------------------------------------------------------------------------


def utilization(facts: Facts, by: By, edges: Ints, devices: Ints | None) -> pd.DataFrame:
    """A frame with one row a key and bin."""
    picks = chosen(facts, devices)
    if by in ("device", "host"):
        return _of_machines(facts, by, edges, picks)
    if by in ("island", "total"):
        return _of_islands(facts, by, edges, devices)
    keys, codes = coded(facts, by)
    spent = _sum(
        [by_code(facts, pick, edges, codes, len(keys)) for pick in picks], (len(keys), len(edges) - 1)
    )
    number = sum(len(pick.devices) for pick in picks)
    return _frame(facts, edges, {by: np.array(keys, dtype=object)}, spent, np.full(len(keys), number))


def coded(facts: Facts, by: str) -> tuple[list[str], Ints]:
    """(names, each gang's index among them). Clients come in the order of joining, others as first recorded."""
    if by == "client":
        names, found = list(facts.client_names), facts.gang_clients
        return (
            (names, found) if (found >= 0).all() else ([*names, "?"], np.where(found < 0, len(names), found))
        )
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
    numbers = [
        pick.devices if by == "device" else pick.group.hosts[pick.devices_per_host > 0] for pick in picks
    ]
    keys, where = np.unique(np.concatenate(numbers or [np.empty(0, np.int64)]), return_inverse=True)
    bins = len(edges) - 1
    if len(keys) * bins > MAX_ROWS:
        raise ValueError(
            f"{len(keys):,} {by}s x {bins:,} bins would be {len(keys) * bins:,} rows; take fewer bins, "
            f"devices=..., or by='island'"
        )
    total = BusyTime(*(np.zeros((len(keys), bins)) for _ in range(3)))
    count = np.zeros(len(keys), dtype=np.int64)
    at = 0
    for pick, mine in zip(picks, numbers, strict=True):
        rows = where[at : at + len(mine)]
        at += len(mine)
        spent = by_host(facts, pick.group, edges)
        hosts = pick.host_rows if by == "device" else np.flatnonzero(pick.devices_per_host)
        times = np.ones(len(mine), dtype=np.int64) if by == "device" else pick.devices_per_host[hosts]
        count[rows] += times
        for sum_, one in zip(total, spent, strict=True):
            sum_[rows] += one[hosts] * times[:, None]
    machines = facts.machines
    hosts = machines.hosts_of(keys) if by == "device" else keys
    islands = np.array([*machines.names(), ""], dtype=object)[machines.island_rows_of_hosts(hosts)]
    labels = {"device": keys} if by == "device" else {}
    return _frame(facts, edges, {**labels, "host": hosts, "island": islands}, total, count)


def _of_islands(facts: Facts, by: By, edges: Ints, devices: Ints | None) -> pd.DataFrame:
    none = np.zeros(len(facts.start), dtype=np.int64)
    names, spent, number = [], [], []
    every = facts.devices if devices is None else devices
    whole = by == "total"
    parts = [("all", every)] if whole else _split(facts, every)
    for name, mine in parts:
        picks = chosen(facts, mine)
        names.append(name)
        spent.append(_sum([by_code(facts, p, edges, none, 1) for p in picks], (1, len(edges) - 1)))
        number.append(sum(len(p.devices) for p in picks))
    empty = np.zeros((0, len(edges) - 1))
    total = BusyTime(*(np.concatenate([empty, *(s[i] for s in spent)]) for i in range(3)))
    labels = {} if whole else {"island": np.array(names, dtype=object)}
    return _frame(facts, edges, labels, total, np.array(number, dtype=np.int64))


def _split(facts: Facts, devices: Ints) -> list[tuple[str, Ints]]:
    rows = facts.machines.island_rows(devices)
    return [
        (name, devices[rows == row]) for row, name in enumerate(facts.machines.names()) if (rows == row).any()
    ]


def _frame(
    facts: Facts, edges: Ints, labels: dict[str, npt.NDArray[np.generic]], spent: BusyTime, devices: Ints
) -> pd.DataFrame:
    import pandas as pd

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
    return pd.DataFrame(columns)
