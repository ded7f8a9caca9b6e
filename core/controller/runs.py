"""A run's way from the call to its end: bound, lowered, compiled, admitted, dispatched, over. It ends exactly once.

`advance` takes a run as far as it can go now and leaves it waiting for exactly one thing, in words that a user can
read (`stalls`). The module that brings that thing advances the run again. A run holds no memory while it waits.

Neighbours: `clients` submits and cancels; `Resources` binds, `Lowerings` lowers, `compilation` compiles, `admission`
reserves memory; `buffer_refs` counts which buffers a run holds; `outcomes` ends runs.
The functions that matter: `submit`, `advance`, `slice_changed`, `lower_again`.
"""

from collections.abc import Callable

import msgspec

from ..compile import Lowerings, home
from ..memory import Buffers
from ..model import Impossible, Layout, Place, ProgramError, ranged, spans
from ..protocol import Blame, RunHeader, Submit
from ..record import token
from ..slices import MustWait, Resources
from .accounts import Accounts
from .admission import Admission
from .buffer_names import BufferNames
from .buffer_refs import BufferRefs
from .call_arguments import check_literals, one_by_one, sources_of
from .compilation import Compilation
from .observations import RunSubmitted
from .outcomes import Outcomes, leave
from .plan_rows import PlanRows
from .puts import Puts
from .records import NO_PLAN, BufferName, ClientRecord, ProgramRecord, RunRecord
from .registrations import Registrations
from .results import Results
from .run_waits import RunWaits
from .state import ControllerModule, State
from .trace_rows import Tracing
from .views import Views
from .watch import Watchdog

S = 1_000_000_000
NOBODYS = Submit(0, 0, (), ())  # the call of a run of the controller's own


