"""Groups of devices that ran the same gangs, and when the hosts of a group had, began and ended each gang.

Devices that belong to the same places ran the same gangs at the same times. Such a group is computed once, whether it
has 1 device or 100,000. Within a group only hosts differ, by when each enqueued a gang. Nothing here keeps a number for
each gang and host: `times` makes them for the gangs and hosts that are asked for.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from core.model import Spans, spans
from core.record import Lists

from .times import Ints

if TYPE_CHECKING:
    from .facts import Facts

NONE = -1  # an index or time that is missing
Pick = Callable[[Ints], Ints]  # from lists, [list, host of the group], a row for each list
Bytes = npt.NDArray[np.uint8]
BLOCK = 1 << 18  # numbers expanded at once: as many as fit a CPU cache
_TYPES = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<i8"}


class HostTimes(NamedTuple):
    """Times of some gangs on some hosts, each [gang, host]; -1 for unknown ones."""

    taken: Ints  # the gang took the host's devices: the host had enqueued it, and the gang before it was over
    start: Ints
    end: Ints


class PlaceGroup:
    """Devices that belong to the same places, with their gangs in the order in which they ran."""

    def __init__(self, facts: Facts, places: tuple[int, ...], devices: Spans) -> None:
        self.facts: Facts = weakref.proxy(facts)  # which holds its groups: a cycle would outlive the trace
        self.places = places
        self.devices = devices
        self.size = spans.count(devices)
        numbers = np.concatenate([np.arange(low, high, dtype=np.int64) for low, high in devices])
        self.hosts, self.devices_per_host = np.unique(facts.machines.hosts_of(numbers), return_counts=True)
        self.numbers = numbers
        self.rows: Ints = np.empty(0, dtype=np.int64)
        self.free: Ints = self.rows  # by row: when earlier gangs had left the devices; lone ones not counted
        # Indices in `rows` of gangs that are not collectives: each host runs its part alone.
        self.lone: Ints = self.rows

    def set_gangs(self, rows: Ints) -> None:
        """Set the group's gangs: rows of `facts.gangs`, in their order."""
        facts = self.facts
        self.rows = rows
        lone = facts.lone[rows]
        self.lone = np.flatnonzero(lone)
        latest = np.maximum.accumulate(np.where(lone, 0, facts.end[rows]))
        self.free = np.concatenate(([0], latest[:-1])) if len(latest) else latest

    def host_rows(self, devices: Ints) -> Ints:
        """Each device's index in `hosts`."""
        return np.searchsorted(self.hosts, self.facts.machines.hosts_of(devices))

    # --- times on hosts -----------------------------------------------------------------------------------

    def parts(self) -> Iterator[Ints]:
        """Indices in `rows`, in order, few enough at once to be expanded to hosts."""
        return (np.arange(at, min(at + self._step, len(self.rows))) for at in range(0, len(self.rows), self._step))

    def times(self, which: Ints, hosts: Ints | None = None) -> HostTimes:
        """Times of some gangs (sorted indices in `rows`) on some hosts (indices in `hosts`; all of them if None)."""
        hosts = np.arange(len(self.hosts)) if hosts is None else hosts
        if not len(self.lone):
            return self._times(which, hosts)
        cuts = np.flatnonzero(np.diff(which // self._step)) + 1
        parts = [self._times_with_lone(part, hosts) for part in np.split(which, cuts)]
        return parts[0] if len(parts) == 1 else HostTimes(*map(np.concatenate, zip(*parts, strict=True)))

    def extremes(self) -> tuple[Ints, Ints]:
        """When each gang took its first device of the group, and its last; -1 where that is unknown."""
        every = np.arange(len(self.rows))
        enqueued = self._enqueued(every, _extremes, 2)
        # A gang takes all hosts by the same rule, so the first to enqueue it is the first that it takes.
        found = self._clipped(every, enqueued.copy())
        if len(self.lone):  # then the rule differs by host
            found[self.lone] = enqueued[self.lone]
            others = np.setdiff1d(every, self.lone)
            for at in range(0, len(others), self._step):
                taken = self.times(others[at : at + self._step]).taken
                found[others[at : at + self._step]] = _extremes(taken)
        return found[:, 0], found[:, 1]

    # --- gangs that are not collectives -------------------------------------------------------------------

    def lone_parts(self, which: Ints, hosts: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        """(some of these lone gangs, [gang, host] when hosts began them, when hosts ended them), a few at a time."""
        for at in range(0, len(which), self._step):
            some = which[at : at + self._step]
            yield some, self._enqueued(some, _of(hosts), len(hosts)), self._ends(some, hosts)

    def lone_sums(self, hosts: Ints, devices_per_host: Ints) -> tuple[Ints, Ints, Ints]:
        """When the first of these hosts began each lone gang, when the last ended it, and their devices' time in it."""
        rows, others = self.rows[self.lone], int(devices_per_host.sum()) - 1

        def sums(table: Ints) -> Ints:
            mine = table[:, hosts]
            return np.column_stack([_extremes(mine), mine @ devices_per_host])

        begins = self._enqueued(self.lone, sums, 3)
        ends = self._read(rows, "ends", self.facts.end, sums, 3)
        # A list counts from a base, which was added to the sum once, and not once for each device.
        spent = ends[:, 2] - begins[:, 2] + others * (self.facts.end - self.facts.gangs["enqueued"])[rows]
        return begins[:, 0], ends[:, 1], spent

    # --- inside -------------------------------------------------------------------------------------------

    @property
    def _step(self) -> int:
        return max(1, BLOCK // max(1, len(self.hosts)))

    def _times(self, which: Ints, hosts: Ints) -> HostTimes:
        taken = self._clipped(which, self._enqueued(which, _of(hosts), len(hosts)))
        rows = self.rows[which]
        start, end = (np.broadcast_to(column[rows, None], taken.shape) for column in (self.facts.start, self.facts.end))
        return HostTimes(taken, start, end)

    def recorded(self, which: Ints, hosts: Ints) -> HostTimes:
        """When hosts had enqueued gangs, and when they began and ended them; -1 where nobody recorded that."""
        rows = self.rows[which]
        enqueued = self._enqueued(which, _of(hosts), len(hosts))
        start, end = (
            np.repeat(column[rows, None], len(hosts), axis=1) for column in (self.facts.start, self.facts.end)
        )
        lone = self.facts.lone[rows]
        start[lone], end[lone] = enqueued[lone], self._ends(which[lone], hosts)
        return HostTimes(enqueued, start, end)

    def _times_with_lone(self, which: Ints, hosts: Ints) -> HostTimes:
        """As `_times`, for gangs of one part."""
        found, others = self.recorded(which, hosts), ~self.facts.lone[self.rows[which]]
        if others.any():
            after = self._after_lone(which[others], found.taken[others], hosts)
            found.taken[others] = self._clipped(which[others], after)
        return found

    def _after_lone(self, which: Ints, enqueued: Ints, hosts: Ints) -> Ints:
        """[gang, host]: when hosts had enqueued gangs of one part, and lone gangs before them were over."""
        part = int(which[0]) // self._step
        lone = self._lone_of(part)
        left = np.concatenate([self._left[part : part + 1, hosts], self._ends(lone, hosts)])
        before = np.maximum.accumulate(left, axis=0)[np.searchsorted(lone, which)]
        return np.where(enqueued >= 0, np.maximum(enqueued, before), NONE)

    @cached_property
    def _left(self) -> Ints:
        """[part, host]: when the lone gangs of earlier parts had left each host."""
        hosts = np.arange(len(self.hosts))
        parts = -(-len(self.rows) // self._step)
        left = np.full((parts, len(hosts)), NONE, dtype=np.int64)
        for part in range(1, parts):
            ends = self._ends(self._lone_of(part - 1), hosts)
            left[part] = np.maximum(left[part - 1], ends.max(axis=0, initial=NONE))
        return left

    def _lone_of(self, part: int) -> Ints:
        low, high = np.searchsorted(self.lone, (part * self._step, (part + 1) * self._step))
        return self.lone[low:high]

    def _clipped(self, which: Ints, enqueued: Ints) -> Ints:
        """When gangs took hosts that enqueued them then: after earlier gangs were over, and before their own start."""
        known = enqueued >= 0
        start = self.facts.start[self.rows[which], None]
        taken = np.maximum(enqueued, self.free[which, None], out=enqueued, where=known)
        return np.minimum(taken, start, out=taken, where=known)

    def _enqueued(self, which: Ints, pick: Pick, width: int) -> Ints:
        """[gang, width]: what `pick` takes of the times at which hosts enqueued gangs; -1 where they are unknown."""
        facts, rows = self.facts, self.rows[which]
        enqueued = facts.gangs["enqueued"]
        found = self._read(rows, "hosts", enqueued, pick, width)
        for place in self.places:
            if len(facts.hosts_of(place)) == 1:  # then there is no list: `enqueued` is the host's time
                mine = np.flatnonzero(facts.gangs["place"][rows] == place)
                found[mine] = enqueued[rows[mine], None]
        return found

    def _ends(self, which: Ints, hosts: Ints) -> Ints:
        """[gang, host]: when hosts ended lone gangs."""
        return self._read(self.rows[which], "ends", self.facts.end, _of(hosts), len(hosts))

    def _read(self, rows: Ints, column: str, base: Ints, pick: Pick, width: int) -> Ints:
        """[gang, width]: what `pick` takes of each gang's list, counted from `base`; -1 for gangs without a list."""
        facts = self.facts
        found = np.full((len(rows), width), NONE, dtype=np.int64)
        begins, places = facts.gangs[column][rows], facts.gangs["place"][rows]
        for place in self.places:
            mine = np.flatnonzero((places == place) & (begins >= 0))
            if len(mine):
                hosts = facts.hosts_of(place)
                packed = facts.tables["arrivals"]["after"]
                of_group = partial(_of_group, pick, np.searchsorted(hosts, self.hosts), column == "ends")
                found[mine] = picked(packed, begins[mine], len(hosts), of_group)
                found[mine] += base[rows[mine], None]
        return found


def _of_group(pick: Pick, hosts: Ints, from_last: bool, table: Ints) -> Ints:
    """What `pick` takes of the group's hosts. `from_last`: a list's largest number is its base."""
    mine = table if len(hosts) == table.shape[1] else table[:, hosts]
    return pick(mine - table.max(axis=1, keepdims=True) if from_last else mine)


def _of(hosts: Ints) -> Pick:
    return lambda table: table[:, hosts]


def _extremes(table: Ints) -> Ints:
    return np.stack([table.min(axis=1), table.max(axis=1)], axis=1)


# --- core's packed lists of times by host ----------------------------------------------------------------

# Gangs that share a list share a row, so a trace in steady state is cheap to read. Where each gang has its own list,
# lists are decoded a block at a time, so that memory does not grow with gangs times hosts.


def picked(column: Bytes, begins: Ints, count: int, pick: Callable[[Ints], Ints]) -> Ints:
    """For each of `begins` a row: what `pick` takes of its list of `count` numbers.

    `pick` turns a matrix of lists into one of as many rows. It is called once a block of distinct lists.
    """
    starts, which = np.unique(begins, return_inverse=True)
    step = max(1, BLOCK // max(1, count))
    blocks = [pick(_decoded(column, starts[at : at + step], count)) for at in range(0, len(starts), step)]
    return np.concatenate(blocks)[which.reshape(-1)]


def _decoded(column: Bytes, starts: Ints, count: int) -> Ints:
    head = Lists.HEAD.size
    lengths = _numbers(column, starts + 1, 1, 4)[:, 0]
    wrong = lengths != count
    if wrong.any():
        raise ValueError(
            f"the trace has {lengths[wrong][0]} arrivals of a gang on {count} hosts: its recorder left some out"
        )
    found = np.empty((len(starts), count), dtype=np.int64)
    widths = column[starts]
    for form in np.unique(widths).tolist():
        rows = widths == form
        at = starts[rows] + head
        if form & Lists.STEPS:
            steps = _numbers(column, at + Lists.OF_STEPS.size, count - 1, form & ~Lists.STEPS)
            base = _numbers(column, at, 2, 8)  # the smallest step, the first number
            found[rows, 0] = base[:, 1]
            found[rows, 1:] = base[:, 1:] + np.cumsum(steps + base[:, :1], axis=1)
        else:
            found[rows] = _numbers(column, at, count, form)
    return found


def _numbers(column: Bytes, at: Ints, count: int, width: int) -> Ints:
    """A matrix with `count` numbers of this width for each start."""
    # View the column as overlapping records, so that each is copied once.
    windows = np.lib.stride_tricks.sliding_window_view(column, count * width)
    records = windows[at]
    if width == 3:
        wide = np.zeros((len(at), count, 4), dtype=np.uint8)
        wide[:, :, :3] = records.reshape(len(at), count, 3)
        return wide.reshape(len(at), 4 * count).view("<u4").astype(np.int64)
    return records.view(_TYPES[width]).astype(np.int64)
