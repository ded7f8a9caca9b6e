"""Knows what each run waits for and since when, in words, and tells its client.

A run waits for one thing at a time (`RunRecord.waits`). Its client is told what, and when the wait is over. A wait that
outlasts its soft bound is a stall until it is over; `stalls` lists them.

Neighbours: `runs` and `admission` begin waits and end them; `compilation` knows what is compiled where.
The functions that matter: `begin`, `begin_code`, `over`, `late`, `words`.
"""

from ..model import Spans, spans
from ..protocol import Blame, LogLine, Stalled, Waiting
from .compilation import Compilation
from .outbox import TurnOutbox
from .plan_rows import PlanRows
from .records import RunRecord
from .state import ControllerModule, State
from .watch import Watchdog

CODE = "compilation"  # what a run waits for; `words` says of what, and where
QUICK = 1_000_000_000  # a compilation that takes no longer is not worth a note
SELDOM = 60 * QUICK  # between looks at one that takes long
SHOWN = 3  # names of computations; the others are a number


class RunWaits(ControllerModule):
    _state: State
    _compilation: Compilation
    _outbox: TurnOutbox
    _watch: Watchdog

    # --- a run begins to wait, and goes on --------------------------------------------------------------------

    def begin(self, run: RunRecord, reason: str, tell: bool = True) -> bool:
        """Its client hears each reason once. False: it waits for that already."""
        if run.waits == reason:
            return False
        run.waits, run.since, run.stalled = reason, self._state.now, False
        if tell:
            self._tell(run)
        return True

    def begin_code(self, run: RunRecord) -> None:
        """The run waits for code, before it starts or again in a new epoch. A note says which and where when it takes a
        while, and again when that changes."""
        if self.begin(run, CODE, tell=False):
            self._look_again(run, QUICK)
        bounds, key = self._state.config.bounds, ("run", run.id)
        if not self._watch.waits_for(key):
            self._watch.begin(
                key, self._state.now, bounds.compile // bounds.factor,
                lambda at: self._late_code(run), lambda at: self._no_code(run),
            )  # fmt: skip

    def _late_code(self, run: RunRecord) -> None:
        missing = self._compilation.missing(run.plan.id)
        self.late(run, missing, "its code is not compiled on these hosts")

    def _no_code(self, run: RunRecord) -> None:
        hosts = spans.text(self._compilation.missing(run.plan.id))
        blame = Blame("timeout", f"its code was not compiled in time on hosts {hosts}")
        self._state.failing.append((run, blame))

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
            self._state.stalls_ever += 1
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


def _some(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:SHOWN]))
    return f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown
