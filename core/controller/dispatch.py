"""Lets the steps of admitted runs enter the islands' orders: which step may enter, and what is said of it then.

Parallel dispatch: a step may enter as soon as all it depends on has *entered*, so the host work of a whole regular
subgraph is done ahead of its data. Sequential (the baseline): when all it depends on has been enqueued by every
host. Behind an irregular node: when that node has run and its sizes are known. In every mode a step enters after
what it depends on, in one global sequence of `seq`: that, and devices that run in order, is why nothing deadlocks
(docs/ordering.md).

In: runs that are admitted, and what schedulers pick. Out: steps to hosts, memory and buffers that are free behind them
(`Ledger`, `buffer_refs`). `completion` takes to its end what has entered.
The functions that matter: `start`, `pump`, `_enter_gang`, `_enter_move`, `open`, `stop`.
"""

from ..memory import Buffers, Ledger
from ..model import Gang, Move, device_spans
from ..protocol import CutStep, GangStep, RecvStep, SendStep
from ..record import OrderHash, token
from ..schedule.policy import Ticket
from .buffer_refs import BufferRefs
from .compilation import Compilation
from .in_flight import InFlightTable
from .observations import Entered
from .outbox import TurnOutbox
from .outcomes import Outcomes
from .plan_rows import PlanRows, PlanView
from .records import InFlight, RunRecord
from .results import Results
from .run_waits import RunWaits
from .state import ControllerModule, State
from .trace_rows import Tracing
from .views import Views


