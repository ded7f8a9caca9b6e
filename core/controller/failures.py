"""What dies with a host, a device or a launch: each failed run once, with the blame; every lost buffer by name.

A gang that waits for a dead member is abandoned on all its hosts, by order of the controller (a tombstone): no host
decides so by itself. A transfer with a dead end is poisoned at the other. Runs that have entered an order and need
what is gone fail; runs that have not are lowered again for the new device map. Clients elsewhere notice nothing.

Neighbours: `islands` calls when membership changes and tells `epoch_formed`; `runs` fails and re-lowers.
The functions that matter: `host_lost`, `trouble`, `flight_failed`, `epoch_formed`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..invariants import Abandoned, EpochFormed
from ..model import Gang, Spans, spans
from ..protocol import OF_ANOTHER, Blame, Join, PoisonStep, Tell, Trouble
from .islands import IslandBook
from .records import Flight, Run

if TYPE_CHECKING:
    from .books import Books


class Failures:
    def __init__(self, books: Books) -> None:
        self._books = books

    # --- hosts ---------------------------------------------------------------------------------------------------

    def host_lost(self, book: IslandBook, host: int, reason: str, now: int) -> None:
        books = self._books
        blame = Blame(
            "host-lost", f"host {host} of island {book.island.name!r} was lost: {reason}", host=host
        )
        self._remap(book)
        for flight in books.flights.touching(book.island.index, spans.one(host)):
            self._cut_flight(book, flight, spans.one(host), blame, now)
        for buffer in books.holdings.on_host(host):
            book.dropped.append(buffer)
            books.holdings.lost(buffer, blame)
        self._fail_started(lambda run: _needs_host(run, host), blame, now)
        for plan in books.codes.hosts_gone(spans.one(host)):
            books.plan_ready.append(plan)

    def host_left(self, book: IslandBook, host: int, reason: str, now: int) -> None:
        """It has drained: nothing is in flight there. What still lies on it is lost all the same."""
        books = self._books
        blame = Blame(
            "host-left", f"host {host} of island {book.island.name!r} has left: {reason}", host=host
        )
        self._remap(book)
        for buffer in books.holdings.on_host(host):
            books.holdings.lost(buffer, blame)
        self._fail_started(lambda run: _needs_host(run, host), blame, now)

    def _remap(self, book: IslandBook) -> None:
        """New places for slices that have lost a device. Plans for the old ones are forgotten."""
        for moved in self._books.resources.remap(book.island.index):
            self._books.lowerings.forget_place(moved.old)
            self._books.map_changed = True

    def _fail_started(self, needs: object, blame: Blame, now: int) -> None:
        assert callable(needs)
        for run in list(self._books.runs.values()):
            if run.state == "running" and needs(run):
                self._books.runs_room.fail(run, blame, now)

    # --- flights -------------------------------------------------------------------------------------------------

    def _cut_flight(self, book: IslandBook, flight: Flight, gone: Spans, blame: Blame, now: int) -> None:
        """A member of it is gone."""
        if flight.blame is None or flight.blame.code in OF_ANOTHER:
            flight.blame = self._books.dispatch.named(flight, blame)
        if flight.kind == "gang":
            book.abandon.append(flight.seq)
            self._books.observe(Abandoned(flight.seq))
            self._books.dispatch.end_flight(flight, now)
            return
        if flight.transfer >= 0:
            self.poison_transfer(flight, blame)
        flight.left = spans.minus(flight.left, gone)
        if not flight.left:
            self._books.dispatch.end_flight(flight, now)

    def poison_transfer(self, flight: Flight, blame: Blame) -> None:
        """Both ends are told that it will never complete; each answers for its half."""
        for half in self._books.flights.of_transfer(flight.transfer):
            self._books.outbox.step(half.island, PoisonStep(half.transfer, blame), half.hosts)

    def flight_failed(self, flight: Flight, blame: Blame, now: int) -> None:
        """It outlasted its hard bound, or could not be launched. A gang ends its epoch: its members may be anywhere."""
        book = self._books.islands[flight.island]
        blame = self._books.dispatch.named(flight, blame)
        if flight.kind != "gang":
            flight.blame = flight.blame or blame
            if flight.transfer >= 0 and not flight.poisoned:
                flight.poisoned = True
                self.poison_transfer(flight, blame)
                return
            # Its hosts have been told to end it, and have not: who does not take the next seat is lost.
            self._books.dispatch.end_flight(flight, now)
            self._books.islands_room.broken(book, now)
            return
        self._cut_flight(book, flight, spans.EMPTY, blame, now)
        self._books.islands_room.broken(book, now)

    # --- a world that is broken ----------------------------------------------------------------------------------

    def peer_failed(self, flight: Flight, now: int) -> None:
        """A collective failed because of another member, so connections between members are broken, and stay so: this
        epoch ends. If the other one is dead, its lease will say so, and the run fails for that; nothing enters until
        then. If all members of the gang have said that it ended, or nobody's lease has run out, they live."""
        book = self._books.islands[flight.island]
        key = ("peer", flight.island)
        if not flight.left:
            self._world_broken(book, flight.blame, now)
        elif not self._books.watch.waits_for(key):
            book.scheduler.paused = True
            book.stale_world = True
            blame, lease = flight.blame, self._books.config.lease
            self._books.watch.begin_for(key, now, lease, lambda at: self._world_broken(book, blame, at))

    def _world_broken(self, book: IslandBook, said: Blame | None, now: int) -> None:
        """All gangs of several hosts are given up: of those that have not failed yet, no host may wait for another."""
        where = f"hosts {spans.text(book.members)} of island {book.island.name!r}"
        cause = said.cause.partition("\n")[0] if said is not None else ""
        blame = Blame("world", f"the connections between {where} broke: {cause}")
        flights = self._books.flights
        for flight in flights.on(book.island.index):
            # The end of one may have explained, and so ended, others that waited for its reason.
            if flights.get(flight.seq) is flight and flight.kind == "gang" and spans.count(flight.hosts) > 1:
                self._cut_flight(book, flight, spans.EMPTY, blame, now)
        self._books.outbox.effect(Tell(f"{blame.cause}; the island forms anew"))
        self._books.islands_room.broken(book, now)

    def give_up_flights(self, book: IslandBook, now: int) -> None:
        """An island cannot drain: what is left will not end by itself."""
        for flight in self._books.flights.on(book.island.index):
            if self._books.flights.get(flight.seq) is flight:
                blame = Blame("timeout", "it did not end in time for the island to form anew")
                flight.blame = flight.blame or self._books.dispatch.named(flight, blame)
                if flight.kind == "gang":
                    book.abandon.append(flight.seq)
                    self._books.observe(Abandoned(flight.seq))
                elif flight.transfer >= 0:
                    self.poison_transfer(flight, blame)
                self._books.dispatch.end_flight(flight, now)
        self._books.islands_room.move_on(book, now)

    def trouble(self, book: IslandBook, report: Trouble, now: int) -> None:
        """A launch failed on one host while its peers wait in it; or a device is lost; or a host is confused."""
        books = self._books
        books.outbox.effect(Tell(f"trouble on host {report.host}: {report.blame}"))
        if report.device >= 0:
            self._device_lost(book, report.host, report.device, report.blame, now)
            return
        flight = books.flights.get(report.seq)
        if flight is not None:
            self.flight_failed(flight, report.blame, now)
        elif report.blame.code == "protocol":
            books.islands_room.lost(book, report.host, report.blame.cause, now)

    def _device_lost(self, book: IslandBook, host: int, device: int, blame: Blame, now: int) -> None:
        books = self._books
        if book.island.index != books.cluster.island_of_device(device).index or not books.resources.usable(
            device
        ):
            return
        books.resources.device_lost(device)
        self._remap(book)
        for flight in books.flights.touching(book.island.index, spans.one(host)):
            step = flight.run.plan.steps[flight.step] if flight.run is not None else None
            if isinstance(step, Gang) and device in step.place.devices():
                self._cut_flight(book, flight, spans.EMPTY, blame, now)
        for buffer in books.holdings.on_device(device):
            book.dropped.append(buffer)
            books.holdings.lost(buffer, blame)
        self._fail_started(lambda run: _needs_device(run, device), blame, now)
        books.islands_room.broken(book, now)

    # --- an epoch has formed -------------------------------------------------------------------------------------

    def epoch_formed(self, book: IslandBook, now: int) -> None:
        """Its code is compiled anew; slices that waited may have their devices now."""
        books = self._books
        books.observe(EpochFormed(book.island.index, book.epoch, book.members))
        moved = self._remap_all(book)
        for run in list(books.runs.values()):
            if (
                run.state == "running"
                and run.shape is not None
                and book.island.index in run.shape.island_hosts
            ):
                books.dispatch.park(run)
                if books.ask_for_code(run.shape):
                    books.plan_ready.append(run.plan.id)
        if moved or books.map_changed:
            books.map_changed = False
            books.runs_room.lower_again(now)
        else:
            books.runs_room.compile_again(book.island.index, now)
        books.runs_room.slices_bound(now)
        books.admission.try_again()

    def _remap_all(self, book: IslandBook) -> bool:
        self._remap(book)
        return self._books.map_changed

    def new_host(self, book: IslandBook, join: Join) -> None:
        """Gangs that a host still has from another controller's time will never be asked for again."""
        book.epoch = max(book.epoch, join.epoch)
        book.stream.number = max(book.stream.number, join.last)
        for seq in join.unfinished:
            if seq not in book.abandon:
                book.abandon.append(seq)
                self._books.observe(Abandoned(seq))


def _needs_host(run: Run, host: int) -> bool:
    """Some step that has not entered an order needs this host."""
    assert run.shape is not None
    return any(
        not run.entered[index] and spans.contains(hosts, host) for index, hosts in enumerate(run.shape.hosts)
    )


def _needs_device(run: Run, device: int) -> bool:
    return any(
        not run.entered[index] and isinstance(step, Gang) and device in step.place.devices()
        for index, step in enumerate(run.plan.steps)
    )
