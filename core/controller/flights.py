"""What is in the islands' orders and not over: every flight has a bound, and a stall is reported by name.

The oldest flight of an island is watched: when it becomes the oldest, its bound begins, by its own expected cost and
that of what entered with it. At the soft bound its hosts are asked which of them have launched it; a moment later those
that have not said so are named, for the client and the log. At the hard bound the gang is given up and its epoch ends.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..model import Spans, spans
from ..protocol import Arrived, AskStep, Blame, Stalled, Tell, Waiting
from .records import Flight

if TYPE_CHECKING:
    from .books import Books


class Flights:
    def __init__(self, books: Books) -> None:
        self._books = books
        self._all: dict[int, Flight] = {}  # by seq, so in order of entering
        self._by_island: list[dict[int, Flight]] = [{} for _ in books.cluster.islands]
        self._asked: dict[int, Flight] = {}  # stalled, whose hosts have been asked
        self._bounds = [
            (partial(self.report_oldest, island, doing="running"), partial(self._give_up, island))
            for island in range(len(books.cluster.islands))
        ]  # what happens at the soft, and at the hard, bound of the oldest

    def get(self, seq: int) -> Flight | None:
        return self._all.get(seq)

    def on(self, island: int) -> list[Flight]:
        return list(self._by_island[island].values())

    def all(self) -> list[Flight]:
        return list(self._all.values())

    def touching(self, island: int, hosts: Spans) -> list[Flight]:
        """On this island, and not over on some of these hosts."""
        return [flight for flight in self.on(island) if spans.overlap(flight.left, hosts)]

    def late(self) -> list[Flight]:
        """Whose soft bound is over."""
        return list(self._asked.values())

    def of_transfer(self, transfer: int) -> list[Flight]:
        """Its halves that are not over: the receiving one comes right behind the sending one."""
        found = [self._all.get(transfer), self._all.get(transfer + 1)]
        return [flight for flight in found if flight is not None and flight.transfer == transfer]

    def any_on(self, island: int) -> bool:
        return bool(self._by_island[island])

    def __len__(self) -> int:
        return len(self._all)

    def oldest_seq(self) -> int | None:
        return next(iter(self._all), None)

    def take_off(self, flight: Flight, now: int) -> None:
        self._all[flight.seq] = flight
        mine = self._by_island[flight.island]
        mine[flight.seq] = flight
        if len(mine) == 1:
            self._watch(flight, now)

    def land(self, flight: Flight, now: int) -> None:
        del self._all[flight.seq]
        mine = self._by_island[flight.island]
        was_oldest = next(iter(mine)) == flight.seq
        del mine[flight.seq]
        if self._asked.pop(flight.seq, None) is not None:
            self._books.watch.end(("asked", flight.seq))
            if flight.run is not None and not flight.run.ended:
                self._books.outbox.note(flight.run.session.peer, Waiting(flight.run.call.run, ""))
        if was_oldest:
            if mine:
                self._watch(next(iter(mine.values())), now)
            else:
                self._books.watch.end(("flight", flight.island))

    def _watch(self, oldest: Flight, now: int) -> None:
        oldest.since = now
        watch, hard = self._books.watch, 0
        if oldest.poisoned:
            hard = 2  # its hosts have been told to end it
        elif oldest.kind in ("put", "get"):
            hard = min(watch.bounds.hard, watch.bounds.contents)
        watch.begin(("flight", oldest.island), now, oldest.cost, *self._bounds[oldest.island], hard)

    def report_oldest(self, island: int, now: int, doing: str) -> None:
        """Soft bound: ask who has arrived; `_answered` completes the report."""
        oldest = next(iter(self._by_island[island].values()), None)
        if oldest is None:
            return
        if oldest.seq not in self._asked:
            self._asked[oldest.seq] = oldest
            self._books.stalls.ever += 1
        oldest.missing = oldest.left
        self._books.outbox.step(island, AskStep(oldest.seq), oldest.left)
        self._report(oldest, f"{oldest.kind} has not ended on these hosts while {doing}")
        watch = self._books.watch
        watch.begin_for(("asked", oldest.seq), now, watch.bounds.answer, partial(self._answered, oldest))

    def arrived(self, report: Arrived) -> None:
        flight = self._asked.get(report.seq)
        if flight is not None:
            flight.missing = spans.minus(flight.missing, report.hosts)

    def _answered(self, flight: Flight, now: int) -> None:
        """Whoever has launched it has had time to say so. Once, however many hosts there are: an island of thousands
        would drown its client in news."""
        if not flight.missing:
            flight.missing = flight.left
            self._report(
                flight, f"all have launched the {flight.kind}; it has not ended on the devices of these hosts"
            )
        elif flight.missing != flight.left:
            self._report(flight, f"{flight.kind} has not been launched by these hosts")

    def _report(self, flight: Flight, reason: str) -> None:
        island = self._books.cluster.islands[flight.island].name
        program, node = flight.run.describe(flight.step) if flight.run else ("", f"buffer {flight.buffer}")
        hosts = spans.text(flight.missing)
        flight.late = reason
        text = f"stall on island {island!r}: program {program!r}, node {node!r}: {reason}: hosts {hosts}"
        self._books.outbox.effect(Tell(text, passing=True))
        peer, what = self._whose(flight)
        age = self._books.now - flight.since
        self._books.outbox.note(peer, Stalled(what, program, node, island, flight.missing, reason, age))

    def _whose(self, flight: Flight) -> tuple[int, int]:
        """Which client is told, and of what: its run, or minus the buffer that it puts."""
        if flight.run is not None:
            return flight.run.session.peer, flight.run.call.run
        named = self._books.holdings.named(flight.buffer) if flight.kind == "put" else None
        return (named.session.peer, -named.name) if named is not None else (-1, 0)

    def _give_up(self, island: int, now: int) -> None:
        oldest = next(iter(self._by_island[island].values()), None)
        if oldest is not None:
            who = spans.text(oldest.missing or oldest.left)
            blame = Blame("timeout", f"hosts {who} did not finish in time")
            self._books.failures.flight_failed(oldest, blame, now)
            rest = next(iter(self._by_island[island].values()), None)
            if rest is not None and not self._books.watch.waits_for(("flight", island)):
                self._watch(rest, now)
