"""Registered programs before their first run: compiled ahead, and their clients told when that is done.

A program whose slices are bound is compiled for arguments that lie where it wants them. If its client asked to be told
(`Register.tell`), its slices are bound now, and it waits: for a slice, or for its code. It is told exactly once: what
the host with the first device of node 0 says about that node's code, or a blame. Whatever voids the code meanwhile (a
slice that moves, a new epoch) only makes it wait longer; a bound ends a wait for hosts that never come.

Neighbours: `clients` registers and takes back; `runs` says that slices have changed, `failures` that an island has
formed anew; `compilation` has code compiled.
The functions that matter: `registered`, `anew`, `code_ready`, `taken_back`.
"""

from contextlib import suppress

import msgspec

from ..compile import Lowerings, home
from ..model import Impossible, Layout, Place, Plan, ProgramError, spans
from ..protocol import Blame, LogLine, ProgramCompiled, Waiting
from ..slices import MustWait, Resources
from .compilation import Compilation
from .observations import ProgramAwaited, ProgramTakenBack, ProgramToldSeen
from .outbox import TurnOutbox
from .plan_rows import PlanRows
from .records import ProgramRecord, Stall
from .run_waits import RunWaits
from .state import ControllerModule, State
from .watch import Watchdog

S = 1_000_000_000
SELDOM = 60 * S  # between looks at a compilation that takes long


class Awaited(msgspec.Struct, eq=False):
    """A program whose client waits to be told."""

    record: ProgramRecord
    since: int  # when what it waits for began
    rows: PlanRows | None = None  # while it waits for its code; the plan is kept for it
    places: tuple[Place, ...] = ()  # of its slices, in that plan
    reason: str = ""  # what it waits for, in words, if it is a slice
    told: str = ""  # what its client was told of that
    late: bool = False  # it has outlasted its soft bound