class Runs(ControllerModule):
    _state: State
    _accounts: Accounts
    _admission: Admission
    _buffers: Buffers
    _compilation: Compilation
    _lowerings: Lowerings
    _names: BufferNames
    _outcomes: Outcomes
    _puts: Puts
    _refs: BufferRefs
    _registrations: Registrations
    _resources: Resources
    _results: Results
    _tracing: Tracing | None
    _views: Views
    _waits: RunWaits
    _watch: Watchdog
    _count: int = 0

    # --- in ------------------------------------------------------------------------------------------------------

    def submit(self, session: ClientRecord, call: Submit, now: int) -> str | None:
        """Returns what is wrong with the call, if the client broke the protocol. Bad luck is no breach: a program
        that cannot run here, or an argument that is spoilt, fails the run."""
        program = session.programs.get(call.program)
        if program is None:
            return f"run {call.run} names program {call.program}, which is not registered"
        found = sources_of(session, program, call, self._names, self._state.config)
        if isinstance(found, str):
            return found
        sources, width, reads = found
        self._count += 1
        state = self._state
        run = RunRecord(state.base + self._count, program, session, call, now, sources, width, reads, since=now)
        state.runs[run.id] = run
        session.runs[call.run] = run
        session.last_run = call.run
        if self._tracing is not None:
            name = program.ir.name
            self._tracing.trace.submitted(run.id, session.number, call.run, name, now, call.deadline)
        if state.watched:
            state.observe(RunSubmitted(session.number, call.run))
        if reads:
            self._read(run)
        if any(call.results):
            self._names.enter(session, run)
        try:
            self._accounts.check_run(session, now)
        except Impossible as refused:
            self._outcomes.fail(run, Blame("refused", str(refused)), now)
        else:
            self.advance(run, now)
        return None

    def own(
        self, program: ProgramRecord, places: tuple[Place, ...], sources: dict[int, BufferName | bytes],
        width: dict[int, int], now: int,
    ) -> RunRecord:  # fmt: skip
        """A run that no client has asked for. It is still to be given names for its results, and to be advanced."""
        program.places = places
        self._count += 1
        state, session = self._state, program.session
        run = RunRecord(
            state.base + self._count, program, session, NOBODYS, now, sources, width, len(sources), since=now
        )
        state.runs[run.id] = run
        if self._tracing is not None:
            self._tracing.trace.submitted(run.id, session.number, NOBODYS.run, program.ir.name, now)
        self._read(run)
        return run

    def _read(self, run: RunRecord) -> None:
        """Count the run among the readers of its arguments, and take from its client those that it donates."""
        if run.width:
            self._names.cut_arguments(run, run.program.edges)
        for index, source in run.sources.items():
            if type(source) is BufferName:
                self._refs.read(run, index, source)
        donated = run.program.donated
        if not donated:
            return
        for index, source in run.sources.items():
            if index in donated and type(source) is BufferName:
                self._refs.give_up(source)

    # --- forward -------------------------------------------------------------------------------------------------

    def advance(self, run: RunRecord, now: int) -> None:
        if run.state == "submitted":
            self._plan(run, now)
        if run.state == "planned":
            if run.rows.ready_at == self._state.epochs or self._has_code(run, run.rows, now):
                run.turn("compiled")
                if run.waits:
                    self._waits.over(run)
        if run.state == "compiled":
            self._admission.enter(run)

    def _plan(self, run: RunRecord, now: int) -> None:
        """Bind its slices, know where its arguments lie, and lower it; or leave it waiting, or failed."""
        program = run.program
        if program.blame is not None and program.fits:
            self._outcomes.fail(run, program.blame, now)
            return
        try:
            args = run.call.args
            if run.reads < len(args) and (
                run.reads or not program.small or tuple(map(len, args)) != program.nbytes  # type: ignore[arg-type]
            ):
                check_literals(run)
            if program.bound_at != self._resources.version and not self._bind(run):
                return
            layouts = self._layouts(run, program) if run.reads else program.homes
            if layouts is None:
                return
            rows = program.rows
            if rows is None or program.lowered_at != self._lowerings.version or layouts != program.layouts:
                plan = self._registrations.lower(program, program.places, one_by_one(layouts))
                rows = program.rows = self._compilation.rows_of(plan)
                program.lowered_at, program.layouts = self._lowerings.version, layouts
                program.tokens = [token(run.session.name, program.ir.name, step.name) for step in plan.steps]
            else:
                self._lowerings.recent.add(rows.plan.id)
            if not program.pinned:
                self._accounts.check_results(run, rows)
        except (Impossible, ProgramError) as error:
            self._outcomes.fail(run, Blame("refused", str(error), program.ir.name), now)
            return
        run.rows = rows
        rows.users += 1
        run.turn("planned")
        if run.waits:
            self._waits.over(run)
        self._name_results(run, rows)

    def _bind(self, run: RunRecord) -> bool:
        """False: it waits for one of its slices, or has failed because that is down."""
        program, places = run.program, list[Place]()
        if program.pinned:
            program.bound_at = self._resources.version
            # hosts of the others have the arrays, or they are lost
            targets = program.places[len(program.places) // 2 :]
            if all(self._resources.usable(device) for place in targets for device in place.devices()):
                return True
            self._outcomes.fail(run, Blame("host-lost", "devices were lost where it was to be copied"), self._state.now)
            return False
        for spec in program.ir.slices:
            found = self._resources.bind(run.session.number, spec)
            if isinstance(found, MustWait) and found.fails:
                self._outcomes.fail(run, Blame("host-lost", f"slice {spec.name!r} {found.reason}"), self._state.now)
                return False
            if isinstance(found, MustWait):
                self._state.for_slice.setdefault((run.session.number, spec.name), {})[run.id] = run
                self._wait(run, f"slice {spec.name!r} {found.reason}")
                return False
            places.append(found.place)
        program.places = tuple(places)
        program.homes = tuple(home(program.ir, program.places, value) for value in program.ir.args)
        program.bound_at, program.rows = self._resources.version, None
        program.can_run()
        return True

    def _layouts(self, run: RunRecord, program: ProgramRecord) -> tuple[Layout | tuple[Layout, ...], ...] | None:
        """Where the arguments really lie; of several as one, each. A literal lies where the program wants it."""
        layouts: list[Layout | tuple[Layout, ...]] = []
        buffers = self._buffers.all
        if run.width:
            self._names.cut_arguments(run)
        for index, source in run.sources.items():
            if isinstance(source, bytes):
                layouts.append(program.homes[index])
                continue
            if source.blame is not None:
                self._outcomes.fail(run, source.blame, self._state.now)
                return None
            if source.buffer < 0:
                self._wait(run, f"buffer {source.name}, which has no place yet")
                return None
            buffer = buffers[source.buffer]
            if source.buffer in self._state.asleep and not program.pinned:
                self._wait(run, f"buffer {source.name}, which is suspended")
                return None
            layouts.append(buffer.layouts or buffer.layout)
        found = tuple(layouts)
        if found != program.layouts:
            for index, (layout, value) in enumerate(zip(one_by_one(found), program.ir.args, strict=True)):
                if layout.shape != value.shape or layout.dtype != value.dtype:
                    has, wants = f"{layout.dtype}{list(layout.shape)}", f"{value.dtype}{list(value.shape)}"
                    raise ProgramError(f"argument {index} is {has}, program {program.ir.name!r} wants {wants}")
        else:
            program.layouts = found  # the next run's are these very objects, and so soon compared
        return found

    def _name_results(self, run: RunRecord, rows: PlanRows) -> None:
        """Every result has an id and a layout now, so runs that read it may be lowered."""
        if run.width:
            self._names.cut_arguments(run, rows.arg_edges)
        held, view = run.held, rows.view(run.sources) if run.width else rows.whole
        run.view = view
        base = run.base = self._state.next_buffer
        self._state.next_buffer += len(rows.plan.slots)
        kept = self._results.promise(run, rows)
        if self._state.views:
            self._views.work()
        slot_of = rows.slot_of_arg
        if run.reads:
            buffers = [
                ranged(held[arg], run.width.get(arg, 1)) if arg in held else base + slot_of.get(arg, 0)
                for arg in run.sources
            ]
            literals = tuple([(index, arg) for index, arg in run.sources.items() if isinstance(arg, bytes)])
        else:
            buffers = [base + slot_of.get(arg, 0) for arg in run.sources]
            literals = tuple(run.sources.items())  # type: ignore[arg-type]  # all are literals
        run.header = RunHeader(run.id, rows.plan.id, base, tuple(buffers), literals, kept[0], kept_ranges=kept[1])

    def _has_code(self, run: RunRecord, rows: PlanRows, now: int) -> bool:
        """If not, it waits for its code, or has failed."""
        blame = self._compilation.blame(rows.plan.id)
        if blame is not None:
            self._outcomes.fail(run, msgspec.structs.replace(blame, program=run.program.ir.name), now)
            return False
        if self._compilation.ask(rows):
            return True
        self._state.for_code.setdefault(rows.plan.id, {})[run.id] = run
        self._waits.begin_code(run)
        return False

    def _wait(self, run: RunRecord, reason: str) -> None:
        if self._waits.begin(run, reason):
            self._watch_wait(run)

    def _watch_wait(self, run: RunRecord) -> None:
        """Watch a wait for devices that others have, or for another run. It is reported and not ended, because what
        it waits for has bounds of its own, or is a client that holds an exclusive slice. It is reported each time that
        it has lasted as long again. Hosts that are not there may never come: that wait ends."""
        now, bounds = self._state.now, self._state.config.bounds
        lasted = 0 if self._lacks_hosts(run) else now - run.since
        self._watch.begin(
            ("run", run.id), now, lasted // (bounds.factor * bounds.hard),
            lambda at: self._waits.late(run, spans.EMPTY, run.waits), lambda at: self._waited(run, at),
        )  # fmt: skip

    def _waited(self, run: RunRecord, now: int) -> None:
        if self._lacks_hosts(run) and now - run.since >= self._state.config.bounds.absent:
            self._outcomes.fail(run, Blame("timeout", f"{run.waits}, for {(now - run.since) // S} s"), now)
        else:
            self._watch_wait(run)

    def _lacks_hosts(self, run: RunRecord) -> bool:
        lacks, session = self._resources.lacks_hosts, run.session.number
        return any(lacks(session, spec.name) for spec in run.program.ir.slices)

    def hosts_changed(self) -> None:
        """Runs that wait for devices may lack hosts now, or not any more."""
        if self._resources.decide is not None:
            self.renew_reasons()
        for runs in self._state.for_slice.values():
            for run in runs.values():
                self._watch_wait(run)

    # --- what runs wait for comes ----------------------------------------------------------------------------------

    def code_ready(self, plan: int, now: int) -> None:
        for run in self._state.for_code.pop(plan, {}).values():
            self.advance(run, now)
        self._registrations.code_ready(plan, now)

    def slices_bound(self, now: int) -> None:
        """Something was released, or has joined: slices that waited may have their devices now."""
        for session, name, _ in self._resources.retry():
            self.slice_changed(session, name, now)

    def renew_reasons(self, reasons: dict[tuple[int, str], str] | None = None) -> None:
        """Why slices wait has changed, and that they do has not."""
        if reasons is None:
            reasons = self._resources.renewed()
        for key, reason in reasons.items():
            for run in self._state.for_slice.get(key, {}).values():
                self._waits.renew(run, f"slice {key[1]!r} {reason}")
        self._registrations.renew_reasons(reasons)
        self._puts.renew_reasons(reasons)

    def slice_changed(self, session: int, name: str, now: int) -> None:
        """A slice is bound now, or was given up while it waited: runs that wait for it bind it again."""
        self._registrations.slice_changed(session, name, now)
        for run in self._state.for_slice.pop((session, name), {}).values():
            self.advance(run, now)
        self._puts.slice_bound(session, name, now)

    def lower_again(
        self, now: int, change: Callable[[], None] | None = None, session: ClientRecord | None = None
    ) -> None:
        """The device map has changed (for one client, if it is given): what has not started is lowered anew, readers
        taken back before makers. What is to `change` while nothing is lowered does so then."""
        waiting = [
            run for run in self._state.runs.values()
            if run.state in ("planned", "compiled") and (session is None or run.session.number == session.number)
        ]  # fmt: skip
        for run in reversed(waiting):
            self._take_back(run)
        self._puts.take_back()
        if change is not None:
            change()
        self._puts.bind_again(now)
        for run in waiting:
            self.advance(run, now)

    def _take_back(self, run: RunRecord) -> None:
        self._admission.withdraw(run)
        leave(self._state.for_code, run.plan.id, run)
        if run.unkept:
            self._results.never(run, Blame("moved", "it is made elsewhere"))
        for named in reversed(run.result_names()):  # second names before what they stand for
            self._refs.take_back(named)
        run.turn("moved")
        run.rows.users -= 1
        self._waits.over(run)
        run.rows = run.header = NO_PLAN

    def compile_again(self, island: int, now: int) -> None:
        """A new epoch of this island has voided its code."""
        for run in list(self._state.runs.values()):
            if run.rows is NO_PLAN or island not in run.rows.island_hosts:
                continue
            if run.state == "compiled":
                self._admission.withdraw(run)
                self._waits.over(run)
                run.turn("stale")
            if run.state == "planned":
                leave(self._state.for_code, run.plan.id, run)
                self.advance(run, now)
