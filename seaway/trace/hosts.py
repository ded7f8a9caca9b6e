"""Merges a controller's trace with the times that hosts report: when gangs were enqueued and ended there.

A controller hears only afterwards that a gang has ended. Hosts know better, by clocks of their own, whose times are
right to within `bound`. `joined` makes one trace of both. Hosts do not see when a device starts a gang: they enqueue
ahead, and devices take one gang after the other. So a gang is assumed to start on a host when the gang before it left
the devices, or when it was enqueued if that was later. Such starts are flagged as inferred.
See `trace`, which holds both; `seaway.sessions.connected`, which asks the hosts; `core.record.trace`, which merges.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
import pandas as pd

from core.record import ENDED, FAILED, STARTED
from core.record import trace as core_trace

from ..machines import TraceMachines
from .facts import Facts, category
from .frames import inferred
from .place_groups import NONE, PlaceGroup
from .times import Ints, micros

# A gang on a host: (host, seq, enqueued, ended, bound, whether it is a collective), in the controller's time.
Seen = tuple[int, int, int, int, int, bool]


class HostRows(NamedTuple):
    """One row a gang and host, sorted by seq and host."""

    seq: Ints
    host: Ints
    enqueued: Ints
    started: Ints
    ended: Ints
    bound: Ints


NOTHING = HostRows(*(np.empty(0, dtype=np.int64) for _ in HostRows._fields))


def joined(core: core_trace.Trace, seen: Sequence[Seen], machines: TraceMachines) -> tuple[core_trace.Trace, HostRows]:
    """One trace of a controller's and its hosts' times, and the hosts' rows. The given trace is not changed."""
    join = _Join(core, seen, machines)
    if not join.by_seq:
        return core, NOTHING
    join.walk()
    merged = core_trace.Trace.restored(core.strings.words, core.places, core.columns(), core.since)
    merged.merge(join.found)
    for row, ended in join.late.items():
        merged.gangs.put(row, ended=ended)
    rows = np.array(join.rows, dtype=np.int64).reshape(-1, len(HostRows._fields))
    return merged, HostRows(*rows[np.lexsort((rows[:, 1], rows[:, 0]))].T)


class _Join:
    def __init__(self, core: core_trace.Trace, seen: Sequence[Seen], machines: TraceMachines) -> None:
        self._core, self._machines = core, machines
        names = ("seq", "place", "entered", "ended", "flags", "island")
        columns = core.gangs.columns()
        self._gangs = sorted(zip(*(columns[name] for name in names), range(len(core.gangs)), strict=True))
        self._devices: dict[int, dict[int, Ints]] = {}  # place -> host -> its devices there
        place_of = dict(zip(columns["seq"], columns["place"], strict=True))
        self.by_seq: dict[int, dict[int, Seen]] = {}
        for each in seen:
            place = place_of.get(each[1], NONE)
            if place in core.places and each[0] in self._on(place):
                self.by_seq.setdefault(each[1], {})[each[0]] = each
        self.found = core_trace.Trace()  # as the hosts would have recorded it
        self.rows: list[tuple[int, ...]] = []
        self.late: dict[int, int] = {}  # row of the controller's -> estimated end of a gang that no host reported

    def walk(self) -> None:
        """Go through gangs in the order in which devices run them, and infer starts.

        A gang usually ends some time before the controller hears of it. For gangs that only the controller reports,
        that delay is taken to be the median delay of gangs that both report.
        """
        late = self._lateness()
        free = np.zeros(self._machines.devices[-1][1], dtype=np.int64)
        for seq, place, entered, reported, flags, island, row in self._gangs:
            mine = self.by_seq.get(seq)
            if place not in self._core.places or (not mine and reported < 0):
                continue
            if mine:
                self._take(seq, place, island, entered, reported if flags & ENDED else NONE, mine, free)
                continue
            if flags & ENDED:
                reported = self.late[row] = max(entered, reported - late)
            for low, high in self._core.places[place].devices:
                np.maximum(free[low:high], reported, out=free[low:high])

    def _lateness(self) -> int:
        gaps = [
            reported - max(each[3] for each in mine.values())
            for seq, place, _, reported, flags, *_ in self._gangs
            if flags & ENDED and reported >= 0 and not flags & FAILED
            if (mine := self.by_seq.get(seq)) and len(mine) == len(self._on(place))
        ]
        return max(0, round(median(gaps))) if gaps else 0

    def _take(
        self, seq: int, place: int, island: int, entered: int, reported: int, mine: dict[int, Seen], free: Ints
    ) -> None:
        """Record one gang's rows, with times moved where the controller's times show that they must lie.

        A gang enters the order before it is enqueued, and ends before its end is reported. Moving a time there keeps
        it within its bound of the truth.
        """
        devices = self._on(place)
        rows: list[tuple[int, ...]] = []
        for host, (_, _, enqueued, ended, bound, _) in sorted(mine.items()):
            if reported >= 0:
                ended = min(ended, reported)
            enqueued = max(min(enqueued, ended), entered)
            ended = max(ended, enqueued)
            mine_there = devices[host]
            started = min(max(enqueued, int(free[mine_there].max())), ended)
            free[mine_there] = np.maximum(free[mine_there], ended)
            rows.append((seq, host, enqueued, started, ended, bound))
        self.rows += rows
        if len(rows) == len(devices):
            self._record(seq, place, island, rows, any(each[5] for each in mine.values()))

    def _record(self, seq: int, place: int, island: int, rows: list[tuple[int, ...]], collective: bool) -> None:
        """Record the gang. A collective starts once all hosts have it; another gang starts on each host by itself."""
        enqueued, started, ended = ([row[column] for row in rows] for column in (2, 3, 4))
        trace = self.found
        trace.gang(seq, -1, "", island, place)
        if collective or len(rows) == 1:
            trace.hosts(seq, enqueued)
            trace.update(seq, STARTED, started=min(max(started), max(ended)), ended=max(ended))
        else:
            trace.hosts(seq, started)
            trace.update(seq, STARTED, started=min(started))
            trace.ends(seq, ended)

    def _on(self, place: int) -> dict[int, Ints]:
        """Each host's devices in a place."""
        if place not in self._devices:
            spans = self._core.places[place].devices
            numbers = np.concatenate([np.arange(low, high, dtype=np.int64) for low, high in spans])
            hosts, first = np.unique(self._machines.hosts_of(numbers), return_index=True)
            parts = np.split(numbers, first[1:])  # places count up, and so do hosts along them
            self._devices[place] = dict(zip(hosts.tolist(), parts, strict=True))
        return self._devices[place]


