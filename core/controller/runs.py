"""A run's way from the call to its end: bound, lowered, compiled, admitted, dispatched, over. It ends exactly once.

`advance` takes a run as far as it can go now and leaves it waiting for exactly one thing, in words that a user can
read (`stalls`); whoever brings that thing has it advanced again. Nothing here holds memory while it waits.

Neighbours: `clients` submits and cancels; `resources` binds, `compile` lowers, `codes` compiles, `admission`
reserves memory, `dispatch` runs; `holdings` counts who holds which buffer.
The functions that matter: `submit`, `advance`, `fail`, `over`, `lower_again`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ..compile import home
from ..invariants import RunEnded, RunSubmitted
from ..model import Impossible, Layout, Place, Plan, ProgramError, spans, validate_literals
from ..protocol import Blame, Ended, ForgetStep, RunHeader, Submit
from ..slices import Waits
from .records import Named, ProgramRecord, Run, Session

if TYPE_CHECKING:
    from .books import Books

K = TypeVar("K", bound=Hashable)
S = 1_000_000_000


class Runs:
    def __init__(self, books: Books) -> None:
        self._books = books
        self._count = 0
        self._for_slice: dict[
            tuple[int, str], dict[int, Run]
        ] = {}  # (session, slice) -> runs that wait for it
        self._for_code: dict[int, dict[int, Run]] = {}  # plan -> runs that wait for it
        self._failing: deque[tuple[Run, Blame]] = deque()  # a failure makes readers fail: one after the other

    # --- in ------------------------------------------------------------------------------------------------------

    def submit(self, session: Session, call: Submit, now: int) -> str | None:
        """Returns what is wrong with the call, if the client broke the protocol. Bad luck is no breach: a program
        that cannot run here, or an argument that is spoilt, fails the run."""
        wrong = self._breach(session, call)
        if wrong:
            return wrong
        self._count += 1
        books, program = self._books, session.programs[call.program]
        run = Run(books.base + self._count, program, call, now)
        books.runs[run.id] = run
        session.runs[call.run] = run
        session.last_run = call.run
        books.history.submitted(run)
        if books.watched:
            books.observe(RunSubmitted(session.number, call.run))
        names, holdings, sources = session.names, books.holdings, run.sources
        for index, arg in enumerate(call.args):
            if isinstance(arg, bytes):
                sources.append(arg)
            else:
                sources.append(named := names[arg])
                holdings.read(run, index, named)
        for index in program.ir.donate_args if program.blame is None else ():
            source = sources[index]
            if isinstance(source, Named):
                holdings.give_up(source)
        for name in call.results:
            named = Named(session, name)
            run.names.append(named)
            if name:
                names[name] = named
            else:
                named.released = True
        self.advance(run, now)
        return None

    def _breach(self, session: Session, call: Submit) -> str | None:
        program, limit = session.programs.get(call.program), self._books.config.literal_limit
        if program is None:
            return f"run {call.run} names program {call.program}, which is not registered"
        if call.run <= session.last_run:
            return f"run {call.run} does not come after run {session.last_run}"
        if len(session.runs) >= self._books.config.max_runs:
            return f"it has {len(session.runs)} runs that have not ended, which is the limit"
        ir = program.ir
        if len(call.args) != len(ir.args) or len(call.results) != len(ir.results):
            return f"run {call.run} of {ir.name!r} has the wrong number of arguments or results"
        literal, names, unknown = 0, session.names, -1
        for index, arg in enumerate(call.args):
            if isinstance(arg, bytes):
                literal += len(arg)
            elif arg not in names and unknown < 0:
                unknown = index
        if literal > limit:
            return f"run {call.run} has literals of more than {limit} bytes"
        if unknown >= 0:
            name = call.args[unknown]
            return (
                f"run {call.run}: argument {unknown} names buffer {name!r}, which this client does not hold"
            )
        named = [name for name in call.results if name]
        for name in named:
            if name in names or name < 0 or named.count(name) > 1:
                return f"run {call.run} gives a result a name that is in use"
        return None

    def compile_ahead(self, record: ProgramRecord) -> None:
        """At registration: if its slices are bound, compile for arguments that lie where it wants them."""
        books, ir = self._books, record.ir
        places = tuple(books.resources.place(record.session.number, spec.name) for spec in ir.slices)
        if all(place is not None for place in places):
            known = tuple(place for place in places if place is not None)
            plan = self._lower(record, known, tuple(home(ir, known, value) for value in ir.args))
            books.ask_for_code(books.shape_of(plan))

    def _lower(self, record: ProgramRecord, places: tuple[Place, ...], args: tuple[Layout, ...]) -> Plan:
        return self._books.lowerings.lower(record.ir, places, args, fused=self._books.config.fuse)

    # --- forward -------------------------------------------------------------------------------------------------

    def advance(self, run: Run, now: int) -> None:
        if run.state == "submitted":
            self._plan(run, now)
        if run.state == "planned":
            self._compile(run, now)
        if run.state == "compiled":
            self._books.admission.enter(run)

    def _plan(self, run: Run, now: int) -> None:
        """Bind its slices, know where its arguments lie, and lower it; or leave it waiting, or failed."""
        if run.program.blame is not None:
            self.fail(run, run.program.blame, now)
            return
        try:
            if any(isinstance(source, bytes) for source in run.sources):
                validate_literals(run.program.ir, run.call.args)
            places = self._bind(run)
            layouts = self._layouts(run, places) if places is not None else None
            if places is None or layouts is None:
                return
            plan = self._lower(run.program, places, layouts)
        except (Impossible, ProgramError) as error:
            self.fail(run, Blame("refused", str(error), run.program.ir.name), now)
            return
        run.shape = self._books.shape_of(plan)
        run.shape.users += 1
        run.turn("planned")
        self._books.stalls.over(run)
        self._name_results(run)

    def _bind(self, run: Run) -> tuple[Place, ...] | None:
        places: list[Place] = []
        for spec in run.program.ir.slices:
            found = self._books.resources.bind(run.session.number, spec)
            if isinstance(found, Waits):
                self._for_slice.setdefault((run.session.number, spec.name), {})[run.id] = run
                self._wait(run, f"slice {spec.name!r} {found.reason}")
                return None
            places.append(found.place)
        return tuple(places)

    def _layouts(self, run: Run, places: tuple[Place, ...]) -> tuple[Layout, ...] | None:
        """Where the arguments really lie; a literal lies wherever the program wants it."""
        layouts: list[Layout] = []
        for index, (source, value) in enumerate(zip(run.sources, run.program.ir.args, strict=True)):
            if not isinstance(source, Named):
                layouts.append(home(run.program.ir, places, value))
                continue
            if source.blame is not None:
                self.fail(run, source.blame, self._books.now)
                return None
            if source.buffer < 0:
                self._wait(run, f"buffer {source.name}, which has no place yet")
                return None
            layout = self._books.holdings.layout(source.buffer)
            if (layout.shape, layout.dtype) != (value.shape, value.dtype):
                has, wants = f"{layout.dtype}{list(layout.shape)}", f"{value.dtype}{list(value.shape)}"
                raise ProgramError(
                    f"argument {index} is {has}, program {run.program.ir.name!r} wants {wants}"
                )
            layouts.append(layout)
        return tuple(layouts)

    def _name_results(self, run: Run) -> None:
        """Every result has an id and a layout now, so those who read it may be lowered."""
        shape, holdings, held = run.shape, self._books.holdings, run.held
        assert shape is not None
        plan = shape.plan
        base = run.base = self._books.next_buffers(len(plan.slots))
        places = run.literals = {arg: number for number, arg in shape.arg_slots if arg not in held}
        made = run.made_results = {}
        first: dict[int, Named] = {}  # slot -> the result that stands for it
        kept: list[tuple[int, int, int]] = []
        for named, slot, exact in zip(run.names, plan.results, shape.exact, strict=True):
            record = plan.slots[slot]
            if not named.released:
                kept.append((slot, run.session.number, named.name))
            source = run.sources[record.arg] if record.arg in held else first.setdefault(slot, named)
            if isinstance(source, Named) and source is not named:
                if named.wanted or named.readers:
                    holdings.alias(named, source)
            else:
                made.setdefault(record.maker, []).append((slot, named))
                holdings.promise(named, base + slot, record, exact)
        args: list[int] = []
        literals: list[tuple[int, bytes]] = []
        for index, arg in enumerate(run.call.args):
            args.append(held[index] if index in held else base + places.get(index, 0))
            if isinstance(arg, bytes):
                literals.append((index, arg))
        run.header = RunHeader(run.id, plan.id, base, tuple(args), tuple(literals), tuple(kept))

    def _compile(self, run: Run, now: int) -> None:
        assert run.shape is not None
        plan = run.plan.id
        blame = self._books.codes.blame(plan)
        if blame is not None:
            self.fail(run, msgspec.structs.replace(blame, program=run.program.ir.name), now)
        elif self._books.ask_for_code(run.shape):
            run.turn("compiled")
            self.code_came(run)
        else:
            self._for_code.setdefault(plan, {})[run.id] = run
            self.watch_code(run)

    def watch_code(self, run: Run) -> None:
        """It waits for its code: before it starts, or again in a new epoch."""
        self._books.stalls.begin_code(run)
        bounds, key = self._books.config.bounds, ("run", run.id)
        if not self._books.watch.waits_for(key):
            self._books.watch.begin(
                key, self._books.now, bounds.compile // bounds.factor,
                lambda at: self._late_code(run), lambda at: self._no_code(run, at),
            )  # fmt: skip

    def code_came(self, run: Run) -> None:
        self._books.stalls.over(run)

    def _late_code(self, run: Run) -> None:
        missing = self._books.codes.missing(run.plan.id)
        self._books.stalls.late(run, missing, "its code is not compiled on these hosts")

    def _no_code(self, run: Run, now: int) -> None:
        hosts = spans.text(self._books.codes.missing(run.plan.id))
        self.fail(run, Blame("timeout", f"its code was not compiled in time on hosts {hosts}"), now)

    def _wait(self, run: Run, reason: str) -> None:
        if self._books.stalls.begin(run, reason):
            run.stalled = False
            self._watch_wait(run)

    def _watch_wait(self, run: Run) -> None:
        """For devices that others have, or for another run: nothing is wrong, so it is reported and not ended, for what
        it waits for has bounds of its own, or is a client that holds an exclusive slice. Hosts that are not there may
        never come: that wait ends."""
        self._books.watch.begin(
            ("run", run.id), self._books.now, 0,
            lambda at: self._books.stalls.late(run, spans.EMPTY, run.waits), lambda at: self._waited(run, at),
        )  # fmt: skip

    def _waited(self, run: Run, now: int) -> None:
        lacks, session = self._books.resources.lacks_hosts, run.session.number
        absent = any(lacks(session, spec.name) for spec in run.program.ir.slices)
        if absent and now - run.since >= self._books.config.bounds.absent:
            self.fail(run, Blame("timeout", f"{run.waits}, for {(now - run.since) // S} s"), now)
        else:
            self._watch_wait(run)

    # --- what runs wait for comes ----------------------------------------------------------------------------------

    def code_ready(self, plan: int, now: int) -> None:
        for run in self._for_code.pop(plan, {}).values():
            self.advance(run, now)

    def slices_bound(self, now: int) -> None:
        """Something was released, or has joined: slices that waited may have their devices now."""
        for session, name, _ in self._books.resources.retry():
            self.slice_changed(session, name, now)

    def renew_reasons(self) -> None:
        """Why slices wait has changed, and that they do has not."""
        reasons = {binding.key: binding.reason for binding in self._books.resources.renewed()}
        for key, reason in reasons.items():
            for run in self._for_slice.get(key, {}).values():
                self._books.stalls.renew(run, f"slice {key[1]!r} {reason}")
        self._books.contents.renew_reasons(reasons)

    def slice_changed(self, session: int, name: str, now: int) -> None:
        """It is bound now, or was given up while it waited: who waits for it binds it (anew)."""
        owner = self._books.sessions.get(session)
        for record in list(owner.programs.values()) if owner is not None else ():
            if record.blame is None and any(spec.name == name for spec in record.ir.slices):
                self.compile_ahead(record)
        for run in self._for_slice.pop((session, name), {}).values():
            self.advance(run, now)
        self._books.contents.slice_bound(session, name, now)

    def lower_again(self, now: int) -> None:
        """The device map has changed: what has not started is lowered anew, readers taken back before makers."""
        waiting = [run for run in self._books.runs.values() if run.state in ("planned", "compiled")]
        for run in reversed(waiting):
            self._take_back(run)
        self._books.contents.take_back()
        self._books.contents.bind_again(now)
        for run in waiting:
            self.advance(run, now)

    def _take_back(self, run: Run) -> None:
        assert run.shape is not None
        self._books.admission.withdraw(run)
        _leave(self._for_code, run.plan.id, run)
        for named in reversed(run.names):  # second names before what they stand for
            self._books.holdings.take_back(named)
        run.turn("moved")
        run.shape.users -= 1
        self._books.stalls.over(run)
        run.shape = run.header = None

    def compile_again(self, island: int, now: int) -> None:
        """A new epoch of this island has voided its code."""
        for run in list(self._books.runs.values()):
            if run.shape is None or island not in run.shape.island_hosts:
                continue
            if run.state == "compiled":
                self._books.admission.withdraw(run)
                self._books.stalls.over(run)
                run.turn("stale")
            if run.state == "planned":
                _leave(self._for_code, run.plan.id, run)
                self.advance(run, now)

    # --- out -----------------------------------------------------------------------------------------------------

    def cancel(self, run: Run, now: int) -> None:
        self.fail(run, Blame("cancelled", "cancelled by its client", run.program.ir.name), now)

    def fail(self, run: Run, blame: Blame, now: int) -> None:
        """It ends here, for this reason. What has entered an order stays there, the same on all hosts."""
        self._failing.append((run, blame))
        if len(self._failing) > 1:
            return
        while self._failing:
            self._fail(*self._failing[0], now)
            self._failing.popleft()

    def _fail(self, run: Run, blame: Blame, now: int) -> None:
        if run.state == "over" or run.blame is not None:
            return
        run.blame = blame if blame.program else msgspec.structs.replace(blame, program=run.program.ir.name)
        started = run.state == "running"
        self._books.stalls.over(run, tell=False)
        if started:
            self._books.dispatch.withdraw(run)
        else:
            self._stop_waiting(run)
        run.turn("failed")
        self._tell_end(run)
        self._books.holdings.spoil_results(run, run.blame)
        self._books.dispatch.explained(run, now)
        if run.id in self._books.runs and (not started or not run.open_steps):
            self.over(run, now)

    def _stop_waiting(self, run: Run) -> None:
        if run.shape is not None:
            _leave(self._for_code, run.plan.id, run)
        for spec in run.program.ir.slices:
            _leave(self._for_slice, (run.session.number, spec.name), run)
        self._books.admission.withdraw(run)

    def _tell_end(self, run: Run) -> None:
        if run.ended:
            return
        run.ended = True
        run.session.runs.pop(run.call.run, None)
        self._books.order.close(run.session.name, run.call.run)
        self._books.history.ended(run, run.blame)
        if self._books.watched and not run.session.gone:
            self._books.observe(RunEnded(run.session.number, run.call.run, run.blame))
        self._books.outbox.note(run.session.peer, Ended(run.call.run, run.blame))

    def over(self, run: Run, now: int) -> None:
        """Nothing of it is in flight any more."""
        books = self._books
        if run.state != "over":
            run.turn("settled")
        self._tell_end(run)
        books.dispatch.explained(run, now)
        books.runs.pop(run.id, None)
        if run.using:
            self._give_back(run)
        for slot in list(run.own):
            books.holdings.own_read(run, slot, -1)
        for index in sorted(run.held):
            books.holdings.let_go(run, index)
        for source in run.sources:
            if isinstance(source, Named):
                source.readers.pop(run.id, None)
        if run.shape is not None:
            run.shape.users -= 1

    def _give_back(self, run: Run) -> None:
        """What it reserved and did not use; of a failed run, what it made and nobody will read."""
        books = self._books
        if run.literals:
            books.dispatch.tell(run)  # hosts are to free them, and must know what they are
        for slot, key, nbytes in books.ledger.end(run.id):
            record = run.plan.slots[slot]
            layout = record.layout
            if record.arg in run.held:  # it was to be donated, and was not: letting go of it frees it
                books.buffers.returned(run.held[record.arg])
                continue
            books.holdings.free_on_hosts(run.buffer_of(slot), layout)
            books.ledger.free(key, nbytes)
        for index, slot in list(run.literals.items()):
            if (
                slot not in run.plan.results
            ):  # hosts have made it, and the gang that would free it never enters
                books.holdings.free_on_hosts(run.buffer_of(slot), run.plan.slots[slot].layout)
            books.dispatch.literal_over(run, index, -1)
        if run.blame is not None:
            assert run.shape is not None
            for island, hosts in run.shape.island_hosts.items():
                if island in run.untold:
                    continue
                books.outbox.step(island, ForgetStep((run.id,)), hosts)


def _leave(waiting: dict[K, dict[int, Run]], key: K, run: Run) -> None:
    """It waits there no more."""
    runs = waiting.get(key, {})
    runs.pop(run.id, None)
    if not runs:
        waiting.pop(key, None)
