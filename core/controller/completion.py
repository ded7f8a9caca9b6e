"""Takes steps that have entered an order to their end: what hosts report of them, and what follows from that.

A step is over when all its hosts have said so. It is settled when all that it reads is settled too: only then is its
blame, or its success, final, and only then are its results ready. A run is over when all its steps are settled.

In: `Done`, `Enqueued` and `PieceCounts` from hosts; `end` from `failures`, which gives steps up. Out: steps that waited
for it enter (`dispatch`), memory is free (`Ledger`, `buffer_refs`), results are ready and runs end (`outcomes`); gangs
whose hosts have lost each other are in `State.peer_failures`.
The functions that matter: `done`, `end`, `_settle`, `explained`.
"""

import msgspec

from ..memory import Ledger
from ..model import Gang, Move, spans
from ..protocol import OF_ANOTHER, Blame, ContentsReady, Done, Enqueued, ExpectStep, PieceCounts, better
from .accounts import Accounts
from .admission import Admission
from .buffer_refs import BufferRefs
from .dispatch import Dispatch
from .gets import Gets
from .in_flight import InFlightTable
from .outbox import TurnOutbox
from .outcomes import Outcomes
from .plan_rows import PlanRows
from .records import InFlight, RunRecord
from .results import Results
from .state import ControllerModule, IslandState, State
from .trace_rows import Tracing
from .views import Views


