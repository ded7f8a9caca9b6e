"""Knows what runs wait for and since when, and what stalls now: for clients, `status`, metrics and the log.

A run waits for one thing at a time, in words (`RunRecord.waits`). Its client is told these words, and when the wait
is over. A wait that outlasts its soft bound is a stall until it is over. So is an operation (`in_flight`), and a put
that waits for memory (`admission`). `now` lists them all from the tables as they are; no second list is kept.

Neighbours: `runs` and `admission` begin and end waits; `in_flight` watches what is in an order; `compilation`
knows what is compiled where. The functions that matter: `begin`, `over`, `late`, `waits`, `now`, `groups`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..model import Spans, spans
from ..protocol import LogLine, Stalled, Waiting
from .compilation import Compilation
from .outbox import TurnOutbox
from .plan_rows import PlanRows
from .records import InFlight, RunRecord
from .state import State
from .watch import Watchdog

if TYPE_CHECKING:
    from .admission import Admission
    from .in_flight import InFlightTable
    from .registrations import Registrations

CODE = "compilation"  # what a run waits for; `words` says of what, and where
QUICK = 1_000_000_000  # a compilation that takes no longer is not worth a note
SELDOM = 60 * QUICK  # between looks at one that takes long
SHOWN = 3  # names of computations; the others are a number


class Stall(NamedTuple):
    """Something that waits. `island`: "" if several; `node`: "" for a whole program; `hosts`: those it waits for."""

    since: int
    island: str
    client: str
    program: str
    node: str
    hosts: Spans
    reason: str


class StallGroup(NamedTuple):
    """Runs of one program that wait for the same, or one other thing that waits; `first` has waited longest."""

    first: Stall
    number: int
    stalled: bool


class Stalls:
    admission: Admission
    in_flight: InFlightTable
    registrations: Registrations

    def __init__(
        self, state: State, *, compilation: Compilation, outbox: TurnOutbox, watch: Watchdog
    ) -> None:
        self._state = state
        self._compilation = compilation
        self._outbox = outbox
        self._watch = watch
        self.ever = 0  # stalls that there have been

    # --- a run begins to wait, and goes on --------------------------------------------------------------------

    def begin(self, run: RunRecord, reason: str, tell: bool = True, since: int = -1) -> bool:
        """Its client hears each reason once. False: it waits for that already. since: -1 is now."""
        if run.waits == reason:
            return False
        run.waits, run.since = reason, self._state.now if since < 0 else since
        if tell:
            self._tell(run)
        return True

    def begin_code(self, run: RunRecord) -> None:
        """The run waits for code. A note says which and where when it takes a while, and again when that changes."""
        if self.begin(run, CODE, tell=False):
            self._look_again(run, QUICK)

    def _look_again(self, run: RunRecord, after: int) -> None:
        def look(now: int) -> None:
            if self.words(run) != run.told:
                self._tell(run)
            self._look_again(run, min(2 * after, SELDOM))

        self._watch.begin_for(("compiling", run.id), self._state.now, after, look)

    def _tell(self, run: RunRecord) -> None:
        run.told = self.words(run)
        age = self._state.now - run.since
        self._outbox.note(run.session.peer, Waiting(run.call.run, run.told, age))

    def over(self, run: RunRecord, tell: bool = True) -> None:
        """The wait of a run is over. tell: False if its client is about to hear that the run has ended."""
        if not run.waits:
            return
        self._watch.end(("run", run.id))
        self._watch.end(("compiling", run.id))
        if run.told and tell:
            self._outbox.note(run.session.peer, Waiting(run.call.run, ""))
        run.waits = run.told = ""
        run.stalled = False

    # --- a wait outlasts its soft bound -----------------------------------------------------------------------

    def late(self, run: RunRecord, missing: Spans, reason: str) -> None:
        if not run.stalled:
            run.stalled = True
            self.ever += 1
        name, client, age = run.program.ir.name, run.session, self._state.now - run.since
        where = f": hosts {spans.text(missing)}" if missing else ""
        self._outbox.effect(
            LogLine(f"stall: program {name!r} of client {client.name!r}: {reason}{where}", passing=True)
        )
        run.told = reason
        self._outbox.note(client.peer, Stalled(run.call.run, name, "", "", missing, reason, age))

    # --- in words ---------------------------------------------------------------------------------------------

    def words(self, run: RunRecord) -> str:
        """What the run waits for, in words, as of now."""
        if run.waits != CODE:
            return run.waits
        assert run.rows is not None
        return self.words_of_code(run.rows)

    def words_of_code(self, rows: PlanRows) -> str:
        names: dict[Spans, list[str]] = {}
        for code, hosts in self._compilation.lacking(rows.plan.id).items():
            names.setdefault(hosts, []).append(rows.plan.codes[code].name)
        if not names:  # it is asked for when the island stands
            islands = [self._state.islands[island] for island in rows.island_hosts]
            forming = [island for island in islands if island.formed != island.epoch]
            names_of = ", ".join(repr(island.island.name) for island in forming)
            why = "; ".join(island.broken.text for island in forming if island.broken.text)
            return f"island {names_of} to form anew{f' ({why})' if why else ''}" if forming else "its code"
        return "compiling " + "; ".join(
            f"{_some(found)} on hosts {spans.text(hosts)}" for hosts, found in names.items()
        )

    def renew(self, run: RunRecord, reason: str) -> None:
        """It waits for the same in other words."""
        if run.waits != reason:
            run.waits = reason
            self._tell(run)

    # --- all of it, as of now ---------------------------------------------------------------------------------

    def waits(self) -> list[Stall]:
        """Runs, and programs whose clients are to be told, that wait and do not stall; the longest wait first."""
        found = [self._wait(run) for run in self._state.runs.values() if run.waits and not run.stalled]
        found += self.registrations.waits(late=False)
        return sorted(found, key=_since)

    def now(self) -> list[Stall]:
        """All that stalls now; the longest first."""
        found = [self._wait(run) for run in self._state.runs.values() if run.waits and run.stalled]
        found += self.registrations.waits(late=True)
        found += [self.of_flight(entry) for entry in self.in_flight.late()]
        found += self.admission.late_contents()
        return sorted(found, key=_since)

    def groups(self) -> list[StallGroup]:
        """All that waits or stalls, the longest wait first. Runs that wait for the same count as one, since there may
        be thousands of them: only the first of each is put in words."""
        runs: dict[tuple[int, str, str, bool, int], list[RunRecord]] = {}
        for run in self._state.runs.values():
            if run.waits:
                plan = run.plan.id if run.waits == CODE else -1
                key = (run.session.number, run.program.ir.name, run.waits, run.stalled, plan)
                runs.setdefault(key, []).append(run)
        found = [
            StallGroup(self._wait(min(each, key=_begun)), len(each), each[0].stalled)
            for each in runs.values()
        ]
        others = [*self.registrations.waits(late=True), *map(self.of_flight, self.in_flight.late())]
        found += [StallGroup(each, 1, True) for each in (*others, *self.admission.late_contents())]
        found += [StallGroup(each, 1, False) for each in self.registrations.waits(late=False)]
        return sorted(found, key=lambda each: each.first.since)

    def _wait(self, run: RunRecord) -> Stall:
        hosts = self._compilation.missing(run.plan.id) if run.waits == CODE else spans.EMPTY
        client, program = run.session.name, run.program.ir.name
        return Stall(run.since, self._island(run), client, program, "", hosts, self.words(run))

    def _island(self, run: RunRecord) -> str:
        """The one that it concerns."""
        if run.rows is not None:
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
        return Stall(
            entry.since, self._state.cluster.islands[entry.island].name, client, program, node, hosts, reason
        )


def _since(stall: Stall) -> int:
    return stall.since


def _begun(run: RunRecord) -> int:
    return run.since


def _some(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:SHOWN]))
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown
