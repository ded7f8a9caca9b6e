"""Admission before order: a run's memory is reserved on all islands at once, or it waits and holds nothing.

Runs and puts wait in the order in which they came. Later ones that fit may pass one that does not, at most
`max_passes` times if they use its devices; then they wait behind it. If a run waits for memory that no admitted run
will give back, idle buffers are spilled. If nothing can be spilled and nothing that runs could free it, the newest
waiter is refused when the bound of its wait is over; the error says which clients hold the memory.

In: runs that have all but memory (`enter`), puts (`join`), and what gets and views need (`bring_back`). Out: runs that
are admitted, or refused, on the agenda (`State.admitted`, `State.failing`).
Neighbours: `Ledger` answers, `Spill` makes room, `run_waits` tells clients.
The functions that matter: `enter`, `work`, `_try`, `_make_room`.
"""

from collections.abc import Callable

from ..memory import Buffer, Buffers, Footprint, LacksMemory, Ledger, NeverFits, Spill
from ..model import EMPTY, Atoms
from ..protocol import Blame, LogLine, RestoreStep, SpillStep
from .buffer_refs import BufferRefs
from .in_flight import InFlightTable
from .outbox import TurnOutbox
from .plan_rows import PlanRows
from .records import Amounts, BufferName, InFlight, RunRecord, Stall, Waiter
from .run_waits import RunWaits
from .state import ControllerModule, State
from .trace_rows import Tracing
from .watch import Watchdog

NOTHING: frozenset[int] = frozenset()
NO_SIZE = (-1, ())  # of an argument that is in no slot
MEMORY = "device memory to come free"


