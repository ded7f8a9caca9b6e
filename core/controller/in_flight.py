"""The table of what is in the islands' orders and not over. Each entry has a bound; a stall is reported by name.

The oldest entry of an island is watched: when it becomes the oldest, its bound begins, by its own expected cost. At
the soft bound the controller asks its hosts which of them have launched it; a moment later it names those that have
not, for the client and the log. At the hard bound the gang is given up and its epoch ends.

In: what enters an order (`dispatch`, `puts`, `gets`, `admission`) and what is over (`completion`). Out: reports, and in
`State.overdue` what has outlasted its hard bound, which `failures` gives up.
The functions that matter: `add`, `remove`, `report_oldest`, `arrived`.
"""

from functools import partial

from ..model import Spans, spans
from ..protocol import Arrived, AskStep, LogLine, Stalled, Waiting
from .outbox import TurnOutbox
from .records import InFlight
from .state import ControllerModule, State
from .watch import Wait, Watchdog


class InFlightTable(ControllerModule):
    _state: State
    _outbox: TurnOutbox
    _watch: Watchdog
    _asked: dict[int, InFlight] = {}  # stalled, whose hosts have been asked
    _bounds: list[Wait] = []  # of the oldest of each island

    def __post_init__(self) -> None:
        self.grown()

    def grown(self) -> None:
        """There are islands now that were not there before."""
        for island in range(len(self._bounds), len(self._state.islands)):
            report = partial(self.report_oldest, island, doing="running")
            self._bounds.append(self._watch.standing(report, partial(self._give_up, island)))

    # --- to look at ----------------------------------------------------------------------------------------------

    def on(self, island: int) -> list[InFlight]:
        return list(self._state.islands[island].in_flight.values())

    def touching(self, island: int, hosts: Spans) -> list[InFlight]:
        """On this island, and not over on some of these hosts."""
        return [each for each in self.on(island) if spans.overlap(each.left, hosts)]

    def late(self) -> list[InFlight]:
        """Those that have outlasted their soft bound."""
        return list(self._asked.values())

    def of_transfer(self, transfer: int) -> list[InFlight]:
        """Its halves that are not over: the receiving one comes right behind the sending one."""
        found = [self._state.in_flight.get(transfer), self._state.in_flight.get(transfer + 1)]
        return [each for each in found if each is not None and each.transfer == transfer]

    # --- in and out ----------------------------------------------------------------------------------------------

    def add(self, entry: InFlight, now: int) -> None:
        state, seq = self._state, entry.seq
        state.in_flight[seq] = entry
        mine = state.islands[entry.island].in_flight
        mine[seq] = entry
        if len(mine) == 1:
            self._watch_oldest(entry, now)

    def remove(self, entry: InFlight, now: int) -> None:
        del self._state.in_flight[entry.seq]
        mine = self._state.islands[entry.island].in_flight
        was_oldest = next(iter(mine)) == entry.seq
        del mine[entry.seq]
        if self._asked and self._asked.pop(entry.seq, None) is not None:
            self._watch.end(("asked", entry.seq))
            if entry.run is not None and not entry.run.ended:
                self._outbox.note(entry.run.session.peer, Waiting(entry.run.call.run, ""))
        if was_oldest:
            if mine:
                self._watch_oldest(next(iter(mine.values())), now)
            else:
                self._bounds[entry.island].active = False

    def _watch_oldest(self, oldest: InFlight, now: int) -> None:
        oldest.since = now
        watch, wait = self._watch, self._bounds[oldest.island]
        bounds = watch.bounds
        times = bounds.hard
        if oldest.poisoned:
            times = 2  # its hosts have been told to end it
        elif oldest.kind != "gang" and oldest.kind in ("put", "get"):
            times = min(bounds.hard, bounds.contents)
        soft = bounds.floor + bounds.factor * oldest.cost
        watch.begun = begun = watch.begun + 1
        wait.at, wait.hard_at, wait.active = (now + soft, begun), now + times * soft, True

    # --- bounds --------------------------------------------------------------------------------------------------

    def _oldest(self, island: int) -> InFlight | None:
        return next(iter(self._state.islands[island].in_flight.values()), None)

    def report_oldest(self, island: int, now: int, doing: str) -> None:
        """Soft bound: ask which hosts have launched it; `_answered` completes the report."""
        oldest = self._oldest(island)
        if oldest is None:
            return
        if oldest.seq not in self._asked:
            self._asked[oldest.seq] = oldest
            self._state.stalls_ever += 1
        oldest.missing = oldest.left
        self._outbox.step(island, AskStep(oldest.seq), oldest.left)
        self._report(oldest, f"{oldest.kind} has not ended on these hosts while {doing}")
        answer = self._watch.bounds.answer
        self._watch.begin_for(("asked", oldest.seq), now, answer, partial(self._answered, oldest))

    def arrived(self, report: Arrived) -> None:
        entry = self._asked.get(report.seq)
        if entry is not None:
            entry.missing = spans.minus(entry.missing, report.hosts)

    def _answered(self, entry: InFlight, now: int) -> None:
        """Hosts that have launched it have had time to say so. This is reported once, however many hosts there are:
        a report for each host of an island of thousands would drown the client."""
        if not entry.missing:
            entry.missing = entry.left
            self._report(entry, f"all have launched the {entry.kind}; it has not ended on the devices of these hosts")
        elif entry.missing != entry.left:
            self._report(entry, f"{entry.kind} has not been launched by these hosts")

    def _report(self, entry: InFlight, reason: str) -> None:
        island = self._state.cluster.islands[entry.island].name
        program, node = entry.run.describe(entry.step) if entry.run else ("", f"buffer {entry.buffer}")
        hosts = spans.text(entry.missing)
        entry.late = reason
        text = f"stall on island {island!r}: program {program!r}, node {node!r}: {reason}: hosts {hosts}"
        self._outbox.effect(LogLine(text, passing=True))
        peer, what = self._whose(entry)
        age = self._state.now - entry.since
        self._outbox.note(peer, Stalled(what, program, node, island, entry.missing, reason, age))

    def _whose(self, entry: InFlight) -> tuple[int, int]:
        """Which client is told, and of what: its run, or minus its name for the buffer that it puts."""
        if entry.run is not None:
            return entry.run.session.peer, entry.run.call.run
        if entry.kind == "put" and entry.session is not None:
            return entry.session.peer, -entry.request
        return -1, 0

    def _give_up(self, island: int, now: int) -> None:
        """Hard bound."""
        oldest = self._oldest(island)
        if oldest is not None:
            self._state.overdue.append(oldest)

    def watch_again(self, island: int, now: int) -> None:
        """The oldest was to be given up, and may be in flight still."""
        oldest = self._oldest(island)
        if oldest is not None and not self._bounds[island].active:
            self._watch_oldest(oldest, now)
