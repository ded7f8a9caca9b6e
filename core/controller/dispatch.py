"""Takes admitted runs to their end: which step may enter an island's order, and when it is over.

Parallel dispatch: a step may enter as soon as all it depends on has *entered*, so the host work of a whole regular
subgraph is done ahead of its data. Sequential (the baseline): when all it depends on has been enqueued by every
host. Behind an irregular node: when that node has run and its sizes are known. In every mode a step enters after
what it depends on, in one global sequence of `seq`: that, and devices that run in order, is why nothing deadlocks
(docs/ordering.md).

Neighbours: `admission` starts runs; schedulers pick; `buffers` and `ledger` are told; `runs` ends what is over.
The functions that matter: `start`, `pump`, `_enter_gang`, `_enter_move`, `done`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..invariants import Entered
from ..model import Gang, Move, device_spans, spans
from ..protocol import (
    OF_ANOTHER,
    Blame,
    Counted,
    Done,
    Enqueued,
    ExpectStep,
    GangStep,
    Ready,
    RecvStep,
    SendStep,
    better,
)
from ..schedule.policy import Ticket
from .records import Flight, Named, Run

if TYPE_CHECKING:
    from .books import Books

ENTERED, OVER, SETTLED = 1, 2, 3


class Dispatch:
    def __init__(self, books: Books) -> None:
        self._books = books
        self._parked: dict[
            int, list[tuple[Run, int]]
        ] = {}  # plan -> steps that wait for its code (new epoch)
        self._unexplained: dict[
            int, dict[int, Flight]
        ] = {}  # run -> steps that are over for a reason which another one has still to tell

    # --- in -------------------------------------------------------------------------------------------------

    def start(self, run: Run, now: int) -> None:
        """Its memory is reserved: let its first steps in. Hosts are told of it with the first that concerns them."""
        shape, plan = run.shape, run.plan
        assert shape is not None
        assert run.header is not None
        run.gates = list(shape.gates)
        run.late = list(shape.late)
        run.users = dict(shape.sender_users)
        run.left = len(plan.steps)
        run.entered = bytearray(len(plan.steps))
        run.unsettled = list(shape.unsettled)
        if run.held:
            self._await_arguments(run)
        if run.literals:
            run.header = msgspec.structs.replace(run.header, after=self._room_for_literals(run))
        run.untold = dict(shape.island_hosts)
        if not run.left or -1 in run.made_results:  # it returns what came with the call, which is there now
            self.tell(run)
        self._drop_unread_arguments(run)
        for slot, _ in run.made_results.get(-1, ()):  # a literal that the program returns
            if slot in shape.results_read:
                self._books.holdings.read_own(run, slot)
            self._books.holdings.entered(run.buffer_of(slot), -1)
            self._tell_ready(run, self._books.holdings.settled(run.buffer_of(slot), None), now)
        for index in shape.first:
            self._candidate(run, index, now)
        if not run.left:
            self._books.runs_room.over(run, now)

    def tell(self, run: Run) -> None:
        """Each island that has not been told of it, before anything that names it."""
        for island in list(run.untold):
            self._tell(run, island)

    def _tell(self, run: Run, island: int) -> None:
        """With its first step, and not when it is admitted: a run may wait long for the window, and a message for
        each would go to every root of the tree, while what hosts have to say waits behind it."""
        hosts = run.untold.pop(island, None)
        if hosts is not None:
            assert run.header is not None
            assert run.shape is not None
            self._books.tell_plan(run.shape, island)
            self._books.outbox.run(island, run.header, hosts)

    def _await_arguments(self, run: Run) -> None:
        """Steps that read what has no contents yet cannot settle before that has."""
        assert run.shape is not None
        books = self._books
        for index, arguments in enumerate(run.shape.arg_inputs):
            for argument in arguments:
                buffer = run.held.get(argument, -1)
                if buffer >= 0 and books.buffers.is_promised(buffer):
                    books.readers.setdefault(buffer, []).append((run, index))
                    run.unsettled[index] += 1

    def _room_for_literals(self, run: Run) -> int:
        """They come with the message, and take memory that gangs of the order may not have left yet."""
        slots = [run.plan.slots[number] for number in run.literals.values()]
        keys = [self._books.atoms.intern(slot.layout.place) for slot in slots]
        return max([self._books.ledger.after(key) for key in dict.fromkeys(keys)], default=-1)

    def _drop_unread_arguments(self, run: Run) -> None:
        assert run.shape is not None
        for argument in run.shape.unread:
            self._argument_over(run, argument, -1)
        unused = [index for index in run.held if index not in run.shape.arg_bytes]
        for index in unused:
            self._argument_over(run, index, -1)

    def _argument_over(self, run: Run, argument: int, seq: int) -> None:
        """Behind `seq` nothing of this run reads the argument any more."""
        if argument in run.held:
            self._books.holdings.touch(run.held[argument], seq)
            self._books.holdings.let_go(run, argument)
        else:
            self.literal_over(run, argument, seq)

    def literal_over(self, run: Run, argument: int, seq: int) -> None:
        slot = run.literals.pop(argument, None)
        if slot is not None and argument not in run.donated and slot not in run.plan.results:
            record = run.plan.slots[slot]
            self._books.ledger.free(self._books.atoms.intern(record.layout.place), record.nbytes, seq)

    def _candidate(self, run: Run, index: int, now: int) -> None:
        """All that must come before this step has come."""
        if run.state != "running":
            return
        plan = run.plan
        step = plan.steps[index]
        if isinstance(step, Move):
            self._enter_move(run, index, step, now)
        elif self._books.code_ready(plan.id):
            self._offer(run, index, step, now)
        else:
            self._park(run, index)

    def _offer(self, run: Run, index: int, gang: Gang, now: int) -> None:
        session, shape = run.session, run.shape
        assert shape is not None
        ticket = Ticket(
            run.id, index, session.number, shape.keys[index], gang.cost, session.weight, session.priority,
            run.call.deadline, run.submitted, run.late[index] == 0, run,
        )  # fmt: skip
        run.offered[index] = ticket
        self._books.islands[gang.place.island].scheduler.offer(ticket, now)

    def pump(self, now: int) -> bool:
        """Let in whatever may enter now, on each island in turn. True: something did."""
        picked = False
        for book in self._books.islands:
            scheduler = book.scheduler
            while not (scheduler.idle or book.stream.full) and (ticket := scheduler.pick(now)) is not None:
                self._enter_gang(ticket, now)
                picked = True
        return picked

    # --- entering -------------------------------------------------------------------------------------------

    def _enter_gang(self, ticket: Ticket, now: int) -> None:
        books, run, index = self._books, ticket.owner, ticket.step
        assert isinstance(run, Run)
        shape = run.shape
        assert shape is not None
        gang = shape.plan.steps[index]
        assert isinstance(gang, Gang)
        del run.offered[index]
        hosts, island = shape.hosts[index], gang.place.island
        seq = books.next_seq()
        sequential = run.call.dispatch == "sequential"
        sizes: tuple[int, ...] = ()
        if run.sizes:
            sizes = tuple(size for maker in shape.makers[index] for size in run.sizes.get(maker, ()))
        self._tell(run, island)
        step = GangStep(seq, run.id, index, hosts, sequential, sizes, shape.donates(index, run.donated))
        books.outbox.step(island, step, hosts)
        flight = Flight(seq, "gang", island, hosts, now, run=run, step=index, cost=gang.cost)
        flight.ticket = ticket
        if sequential and not gang.irregular:
            flight.unacked = hosts
        books.flights.take_off(flight, now)
        run.entered[index] = ENTERED
        run.open_steps += 1
        books.ledger.entered(run.id, index, seq)
        books.history.entered(flight, run, ticket.place, ticket.since)
        books.order.entered(island, run.session.name, run.program.ir.name, run.call.run, gang.name)
        if books.watched:
            epoch = books.islands[island].epoch
            books.observe(Entered(seq, run.id, index, island, epoch, hosts, device_spans(gang.place)))
        self._after_entering(run, index, seq)
        if not gang.irregular and not sequential:
            self._open(run, index, now)

    def _enter_move(self, run: Run, index: int, move: Move, now: int) -> None:
        """Both halves enter at once, right behind the producer; memory for the target is reserved already."""
        books, plan = self._books, run.plan
        assert run.shape is not None
        source, target = plan.slots[move.source], plan.slots[move.target]
        sender, receiver = source.layout.place, target.layout.place
        from_hosts = books.hosts_of(sender)
        to_hosts = run.shape.hosts[index]
        sent, received = books.next_seq(), books.next_seq()
        self.tell(run)
        books.outbox.step(sender.island, SendStep(sent, run.id, index, from_hosts, sent), from_hosts)
        cost = target.nbytes * books.config.bounds.byte
        flight = Flight(
            sent, "send", sender.island, from_hosts, now, run=run, step=index, transfer=sent, cost=cost
        )
        books.flights.take_off(flight, now)
        after = books.ledger.after(run.shape.keys[index], target.nbytes)
        books.ledger.entered(run.id, index, received)
        books.outbox.step(receiver.island, RecvStep(received, run.id, index, to_hosts, sent, after), to_hosts)
        flight = Flight(
            received, "recv", receiver.island, to_hosts, now, run=run, step=index, transfer=sent, cost=cost
        )
        keys = (books.atoms.intern(sender), run.shape.keys[index])
        books.history.moved(flight, run, keys, (sender, receiver), target)
        books.flights.take_off(flight, now)
        run.entered[index] = ENTERED
        run.open_steps += 2
        self._after_entering(run, index, received)
        self._open(run, index, now)

    def _after_entering(self, run: Run, index: int, seq: int) -> None:
        """In the order of the devices, what this step was the last to read is free from here on; and the results it
        makes exist, so their readers may be admitted."""
        shape, holdings = run.shape, self._books.holdings
        assert shape is not None
        for argument in shape.read_on[index]:
            if argument in run.held:
                holdings.touch(run.held[argument], seq)
        for slot in shape.dies_at[index]:
            argument = shape.plan.slots[slot].arg
            if argument >= 0:
                self._argument_over(run, argument, seq)
        for slot in shape.read_at[index]:
            if slot in run.own:
                holdings.own_read(run, slot, seq)
        for slot, _ in run.made_results.get(index, ()):
            if slot in shape.results_read:
                holdings.read_own(run, slot)
            buffer = run.buffer_of(slot)
            if isinstance(
                shape.plan.steps[index], Move
            ):  # filled when it is, not in the order of the devices
                holdings.hold_for_transfer(buffer)
            holdings.entered(buffer, seq)

    def _open(self, run: Run, index: int, now: int) -> None:
        assert run.shape is not None
        for follower in run.shape.followers[index]:
            run.gates[follower] -= 1
            if not run.gates[follower]:
                self._candidate(run, follower, now)

    # --- over -----------------------------------------------------------------------------------------------

    def enqueued(self, report: Enqueued, now: int) -> None:
        flight = self._books.flights.get(report.seq)
        if flight is None or flight.run is None or not flight.unacked:
            return  # over already, or a repeated report
        flight.unacked = spans.minus(flight.unacked, report.hosts)
        if not flight.unacked:
            self._open(flight.run, flight.step, now)

    def counted(self, report: Counted, now: int) -> None:
        """Sparse exchange: once every source has said what it sends, each target is told what to expect."""
        flight = self._books.flights.get(report.transfer)
        if flight is None or flight.run is None or not flight.uncounted:
            return
        flight.uncounted = spans.minus(flight.uncounted, report.hosts)
        for host, pieces in report.pieces:
            flight.counts[host] = flight.counts.get(host, 0) + pieces
        if not flight.uncounted:
            assert flight.run.shape is not None
            move = flight.run.plan.steps[flight.step]
            assert isinstance(move, Move)  # only sends are counted
            island = flight.run.plan.slots[move.target].layout.place.island
            counts = tuple(sorted(flight.counts.items()))
            hosts = flight.run.shape.hosts[flight.step]
            self._books.outbox.step(island, ExpectStep(flight.transfer, counts), hosts)

    def done(self, report: Done, now: int) -> None:
        """Some hosts are through with `seq`; when all are, it is over."""
        flight = self._books.flights.get(report.seq)
        if flight is None:
            return  # a repeated report of something that is over
        if report.blame is not None:
            flight.blame = better(flight.blame, self.named(flight, report.blame))
        if flight.run is not None and report.sizes:
            known = flight.run.sizes.get(flight.step, report.sizes)
            flight.run.sizes[flight.step] = tuple(
                max(a, b) for a, b in zip(known, report.sizes, strict=False)
            )
        flight.left = spans.minus(flight.left, report.hosts)
        if flight.blame is not None and flight.blame.code == "peer":
            if _of_its_own(flight, flight.blame):
                self._books.failures.peer_failed(flight, now)
            elif not flight.left:
                self._end_unexplained(flight, now)
        elif not flight.left:
            self.end_flight(flight, now)
        elif flight.blame is not None and flight.run is not None and flight.blame.code not in OF_ANOTHER:
            self._books.runs_room.fail(flight.run, flight.blame, now)  # of another's failure that one tells

    def _end_unexplained(self, flight: Flight, now: int) -> None:
        """What it reads was to be made by a gang that lost a peer. That gang says why; a run waits for it."""
        run = flight.run
        if run is not None and run.blame is None:
            self._unexplained.setdefault(run.id, {})[flight.seq] = flight
            return
        assert flight.blame is not None
        flight.blame = run.blame if run is not None else Blame(
            "world", f"connections broke while this was made: {flight.blame.cause.partition(chr(10))[0]}"
        )  # fmt: skip
        self.end_flight(flight, now)

    def explained(self, run: Run, now: int) -> None:
        """The run has failed, for a reason of its own."""
        for flight in self._unexplained.pop(run.id, {}).values():
            if self._books.flights.get(flight.seq) is flight:
                self._end_unexplained(flight, now)

    def named(self, flight: Flight, blame: Blame) -> Blame:
        if flight.run is None or blame.program:
            return blame
        program, node = flight.run.describe(flight.step)
        return msgspec.structs.replace(blame, program=program, node=node)

    def end_flight(self, flight: Flight, now: int) -> None:
        """Over on all its hosts (or given up by all: an abandoned gang has a blame)."""
        books = self._books
        books.flights.land(flight, now)
        books.history.landed(flight)
        if flight.ticket is not None:
            books.islands[flight.island].scheduler.finished(flight.ticket)
            books.ledger.gang_finished(flight.seq)
        run = flight.run
        if run is None:
            self._other_over(flight, now)
            return
        assert run.shape is not None
        step = run.shape.plan.steps[flight.step]
        if flight.blame is not None:
            run.spoilt.setdefault(flight.step, flight.blame)
            books.runs_room.fail(run, flight.blame, now)
        if isinstance(step, Gang):
            run.entered[flight.step] = OVER
            if flight.unacked:  # what has ended had been enqueued, though the word of that was lost
                self._open(run, flight.step, now)
            self._gang_over(run, flight.step, step, now)
        elif flight.kind == "send":
            self._reader_over(run, step.source)
        else:
            self._ripen(run, flight.step)
            for slot, _ in run.made_results.get(flight.step, ()):
                books.holdings.transfer_over(run.buffer_of(slot))
        self._settle(run, flight.step, now)
        run.open_steps -= 1
        if run.state == "draining" and not run.open_steps:
            books.runs_room.over(run, now)

    def _other_over(self, flight: Flight, now: int) -> None:
        """No run's: contents of a client, or a buffer on its way to host memory and back."""
        if flight.kind == "put":
            self._books.contents.put_over(flight)
        elif flight.kind == "get":
            self._books.contents.get_over(flight)
        else:
            self._books.admission.copied(flight, now)

    def _gang_over(self, run: Run, index: int, gang: Gang, now: int) -> None:
        if run.users:
            for slot in dict.fromkeys(gang.inputs):
                if slot in run.users:
                    self._reader_over(run, slot)
        if gang.irregular:
            for output, size in zip(gang.outputs, run.sizes.get(index, ()), strict=False):
                self._books.holdings.shrink(run, output, size)
            self._open(run, index, now)
        self._ripen(run, index)

    def _ripen(self, run: Run, index: int) -> None:
        """What this step makes is there: gangs on other islands that read it are late no more."""
        assert run.shape is not None
        for late in run.shape.ripens[index]:
            run.late[late] -= 1
            ticket = run.offered.get(late)
            if not run.late[late] and ticket is not None:
                self._books.scheduler(self._island_of(run, late)).ripen(ticket)

    def _island_of(self, run: Run, index: int) -> int:
        gang = run.plan.steps[index]
        assert isinstance(gang, Gang)
        return gang.place.island

    def _reader_over(self, run: Run, slot: int) -> None:
        """One of the reads of a slot that is read by moves has ended; after the last one it dies, for real."""
        run.users[slot] -= 1
        if run.users[slot]:
            return
        del run.users[slot]
        record = run.plan.slots[slot]
        if slot in run.own:
            self._books.holdings.own_read(run, slot, -1)
        elif record.arg >= 0:
            self._argument_over(run, record.arg, -1)
        elif not record.keep:
            self._books.ledger.slot_freed(run.id, slot)

    def _settle(self, run: Run, first: int, now: int) -> None:
        """A step is settled when it is over and all it reads is settled: only then is its blame, or success, final."""
        assert run.shape is not None
        unsettled, stack = run.unsettled, [first]
        while stack:
            index = stack.pop()
            unsettled[index] -= 1
            if unsettled[index]:
                continue
            run.entered[index] = SETTLED
            run.left -= 1
            blame = run.spoilt.get(index) if run.spoilt else None
            if index in run.made_results:
                for slot, _ in run.made_results[index]:
                    self._tell_ready(run, self._books.holdings.settled(run.buffer_of(slot), blame), now)
            for feed in run.shape.feeds[index]:
                if blame is not None:
                    run.spoilt.setdefault(feed, blame)
                stack.append(feed)
        if not run.left and run.state == "running":
            self._books.runs_room.over(run, now)

    def _tell_ready(self, run: Run, names: list[Named], now: int) -> None:
        """The end of a run says it for all its results; one that is ready before is told alone."""
        for named in names:
            if run.left and named.ready and not named.released:
                self._books.outbox.note(run.session.peer, Ready((named.name,)))
            self._books.contents.ready(named, now)

    def argument_settled(self, buffer: int, blame: Blame | None, now: int) -> None:
        """Runs that read it may be under way already: their steps cannot settle before."""
        for run, index in self._books.readers.pop(buffer, ()):
            if blame is not None:
                run.spoilt.setdefault(index, blame)
                self._books.runs_room.fail(run, blame, now)
            if run.state in ("running", "draining") and run.entered[index] != SETTLED:
                self._settle(run, index, now)

    # --- code and membership -----------------------------------------------------------------------------------

    def code_ready(self, plan: int, now: int) -> None:
        """Or never will be: then the runs that wait for it fail."""
        blame = self._books.codes.blame(plan)
        for run, index in self._parked.pop(plan, ()):
            self._books.runs_room.code_came(run)
            if blame is not None:
                self._books.runs_room.fail(run, blame, now)
            else:
                self._candidate(run, index, now)

    def _park(self, run: Run, index: int) -> None:
        self._parked.setdefault(run.plan.id, []).append((run, index))
        self._books.runs_room.watch_code(run)

    def park(self, run: Run) -> None:
        """A new epoch needs new code: tickets of this run wait for it again."""
        parked = [index for waiting, index in self._parked.get(run.plan.id, ()) if waiting is run]
        waiting = sorted([*run.offered, *parked])
        self.withdraw(run)
        for index in waiting:
            self._park(run, index)

    def withdraw(self, run: Run) -> None:
        if run.shape is None:
            return
        for island in run.shape.island_hosts:
            self._books.scheduler(island).withdraw(run.id)
        run.offered.clear()
        parked = [each for each in self._parked.pop(run.plan.id, ()) if each[0] is not run]
        if parked:
            self._parked[run.plan.id] = parked


def _of_its_own(flight: Flight, blame: Blame) -> bool:
    """Whether its own hosts lost each other, and not those of a gang that was to make what it reads."""
    together = flight.kind == "gang" and spans.count(flight.hosts) > 1
    return together and (blame.host < 0 or spans.contains(flight.hosts, blame.host))
