"""Device intervals: one row a device and gang, with its waits, for a window, for some devices, or in blocks.

A large trace has tens of millions of them, so a frame has a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from .busy import Chosen, chosen
from .facts import NONE, Facts, category
from .times import Ints, micros


def count(facts: Facts, devices: Ints | None, window: tuple[int, int]) -> int:
    return sum(len(_rows(facts, pick, window)) * len(pick.devices) for pick in chosen(facts, devices))


def frame(facts: Facts, devices: Ints | None, window: tuple[int, int], limit: int | None) -> pd.DataFrame:
    """All intervals in one frame, sorted by device and then time."""
    number = count(facts, devices, window)
    if limit is not None and number > limit:
        raise ValueError(
            f"{number:,} device intervals; limit={limit:,}. Take a window=(from, to), devices=[...] or sample=16, "
            f"go through interval_blocks(), or ask for utilization(), which needs none of them"
        )
    blocks = list(_blocks(facts, devices, window, max(number, 1)))
    table = (
        pd.concat(blocks, ignore_index=True)
        if blocks
        else _frame(facts, Expanded(*(np.empty(0, dtype=np.int64) for _ in Expanded._fields)))
    )
    order = np.lexsort((table["seq"], table["started_us"], table["device"]))
    return table.iloc[order].reset_index(drop=True)


def blocks(facts: Facts, devices: Ints | None, window: tuple[int, int], rows: int) -> Iterator[pd.DataFrame]:
    """All intervals, in frames of about `rows` rows and in no particular order."""
    if rows < 1:
        raise ValueError(f"blocks of {rows} rows; at least one is needed")
    return _blocks(facts, devices, window, rows)


def _blocks(facts: Facts, devices: Ints | None, window: tuple[int, int], rows: int) -> Iterator[pd.DataFrame]:
    for pick in chosen(facts, devices):
        gangs = _rows(facts, pick, window)
        step = max(1, rows // len(pick.devices))
        for at in range(0, len(gangs), step):
            yield _frame(facts, expanded(facts, pick, gangs[at : at + step]))


def _rows(facts: Facts, pick: Chosen, window: tuple[int, int]) -> Ints:
    """Indices of the group's gangs that overlap the window."""
    rows = pick.group.rows
    return np.flatnonzero((facts.start[rows] < window[1]) & (facts.end[rows] > window[0]))


class Expanded(NamedTuple):
    """Columns of intervals, one gang on one device each; -1 for unknown times."""

    gang: Ints  # its row
    device: Ints
    host: Ints
    taken: Ints  # when the gang took the device
    ready: Ints  # when it had taken all its devices
    start: Ints
    end: Ints


def expanded(facts: Facts, pick: Chosen, which: Ints) -> Expanded:
    """Intervals of some gangs of a group. `which`: their indices in the group's rows, sorted."""
    group = pick.group
    taken = np.empty((len(which), len(group.hosts)), dtype=np.int64)
    if len(which):
        low, high = int(which[0]), int(which[-1]) + 1
        taken = facts.taken(group, slice(low, high))[which - low]
    rows = group.rows[which]
    shape = taken.shape
    start, end = (np.broadcast_to(column[rows, None], shape) for column in (facts.start, facts.end))
    ready = np.where(taken >= 0, facts.gathered[1][rows, None], NONE)
    own = np.flatnonzero(facts.lone[rows])
    if len(own):  # gangs that each host ran by itself
        at = np.searchsorted(group.lone, which[own])
        start, end = start.copy(), end.copy()
        start[own], end[own], ready[own] = group.begins[at], group.ends[at], group.begins[at]
    devices, gangs = len(pick.devices), len(which)
    return Expanded(
        np.repeat(rows, devices),
        np.tile(pick.devices, gangs),
        np.tile(group.hosts[pick.host_rows], gangs),
        *(column[:, pick.host_rows].ravel() for column in (taken, ready, start, end)),
    )


def _frame(facts: Facts, each: Expanded) -> pd.DataFrame:
    known = (each.taken >= 0) & (each.ready >= 0)
    return pd.DataFrame(
        {
            "device": each.device,
            "host": each.host,
            "island": category(facts.machines.island_rows(each.device), facts.machines.names()),
            "seq": facts.gangs["seq"][each.gang],
            "client": category(facts.gang_clients[each.gang], facts.client_names),
            "program": _words(facts, facts.gang_programs[each.gang]),
            "step": _words(facts, facts.gangs["step"][each.gang]),
            "arrived_us": micros(each.taken),
            "started_us": micros(each.start),
            "ended_us": micros(each.end),
            "skew_us": np.where(known, (each.ready - each.taken) / 1_000, np.nan),
            "input_wait_us": np.where(known, (each.start - each.ready) / 1_000, np.nan),
        }
    )


def _words(facts: Facts, words: npt.NDArray[np.integer]) -> pd.Categorical:
    return category(words, [str(word) for word in facts.words[:-1]])
