"""Counts what the metrics show and core alone knows: how long runs and gangs took, and what islands and clients have.

All times are those of events. A gang costs a few additions and a bisection, and a run two more of each
(`ClientMeter.run_over`). Nothing that is counted here decides anything; `accounts` has the quotas.

A gang has its devices from when it had entered the order and all before it on them was over, until it was reported
over: also while it waits for inputs, for nobody else can have the devices then.

Clients are counted by name, and no more than `MOST` of them: a client that is gone makes room for another, and if all
are here, the rest are counted together. Neighbours: `accounts`, `outcomes` and `clients`, which say what has happened;
drivers, which show it. The functions that matter: `gang_over`, `meter_of`, `shown`.
"""

from bisect import bisect_left
from collections import Counter

import msgspec

from ..memory import Buffers, Ledger
from ..model import Atoms, spans
from .records import BOUNDS, ClientMeter, ClientRecord, Histogram, InFlight, RunRecord
from .state import ControllerModule, State

MOST = 100  # clients that are counted by name
OTHERS = "(others)"


class IslandFigures(msgspec.Struct, frozen=True):
    """Bytes on all its devices. used: behind the last gang of the order; reserved: and what admitted runs may add."""

    memory_used: int
    memory_reserved: int
    gang_time: Histogram


class ClientFigures(msgspec.Struct, frozen=True):
    """memory: bytes of arrays that it has names for, on all devices. The numbers are of those who are here."""

    meter: ClientMeter
    sessions: int
    runs: int
    programs: int
    memory: int


class Meters(ControllerModule):
    _state: State
    _atoms: Atoms
    _buffers: Buffers
    _ledger: Ledger
    _over: dict[int, int] = {}  # by atom: when the last gang on it was over
    _clients: dict[str, ClientMeter] = {}  # the one that opened a session last is last

    def __post_init__(self) -> None:
        self._atoms.splits.append(lambda old, new: self._over.update({new: self._over.get(old, 0)}))

    def meter_of(self, name: str) -> ClientMeter:
        """What counts for a client that opens its session."""
        found = self._clients.pop(name, None)
        if found is None and len(self._clients) >= MOST and name != OTHERS:
            here = {OTHERS, *(session.meter.name for session in self._state.sessions.values())}
            gone = next((each for each in self._clients if each not in here), None)
            if gone is None:
                return self.meter_of(OTHERS)
            del self._clients[gone]
        found = self._clients[name] = found or ClientMeter(name)
        return found

    def gang_over(self, run: RunRecord, entry: InFlight, now: int) -> int:
        """Returns for how long it had its devices: nanoseconds of all of them together."""
        ticket, over, atoms = entry.ticket, self._over, self._atoms
        assert ticket is not None
        taken, devices, parts = 0, ticket.devices, atoms.parts[ticket.place]
        for atom in parts:
            begun = max(over.get(atom, 0), entry.entered)
            taken += (now - begun) * (devices if len(parts) == 1 else spans.count(atoms.by_atom[atom]))
            over[atom] = now
        each, time, island = taken // devices, run.session.meter.device_time, entry.island
        histogram = self._state.islands[island].gang_time
        histogram.counts[bisect_left(BOUNDS, each)] += 1
        histogram.total += each
        time[island] = time.get(island, 0) + taken
        if run.begun < 0:
            run.begun = now - each
        return taken

    def shown(self, now: int) -> tuple[list[IslandFigures], list[ClientFigures]]:
        here: dict[str, list[ClientRecord]] = {}
        for session in self._state.sessions.values():
            here.setdefault(session.meter.name, []).append(session)
        used, reserved = Counter[int](), Counter[int]()
        for devices, resident, committed, _ in self._ledger.counters():
            island, count = self._state.cluster.island_of_device(devices[0][0]).index, spans.count(devices)
            used[island] += resident * count
            reserved[island] += committed * count
        self._count_so_far(now)
        islands = [IslandFigures(used[at], reserved[at], each.gang_time) for at, each in enumerate(self._state.islands)]
        return islands, [self._client(each, here.get(each.name, [])) for each in self._clients.values()]

    def _count_so_far(self, now: int) -> None:
        """Count gangs that have their devices now, too. A counter must not fall, though what a gang has had by now is
        another's in the end, if that is reported over first."""
        so_far, seen = {name: Counter(meter.device_time) for name, meter in self._clients.items()}, set[int]()
        for entry in self._state.in_flight.values():
            if entry.ticket is not None and entry.run is not None:
                for atom in self._atoms.parts[entry.ticket.place]:
                    if atom not in seen and (found := so_far.get(entry.run.session.meter.name)) is not None:
                        taken = now - max(self._over.get(atom, 0), entry.entered)
                        found[entry.island] += taken * spans.count(self._atoms.by_atom[atom])
                    seen.add(atom)
        for name, found in so_far.items():
            shown = self._clients[name].shown_time
            shown.update({island: max(taken, shown.get(island, 0)) for island, taken in found.items()})

    def _client(self, meter: ClientMeter, here: list[ClientRecord]) -> ClientFigures:
        return ClientFigures(
            meter, len(here), sum(len(each.runs) for each in here), sum(len(each.programs) for each in here),
            sum(self._buffers.held_bytes.get(each.number, 0) for each in here),
        )  # fmt: skip