class Registrations(ControllerModule):
    _state: State
    _compilation: Compilation
    _lowerings: Lowerings
    _outbox: TurnOutbox
    _resources: Resources
    _waits: RunWaits
    _watch: Watchdog
    _awaited: dict[ProgramRecord, Awaited] = {}

    # --- in ------------------------------------------------------------------------------------------------------

    def registered(self, record: ProgramRecord, tell: bool, now: int) -> None:
        """Its slices have been asked for, or it was refused (`record.blame`)."""
        if not tell:
            if record.blame is None:
                self.compile_ahead(record)
            return
        self._awaited[record] = Awaited(record, now)
        if self._state.watched:
            self._state.observe(ProgramAwaited(record.session.number, record.name))
        self._advance(self._awaited[record], now)

    def compile_ahead(self, record: ProgramRecord) -> None:
        """If its slices are bound, compile for arguments that lie where it wants them."""
        ir = record.ir
        places = tuple(self._resources.place(record.session.number, spec.name) for spec in ir.slices)
        if all(place is not None for place in places):
            with suppress(ProgramError):  # it has no cost on such devices: its runs are refused
                self._compilation.ask(self._rows(record, tuple(place for place in places if place is not None)))

    def lower(self, record: ProgramRecord, places: tuple[Place, ...], args: tuple[Layout, ...]) -> Plan:
        return self._lowerings.lower(record.ir, places, args)

    def _rows(self, record: ProgramRecord, places: tuple[Place, ...]) -> PlanRows:
        args = tuple(home(record.ir, places, value) for value in record.ir.args)
        return self._compilation.rows_of(self.lower(record, places, args))

    # --- forward -------------------------------------------------------------------------------------------------

    def _advance(self, each: Awaited, now: int) -> None:
        """As far as it can go now: its slices are bound, again if they lie elsewhere; then its code."""
        record = each.record
        self._let_go(each)
        if record.blame is not None:
            self._tell(each, record.blame)
            return
        places: tuple[Place, ...] = ()
        try:
            for spec in record.ir.slices:
                found = self._resources.bind(record.session.number, spec)
                if isinstance(found, MustWait):
                    text = f"slice {spec.name!r} {found.reason}"
                    if found.fails:
                        self._tell(each, Blame("host-lost", text, record.ir.name))
                    else:
                        self._wait_for_slice(each, text, now)
                    return
                places = (*places, found.place)
            each.rows, each.places = self._rows(record, places), places
        except (Impossible, ProgramError) as error:
            self._tell(each, Blame("refused", str(error), record.ir.name))
            return
        each.rows.users += 1
        if each.reason:
            self._begin(each, "", now)
        self._look(each, now)

    def _look(self, each: Awaited, now: int) -> None:
        """Whether its code is compiled, for where its slices lie."""
        rows, record = each.rows, each.record
        assert rows is not None
        lie = tuple(self._resources.place(record.session.number, spec.name) for spec in record.ir.slices)
        if lie != each.places:
            return  # a host was lost; `anew` follows when its island has formed
        blame = self._compilation.blame(rows.plan.id)
        if blame is not None:
            self._tell(each, msgspec.structs.replace(blame, program=record.ir.name))
        elif self._compilation.ask(rows):
            self._tell(each, None, self._compilation.about(rows.plan.id))
        elif not self._watch.waits_for(("code of", record)):
            bounds = self._state.config.bounds
            self._watch.begin(
                ("code of", record), now, bounds.compile // bounds.factor,
                lambda at: self._late(each), lambda at: self._no_code(each),
            )  # fmt: skip
            self._look_again(each, S)

    # --- waits ---------------------------------------------------------------------------------------------------

    def _begin(self, each: Awaited, reason: str, now: int) -> None:
        """It waits for something else now; its client hears each reason once. "": for its code."""
        if each.reason != reason:
            each.reason, each.since, each.late = reason, now, False
            self._end_waits(each)
            self._say(each, reason)

    def _wait_for_slice(self, each: Awaited, reason: str, now: int) -> None:
        self._begin(each, reason, now)
        if not self._watch.waits_for(("slices of", each.record)):
            self._bound_wait(each, now)

    def _bound_wait(self, each: Awaited, now: int) -> None:
        """Hosts that are not there may never come."""
        bound, record = self._state.config.bounds.absent, each.record

        def over(at: int) -> None:
            resources, session = self._resources, record.session.number
            lacking = next((spec for spec in record.ir.slices if resources.lacks_hosts(session, spec.name)), None)
            found = resources.bind(session, lacking) if lacking is not None else None
            if lacking is not None and isinstance(found, MustWait):
                text = f"slice {lacking.name!r} {found.reason}, for {bound // S} s"
                self._tell(each, Blame("timeout", text, record.ir.name))
            else:
                self._bound_wait(each, at)

        self._watch.begin_for(("slices of", record), now, bound, over)

    def _look_again(self, each: Awaited, after: int) -> None:
        """A note says what is compiled, and where, when that takes a while; and again when it changes."""

        def look(now: int) -> None:
            self._say(each, self._words(each))
            self._look_again(each, min(2 * after, SELDOM))

        self._watch.begin_for(("words of", each.record), self._state.now, after, look)

    def _words(self, each: Awaited) -> str:
        return each.reason or (self._waits.words_of_code(each.rows) if each.rows is not None else "")

    def _say(self, each: Awaited, reason: str) -> None:
        if each.told != reason:
            each.told = reason
            record, age = each.record, self._state.now - each.since
            self._outbox.note(record.session.peer, Waiting(0, reason, age if reason else 0, record.name))

    def _late(self, each: Awaited) -> None:
        each.late = True
        self._state.stalls_ever += 1
        record = each.record
        where = f"program {record.ir.name!r} of client {record.session.name!r}"
        self._outbox.effect(LogLine(f"stall: {where} is not compiled: {self._words(each)}", passing=True))

    def _no_code(self, each: Awaited) -> None:
        assert each.rows is not None
        missing = self._compilation.missing(each.rows.plan.id)
        where = f" on hosts {spans.text(missing)}" if missing else f": it waits for {self._words(each)}"
        self._tell(each, Blame("timeout", f"its code was not compiled in time{where}", each.record.ir.name))

    # --- what they wait for comes ----------------------------------------------------------------------------------

    def slice_changed(self, session: int, name: str, now: int) -> None:
        """A slice is bound now, or was released while something waited for it."""
        owner = self._state.sessions.get(session)
        for record in list(owner.on_slice.get(name, {}).values()) if owner is not None else ():
            if record.blame is None:
                each = self._awaited.get(record)
                if each is not None:
                    self._advance(each, now)
                else:
                    self.compile_ahead(record)

    def renew_reasons(self, reasons: dict[tuple[int, str], str]) -> None:
        """Why these slices wait is another now."""
        for (session, name), reason in reasons.items():
            for each in self._awaited.values():
                said = f"slice {name!r} "
                if each.record.session.number == session and each.reason.startswith(said):
                    each.reason = said + reason
                    self._say(each, each.reason)

    def code_ready(self, plan: int, now: int) -> None:
        """Its code is compiled, or never will be."""
        if self._awaited:
            for each in list(self._awaited.values()):
                if each.rows is not None and each.rows.plan.id == plan:
                    self._look(each, now)

    def anew(self, now: int) -> None:
        """An island has formed anew: slices may lie elsewhere, and code must be compiled again."""
        for each in list(self._awaited.values()):
            self._advance(each, now)

    # --- out -----------------------------------------------------------------------------------------------------

    def taken_back(self, record: ProgramRecord) -> None:
        """Its client has unregistered it, or is gone: nobody waits for the answer."""
        each = self._awaited.pop(record, None)
        if each is not None:
            self._end(each)
            if self._state.watched:
                self._state.observe(ProgramTakenBack(record.session.number, record.name))

    def _tell(self, each: Awaited, blame: Blame | None, about: bytes = b"") -> None:
        record = each.record
        del self._awaited[record]
        self._end(each)
        if self._state.watched:
            self._state.observe(ProgramToldSeen(record.session.number, record.name))
        self._outbox.note(record.session.peer, ProgramCompiled(record.name, about, blame))

    def _end(self, each: Awaited) -> None:
        self._end_waits(each)
        self._let_go(each)

    def _end_waits(self, each: Awaited) -> None:
        for what in ("slices of", "code of", "words of"):
            self._watch.end((what, each.record))

    def _let_go(self, each: Awaited) -> None:
        """It needs its plan no longer."""
        if each.rows is not None:
            each.rows.users -= 1
            each.rows = None

    # --- to look at ----------------------------------------------------------------------------------------------

    def waits(self, late: bool) -> list[Stall]:
        """Programs that wait; those that stall, or those that do not."""
        return [self._stall(each) for each in self._awaited.values() if each.late == late]

    def _stall(self, each: Awaited) -> Stall:
        record, rows = each.record, each.rows
        missing = self._compilation.missing(rows.plan.id) if rows is not None else spans.EMPTY
        names = {spec.island for spec in record.ir.slices}
        island = next(iter(names)) if len(names) == 1 else ""
        client, words = record.session.name, self._words(each)
        return Stall(each.since, island, client, record.ir.name, "", missing, words)
