"""A snapshot of core's trace as numpy arrays, with all that follows from it: groups of devices, starts, ends and waits.

All questions are answered from groups of devices that ran the same gangs (see `place_groups`), so their cost grows with
gangs and hosts, not with device intervals.
"""

from __future__ import annotations

from array import array
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from core.model import Spans, spans
from core.record import trace as core_trace

from ..dashboard import TIMES
from ..machines import TraceMachines
from .place_groups import NONE, PlaceGroup
from .times import Bools, Ints


def category(codes: npt.NDArray[np.integer], names: list[str]) -> pd.Categorical:
    """Names as a pandas column of four bytes a row; missing where the code is -1."""
    first: dict[str, int] = {}
    unique = [name if first.setdefault(name, at) == at else f"{name} ({at})" for at, name in enumerate(names)]
    return pd.Categorical.from_codes(codes.astype(np.int32), categories=pd.Index(unique, dtype=object))


def texts(words: npt.NDArray[np.object_]) -> pd.Series:
    """Texts as a pandas column, of the same type even if it is empty."""
    return pd.Series(words, dtype=object).astype("str")


def first_time(trace: core_trace.Trace) -> int:
    """The earliest time in the trace, by its recorder's clock; 0 if there is none."""
    columns = (c for table in trace.columns().values() for name, c in table.items() if name in TIMES)
    return min((at for column in columns for at in np.unique(column).tolist() if at >= 0), default=0)


def _counted_from(origin: int, name: str, column: array[int]) -> npt.NDArray[Any]:
    found = np.frombuffer(column, dtype=column.typecode)
    return found if not origin or name not in TIMES else np.where(found >= 0, found - origin, found)