class Completion(ControllerModule):
    _state: State
    _accounts: Accounts
    _admission: Admission
    _dispatch: Dispatch
    _gets: Gets
    _in_flight: InFlightTable
    _ledger: Ledger
    _outbox: TurnOutbox
    _outcomes: Outcomes
    _refs: BufferRefs
    _results: Results
    _tracing: Tracing | None
    _views: Views

    def enqueued(self, island: IslandState, report: Enqueued, now: int) -> None:
        entry = self._state.in_flight.get(report.seq)
        if entry is None or entry.run is None or not entry.unacked:
            return  # over already, or a repeated report
        entry.unacked = spans.minus(entry.unacked, report.hosts)
        if not entry.unacked:
            self._dispatch.open(entry.run, entry.step, now)

    def counted(self, island: IslandState, report: PieceCounts, now: int) -> None:
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
            move = entry.run.plan.steps[entry.step]
            assert isinstance(move, Move)  # only sends are counted
            target = entry.run.plan.slots[move.targets[0]].layout.place.island
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
        if report.sizes and entry.run is not None:
            said = entry.run.sizes if entry.run.rows.steps[entry.step].irregular else entry.run.left_out
            known = said.get(entry.step, report.sizes)
            said[entry.step] = tuple(max(a, b) for a, b in zip(known, report.sizes, strict=False))
        entry.left = spans.minus(entry.left, report.hosts) if entry.left != report.hosts else spans.EMPTY
        if entry.blame is None:
            if not entry.left:
                self.end(entry, now)
        elif entry.blame.code == "peer":
            if _of_its_own(entry, entry.blame):
                self._state.peer_failures.append(entry)
            elif not entry.left:
                self._end_unexplained(entry, now)
        elif not entry.left:
            self.end(entry, now)
        elif entry.run is not None and entry.blame.code not in OF_ANOTHER:
            self._outcomes.fail(entry.run, entry.blame, now)  # of another's failure that one tells

    def _end_unexplained(self, entry: InFlight, now: int) -> None:
        """The gang that makes its input lost a peer, so this step ended too. The run waits for that gang's blame."""
        run = entry.run
        if run is not None and run.blame is None:
            self._state.unexplained.setdefault(run.id, {})[entry.seq] = entry
            return
        assert entry.blame is not None
        entry.blame = run.blame if run is not None else Blame(
            "world", f"connections broke while this was made: {entry.blame.cause.partition(chr(10))[0]}"
        )  # fmt: skip
        self.end(entry, now)

    def explain(self, now: int) -> None:
        while self._state.explained:
            self.explained(self._state.explained.popleft(), now)

    def explained(self, run: RunRecord, now: int) -> None:
        """The run has failed, for a reason of its own."""
        for entry in self._state.unexplained.pop(run.id, {}).values():
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
            self._tracing.over(entry)
        if entry.ticket is not None:
            island = self._state.islands[entry.island]
            island.scheduler.finished(entry.ticket, now)
            if island.broken.number and entry.blame is None and spans.count(entry.hosts) > 1:
                island.broken.worked()
            self._ledger.gang_finished(entry.seq)
        run, index = entry.run, entry.step
        if run is None:
            if entry.kind in ("put", "get"):
                self._accounts.contents_over(entry, now)
            self._other_over(entry, now)
            return
        rows = run.rows
        row = rows.steps[index]
        if entry.ticket is not None:
            self._accounts.gang_over(run, entry, now)
        if entry.blame is not None:
            run.spoilt.setdefault(index, entry.blame)
            self._outcomes.fail(run, entry.blame, now)
        if row.is_move:
            self._half_over(run, rows, entry)
        else:
            if entry.unacked:  # what has ended had been enqueued, though the word of that was lost
                self._dispatch.open(run, index, now)
            if run.users or row.irregular or row.ripens:
                self._gang_over(run, rows, index, now)
        self._settle(run, rows, index, now)
        if run.step_over():
            self._outcomes.over(run, now)

    def _other_over(self, entry: InFlight, now: int) -> None:
        """No run's: contents of a client, or a buffer on its way to host memory and back."""
        if entry.kind == "put":
            self._put_over(entry, now)
        elif entry.kind == "get":
            self._gets.over(entry)
        else:
            if entry.blame is not None:
                self._outcomes.lost(entry.buffer, entry.blame)
            self._admission.copied(entry)
            self._views.work()
            self._gets.copied(entry.buffer, now)

    def _put_over(self, entry: InFlight, now: int) -> None:
        for named in self._outcomes.settled(entry.buffer, entry.blame):
            if not named.released:
                self._outbox.note(named.session.peer, ContentsReady((named.name,), entry.blame))
            self._gets.ready(named, now)
        self._refs.transfer_over(entry.buffer)

    def _half_over(self, run: RunRecord, rows: PlanRows, entry: InFlight) -> None:
        """A move has two halves: this one has been sent, or received."""
        if entry.kind == "send":
            move = rows.plan.steps[entry.step]
            assert isinstance(move, Move)
            for slot in dict.fromkeys(move.sources):
                self._reader_over(run, slot)
        else:
            self._ripen(run, rows, entry.step)
            for _, buffer, _ in run.made_results.get(entry.step, ()):
                self._refs.transfer_over(buffer)

    def _gang_over(self, run: RunRecord, rows: PlanRows, index: int, now: int) -> None:
        gang = rows.plan.steps[index]
        assert isinstance(gang, Gang)
        if run.users:
            for slot in dict.fromkeys(gang.inputs):
                if slot in run.users:
                    self._reader_over(run, slot)
        if gang.irregular:
            for output, size in zip(gang.outputs, run.sizes.get(index, ()), strict=False):
                self._refs.shrink(run, output, size)
            self._dispatch.open(run, index, now)
        self._ripen(run, rows, index)

    def _ripen(self, run: RunRecord, rows: PlanRows, index: int) -> None:
        """This step has made its outputs: gangs on other islands that read them need not wait for it any longer."""
        for late in rows.steps[index].ripens:
            run.late[late] -= 1
            ticket = run.offered.get(late)
            if not run.late[late] and ticket is not None:
                self._state.islands[rows.islands[late]].scheduler.ripen(ticket)

    def _reader_over(self, run: RunRecord, slot: int) -> None:
        """One of the reads of a slot that is read by moves has ended; after the last one it dies, for real."""
        run.users[slot] -= 1
        if run.users[slot]:
            return
        del run.users[slot]
        record = run.plan.slots[slot]
        if slot in run.own:
            self._refs.own_read(run, slot, -1)
        elif record.arg >= 0:
            self._results.argument_over(run, record.arg, -1)
        elif not record.keep:
            self._ledger.slot_freed(run.id, slot)

    def _settle(self, run: RunRecord, rows: PlanRows, first: int, now: int) -> None:
        """A step is settled when it is over and all it reads is settled: only then is its blame, or success, final."""
        unsettled, stack = run.unsettled, [first]
        while stack:
            index = stack.pop()
            unsettled[index] -= 1
            if unsettled[index]:
                continue
            run.left -= 1
            blame = run.spoilt.get(index) if run.spoilt else None
            for _, buffer, count in run.made_results.get(index, ()) if run.made_results else ():
                names = self._outcomes.settled(buffer, blame, count)
                if names:
                    self._outcomes.tell_ready(run, names, now)
            for feed in rows.steps[index].feeds:
                if blame is not None:
                    run.spoilt.setdefault(feed, blame)
                stack.append(feed)
        if not run.left and run.state == "running":
            self._outcomes.over(run, now)

    def argument_settled(self, buffer: int, blame: Blame | None, now: int) -> None:
        """Runs that read it may be under way already: their steps cannot settle before."""
        for run, index in self._state.readers.pop(buffer, ()):
            if blame is not None:
                run.spoilt.setdefault(index, blame)
                self._outcomes.fail(run, blame, now)
            if run.state in ("running", "draining") and run.unsettled[index]:
                self._settle(run, run.rows, index, now)


def _of_its_own(entry: InFlight, blame: Blame) -> bool:
    """Whether its own hosts lost each other, and not those of a gang that was to make what it reads."""
    together = entry.kind == "gang" and spans.count(entry.hosts) > 1
    return together and (blame.host < 0 or spans.contains(entry.hosts, blame.host))