class Admission(ControllerModule):
    _state: State
    _atoms: Atoms
    _buffers: Buffers
    _in_flight: InFlightTable
    _ledger: Ledger
    _outbox: TurnOutbox
    _refs: BufferRefs
    _spill: Spill
    _tracing: Tracing | None
    _waits: RunWaits
    _watch: Watchdog
    _count: int = 0
    # buffers that have been spilled; maybe an argument of a run that waits among the last
    spills: int = 0
    eased: int = -1  # as of when the line was last tried

    # --- in and out of the line ----------------------------------------------------------------------------------

    def enter(self, run: RunRecord) -> None:
        """All it needs but memory is there."""
        if not run.in_line and (not run.held or self._arguments_there(run)):
            self._count = run.in_line = number = self._count + 1
            self._state.line[number] = Waiter(run, run.rows.all_islands, spills=self.spills)
            self._state.fresh = True

    def join(self, waiter: Waiter) -> int:
        """At the end of the line. Returns the number by which it may `leave`."""
        self._count += 1
        self._state.line[self._count] = waiter
        self._state.fresh = True
        return self._count

    def leave(self, number: int) -> None:
        """Take a waiter out of the line. Others that waited behind it may fit now."""
        if self._state.line.pop(number, None) is not None:
            self._state.fresh = bool(self._state.line)
        self._watch.end(("memory", number))

    def withdraw(self, run: RunRecord) -> None:
        if run.in_line:
            self.leave(run.in_line)
            run.in_line = 0
        for waiting in self._state.for_buffer.values():
            waiting.pop(run.id, None)

    def _arguments_there(self, run: RunRecord) -> bool:
        """Whether all that it reads has entered an order and is not on its way to host memory. A run never holds memory
        while it waits for another to be admitted."""
        for buffer in self._buffers.held(run.held, run.width):
            if buffer.promise or buffer.state == "spilling":
                self._state.for_buffer.setdefault(buffer.id, {})[run.id] = run
                self._waits.begin(run, f"buffer {buffer.name}", tell=False)
                return False
        return True

    # --- work ----------------------------------------------------------------------------------------------------

    def work(self, now: int, start: Callable[[RunRecord, int], None]) -> bool:
        """Try all that may fit now, and start each run that is admitted before the next is tried. True: something was
        admitted. Needless while nothing is `fresh` or has eased."""
        state, line, any_admitted = self._state, self._state.line, False
        while True:
            state.fresh, self.eased = False, self._ledger.eased
            barred: set[int] = set()
            for number, waiter in list(line.items()):
                if number not in line:
                    continue
                if self._try(number, waiter, barred, now):
                    any_admitted = True
                    while state.admitted:
                        start(state.admitted.popleft(), now)
                elif number in line and waiter.passes >= state.config.max_passes:
                    barred |= waiter.atoms
            if not state.fresh and self.eased == self._ledger.eased:
                return any_admitted or bool(state.failing or state.stay_away)
            # else: what was admitted has eased the ledger at once (a donation)

    def _try(self, number: int, waiter: Waiter, barred: set[int], now: int) -> bool:
        run = waiter.run
        if waiter.named is not None and not self._is_spilled(waiter.named.buffer):
            self.leave(number)  # it is there again for another reason, or nobody holds it any more
            return False
        if self._state.changing and not self._open(waiter):
            return False
        if run is not None and waiter.spills != self.spills:
            if run.held and not self._arguments_there(run):
                self.leave(number)
                run.in_line = 0
                return False
            waiter.spills = self.spills
        footprint, arrivals, there = self._demand(waiter)
        others = len(self._state.line) > 1
        if others:
            waiter.atoms = self._atoms_of(footprint, (*arrivals, *there))
            if barred and not barred.isdisjoint(waiter.atoms):
                return False
        answer = self._ledger.admit(run.id if run is not None else -number, footprint, arrivals, there)
        if answer is None:
            self._admit(number, waiter, now)
            return True
        if not others:  # others may come, and pass it
            waiter.atoms = self._atoms_of(footprint, (*arrivals, *there))
        if isinstance(answer, NeverFits):
            self._refuse(number, waiter, Blame("no-memory", f"it {answer.text}"), now)
        else:
            self._make_room(number, waiter, answer, now)
        return False

    def _demand(self, waiter: Waiter) -> tuple[Footprint | None, Amounts, Amounts]:
        """Its footprint, what comes with it (literals, what was spilled), and what of it is there."""
        run = waiter.run
        if run is None:
            return None, waiter.mine, ()
        rows = run.rows
        run.donated = rows.donated(self._sole(run, rows)) if rows.may_donate else NOTHING
        footprint = rows.footprints.get(run.donated)
        if footprint is None or footprint.version != self._atoms.number:
            footprint = rows.footprint(run.donated)
        if not run.reads:  # all arguments are literals
            return footprint, rows.arg_amounts, ()
        arrivals: list[tuple[int, int]] = []
        there: list[tuple[int, int]] = []
        for buffer in {each.id: each for each in self._buffers.held(run.held, run.width)}.values():
            if buffer.on_device:
                there.append((buffer.key, buffer.nbytes))
            elif buffer.layout.place not in run.cold:
                arrivals.append((buffer.key, buffer.nbytes))
        keys, slots = rows.slot_keys, rows.plan.slots
        arrivals += [(keys[slot], slots[slot].nbytes) for slot in run.literals.values()]
        return footprint, tuple(arrivals), tuple(there)

    def _sole(self, run: RunRecord, rows: PlanRows) -> frozenset[int]:
        """Arguments that nobody else holds: literals, and what the client gave up and no other run reads."""
        view, held, is_sole = run.view, run.held, self._buffers.is_sole
        sizes = view.sizes
        sole = frozenset(
            [index for index in run.sources if index not in held or is_sole(held[index], *sizes.get(index, NO_SIZE))]
        )
        return rows.all_of(view, sole) if run.width else sole

    def _atoms_of(self, footprint: Footprint | None, amounts: Amounts) -> frozenset[int]:
        found = footprint.atoms if footprint is not None else NOTHING
        parts = self._atoms.parts
        return found.union([atom for key, _ in amounts for atom in parts[key]]) if amounts else found

    def _admit(self, number: int, waiter: Waiter, now: int) -> None:
        del self._state.line[number]
        if waiter.watched:
            self._watch.end(("memory", number))
        for earlier, other in self._state.line.items():
            if earlier > number:
                break
            if not other.atoms.isdisjoint(waiter.atoms):
                other.passes += 1
        run = waiter.run
        if run is None:
            if waiter.admitted is not None:
                waiter.admitted(now)
            return
        run.in_line = 0
        if run.waits:
            self._waits.over(run)
        run.turn("admitted")
        if self._tracing is not None:
            self._tracing.trace.admitted(run.id, now)
        run.using = True
        if run.held:
            self._use_arguments(run, now)
        self._state.admitted.append(run)

    def _refuse(self, number: int, waiter: Waiter, blame: Blame, now: int) -> None:
        self.leave(number)
        if waiter.run is not None:
            waiter.run.in_line = 0
            self._state.failing.append((waiter.run, blame))
        elif waiter.named is not None:
            self._state.stay_away.append((waiter.named, blame))
        elif waiter.refused is not None:
            waiter.refused(blame, now)

    def _use_arguments(self, run: RunRecord, now: int) -> None:
        spilled: dict[int, None] = {}
        for index in run.held:
            for buffer in self._refs.argument(run, index):
                self._buffers.use(buffer.id)
                if index in run.donated:
                    self._buffers.consumed(buffer.id)
                if buffer.state == "spilled" and buffer.layout.place not in run.cold:
                    spilled[buffer.id] = None
        for ident in spilled:
            self.restore(ident, now)

    # --- making room ----------------------------------------------------------------------------------------------

    def _make_room(self, number: int, waiter: Waiter, short: LacksMemory, now: int) -> None:
        self._bound_wait(number, waiter, now)
        if short.enough:
            return
        self.spill(self._spill.victims(short.missing, self._keep(waiter)) or (), now)

    def spill(self, victims: tuple[Buffer, ...], now: int) -> None:
        for buffer in victims:
            self.spills += 1
            self._spill.begin(buffer)
            seq = self._state.next_seq
            self._copy(buffer, "spill", SpillStep(seq, buffer.id, buffer.hosts, buffer.on_disk), now)

    def restore(self, ident: int, now: int) -> None:
        """Its memory has been admitted."""
        buffer = self._buffers.all[ident]
        self._spill.restore(buffer)
        seq = self._state.next_seq
        after = self._ledger.after(buffer.key)
        self._copy(buffer, "restore", RestoreStep(seq, ident, buffer.hosts, after), now)

    def _copy(self, buffer: Buffer, kind: str, step: SpillStep | RestoreStep, now: int) -> None:
        island, hosts = self._refs.layout(buffer.id).place.island, buffer.hosts
        self._state.next_seq = step.seq + 1
        self._buffers.touch(buffer.id, step.seq)
        self._outbox.step(island, step, hosts)
        cost = buffer.nbytes * self._state.config.bounds.byte
        entry = InFlight(
            step.seq, kind, island, hosts, hosts, hosts, now, now, buffer=buffer.id, cost=cost, copied=buffer
        )
        self._in_flight.add(entry, now)

    def _is_spilled(self, buffer: int) -> bool:
        return buffer in self._buffers and self._buffers[buffer].state == "spilled"

    def bring_back(self, named: BufferName, now: int) -> None:
        """A client gets contents that were spilled, or views them: they come back like a run's argument."""
        buffer = self._buffers[named.buffer]
        if not self._is_spilled(named.buffer) or any(w.named is named for w in self._state.line.values()):
            return
        waiter = Waiter(
            None, (self._refs.layout(named.buffer).place.island,), ((buffer.key, buffer.nbytes),), named,
            admitted=lambda at: self.restore(named.buffer, at),
        )  # fmt: skip
        self.join(waiter)

    def not_needed(self, buffer: Buffer) -> None:
        """Its memory has been admitted, and it was dropped while that waited."""
        self._ledger.free(buffer.key, buffer.nbytes)

    def copied(self, entry: InFlight) -> None:
        """A spill or restore is over: runs and views that waited for it go on."""
        assert entry.copied is not None
        (self._spill.spilled if entry.kind == "spill" else self._spill.restored)(entry.copied)
        self._refs.there(entry.copied)

    def _bound_wait(self, number: int, waiter: Waiter, now: int) -> None:
        key = ("memory", number)
        if self._watch.waits_for(key):
            return
        if waiter.run is not None:
            self._waits.begin(waiter.run, MEMORY)
        elif not waiter.late:
            waiter.since = now
        waiter.watched = True
        self._watch.begin(key, now, 0, lambda at: self._stuck(number, at), lambda at: self._stuck(number, at))

    def _stuck(self, number: int, now: int) -> None:
        """A bound of this wait is over. If nothing can free what is missing, the newest waiter for it is refused."""
        waiter = self._state.line.get(number)
        if waiter is None or self._try(number, waiter, set(), now) or number not in self._state.line:
            return
        self._bound_wait(number, waiter, now)  # others may still free it: keep waiting, keep saying so
        self._late(waiter)
        if not self._open(waiter):
            return
        footprint, arrivals, there = self._demand(waiter)
        short = self._ledger.admit(waiter.run.id if waiter.run is not None else -number, footprint, arrivals, there)
        assert isinstance(short, LacksMemory)  # it has just been tried
        text = self._spill.holders_text(short.missing, self._state.client_text)
        self._outbox.effect(LogLine(f"memory is short: {text}", passing=True))
        helpless = not short.running and not self._spill.busy(short.missing)
        if helpless and not self._spill.victims(short.missing, self._keep(waiter)):
            newest = max(n for n, w in self._state.line.items() if not w.atoms.isdisjoint(waiter.atoms))
            self._refuse(newest, self._state.line[newest], Blame("no-memory", text), now)

    def _late(self, waiter: Waiter) -> None:
        if waiter.run is not None:
            self._waits.late(waiter.run, EMPTY, f"it waits for {MEMORY}")
        elif not waiter.late:
            waiter.late = True
            self._state.stalls_ever += 1

    def late_contents(self) -> list[Stall]:
        """Puts, and what is to come back for gets, that have waited for memory for too long."""
        names = self._state.cluster.islands
        return [
            Stall(waiter.since, names[waiter.islands[0]].name, waiter.session.name if waiter.session else "", "",
                  "put" if waiter.named is None else "get", EMPTY, f"it waits for {MEMORY}")
            for waiter in self._state.line.values() if waiter.late
        ]  # fmt: skip

    def _open(self, waiter: Waiter) -> bool:
        """An island that changes its epoch takes nothing new; when it runs, the line is tried."""
        islands = self._state.islands
        for island in waiter.islands:  # noqa: SIM110 - asked for each run, and faster than all()
            if islands[island].phase != "running":
                return False
        return True

    def _keep(self, waiter: Waiter) -> set[int]:
        """The buffers that it reads, which are not spilled to make room for it."""
        run = waiter.run
        return {buffer.id for buffer in self._buffers.held(run.held, run.width)} if run is not None else set()