class Facts:
    """The columns of a core trace as arrays. Derived values are computed when first used."""

    def __init__(self, trace: core_trace.Trace, machines: TraceMachines, origin: int = 0) -> None:
        """`origin`: the recorder's clock at time 0. No time in the trace is earlier."""
        self.machines = machines
        self.words = np.array([*trace.strings.words, ""], dtype=object)  # so that word -1 is ""
        self.places = dict(trace.places)
        self.tables = {
            table: {name: _counted_from(origin, name, column) for name, column in columns.items()}
            for table, columns in trace.columns().items()
        }
        self.gangs, self.runs = self.tables["gangs"], self.tables["runs"]
        self.clients, self.transfers = self.tables["clients"], self.tables["transfers"]
        self.reservations = self.tables["reservations"]
        self._hosts: dict[int, Ints] = {}
        self._check_places()

    def _check_places(self) -> None:
        mine = self.machines.devices
        for place in self.places.values():
            if outside := spans.minus(place.devices, mine):
                raise ValueError(
                    f"the trace has gangs on devices {spans.text(outside)}, and the set-up has "
                    f"{spans.text(mine)}: the set-up is of another cluster"
                )

    # --- clients and programs ---------------------------------------------------------------------------

    @cached_property
    def client_names(self) -> list[str]:
        """Names of the rows of `clients`, made unique."""
        seen: dict[str, int] = {}
        names = []
        for word in self.clients["label"]:
            name = str(self.words[word])
            seen[name] = seen.get(name, 0) + 1
            names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
        return names

    @cached_property
    def run_clients(self) -> Ints:
        """Each run's row in `clients`."""
        return self.client_rows(self.runs["client"])

    def client_rows(self, numbers: npt.NDArray[np.integer]) -> Ints:
        """The rows in `clients` of these client numbers; -1 if unknown."""
        rows = {number: row for row, number in enumerate(self.clients["client"].tolist())}
        return np.array([rows.get(number, NONE) for number in numbers.tolist()], dtype=np.int64)

    def by_run(self, of_runs: npt.NDArray[np.integer], runs: npt.NDArray[np.integer]) -> Ints:
        """Look up a column of runs for rows that name a run; -1 for rows without one."""
        if not len(of_runs):
            return np.full(len(runs), NONE, dtype=np.int64)
        return np.where(runs >= 0, of_runs[runs], NONE).astype(np.int64)

    @cached_property
    def gang_clients(self) -> Ints:
        return self.by_run(self.run_clients, self.gangs["run"])

    @cached_property
    def gang_programs(self) -> Ints:
        """Each gang's program, as an index of `words`; -1 if it has no run."""
        return self.by_run(self.runs["program"], self.gangs["run"])

    @cached_property
    def sizes(self) -> Ints:
        """Each gang's number of devices."""
        keys, where = np.unique(self.gangs["place"], return_inverse=True)
        counts = [spans.count(self.places[key].devices) if key in self.places else 0 for key in keys.tolist()]
        return np.array(counts, dtype=np.int64)[where] if len(keys) else np.empty(0, dtype=np.int64)

    # --- when -------------------------------------------------------------------------------------------

    @cached_property
    def horizon(self) -> int:
        """The latest time in the trace."""
        times = TIMES - {"deadline", "opened"}
        columns = [c for table in self.tables.values() for name, c in table.items() if name in times]
        return max((int(column.max()) for column in columns if len(column)), default=0)

    def until_now(self, ends: npt.NDArray[np.integer]) -> Ints:
        """What has no end yet has lasted until the latest time in the trace."""
        return np.where(ends < 0, self.horizon, ends).astype(np.int64)

    @cached_property
    def times(self) -> tuple[Ints, Ints, Ints]:
        """(start, end, core's flags of the times inferred here) of every gang; -1, -1 if it ran on no known device.

        A gang without an end is assumed to end with its run, or with the trace. A gang without a start (controllers do
        not see it) is assumed to start when it was enqueued and the gangs before it were over.
        """
        gangs = self.gangs
        start, end = gangs["started"].astype(np.int64), gangs["ended"].astype(np.int64)
        derived = np.zeros(len(start), dtype=np.int64)
        over = self.by_run(self.runs["ended"], gangs["run"])
        open_ended = (end < 0) & (start >= 0)
        end[open_ended] = np.where(over >= 0, over, self.horizon)[open_ended]
        derived[open_ended] |= core_trace.ENDED
        np.maximum(end, start, out=end, where=open_ended)
        nowhere = (self.sizes == 0) | ((start < 0) & (gangs["flags"] & core_trace.FAILED > 0)) | (end < 0)
        start[nowhere] = end[nowhere] = NONE
        unseen = (start < 0) & (end >= 0)
        if unseen.any():
            derived[unseen] |= core_trace.STARTED
            self._work_out_starts(start, end)
        return start, end, derived

    def _work_out_starts(self, start: Ints, end: Ints) -> None:
        here = np.maximum(self.gangs["entered"], self.gangs["enqueued"])
        free = [0] * len(self._atoms)
        atoms_of: dict[int, list[int]] = {}
        for number, (places, _) in enumerate(self._atoms):
            for place in places:
                atoms_of.setdefault(place, []).append(number)
        places = self.gangs["place"].tolist()
        for row in np.argsort(self.gangs["seq"], kind="stable").tolist():
            if end[row] < 0:
                continue
            atoms = atoms_of[places[row]]
            if start[row] < 0:
                start[row] = min(max(int(here[row]), *(free[atom] for atom in atoms)), end[row])
            for atom in atoms:
                free[atom] = max(free[atom], int(end[row]))

    @property
    def start(self) -> Ints:
        return self.times[0]

    @property
    def end(self) -> Ints:
        return self.times[1]

    @cached_property
    def flags(self) -> Ints:
        """Core's flags of each gang, plus those of the times inferred here."""
        return self.gangs["flags"].astype(np.int64) | self.times[2]

    @cached_property
    def span(self) -> tuple[int, int]:
        """From the first gang's start to the last one's end."""
        ran = self.end >= 0
        if not ran.any():
            return 0, max(self.horizon, 1)
        low = int(self.start[ran].min())
        return low, max(int(self.end.max()), low + 1)

    @cached_property
    def contended(self) -> tuple[int, int]:
        """From when all clients that ran anything had submitted, until the first of them was done.

        The whole span if there is no such time.
        """
        ran = np.flatnonzero((self.run_clients >= 0) & np.isin(np.arange(len(self.run_clients)), self.gangs["run"]))
        who = self.run_clients[ran]
        runs = pd.DataFrame(
            {"asked": self.runs["submitted"][ran], "done": self.until_now(self.runs["ended"])[ran]}
        ).groupby(who)
        low = max([self.span[0], *runs["asked"].min().tolist()])
        high = min([self.span[1], *runs["done"].max().tolist()])
        return (low, high) if low < high else self.span

    # --- where ------------------------------------------------------------------------------------------

    @cached_property
    def _atoms(self) -> list[tuple[tuple[int, ...], Spans]]:
        """(places, the devices that belong to exactly these), found by a sweep over the ends of spans."""
        named = np.union1d(self.gangs["place"], self.reservations["place"])
        used = [key for key in named.tolist() if key in self.places]
        changes: dict[int, list[tuple[int, bool]]] = {}
        for key in used:
            for low, high in self.places[key].devices:
                changes.setdefault(low, []).append((key, True))
                changes.setdefault(high, []).append((key, False))
        inside: set[int] = set()
        pieces: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        last = 0
        for at in sorted(changes):
            if inside:
                pieces.setdefault(tuple(sorted(inside)), []).append((last, at))
            for key, begins in changes[at]:
                inside.add(key) if begins else inside.remove(key)
            last = at
        return [(places, spans.normal(pairs)) for places, pairs in pieces.items()]

    @cached_property
    def groups(self) -> list[PlaceGroup]:
        """Groups that together have every device once. The last group is of devices that ran nothing, if any."""
        groups = [PlaceGroup(self, places, devices) for places, devices in self._atoms]
        idle = spans.minus(self.machines.devices, spans.union(*(group.devices for group in groups)))
        ran = np.flatnonzero(self.end >= 0)
        ran = ran[np.argsort(self.gangs["seq"][ran], kind="stable")]  # the order in which devices run them
        place = self.gangs["place"][ran]
        for group in groups:
            group.set_gangs(ran[np.isin(place, group.places)])
        return groups + ([PlaceGroup(self, (), idle)] if idle else [])

    @cached_property
    def lone(self) -> Bools:
        """Whether each gang is not a collective, with known times on each of its hosts."""
        return (self.gangs["ends"] >= 0) & (self.gangs["hosts"] >= 0) & (self.end >= 0)

    @cached_property
    def devices(self) -> Ints:
        """All devices, sorted."""
        return np.sort(np.concatenate([group.numbers for group in self.groups] or [np.empty(0, np.int64)]))

    def hosts_of(self, place: int) -> Ints:
        """The hosts of a place, sorted."""
        if place not in self._hosts:
            devices = [np.arange(low, high, dtype=np.int64) for low, high in self.places[place].devices]
            self._hosts[place] = np.unique(self.machines.hosts_of(np.concatenate(devices)))
        return self._hosts[place]

    # --- waits -------------------------------------------------------------------------------------------

    @cached_property
    def gathered(self) -> tuple[Ints, Ints]:
        """When each gang took its first device, and its last; -1 unless known for all its devices."""
        first = np.full(len(self.start), np.iinfo(np.int64).max, dtype=np.int64)
        last = np.full(len(self.start), NONE, dtype=np.int64)
        unknown = np.ones(len(self.start), dtype=bool)
        for group in self.groups:
            low, high = group.extremes()
            first[group.rows] = np.minimum(first[group.rows], low)
            last[group.rows] = np.maximum(last[group.rows], high)
            unknown[group.rows] = False
        unknown |= first < 0
        first[unknown] = last[unknown] = NONE
        return first, last

    @cached_property
    def skew(self) -> Ints:
        """How long each gang's first device waited for its last; 0 for lone gangs.

        It is computed from the hosts' times if they are known, and else it is the recorded skew.
        """
        first, last = self.gathered
        waited = np.where(first >= 0, last - first, self.gangs["skew"])
        return np.where(self.lone, 0, waited).astype(np.int64)

    def spent(self, low: int = 0, high: int = np.iinfo(np.int64).max) -> Ints:
        """Device nanoseconds that each gang used between these times."""
        found = (np.minimum(self.end, high) - np.maximum(self.start, low)).clip(0) * self.sizes
        if self.lone.any():
            found[self.lone] = 0
            for group in self.groups:
                found[group.rows[group.lone]] += self._spent_alone(group, low, high)
        return np.where(self.end >= 0, found, 0)

    def _spent_alone(self, group: PlaceGroup, low: int, high: int) -> Ints:
        """Device nanoseconds of a group's lone gangs between these times."""
        hosts = np.arange(len(group.hosts))
        first, last, spent = group.lone_sums(hosts, group.devices_per_host)
        cut = np.flatnonzero((first < low) | (last > high))
        spent[cut] = 0
        some = cut[(last[cut] > low) & (first[cut] < high)]
        for which, begins, ends in group.lone_parts(group.lone[some], hosts):
            each = (np.minimum(ends, high) - np.maximum(begins, low)).clip(0)
            spent[np.searchsorted(group.lone, which)] = each @ group.devices_per_host
        return spent

    def shares_text(self, low: int, high: int) -> str:
        """In words, what devices did between these times: "62.0% busy", and what was reserved or lost, if any was."""
        from .busy import reserved_fraction

        rest = {"reserved": reserved_fraction(self, low, high), "lost": reserved_fraction(self, low, high, lost=True)}
        said = "".join(f", {part:.1%} {word}" for word, part in rest.items() if part)
        return f"{self.busy_fraction(low, high):.1%} busy{said}"

    def busy_fraction(self, low: int, high: int) -> float:
        """The part of all devices' time between these times in which they were busy."""
        return float(self.spent(low, high).sum() / max(1, len(self.devices) * (high - low)))


# --- devices that stand for all --------------------------------------------------------------------------


def spread(facts: Facts, count: int) -> Ints:
    """`count` devices, sorted: at least one of each group if there are enough, the rest in proportion to its size."""
    if count < 1:
        raise ValueError(f"a sample of {count} devices; at least one is needed")
    every = facts.devices
    if count >= len(every):
        return every
    groups = facts.groups
    if count < len(groups):
        return _even(every, count)
    sizes = np.array([group.size for group in groups], dtype=np.int64)
    exact = 1 + (count - len(groups)) * (sizes - 1) / max(int((sizes - 1).sum()), 1)
    numbers = np.floor(exact).astype(np.int64)
    short = count - int(numbers.sum())
    numbers[np.argsort(numbers - exact, kind="stable")[:short]] += 1  # the largest remainders
    picked = [_even(group.numbers, int(n)) for group, n in zip(groups, numbers, strict=True)]
    return np.sort(np.concatenate(picked))


def _even(devices: Ints, count: int) -> Ints:
    return devices[np.arange(count) * len(devices) // count]
