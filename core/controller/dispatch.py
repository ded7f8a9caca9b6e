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
from ..memory import Buffers, Ledger
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
from ..record import OrderHash, token
from ..schedule.policy import Ticket
from .admission import Admission
from .buffer_refs import BufferRefs
from .compilation import Compilation
from .in_flight import InFlightTable
from .outbox import Outbox
from .plan_rows import PlanRows
from .records import BufferName, InFlight, Run
from .state import IslandState, State
from .tracing import Tracing

if TYPE_CHECKING:
    from .contents import Contents
    from .failures import Failures
    from .runs import Runs

ENTERED, OVER, SETTLED = 1, 2, 3


class Dispatch:
    contents: Contents
    failures: Failures
    runs: Runs

    def __init__(
        self,
        state: State,
        *,
        admission: Admission,
        buffers: Buffers,
        compilation: Compilation,
        in_flight: InFlightTable,
        tracing: Tracing | None,
        refs: BufferRefs,
        ledger: Ledger,
        order: OrderHash,
        outbox: Outbox,
    ) -> None:
        self._state = state
        self._admission = admission
        self._buffers = buffers
        self._compilation = compilation
        self._in_flight = in_flight
        self._tracing = tracing
        self._refs = refs
        self._ledger = ledger
        self._order = order
        self._outbox = outbox
        self._parked: dict[
            int, list[tuple[Run, int]]
        ] = {}  # plan -> steps that wait for its code (new epoch)
        self.unexplained: dict[
            int, dict[int, InFlight]
        ] = {}  # run -> steps that are over for a reason which another one has still to tell

    # --- in -------------------------------------------------------------------------------------------------

    def start(self, run: Run, now: int) -> None:
        """Its memory is reserved: let its first steps in. Hosts are told of it with the first that concerns them."""
        rows = run.rows
        assert rows is not None
        assert run.header is not None
        run.left = len(rows.steps)
        run.entered = bytearray(run.left)
        run.gates, run.late, run.unsettled = rows.gates.copy(), rows.late.copy(), rows.unsettled.copy()
        if rows.sender_users:
            run.users = rows.sender_users.copy()
        if run.held:
            self._await_arguments(run, rows)
        if run.literals:
            room = self._room_for_literals(run, rows)
            if room >= 0:
                run.header = msgspec.structs.replace(run.header, after=room)
        run.untold = rows.island_hosts.copy()
        if not run.left or -1 in run.made_results:  # it returns what came with the call, which is there now
            self.tell(run)
        if rows.unread or len(rows.arg_bytes) < len(run.sources):
            self._drop_unread_arguments(run, rows)
        for slot, buffer in run.made_results.get(-1, ()):  # a literal that the program returns
            if slot in rows.results_read:
                self._refs.read_own(run, slot)
            self._refs.entered(buffer, -1)
            self._tell_ready(run, self._refs.settled(buffer, None), now)
        for index in rows.first:
            self._candidate(run, index, now)
        if not run.left:
            self.runs.over(run, now)

    def tell(self, run: Run) -> None:
        """Each island that has not been told of it, before anything that names it."""
        for island in list(run.untold):
            self._tell(run, island)

    def _tell(self, run: Run, island: int) -> None:
        """With its first step, and not when it is admitted: a run may wait long for the window, and a message for
        each would go to every root of the tree, while what hosts have to say waits behind it."""
        hosts = run.untold.pop(island, None)
        if hosts is not None:
            rows = run.rows
            assert run.header is not None
            assert rows is not None
            if rows.sent.get(island) != self._state.islands[island].epoch:
                self._compilation.tell(rows, island)
            self._outbox.run(island, run.header, hosts)

    def _await_arguments(self, run: Run, rows: PlanRows) -> None:
        """Steps that read what has no contents yet cannot settle before that has."""
        buffers, held = self._buffers.all, run.held
        promised = {arg: buffer for arg, buffer in held.items() if buffers[buffer].state == "promised"}
        if promised:
            for index, row in enumerate(rows.steps):
                for argument in row.arguments:
                    buffer = promised.get(argument, -1)
                    if buffer >= 0:
                        self._state.readers.setdefault(buffer, []).append((run, index))
                        run.unsettled[index] += 1

    def _room_for_literals(self, run: Run, rows: PlanRows) -> int:
        """They come with the message, and take memory that gangs of the order may not have left yet."""
        room = -1
        for slot in run.literals.values():
            room = max(room, self._ledger.after(rows.slot_keys[slot]))
        return room

    def _drop_unread_arguments(self, run: Run, rows: PlanRows) -> None:
        for argument in rows.unread:
            self._argument_over(run, argument, -1)
        unused = [index for index in run.held if index not in rows.arg_bytes]
        for index in unused:
            self._argument_over(run, index, -1)

    def _argument_over(self, run: Run, argument: int, seq: int) -> None:
        """Behind `seq` nothing of this run reads the argument any more."""
        buffer = run.held.get(argument)
        if buffer is not None:
            self._refs.touch(buffer, seq)
            self._refs.let_go(run, argument)
        else:
            self.literal_over(run, argument, seq)

    def literal_over(self, run: Run, argument: int, seq: int) -> None:
        slot, rows = run.literals.pop(argument, None), run.rows
        assert rows is not None
        if slot is not None and argument not in run.donated and slot not in rows.plan.results:
            self._ledger.free(rows.slot_keys[slot], rows.plan.slots[slot].nbytes, seq)

    def _candidate(self, run: Run, index: int, now: int) -> None:
        """All that must come before this step has come."""
        if run.state != "running":
            return
        rows = run.rows
        assert rows is not None
        step = rows.plan.steps[index]
        if isinstance(step, Move):
            self._enter_move(run, index, step, now)
        elif rows.ready_at == self._state.epochs or self._compilation.is_ready(rows):
            session = run.session
            ticket = run.offered[index] = Ticket(
                run.id, index, session.number, rows.keys[index], step.cost, session.weight, session.priority,
                run.call.deadline, run.submitted, run.late[index] == 0, run,
            )  # fmt: skip
            self._state.islands[rows.islands[index]].scheduler.offer(ticket, now)
        else:
            self._park(run, index)

    def pump(self, now: int) -> bool:
        """Let in whatever may enter now, on each island in turn. True: something did."""
        picked = False
        for island in self._state.islands:
            scheduler = island.scheduler
            while scheduler.live and not island.stream.full:
                ticket = scheduler.pick(now)
                if ticket is None:
                    break
                self._enter_gang(ticket, now)
                picked = True
        return picked

    # --- entering -------------------------------------------------------------------------------------------

    def _enter_gang(self, ticket: Ticket, now: int) -> None:
        state, run, index = self._state, ticket.owner, ticket.step
        assert isinstance(run, Run)
        rows = run.rows
        assert rows is not None
        gang = rows.plan.steps[index]
        assert isinstance(gang, Gang)
        del run.offered[index]
        hosts, island, seq = rows.hosts[index], rows.islands[index], state.next_seq()
        sequential = run.call.dispatch == "sequential"
        sizes: tuple[int, ...] = ()
        if run.sizes:
            sizes = tuple(size for maker in rows.steps[index].makers for size in run.sizes.get(maker, ()))
        if run.untold:
            self._tell(run, island)
        donate = not gang.donated or rows.donates(index, run.donated)
        self._outbox.step(island, GangStep(seq, run.id, index, hosts, sequential, sizes, donate), hosts)
        unacked = hosts if sequential and not gang.irregular else ()
        entry = InFlight(
            seq, "gang", island, hosts, hosts, hosts, now, now, run, index, -1, -1, gang.cost, ticket, unacked
        )
        self._in_flight.add(entry, now)
        run.entered[index] = ENTERED
        run.open_steps += 1
        self._ledger.entered(run.id, index, seq)
        if self._tracing is not None:
            self._tracing.entered(entry, run, ticket.place, ticket.since)
        self._order.entered(island, run.session.name, run.call.run, self._token(run, rows, index))
        if state.watched:
            epoch = state.islands[island].epoch
            state.observe(Entered(seq, run.id, index, island, epoch, hosts, device_spans(gang.place)))
        self._after_entering(run, rows, index, seq)
        if not gang.irregular and not sequential and rows.steps[index].followers:
            self._open(run, index, now)

    def _token(self, run: Run, rows: PlanRows, index: int) -> int:
        """What the hash of the order takes for this gang: it stands for the names of client, program and step."""
        program = run.program
        if program.rows is rows:
            if not program.tokens:
                program.tokens = tuple(
                    token(run.session.name, program.ir.name, step.name) for step in rows.plan.steps
                )
            return program.tokens[index]
        return token(run.session.name, program.ir.name, rows.plan.steps[index].name)

    def _enter_move(self, run: Run, index: int, move: Move, now: int) -> None:
        """Both halves enter at once, right behind the producer; memory for the target is reserved already."""
        state, rows = self._state, run.rows
        assert rows is not None
        source, target = rows.plan.slots[move.source], rows.plan.slots[move.target]
        sender, receiver = source.layout.place, target.layout.place
        from_hosts, to_hosts = rows.slot_hosts[move.source], rows.hosts[index]
        sent, received = state.next_seq(), state.next_seq()
        self.tell(run)
        self._outbox.step(sender.island, SendStep(sent, run.id, index, from_hosts, sent), from_hosts)
        cost = target.nbytes * state.config.bounds.byte
        entry = InFlight(
            sent, "send", sender.island, from_hosts, from_hosts, from_hosts, now, now, run, index,
            transfer=sent, cost=cost, uncounted=from_hosts,
        )  # fmt: skip
        self._in_flight.add(entry, now)
        after = self._ledger.after(rows.keys[index], target.nbytes)
        self._ledger.entered(run.id, index, received)
        self._outbox.step(receiver.island, RecvStep(received, run.id, index, to_hosts, sent, after), to_hosts)
        entry = InFlight(
            received, "recv", receiver.island, to_hosts, to_hosts, to_hosts, now, now, run, index,
            transfer=sent, cost=cost,
        )  # fmt: skip
        if self._tracing is not None:
            keys = (rows.slot_keys[move.source], rows.keys[index])
            self._tracing.moved(entry, run, keys, (sender, receiver), target)
        self._in_flight.add(entry, now)
        run.entered[index] = ENTERED
        run.open_steps += 2
        self._after_entering(run, rows, index, received)
        self._open(run, index, now)

    def _after_entering(self, run: Run, rows: PlanRows, index: int, seq: int) -> None:
        """In the order of the devices, what this step was the last to read is free from here on; and the results it
        makes exist, so their readers may be admitted."""
        refs, row = self._refs, rows.steps[index]
        if run.held:
            for argument in row.read_on:
                if argument in run.held:
                    refs.touch(run.held[argument], seq)
        for argument in row.dying:
            self._argument_over(run, argument, seq)
        for slot in row.read_at:
            if slot in run.own:
                refs.own_read(run, slot, seq)
        for slot, buffer in run.made_results.get(index, ()):
            if slot in rows.results_read:
                refs.read_own(run, slot)
            if row.is_move:  # filled when it is, not in the order of the devices
                refs.hold_for_transfer(buffer)
            refs.entered(buffer, seq)

    def _open(self, run: Run, index: int, now: int) -> None:
        assert run.rows is not None
        gates = run.gates
        for follower in run.rows.steps[index].followers:
            gates[follower] -= 1
            if not gates[follower]:
                self._candidate(run, follower, now)

    # --- over -----------------------------------------------------------------------------------------------

    def enqueued(self, island: IslandState, report: Enqueued, now: int) -> None:
        entry = self._state.in_flight.get(report.seq)
        if entry is None or entry.run is None or not entry.unacked:
            return  # over already, or a repeated report
        entry.unacked = spans.minus(entry.unacked, report.hosts)
        if not entry.unacked:
            self._open(entry.run, entry.step, now)

    def counted(self, island: IslandState, report: Counted, now: int) -> None:
        """Sparse exchange: once every source has said what it sends, each target is told what to expect."""
        entry = self._state.in_flight.get(report.transfer)
        if entry is None or entry.run is None or not entry.uncounted:
            return
        if entry.counts is None:
            entry.counts = {}
        entry.uncounted = spans.minus(entry.uncounted, report.hosts)
        for host, pieces in report.pieces:
            entry.counts[host] = entry.counts.get(host, 0) + pieces
        if not entry.uncounted:
            assert entry.run.rows is not None
            move = entry.run.plan.steps[entry.step]
            assert isinstance(move, Move)  # only sends are counted
            target = entry.run.plan.slots[move.target].layout.place.island
            counts = tuple(sorted(entry.counts.items()))
            hosts = entry.run.rows.hosts[entry.step]
            self._outbox.step(target, ExpectStep(entry.transfer, counts), hosts)

    def done(self, island: IslandState, report: Done, now: int) -> None:
        """Some hosts are through with `seq`; when all are, it is over."""
        entry = self._state.in_flight.get(report.seq)
        if entry is None:
            return  # a repeated report of something that is over
        if report.blame is not None:
            entry.blame = better(entry.blame, self.named(entry, report.blame))
        if entry.run is not None and report.sizes:
            known = entry.run.sizes.get(entry.step, report.sizes)
            entry.run.sizes[entry.step] = tuple(max(a, b) for a, b in zip(known, report.sizes, strict=False))
        entry.left = spans.minus(entry.left, report.hosts)
        if entry.blame is not None and entry.blame.code == "peer":
            if _of_its_own(entry, entry.blame):
                self.failures.peer_failed(entry, now)
            elif not entry.left:
                self._end_unexplained(entry, now)
        elif not entry.left:
            self.end(entry, now)
        elif entry.blame is not None and entry.run is not None and entry.blame.code not in OF_ANOTHER:
            self.runs.fail(entry.run, entry.blame, now)  # of another's failure that one tells

    def _end_unexplained(self, entry: InFlight, now: int) -> None:
        """What it reads was to be made by a gang that lost a peer. That gang says why; a run waits for it."""
        run = entry.run
        if run is not None and run.blame is None:
            self.unexplained.setdefault(run.id, {})[entry.seq] = entry
            return
        assert entry.blame is not None
        entry.blame = run.blame if run is not None else Blame(
            "world", f"connections broke while this was made: {entry.blame.cause.partition(chr(10))[0]}"
        )  # fmt: skip
        self.end(entry, now)

    def explained(self, run: Run, now: int) -> None:
        """The run has failed, for a reason of its own."""
        for entry in self.unexplained.pop(run.id, {}).values():
            if self._state.in_flight.get(entry.seq) is entry:
                self._end_unexplained(entry, now)

    def named(self, entry: InFlight, blame: Blame) -> Blame:
        if entry.run is None or blame.program:
            return blame
        program, node = entry.run.describe(entry.step)
        return msgspec.structs.replace(blame, program=program, node=node)

    def end(self, entry: InFlight, now: int) -> None:
        """Over on all its hosts (or given up by all: an abandoned gang has a blame)."""
        self._in_flight.remove(entry, now)
        if self._tracing is not None:
            self._tracing.landed(entry)
        if entry.ticket is not None:
            self._state.islands[entry.island].scheduler.finished(entry.ticket)
            self._ledger.gang_finished(entry.seq)
        run, index = entry.run, entry.step
        if run is None:
            self._other_over(entry, now)
            return
        rows = run.rows
        assert rows is not None
        step = rows.plan.steps[index]
        if entry.blame is not None:
            run.spoilt.setdefault(index, entry.blame)
            self.runs.fail(run, entry.blame, now)
        if isinstance(step, Gang):
            run.entered[index] = OVER
            if entry.unacked:  # what has ended had been enqueued, though the word of that was lost
                self._open(run, index, now)
            if run.users or step.irregular or rows.steps[index].ripens:
                self._gang_over(run, rows, index, step, now)
        elif entry.kind == "send":
            self._reader_over(run, step.source)
        else:
            self._ripen(run, rows, index)
            for _, buffer in run.made_results.get(index, ()):
                self._refs.transfer_over(buffer)
        self._settle(run, rows, index, now)
        run.open_steps -= 1
        if run.state == "draining" and not run.open_steps:
            self.runs.over(run, now)

    def _other_over(self, entry: InFlight, now: int) -> None:
        """No run's: contents of a client, or a buffer on its way to host memory and back."""
        if entry.kind == "put":
            self.contents.put_over(entry)
        elif entry.kind == "get":
            self.contents.get_over(entry)
        else:
            self._admission.copied(entry, now)

    def _gang_over(self, run: Run, rows: PlanRows, index: int, gang: Gang, now: int) -> None:
        if run.users:
            for slot in dict.fromkeys(gang.inputs):
                if slot in run.users:
                    self._reader_over(run, slot)
        if gang.irregular:
            for output, size in zip(gang.outputs, run.sizes.get(index, ()), strict=False):
                self._refs.shrink(run, output, size)
            self._open(run, index, now)
        self._ripen(run, rows, index)

    def _ripen(self, run: Run, rows: PlanRows, index: int) -> None:
        """What this step makes is there: gangs on other islands that read it are late no more."""
        for late in rows.steps[index].ripens:
            run.late[late] -= 1
            ticket = run.offered.get(late)
            if not run.late[late] and ticket is not None:
                self._state.islands[rows.islands[late]].scheduler.ripen(ticket)

    def _reader_over(self, run: Run, slot: int) -> None:
        """One of the reads of a slot that is read by moves has ended; after the last one it dies, for real."""
        run.users[slot] -= 1
        if run.users[slot]:
            return
        del run.users[slot]
        record = run.plan.slots[slot]
        if slot in run.own:
            self._refs.own_read(run, slot, -1)
        elif record.arg >= 0:
            self._argument_over(run, record.arg, -1)
        elif not record.keep:
            self._ledger.slot_freed(run.id, slot)

    def _settle(self, run: Run, rows: PlanRows, first: int, now: int) -> None:
        """A step is settled when it is over and all it reads is settled: only then is its blame, or success, final."""
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
                for _, buffer in run.made_results[index]:
                    names = self._refs.settled(buffer, blame)
                    if names:
                        self._tell_ready(run, names, now)
            for feed in rows.steps[index].feeds:
                if blame is not None:
                    run.spoilt.setdefault(feed, blame)
                stack.append(feed)
        if not run.left and run.state == "running":
            self.runs.over(run, now)

    def _tell_ready(self, run: Run, names: list[BufferName], now: int) -> None:
        """The end of a run says it for all its results; one that is ready before is told alone."""
        for named in names:
            if run.left and named.ready and not named.released:
                self._outbox.note(run.session.peer, Ready((named.name,)))
            if named.gets or named.blame is not None:
                self.contents.ready(named, now)

    def argument_settled(self, buffer: int, blame: Blame | None, now: int) -> None:
        """Runs that read it may be under way already: their steps cannot settle before."""
        for run, index in self._state.readers.pop(buffer, ()):
            if blame is not None:
                run.spoilt.setdefault(index, blame)
                self.runs.fail(run, blame, now)
            if run.state in ("running", "draining") and run.entered[index] != SETTLED:
                assert run.rows is not None
                self._settle(run, run.rows, index, now)

    # --- code and membership -----------------------------------------------------------------------------------

    def code_ready(self, plan: int, now: int) -> None:
        """Or never will be: then the runs that wait for it fail."""
        blame = self._compilation.blame(plan)
        for run, index in self._parked.pop(plan, ()) if self._parked else ():
            self.runs.code_came(run)
            if blame is not None:
                self.runs.fail(run, blame, now)
            else:
                self._candidate(run, index, now)

    def _park(self, run: Run, index: int) -> None:
        self._parked.setdefault(run.plan.id, []).append((run, index))
        self.runs.watch_code(run)

    def park(self, run: Run) -> None:
        """A new epoch needs new code: tickets of this run wait for it again."""
        parked = [index for waiting, index in self._parked.get(run.plan.id, ()) if waiting is run]
        waiting = sorted([*run.offered, *parked])
        self.withdraw(run)
        for index in waiting:
            self._park(run, index)

    def withdraw(self, run: Run) -> None:
        if run.rows is None:
            return
        for island in run.rows.island_hosts:
            self._state.islands[island].scheduler.withdraw(run.id)
        run.offered.clear()
        parked = [each for each in self._parked.pop(run.plan.id, ()) if each[0] is not run]
        if parked:
            self._parked[run.plan.id] = parked


def _of_its_own(entry: InFlight, blame: Blame) -> bool:
    """Whether its own hosts lost each other, and not those of a gang that was to make what it reads."""
    together = entry.kind == "gang" and spans.count(entry.hosts) > 1
    return together and (blame.host < 0 or spans.contains(entry.hosts, blame.host))
