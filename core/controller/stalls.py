"""Lists what waits and what stalls now: for `status`, metrics and the log.

Runs, operations in an order (`in_flight`), puts and gets that wait for memory (`admission`), and programs whose clients
are to be told (`registrations`): all are listed from the tables as they are; no second list is kept.

Neighbours: `snapshot` and `live_view` show these lists. The functions that matter: `waits`, `now`, `groups`.
"""

from operator import attrgetter
from typing import NamedTuple

from ..model import spans
from .admission import Admission
from .compilation import Compilation
from .in_flight import InFlightTable
from .records import NO_PLAN, InFlight, RunRecord, Stall
from .registrations import Registrations
from .run_waits import CODE, RunWaits
from .state import ControllerModule, State

SINCE = attrgetter("since")


class StallGroup(NamedTuple):
    """Runs of one program that wait for the same, or one other thing that waits; `first` has waited longest."""

    first: Stall
    number: int
    stalled: bool


class Stalls(ControllerModule):
    _state: State
    _admission: Admission
    _compilation: Compilation
    _in_flight: InFlightTable
    _registrations: Registrations
    _waits: RunWaits

    def waits(self) -> list[Stall]:
        """Runs, and programs whose clients are to be told, that wait and do not stall; the longest wait first."""
        found = [self._wait(run) for run in self._state.runs.values() if run.waits and not run.stalled]
        found += self._registrations.waits(late=False)
        return sorted(found, key=SINCE)

    def now(self) -> list[Stall]:
        """All that stalls now; the longest first."""
        found = [self._wait(run) for run in self._state.runs.values() if run.waits and run.stalled]
        found += self._registrations.waits(late=True)
        found += [self.of_flight(entry) for entry in self._in_flight.late()]
        found += self._admission.late_contents()
        return sorted(found, key=SINCE)

    def groups(self) -> list[StallGroup]:
        """All that waits or stalls, the longest wait first. Runs that wait for the same count as one, since there may
        be thousands of them: only the first of each is put in words."""
        runs: dict[tuple[int, str, str, bool, int], list[RunRecord]] = {}
        for run in self._state.runs.values():
            if run.waits:
                plan = run.plan.id if run.waits == CODE else -1
                key = (run.session.number, run.program.ir.name, run.waits, run.stalled, plan)
                runs.setdefault(key, []).append(run)
        found = [StallGroup(self._wait(min(each, key=SINCE)), len(each), each[0].stalled) for each in runs.values()]
        others = [*self._registrations.waits(late=True), *map(self.of_flight, self._in_flight.late())]
        found += [StallGroup(each, 1, True) for each in (*others, *self._admission.late_contents())]
        found += [StallGroup(each, 1, False) for each in self._registrations.waits(late=False)]
        return sorted(found, key=lambda each: each.first.since)

    def _wait(self, run: RunRecord) -> Stall:
        hosts = self._compilation.missing(run.plan.id) if run.waits == CODE else spans.EMPTY
        client, program = run.session.name, run.program.ir.name
        return Stall(run.since, self._island(run), client, program, "", hosts, self._waits.words(run))

    def _island(self, run: RunRecord) -> str:
        """The one that it concerns."""
        if run.rows is not NO_PLAN:
            names = [self._state.cluster.islands[island].name for island in run.rows.island_hosts]
        else:
            names = [spec.island for spec in run.program.ir.slices]
        return names[0] if len(set(names)) == 1 else ""

    def of_flight(self, entry: InFlight) -> Stall:
        if entry.run is not None:
            client, (program, node) = entry.run.session.name, entry.run.describe(entry.step)
        else:
            client = entry.session.name if entry.session is not None else ""
            program, node = "", f"{entry.kind} of buffer {entry.buffer}"
        hosts, reason = spans.meet(entry.missing, entry.left), entry.late
        if not hosts:  # those that were awaited have done it, others have not
            hosts, reason = entry.left, f"{entry.kind} has not ended on these hosts"
        return Stall(entry.since, self._state.cluster.islands[entry.island].name, client, program, node, hosts, reason)
