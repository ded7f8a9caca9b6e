"""Device intervals: one row a device and gang, with its waits, for a window, or for some devices.

A large trace has tens of millions of them, so a frame has a limit. They are made a piece at a time, and only for the
hosts of the devices that are asked for: what is needed beside the frame itself does not grow with the trace.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from .busy import Chosen, chosen
from .facts import Facts, category
from .place_groups import NONE
from .times import Ints, micros

PIECE = 1 << 17  # intervals that are made at once for a frame
Columns = dict[str, npt.NDArray[Any]]


def count(facts: Facts, devices: Ints | None, window: tuple[int, int]) -> int:
    return sum(len(rows_in(facts, pick, window)) * len(pick.devices) for pick in chosen(facts, devices))


def frame(facts: Facts, devices: Ints | None, window: tuple[int, int], limit: int | None) -> pd.DataFrame:
    """All intervals in one frame, sorted by device and then time."""
    picks = chosen(facts, devices)
    gangs = [rows_in(facts, pick, window) for pick in picks]
    number = sum(len(pick.devices) * len(which) for pick, which in zip(picks, gangs, strict=True))
    if limit is not None and number > limit:
        raise ValueError(
            f"{number:,} device intervals; limit={limit:,}. Take a window=(from, to), devices=[...] or sample=16, "
            f"or ask for utilization(), which needs none of them"
        )
    return _framed(facts, _in_order(_filled(facts, picks, gangs)))


def rows_in(facts: Facts, pick: Chosen, window: tuple[int, int]) -> Ints:
    """Indices of the group's gangs that overlap the window, or are seen to have taken no time in it."""
    start, end = facts.start[pick.group.rows], facts.end[pick.group.rows]
    instant = (start == end) & (window[0] <= start) & (end <= window[1])
    return np.flatnonzero(((start < window[1]) & (end > window[0])) | instant)


class Expanded(NamedTuple):
    """Columns of intervals, one gang on one device each; -1 for unknown times."""

    gang: Ints  # its row
    device: Ints
    host: Ints
    taken: Ints  # when the gang took the device
    ready: Ints  # when it had taken all its devices
    start: Ints
    end: Ints


def pieces(facts: Facts, pick: Chosen, which: Ints, intervals: int) -> Iterator[Expanded]:
    """`expanded`, for some of these gangs at a time: those with about so many intervals."""
    step = max(1, intervals // len(pick.devices))
    return (expanded(facts, pick, which[at : at + step]) for at in range(0, len(which), step))


def expanded(facts: Facts, pick: Chosen, which: Ints) -> Expanded:
    """Intervals of some gangs of a group, gang after gang. `which`: their indices in the group's rows, sorted."""
    group = pick.group
    taken, start, end = group.times(which, pick.hosts)
    rows = group.rows[which]
    ready = np.where(facts.lone[rows, None], taken, facts.gathered[1][rows, None])
    ready = np.where(taken >= 0, ready, NONE)
    columns = np.searchsorted(pick.hosts, pick.host_rows)  # each device's host, as a column of these
    return Expanded(
        np.repeat(rows, len(pick.devices)),
        np.tile(pick.devices, len(which)),
        np.tile(group.hosts[pick.host_rows], len(which)),
        *(each[:, columns].ravel() for each in (taken, ready, start, end)),
    )


# --- as frames ----------------------------------------------------------------------------------------------


def _filled(facts: Facts, picks: Sequence[Chosen], gangs: Sequence[Ints]) -> Columns:
    """Columns of all intervals, by device and then in the order of gangs. Each piece is written to its place once."""
    none = np.empty(0, dtype=np.int64)
    devices = np.concatenate([none, *(pick.devices for pick in picks)])
    many = zip(picks, gangs, strict=True)
    lengths = np.concatenate([none, *(np.full(len(pick.devices), len(which)) for pick, which in many)])
    order = np.argsort(devices, kind="stable")
    begins = np.empty_like(devices)  # each device's first row
    begins[order] = np.cumsum(lengths[order]) - lengths[order]
    empty = _columns(facts, Expanded(*[none] * len(Expanded._fields)))
    found = {name: np.empty(int(lengths.sum()), dtype=column.dtype) for name, column in empty.items()}
    first = 0
    for pick, which in zip(picks, gangs, strict=True):
        at = begins[first : first + len(pick.devices)]
        first += len(pick.devices)
        for piece in pieces(facts, pick, which, PIECE):
            count = len(piece.gang) // len(at)
            place = (at + np.arange(count)[:, None]).ravel()
            at = at + count
            for name, column in _columns(facts, piece).items():
                found[name][place] = column
    return found


def _in_order(columns: Columns) -> Columns:
    """Sorted by device, start and order of gangs: gangs of a device start in their order, unless clocks disagree."""
    device, start = columns["device"], columns["started_us"]
    if not ((device[1:] == device[:-1]) & (start[1:] < start[:-1])).any():
        return columns
    order = np.lexsort((columns["seq"], start, device))
    for name in columns:
        columns[name] = columns[name][order]
    return columns


def _columns(facts: Facts, each: Expanded) -> Columns:
    """The columns of a frame, with numbers for names."""
    known = (each.taken >= 0) & (each.ready >= 0)
    return {
        "device": each.device,
        "host": each.host,
        "island": facts.machines.island_rows(each.device).astype(np.int32),
        "seq": facts.gangs["seq"][each.gang],
        "client": facts.gang_clients[each.gang].astype(np.int32),
        "program": facts.gang_programs[each.gang].astype(np.int32),
        "step": facts.gangs["step"][each.gang],
        "arrived_us": micros(each.taken),
        "started_us": micros(each.start),
        "ended_us": micros(each.end),
        "skew_us": np.where(known, (each.ready - each.taken) / 1_000, np.nan),
        "input_wait_us": np.where(known, (each.start - each.ready) / 1_000, np.nan),
    }


def _framed(facts: Facts, columns: Columns) -> pd.DataFrame:
    """The frame, which takes the columns as they are, without a copy."""
    words = [str(word) for word in facts.words[:-1]]
    names = {"island": facts.machines.names(), "client": facts.client_names, "program": words, "step": words}
    made = {name: category(column, names[name]) if name in names else column for name, column in columns.items()}
    return pd.DataFrame(made, copy=False)
