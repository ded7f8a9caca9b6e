"""Admission before order: a run's memory is reserved on all islands at once, or it waits and holds nothing.

Those who wait stand in the order in which they came. One that does not fit may be passed by later ones that do, at
most `max_passes` times by runs on its own devices; then they wait behind it. Whoever waits for memory that no
admitted run will give back asks for idle buffers to be spilled; if nothing can be spilled and nothing runs that could
free it, the newest waiter is refused when the bound of its wait is over, and told who holds what.

Neighbours: `runs` and `contents` come in, `ledger` answers, `spill` makes room, `dispatch` goes on.
The functions that matter: `enter`, `work`, `_try`, `_make_room`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..memory import Buffer, Footprint, NeverFits, Short
from ..model import EMPTY
from ..protocol import Blame, RestoreStep, SpillStep, Tell
from .records import Flight, Named, Run, Session
from .stalls import Stall

if TYPE_CHECKING:
    from .books import Books

Amounts = tuple[tuple[int, int], ...]
MEMORY = "device memory to come free"


class Waiter:
    """Something that wants memory: a run, or (without one) a Put."""

    __slots__ = ("admitted", "atoms", "islands", "late", "mine", "named", "passes", "refused", "run", "session",
                 "since")  # fmt: skip

    def __init__(self, run: Run | None, islands: Iterable[int], mine: Amounts = ()) -> None:
        self.run = run
        self.islands = tuple(islands)  # all of them must be at work
        self.mine = mine  # of a Put: what it brings
        self.named: Named | None = None  # of a Get
        self.session: Session | None = None  # of a Put
        self.since = 0  # when it was found that it does not fit
        self.late = False  # that has outlasted its soft bound
        self.passes = 0
        self.atoms: frozenset[int] = frozenset()
        self.admitted: Callable[[int], None]
        self.refused: Callable[[Blame, int], None]


class Admission:
    def __init__(self, books: Books) -> None:
        self._books = books
        self._line: dict[int, Waiter] = {}  # by when they came
        self._count = 0
        self._numbers: dict[int, int] = {}  # run -> its place in the line
        self._for_buffer: dict[int, dict[int, Run]] = {}  # buffer -> runs that need it to have been ordered
        self._eased = -1  # as of when the line was last tried
        self._fresh = False

    def __len__(self) -> int:
        return len(self._line)

    def try_again(self) -> None:
        """Something has come that the ledger does not know: an island is at work again, a buffer is idle."""
        self._fresh = True

    def idle(self, buffer: int) -> None:
        """Nobody uses it for now: it could be spilled."""
        if (
            self._line
            and buffer in self._books.buffers
            and self._books.spill.is_idle(self._books.buffers[buffer])
        ):
            self._fresh = True

    # --- in and out of the line ----------------------------------------------------------------------------------

    def enter(self, run: Run) -> None:
        """All it needs but memory is there."""
        if run.id not in self._numbers and self._arguments_there(run):
            assert run.shape is not None
            waiter = Waiter(run, run.shape.island_hosts)
            waiter.admitted = lambda now: self._start(run, now)
            waiter.refused = lambda blame, now: self._books.runs_room.fail(run, blame, now)
            self._numbers[run.id] = self._join(waiter)

    def enter_put(self, waiter: Waiter) -> int:
        return self._join(waiter)

    def _join(self, waiter: Waiter) -> int:
        self._count += 1
        self._line[self._count] = waiter
        self._fresh = True
        return self._count

    def leave(self, number: int) -> None:
        """Those whom it barred may fit now."""
        if self._line.pop(number, None) is not None:
            self._fresh = bool(self._line)
        self._books.watch.end(("memory", number))

    def withdraw(self, run: Run) -> None:
        number = self._numbers.pop(run.id, None)
        if number is not None:
            self.leave(number)
        for waiting in self._for_buffer.values():
            waiting.pop(run.id, None)

    def _arguments_there(self, run: Run) -> bool:
        """What it reads must have entered an order, and not be on its way to host memory: a run never holds memory
        while it waits for another to be admitted."""
        for ident in run.held.values():
            buffer = self._books.buffers[ident]
            if buffer.promise or buffer.state == "spilling":
                self._for_buffer.setdefault(ident, {})[run.id] = run
                self._books.stalls.begin(run, f"buffer {buffer.name}", tell=False)
                return False
        return True

    def buffer_there(self, buffer: int) -> None:
        """It has entered an order, or has been copied."""
        self._books.wake.extend(self._for_buffer.pop(buffer, {}).values())

    # --- work ----------------------------------------------------------------------------------------------------

    def work(self, now: int) -> bool:
        """Try whoever may fit now. True: somebody was admitted."""
        if not self._line or not (self._fresh or self._eased != self._books.ledger.eased):
            return False
        any_admitted = False
        again = True
        while again:  # what is admitted may ease the ledger at once (a donation)
            self._fresh, self._eased = False, self._books.ledger.eased
            barred: set[int] = set()
            for number in list(self._line):
                waiter = self._line.get(number)
                if waiter is None:
                    continue
                if self._try(number, waiter, barred, now):
                    any_admitted = True
                elif number in self._line and waiter.passes >= self._books.config.max_passes:
                    barred |= waiter.atoms
            again = self._fresh or self._eased != self._books.ledger.eased
        return any_admitted

    def _try(self, number: int, waiter: Waiter, barred: set[int], now: int) -> bool:
        run = waiter.run
        if waiter.named is not None and not self._is_spilled(waiter.named.buffer):
            self.leave(number)  # it is there again for another reason, or nobody holds it any more
            return False
        if not self._open(waiter):
            return False
        if run is not None and not self._arguments_there(run):  # one of them has been spilled meanwhile
            self.leave(number)
            self._numbers.pop(run.id, None)
            return False
        footprint, arrivals, there = self._demand(waiter)
        others = len(self._line) > 1
        if others:
            waiter.atoms = self._atoms(footprint, (*arrivals, *there))
            if barred and not barred.isdisjoint(waiter.atoms):
                return False
        answer = self._books.ledger.admit(self._ident(number, waiter), footprint, arrivals, there)
        if answer is None:
            self._admit(number, waiter, now)
            return True
        if not others:  # others may come, and pass it
            waiter.atoms = self._atoms(footprint, (*arrivals, *there))
        if isinstance(answer, NeverFits):
            self._refuse(number, waiter, Blame("no-memory", f"it {answer.text}"), now)
        else:
            self._make_room(number, waiter, answer, now)
        return False

    def _demand(self, waiter: Waiter) -> tuple[Footprint | None, Amounts, Amounts]:
        """Its footprint, what comes with it (literals, what was spilled), and what of it is there."""
        run, books = waiter.run, self._books
        if run is None:
            return None, waiter.mine, ()
        assert run.shape is not None
        run.donated = run.shape.donated(self._sole(run))
        arrivals: list[tuple[int, int]] = []
        there: list[tuple[int, int]] = []
        for ident in dict.fromkeys(run.held.values()):
            buffer = books.buffers[ident]
            (there if buffer.on_device else arrivals).append((buffer.key, buffer.nbytes))
        for slot in run.literals.values():
            record = run.plan.slots[slot]
            arrivals.append((books.atoms.intern(record.layout.place), record.nbytes))
        return books.footprints.of(run.plan, run.donated), tuple(arrivals), tuple(there)

    def _sole(self, run: Run) -> frozenset[int]:
        """Arguments that nobody else holds: literals, and what the client gave up and no other run reads."""
        assert run.shape is not None
        size, held, is_sole = run.shape.arg_bytes, run.held, self._books.buffers.is_sole
        return frozenset(
            [index for index in range(len(run.sources))
             if index not in held or is_sole(held[index], size.get(index, -1))]
        )  # fmt: skip

    def _atoms(self, footprint: Footprint | None, amounts: Amounts) -> frozenset[int]:
        found = [atom for group in footprint.groups for atom in group.atoms] if footprint is not None else []
        return frozenset([*found, *(atom for key, _ in amounts for atom in self._books.atoms.of(key))])

    def _admit(self, number: int, waiter: Waiter, now: int) -> None:
        del self._line[number]
        self._books.watch.end(("memory", number))
        for earlier, other in self._line.items():
            if earlier > number:
                break
            if not other.atoms.isdisjoint(waiter.atoms):
                other.passes += 1
        waiter.admitted(now)

    def _refuse(self, number: int, waiter: Waiter, blame: Blame, now: int) -> None:
        self.leave(number)
        if waiter.run is not None:
            self._numbers.pop(waiter.run.id, None)
        waiter.refused(blame, now)

    def _start(self, run: Run, now: int) -> None:
        books = self._books
        self._numbers.pop(run.id, None)
        books.stalls.over(run)
        run.turn("admitted")
        books.history.admitted(run)
        run.using = True
        for index, ident in run.held.items():
            books.buffers.use(ident)
            if index in run.donated:
                books.buffers.consumed(ident)
        for ident in dict.fromkeys(run.held.values()):
            if books.buffers[ident].state == "spilled":
                self._bring_back(ident, now)
        books.dispatch.start(run, now)

    # --- making room ----------------------------------------------------------------------------------------------

    def _make_room(self, number: int, waiter: Waiter, short: Short, now: int) -> None:
        self._watch(number, waiter, now)
        if short.enough:
            return
        self._spill(self._books.spill.victims(short.missing, self._keep(waiter)) or (), now)

    def _spill(self, victims: tuple[Buffer, ...], now: int) -> None:
        for buffer in victims:
            layout = self._books.holdings.layout(buffer.id)
            hosts = self._books.hosts_of(layout.place)
            self._books.spill.begin(buffer)
            seq = self._books.next_seq()
            self._books.buffers.touch(buffer.id, seq)
            self._books.outbox.step(layout.place.island, SpillStep(seq, buffer.id, hosts), hosts)
            flight = Flight(
                seq, "spill", layout.place.island, hosts, now, buffer=buffer.id, cost=self._cost(buffer)
            )
            flight.copied = buffer
            self._books.flights.take_off(flight, now)

    def _cost(self, buffer: Buffer) -> int:
        return buffer.nbytes * self._books.config.bounds.byte

    def _bring_back(self, ident: int, now: int) -> None:
        buffer, layout = self._books.buffers[ident], self._books.holdings.layout(ident)
        hosts = self._books.hosts_of(layout.place)
        self._books.spill.restore(buffer)
        seq = self._books.next_seq()
        after = self._books.ledger.after(buffer.key)
        self._books.buffers.touch(ident, seq)
        self._books.outbox.step(layout.place.island, RestoreStep(seq, ident, hosts, after), hosts)
        flight = Flight(
            seq, "restore", layout.place.island, hosts, now, buffer=ident, cost=self._cost(buffer)
        )
        flight.copied = buffer
        self._books.flights.take_off(flight, now)

    def _is_spilled(self, buffer: int) -> bool:
        return buffer in self._books.buffers and self._books.buffers[buffer].state == "spilled"

    def bring_back_for_get(self, named: Named, now: int) -> None:
        """A client asks for contents that were spilled: they come back like a run's argument."""
        buffer = self._books.buffers[named.buffer]
        if not self._is_spilled(named.buffer) or any(w.named is named for w in self._line.values()):
            return
        island = self._books.holdings.layout(named.buffer).place.island
        waiter = Waiter(None, (island,), ((buffer.key, buffer.nbytes),))
        waiter.named = named
        waiter.admitted = lambda at: self._bring_back(named.buffer, at)
        waiter.refused = lambda blame, at: self._books.contents.refuse_gets(named, blame)
        self._join(waiter)

    def copied(self, flight: Flight, now: int) -> None:
        """A spill or restore is over; who waited for either goes on."""
        assert flight.copied is not None
        if flight.blame is not None:
            self._books.holdings.lost(flight.buffer, flight.blame)
        (self._books.spill.spilled if flight.kind == "spill" else self._books.spill.restored)(flight.copied)
        self.buffer_there(flight.buffer)
        self._books.contents.copied(flight.buffer, now)

    def _watch(self, number: int, waiter: Waiter, now: int) -> None:
        key = ("memory", number)
        if self._books.watch.waits_for(key):
            return
        if waiter.run is not None:
            self._books.stalls.begin(waiter.run, MEMORY)
        elif not waiter.late:
            waiter.since = now
        self._books.watch.begin(
            key, now, 0, lambda at: self._stuck(number, at), lambda at: self._stuck(number, at)
        )

    def _stuck(self, number: int, now: int) -> None:
        """A bound of this wait is over. If nothing can free what is missing, the newest who wants it is refused."""
        waiter, books = self._line.get(number), self._books
        if waiter is None or self._try(number, waiter, set(), now) or number not in self._line:
            return
        self._watch(number, waiter, now)  # others may still free it: keep waiting, keep saying so
        self._late(waiter)
        if not self._open(waiter):
            return
        footprint, arrivals, there = self._demand(waiter)
        short = books.ledger.admit(self._ident(number, waiter), footprint, arrivals, there)
        assert isinstance(short, Short)  # it has just been tried
        text = books.spill.holders_text(short.missing, books.client_text)
        books.outbox.effect(Tell(f"memory is short: {text}", passing=True))
        helpless = not short.running and not books.spill.busy(short.missing)
        if helpless and not books.spill.victims(short.missing, self._keep(waiter)):
            newest = max(n for n, w in self._line.items() if not w.atoms.isdisjoint(waiter.atoms))
            self._refuse(newest, self._line[newest], Blame("no-memory", text), now)

    def _late(self, waiter: Waiter) -> None:
        if waiter.run is not None:
            self._books.stalls.late(waiter.run, EMPTY, f"it waits for {MEMORY}")
        elif not waiter.late:
            waiter.late = True
            self._books.stalls.ever += 1

    def late_contents(self) -> list[Stall]:
        """Puts, and what is to come back for gets, that have waited for memory for too long."""
        names = self._books.cluster.islands
        return [
            Stall(waiter.since, names[waiter.islands[0]].name, waiter.session.name if waiter.session else "", "",
                  "put" if waiter.named is None else "get", EMPTY, f"it waits for {MEMORY}")
            for waiter in self._line.values() if waiter.late
        ]  # fmt: skip

    def _open(self, waiter: Waiter) -> bool:
        """An island that changes its epoch takes nothing new; when it runs, the line is tried."""
        islands = self._books.islands
        for island in waiter.islands:  # noqa: SIM110 - asked for each run, and faster than all()
            if islands[island].phase != "running":
                return False
        return True

    @staticmethod
    def _ident(number: int, waiter: Waiter) -> int:
        """What the ledger knows it by."""
        return waiter.run.id if waiter.run is not None else -number

    @staticmethod
    def _keep(waiter: Waiter) -> set[int]:
        """What it reads is not spilled to make room for it."""
        return set(waiter.run.held.values()) if waiter.run is not None else set()