class Dispatch(ControllerModule):
    _state: State
    _buffers: Buffers
    _compilation: Compilation
    _in_flight: InFlightTable
    _ledger: Ledger
    _order: OrderHash
    _outbox: TurnOutbox
    _outcomes: Outcomes
    _refs: BufferRefs
    _results: Results
    _tracing: Tracing | None
    _views: Views
    _waits: RunWaits

    # --- in -------------------------------------------------------------------------------------------------

    def start(self, run: RunRecord, now: int) -> None:
        """Its memory is reserved: let its first steps in. Hosts are told of it with the first that concerns them."""
        rows = run.rows
        run.begin(rows)
        if run.held:
            self._await_arguments(run, rows)
        if run.literals:
            self._await_room_for_literals(run, rows)
        # what came with the call, and is there now
        returned = run.made_results.get(-1, ()) if run.made_results else ()
        if returned or not run.left:
            self._compilation.announce(run)
        view = run.view
        if view.unread or len(rows.arg_bytes) < len(run.program.ir.args):
            self._drop_unread_arguments(run, rows, view)
        for slot, buffer, _ in returned:
            if slot in rows.results_read:
                self._refs.read_own(run, slot)
            self._refs.entered(buffer, -1)
            self._views.work()
            self._outcomes.tell_ready(run, self._outcomes.settled(buffer, None), now)
        for index in rows.first:
            self._candidate(run, index, now)
        if not run.left:
            self._outcomes.over(run, now)

    def _await_arguments(self, run: RunRecord, rows: PlanRows) -> None:
        """Steps that read what has no contents yet cannot settle before that has."""
        promised: dict[int, list[int]] = {}
        buffers = self._buffers.all
        for arg, ident in run.held.items():
            for buffer in self._refs.argument(run, arg) if run.width else (buffers[ident],):
                if buffer.state == "promised":
                    promised.setdefault(arg, []).append(buffer.id)
        if promised:
            for index, row in enumerate(run.view.steps):
                for argument in row.arguments:
                    for ident in promised.get(argument, ()):
                        self._state.readers.setdefault(ident, []).append((run, index))
                        run.await_argument(index)

    def _await_room_for_literals(self, run: RunRecord, rows: PlanRows) -> None:
        """They come with the message, and take memory that gangs of the order may not have left yet."""
        room = max([self._ledger.after(rows.slot_keys[slot]) for slot in run.literals.values()])
        if room >= 0:
            run.wait_behind(room)

    def _drop_unread_arguments(self, run: RunRecord, rows: PlanRows, view: PlanView) -> None:
        for argument in view.unread:
            self._results.argument_over(run, argument, -1)
        unused = [index for index in run.held if index not in rows.arg_bytes]
        for index in unused:
            self._results.argument_over(run, index, -1)

    def _candidate(self, run: RunRecord, index: int, now: int) -> None:
        """All that must come before this step has come."""
        if run.state != "running":
            return
        rows, state = run.rows, self._state
        row = rows.steps[index]
        if row.is_move:
            self._enter_move(run, index, now)
        elif rows.ready_at != state.epochs and (blame := self._compilation.blame(rows.plan.id)) is not None:
            self._outcomes.fail(run, blame, now)
        elif rows.ready_at == state.epochs or self._compilation.ask(rows):
            session = run.session
            ticket = run.offered[index] = Ticket(
                run.id, index, session.share, row.key, row.cost, session.weight, session.priority,
                run.call.deadline, run.submitted, run.late[index] == 0, run,
            )  # fmt: skip
            state.islands[row.island].scheduler.offer(ticket, now)
        else:
            self._park(run, index)

    def pump(self, now: int) -> bool:
        """Let in whatever may enter now, on each island in turn. True: something did."""
        picked = False
        for island in self._state.islands:
            scheduler, stream = island.scheduler, island.stream
            while scheduler.live and len(stream.log) < self._state.backlog:
                ticket = scheduler.pick(now)
                if ticket is None:
                    break
                self._enter_gang(ticket, now)
                picked = True
        return picked

    # --- entering -------------------------------------------------------------------------------------------

    def _enter_gang(self, ticket: Ticket, now: int) -> None:
        state, run, index = self._state, ticket.owner, ticket.step
        assert type(run) is RunRecord
        rows, call = run.rows, run.call
        row = rows.steps[index]
        hosts, island, seq = row.hosts, row.island, state.next_seq
        state.next_seq = seq + 1
        del run.offered[index]
        sequential = call.dispatch == "sequential"
        sizes: tuple[int, ...] = ()
        if run.sizes:
            sizes = tuple(size for maker in row.makers for size in run.sizes.get(maker, ()))
        if run.untold:
            self._compilation.announce_on(run, island)
        donate = not row.donates or rows.donates(index, run.donated)
        self._outbox.step(island, GangStep(seq, run.id, index, hosts, sequential, sizes, donate), hosts)
        if run.stopping:
            self._cut(run, index, seq)
        unacked = hosts if sequential and not row.irregular else ()
        entry = InFlight(
            seq, "gang", island, hosts, hosts, hosts, now, now, run, index, -1, -1, row.cost, ticket, unacked
        )
        self._in_flight.add(entry, now)
        run.entered[index] = True
        run.open_steps += 1
        self._ledger.entered(run.id, index, seq)
        if self._tracing is not None:
            self._tracing.entered(entry, run, ticket.place, ticket.since)
        program = run.program
        if program.rows is rows:
            number = program.tokens[index]
        else:
            number = token(run.session.name, program.ir.name, rows.plan.steps[index].name)
        self._order.entered(island, call.run, number)
        if state.watched:
            self._entered_seen(run, rows, index, seq)
        self._after_entering(run, rows, index, seq)
        if row.followers and not row.irregular and not sequential:
            self.open(run, index, now)

    def _entered_seen(self, run: RunRecord, rows: PlanRows, index: int, seq: int) -> None:
        row, gang = rows.steps[index], rows.plan.steps[index]
        assert isinstance(gang, Gang)
        epoch, devices = self._state.islands[row.island].epoch, device_spans(gang.place)
        self._state.observe(Entered(seq, run.id, index, row.island, epoch, row.hosts, devices))

    def _enter_move(self, run: RunRecord, index: int, now: int) -> None:
        """Both halves enter at once, right behind the producer; memory for the target is reserved already."""
        state, rows = self._state, run.rows
        move = rows.plan.steps[index]
        assert isinstance(move, Move)
        first, targets = move.sources[0], [rows.plan.slots[slot] for slot in move.targets]
        sender, receiver = rows.plan.slots[first].layout.place, targets[0].layout.place
        from_hosts, to_hosts = rows.slot_hosts[first], rows.hosts[index]
        nbytes = sum([target.nbytes for target in targets])
        sent = state.next_seq
        received = sent + 1
        state.next_seq = received + 1
        self._compilation.announce(run)
        self._outbox.step(sender.island, SendStep(sent, run.id, index, from_hosts, sent), from_hosts)
        cost = nbytes * state.config.bounds.byte
        entry = InFlight(
            sent, "send", sender.island, from_hosts, from_hosts, from_hosts, now, now, run, index,
            transfer=sent, cost=cost, uncounted=from_hosts,
        )  # fmt: skip
        self._in_flight.add(entry, now)
        after = self._ledger.after(rows.keys[index], nbytes)
        self._ledger.entered(run.id, index, received)
        self._outbox.step(receiver.island, RecvStep(received, run.id, index, to_hosts, sent, after), to_hosts)
        entry = InFlight(
            received, "recv", receiver.island, to_hosts, to_hosts, to_hosts, now, now, run, index,
            transfer=sent, cost=cost,
        )  # fmt: skip
        if self._tracing is not None:
            keys = (rows.slot_keys[first], rows.keys[index])
            self._tracing.moved(entry, run, keys, (sender, receiver), nbytes)
        self._in_flight.add(entry, now)
        run.entered[index] = True
        run.open_steps += 2
        self._after_entering(run, rows, index, received)
        self.open(run, index, now)

    def _after_entering(self, run: RunRecord, rows: PlanRows, index: int, seq: int) -> None:
        """Free what this step is the last to read, from here on in the order of the devices. The results that it
        makes exist, so their readers may be admitted."""
        view = run.view
        refs, row = self._refs, view.steps[index]
        if run.held:
            for argument in row.read_on:
                if argument in run.held:
                    refs.touch_argument(run, argument, seq)
            for argument in row.dying:
                self._results.argument_over(run, argument, seq)
        else:
            for argument in row.dying:
                self._results.literal_over(run, argument, seq)
        for slot in row.read_at:
            if slot in run.own:
                refs.own_read(run, slot, seq)
        if run.unkept:
            for result in rows.unkept_at[index]:
                self._results.entered(run, result, seq)
        elif run.made_results:
            self._make_results(run, rows, index, seq)

    def _make_results(self, run: RunRecord, rows: PlanRows, index: int, seq: int) -> None:
        refs = self._refs
        for slot, buffer, count in run.made_results.get(index, ()):
            if slot in rows.results_read:
                refs.read_own(run, slot)
            if rows.steps[index].is_move:  # filled when it is, not in the order of the devices
                refs.hold_for_transfer(buffer)
            refs.entered(buffer, seq, count)
            if self._state.views:
                self._views.work()

    def stop(self, run: RunRecord) -> None:
        """Its gangs of several steps end with the step under way; those that are still to enter do none. They do enter:
        others wait for what they make, and the run ends well."""
        if not run.stopping:
            run.stopping = True
            for entry in list(self._state.in_flight.values()):
                if entry.run is run and entry.kind == "gang":
                    self._cut(run, entry.step, entry.seq)

    def _cut(self, run: RunRecord, index: int, seq: int) -> None:
        row, gang = run.rows.steps[index], run.plan.steps[index]
        if isinstance(gang, Gang) and gang.steps > 1:
            self._outbox.step(row.island, CutStep(seq), row.hosts)

    def open(self, run: RunRecord, index: int, now: int) -> None:
        gates = run.gates
        for follower in run.rows.steps[index].followers:
            gates[follower] -= 1
            if not gates[follower]:
                self._candidate(run, follower, now)

    # --- code and membership -----------------------------------------------------------------------------------

    def code_ready(self, plan: int, now: int) -> None:
        """Or never will be: then the runs that wait for it fail."""
        blame = self._compilation.blame(plan)
        for run, index in self._state.parked.pop(plan, ()):
            self._waits.over(run)
            if blame is not None:
                self._outcomes.fail(run, blame, now)
            else:
                self._candidate(run, index, now)

    def _park(self, run: RunRecord, index: int) -> None:
        self._state.parked.setdefault(run.plan.id, []).append((run, index))
        self._waits.begin_code(run)

    def park(self, run: RunRecord) -> None:
        """A new epoch needs new code: tickets of this run wait for it again."""
        parked = [index for waiting, index in self._state.parked.get(run.plan.id, ()) if waiting is run]
        waiting = sorted([*run.offered, *parked])
        self._outcomes.withdraw(run)
        for index in waiting:
            self._park(run, index)
