"""Writes a window of a trace as Chrome's Trace Event JSON, which ui.perfetto.dev and chrome://tracing open.

Each host is a process and each device a thread. Slices are gangs, and before each the device's waits for peers and for
inputs. Clients are one more process, with a track of runs for each. Transfers are slices in a process of their own,
with arrows from the gang that made the contents to the gang that reads them. Memory is a counter. Times are
microseconds with three decimals, so nanoseconds are kept.
"""

import json
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from core.model import spans
from core.record import trace as core_trace

from . import intervals
from .busy import chosen, kept_times
from .facts import Facts
from .times import Ints, text

Event = dict[str, Any]
PIECE = 1 << 14  # intervals that are turned into events at once
MOST = 64  # devices that are written when nobody says which: a file of 2,048 is larger than viewers like
CLIENTS, TRANSFERS, HOSTS = 1, 2, 10  # process numbers; hosts count from the last
_NONE = np.empty(0, dtype=np.int64)
_as_json = json.JSONEncoder(separators=(",", ":")).encode
FLAGS = {core_trace.PLACEHOLDER: "placeholder", core_trace.FAILED: "failed"}


def write(facts: Facts, path: Path, span: tuple[int, int], devices: Ints | None, limit: int) -> Path:
    count = intervals.count(facts, devices, span)
    if count > limit:
        raise ValueError(
            f"{count:,} device intervals; limit={limit:,}, since viewers cannot show many more. Take a shorter window, "
            f"or fewer devices: devices=trace.sample({MOST})"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing = _Drawing(facts, span, devices)
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ns","otherData":')
        file.write(json.dumps({
            "made by": "seaway", "from": text(span[0]), "to": text(span[1]), "devices": shown(facts, devices),
        }))  # fmt: skip
        file.write(',"traceEvents":[')
        for at, line in enumerate(drawing.lines()):
            file.write((",\n" if at else "\n") + line)
        file.write("\n]}\n")
    return path


def shown(facts: Facts, devices: Ints | None) -> str:
    """How many of the devices are in a file."""
    every = len(facts.devices)
    return f"all {every:,}" if devices is None or len(devices) == every else f"{len(devices):,} of {every:,}"


class _Drawn(NamedTuple):
    """A slice that is in the file."""

    pid: int
    tid: int
    start: int
    end: int


class _Drawing:
    def __init__(self, facts: Facts, span: tuple[int, int], devices: Ints | None) -> None:
        self.facts = facts
        self.span = span
        self.picks = chosen(facts, devices)
        self.devices = np.sort(np.concatenate([_NONE, *(pick.devices for pick in self.picks)]))
        self.hosts = facts.machines.hosts_of(self.devices)
        self._drawn: dict[int, _Drawn] = {}  # gang -> one of its slices, if an arrow may need it
        self._may_have_arrows = np.isin(facts.gangs["run"], facts.transfers["run"]).tolist()

    def lines(self) -> Iterator[str]:
        """All events as JSON. Slices of devices are most of a trace, so they are written without an encoder."""
        others = chain(self._runs(), self._transfers(), self._memory(), self._reserved())
        return chain(map(_as_json, self._names()), self._slices(), map(_as_json, others))

    # --- names ------------------------------------------------------------------------------------------

    def _names(self) -> Iterator[Event]:
        facts = self.facts
        yield from _process(CLIENTS, "clients")
        yield from _process(TRANSFERS, "transfers")
        some = len(self.devices) < len(facts.devices)
        part = f" (the file has {shown(facts, self.devices)} devices)" if some else ""
        for host in np.unique(self.hosts).tolist():
            island = facts.machines.island_of_host(host).name
            yield from _process(HOSTS + host, f"{island} / host {host}{part}")
        for device, host in zip(self.devices.tolist(), self.hosts.tolist(), strict=True):
            yield _thread(HOSTS + host, device, f"device {device}")
        for row, name in enumerate(facts.client_names):
            yield _thread(CLIENTS, row, f"{name} (weight {facts.clients['weight'][row]})")

    # --- devices ----------------------------------------------------------------------------------------

    def _slices(self) -> Iterator[str]:
        for pick in self.picks:
            which = intervals.rows_in(self.facts, pick, self.span)
            for piece in intervals.pieces(self.facts, pick, which, PIECE):
                yield from self._slices_of(piece)

    def _slices_of(self, piece: intervals.Expanded) -> Iterator[str]:
        before, name, about = -1, "", ""
        for gang, device, host, taken, ready, start, end in zip(*map(np.ndarray.tolist, piece), strict=True):
            if gang != before:  # rows of one gang follow each other
                before, name, about = gang, _as_json(self._name(gang)), _as_json(self._about(gang))
            if self._may_have_arrows[gang]:
                self._drawn.setdefault(gang, _Drawn(HOSTS + host, device, start, end))
            where = f'"pid":{HOSTS + host},"tid":{device}'
            if 0 <= taken < ready:
                yield _slice('"waits for peers"', "wait", taken, ready, where, f'{{"gang":{name}}}')
            if 0 <= ready < start:
                yield _slice('"waits for inputs"', "wait", ready, start, where, f'{{"gang":{name}}}')
            yield _slice(name, "gang", start, end, where, about)

    def _reserved(self) -> Iterator[Event]:
        """A slice for each time in which a policy kept a device free, or it was lost, on a thread of its own beside the
        device's."""
        for pick, lost in product(self.picks, (False, True)):
            kept = kept_times(self.facts, pick.group, lost)
            seen = (kept.low < self.span[1]) & (kept.high > self.span[0])
            hosts = self.facts.machines.hosts_of(pick.devices).tolist()
            for low, high, client in zip(*(each[seen].tolist() for each in kept), strict=True):
                name = f"reserved for {self.facts.client_names[client]}" if client >= 0 else "reserved"
                name = "lost" if lost else name
                for device, host in zip(pick.devices.tolist(), hosts, strict=True):
                    yield from _span("reserved", f"{device}", name, HOSTS + host, device, low, high)

    def _name(self, gang: int) -> str:
        facts = self.facts
        program = facts.words[facts.gang_programs[gang]]
        step = facts.words[facts.gangs["step"][gang]]
        return f"{program}/{step}" if program else str(step)

    def _about(self, gang: int) -> dict[str, Any]:
        facts = self.facts
        row, flags = int(facts.gangs["run"][gang]), int(facts.flags[gang])
        client = int(facts.gang_clients[gang])
        about: dict[str, Any] = {
            "seq": int(facts.gangs["seq"][gang]),
            "client": facts.client_names[client] if client >= 0 else "",
            "run": int(facts.runs["run"][row]) if row >= 0 else -1,
            "devices": int(facts.sizes[gang]),
        }
        if facts.skew[gang] >= 0:
            about["skew_us"] = int(facts.skew[gang]) / 1_000
        worked_out = [name for name, bit in core_trace.TIMES.items() if flags & bit]
        if worked_out:
            about["inferred"] = ",".join(worked_out)
        about |= {name: True for bit, name in FLAGS.items() if flags & bit}
        return about

    # --- runs, transfers, memory ------------------------------------------------------------------------

    def _runs(self) -> Iterator[Event]:
        """Runs as asynchronous slices, a begin and an end with one id, since runs of a client overlap."""
        runs, facts = self.facts.runs, self.facts
        ended = facts.until_now(runs["ended"])
        seen = (ended >= self.span[0]) & (runs["submitted"] < self.span[1]) & (facts.run_clients >= 0)
        for row in np.flatnonzero(seen).tolist():
            about: dict[str, Any] = {"run": int(runs["run"][row]), "call": int(runs["call"][row])}
            if runs["code"][row] >= 0:
                for key, column in (("failed", "code"), ("cause", "cause")):
                    about[key] = str(facts.words[runs[column][row]])
            name, client = str(facts.words[runs["program"][row]]), int(facts.run_clients[row])
            begin, end = int(runs["submitted"][row]), int(ended[row])
            yield from _span("run", f"run {about['run']}", name, CLIENTS, client, begin, end, about)

    def _transfers(self) -> Iterator[Event]:
        facts, moves = self.facts, self.facts.transfers
        began, ended = np.where(moves["started"] >= 0, moves["started"], moves["entered"]), moves["ended"]
        seen = (began >= 0) & (ended >= began) & (ended >= self.span[0]) & (began < self.span[1])
        for row in np.flatnonzero(seen).tolist():
            begin, end, seq = int(began[row]), int(ended[row]), int(moves["seq"][row])
            name = str(facts.words[moves["step"][row]])
            about = {
                "seq": seq, "nbytes": int(moves["nbytes"][row]), "source": self._place(int(moves["source"][row])),
                "target": self._place(int(moves["target"][row])),
            }  # fmt: skip
            yield from _span("transfer", f"transfer {seq}", name, TRANSFERS, 0, begin, end, about)
            yield from self._arrow(row, seq, begin, end)

    def _arrow(self, row: int, seq: int, begin: int, end: int) -> Iterator[Event]:
        """An arrow from the run's last gang that ended on the source to its first gang that began on the target.

        Nothing if one of them is not drawn. Both ends of an arrow must lie inside the slices that they belong to.
        """
        facts, moves = self.facts, self.facts.transfers
        of_run = self._gangs_of_run.get(int(moves["run"][row]), _NONE)
        made = of_run[(facts.gangs["place"][of_run] == moves["source"][row]) & (facts.end[of_run] <= begin)]
        read = of_run[(facts.gangs["place"][of_run] == moves["target"][row]) & (facts.start[of_run] >= end)]
        if not (len(made) and len(read)):
            return
        maker = self._drawn.get(int(made[np.argmax(facts.end[made])]))
        reader = self._drawn.get(int(read[np.argmin(facts.start[read])]))
        if maker is None or reader is None:
            return
        common = {"cat": "transfer", "id": seq, "name": str(facts.words[moves["step"][row]])}
        ends = (("s", maker, max(maker.start, maker.end - 1)), ("f", reader, reader.start))
        for phase, one, when in ends:
            inside = {"bp": "e"} if phase == "f" else {}
            yield {"ph": phase, **inside, "ts": when / 1_000, **common, "pid": one.pid, "tid": one.tid}

    @cached_property
    def _gangs_of_run(self) -> dict[int, Ints]:
        """Run -> its gangs in the window."""
        facts = self.facts
        seen = np.flatnonzero((facts.end > self.span[0]) & (facts.start < self.span[1]) & (facts.gangs["run"] >= 0))
        runs = facts.gangs["run"][seen]
        order = np.argsort(runs, kind="stable")
        kinds, first = np.unique(runs[order], return_index=True)
        return dict(zip(kinds.tolist(), np.split(seen[order], first[1:]), strict=True))

    def _place(self, key: int) -> str:
        if key < 0:
            return "client"
        place = self.facts.places.get(key)
        return f"devices {spans.text(place.devices)}" if place else "?"

    def _memory(self) -> Iterator[Event]:
        """Bytes on each device of a place, as a counter at the host of the place's first device that is drawn."""
        levels = self.facts.tables["memory"]
        for row in np.flatnonzero((levels["at"] >= self.span[0]) & (levels["at"] < self.span[1])).tolist():
            place = self.facts.places.get(int(levels["place"][row]))
            if place is None:
                continue
            here = [
                d
                for low, high in place.devices
                for d in self.devices[slice(*np.searchsorted(self.devices, (low, high)))]
            ]
            if here:
                host = int(self.facts.machines.hosts_of(np.array(here[:1]))[0])
                yield {
                    "ph": "C", "ts": int(levels["at"][row]) / 1_000, "pid": HOSTS + host,
                    "name": f"memory of a device of {spans.text(place.devices)}",
                    "args": {"resident": int(levels["resident"][row]), "committed": int(levels["committed"][row])},
                }  # fmt: skip


def _slice(name: str, category: str, begin: int, end: int, where: str, about: str) -> str:
    """A slice of a thread. `name`, `where` and `about` are JSON already."""
    when = f'"ts":{begin / 1_000},"dur":{(end - begin) / 1_000}'
    return f'{{"ph":"X","name":{name},"cat":"{category}",{when},{where},"args":{about}}}'


def _span(
    cat: str, key: str, name: str, pid: int, tid: int, begin: int, end: int, about: Event | None = None
) -> Iterator[Event]:
    """An asynchronous slice: a begin and an end with one id."""
    common = {"cat": cat, "id": key, "name": name, "pid": pid, "tid": tid}
    yield {"ph": "b", "ts": begin / 1_000, **common, "args": about or {}}
    yield {"ph": "e", "ts": end / 1_000, **common, "args": {}}


def _process(pid: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}


def _thread(pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