# --- as a frame ---------------------------------------------------------------------------------------------


def frame(facts: Facts, told: HostRows, origin: int, window: tuple[int, int] | None, limit: int | None) -> pd.DataFrame:
    """One row a gang and host. `told`: the hosts' rows, in the controller's time; other gangs come from the trace."""
    rows = {seq: row for row, seq in enumerate(facts.gangs["seq"].tolist())}
    of_told = np.array([rows.get(seq, NONE) for seq in told.seq.tolist()], dtype=np.int64)
    here = of_told >= 0
    times = (told.enqueued - origin, told.started - origin, told.ended - origin, told.bound)
    parts = [(of_told[here], told.host[here], *(column[here] for column in times))]
    parts += _recorded(facts, of_told[here], window, limit)
    if window is not None:
        parts = [_within(part, window) for part in parts]
    _check(sum(len(part[0]) for part in parts), limit)
    columns = [list(column) for column in zip(*parts, strict=True)]
    del parts
    order = np.lexsort((np.concatenate(columns[1]), facts.gangs["seq"][np.concatenate(columns[0])]))

    def ordered(column: list[Ints]) -> Ints:
        """A column in the frame's order. Its parts are dropped, so that only one column at a time is there twice."""
        found = np.concatenate(column)[order]
        column.clear()
        return found

    gang, host, enqueued, started, ended, bound = map(ordered, columns)
    flags = facts.flags[gang]
    told_of = np.isin(gang, of_told)  # their starts were inferred, and their ends observed
    words = [str(word) for word in facts.words[:-1]]
    return pd.DataFrame(
        {
            "seq": facts.gangs["seq"][gang],
            "client": category(facts.gang_clients[gang], facts.client_names),
            "program": category(facts.gang_programs[gang], words),
            "run": facts.by_run(facts.runs["run"], facts.gangs["run"][gang]),
            "step": category(facts.gangs["step"][gang], words),
            "host": host,
            "enqueued_us": micros(enqueued),
            "started_us": micros(started),
            "ended_us": micros(ended),
            "bound_us": bound / 1_000,
            "inferred": inferred(np.where(told_of, STARTED, flags & (STARTED | ENDED))),
        },
        copy=False,
    )


def _within(part: tuple[Ints, ...], window: tuple[int, int]) -> tuple[Ints, ...]:
    _, _, _, started, ended, _ = part
    seen = (started < window[1]) & (ended >= window[0])
    return part if seen.all() else tuple(column[seen] for column in part)


def _recorded(facts: Facts, others: Ints, window: tuple[int, int] | None, limit: int | None) -> list[tuple[Ints, ...]]:
    """Rows of all gangs but `others`, where the trace itself has the hosts' times."""
    wanted = facts.end >= 0
    wanted[others] = False
    if window is not None:
        wanted &= (facts.start < window[1]) & (facts.end >= window[0])
    found: list[tuple[Ints, ...]] = []
    for place in np.unique(facts.gangs["place"][wanted]).tolist():
        group = PlaceGroup(facts, (place,), facts.places[place].devices)
        group.set_gangs(np.flatnonzero(wanted & (facts.gangs["place"] == place)).astype(np.int64))
        _check(len(group.rows) * len(group.hosts), limit)
        enqueued, started, ended = group.recorded(np.arange(len(group.rows)), np.arange(len(group.hosts)))
        known = enqueued >= 0
        gang, host, bound = (
            np.broadcast_to(each, known.shape) for each in (group.rows[:, None], group.hosts, np.int64(0))
        )
        found.append(tuple(column[known] for column in (gang, host, enqueued, started, ended, bound)))
    return found


def _check(number: int, limit: int | None) -> None:
    if limit is not None and number > limit:
        raise ValueError(
            f"{number:,} gangs on hosts; limit={limit:,}. Take a window=(from, to), or gangs(), one row a gang"
        )


def bounds(told: HostRows, seqs: Sequence[int]) -> Ints:
    """How wrong each gang's times may be, as its hosts' clocks give them; 0 if the recorder's clock does."""
    worst: dict[int, int] = {}
    for seq, bound in zip(told.seq.tolist(), told.bound.tolist(), strict=True):
        worst[seq] = max(bound, worst.get(seq, 0))
    return np.array([worst.get(seq, 0) for seq in seqs], dtype=np.int64)
