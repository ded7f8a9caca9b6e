"""Takes the arrays of a client's slice elsewhere: to other devices, or to host memory and back.

Names, futures and sharing stay as they are; only where the arrays lie is another. When all is prepared, the slice is
held: what has been admitted goes on to its end (gangs of several steps end with the step under way), and all else that
needs the slice waits (`Resources.hold`). Then

    move      a run of the controller's own copies the arrays. Its memory is reserved like any run's: all at once, or
              nothing moves. When it is over, names stand for the copies; if it fails, all is as it was.
    suspend   idle arrays are spilled, views are folded, and others may have the devices
    resume    the slice gets the same devices back, if they are free, then its arrays, all at once; or others, to which
              they are copied from their hosts

What they go through is in `on_the_way.PHASES`; a slice that is in none is at rest.
Slices of a client that lie on exactly the same devices go together, since arrays do not say whose they are.

In: `move`, `suspend` and `resume`, from `slice_calls` or `drains`. Out: runs and puts that waited go on (`runs`).
Neighbours: `Resources` has the places; `array_copies` makes the run, and names what it made; `admission` spills.
The functions that matter: `move`, `suspend`, `resume`, `work`, `_step`.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec.structs import replace

from ..compile import Lowerings, home
from ..memory import Buffer, Buffers, Ledger, Spill
from ..model import Place, ProgramError, Spans, spans
from ..protocol import Blame, LogLine, SuspendedSlices
from ..slices import Binding, Resources
from .admission import Admission
from .array_copies import ArrayCopies, moved
from .buffer_refs import BufferRefs
from .call_arguments import one_by_one
from .compilation import Compilation
from .dispatch import Dispatch
from .gets import Gets
from .on_the_way import OnTheWay
from .outbox import TurnOutbox
from .outcomes import Outcomes
from .records import ClientRecord, Waiter
from .runs import Runs
from .slice_arrays import SliceArrays
from .state import ControllerModule, State
from .views import Views
from .watch import Watchdog

MOST_FAILED = 1024  # slices of which it is remembered why they were not moved
AGAIN = 100_000_000  # nanoseconds between looks at what waits for memory, or for other slices
LATER = 1_000_000_000  # nanoseconds until a slice that could not be resumed is tried again
BY_BUFFER = ("emptying", "copying", "spilling", "filling")  # phases in which each buffer is looked at
UNUSED = ("promised", "spilling", "restoring")  # states of buffers that are not yet where they will be


class Relocation(ControllerModule):
    _state: State
    _admission: Admission
    _arrays: SliceArrays
    _buffers: Buffers
    _compilation: Compilation
    _copies: ArrayCopies
    _dispatch: Dispatch
    _gets: Gets
    _ledger: Ledger
    _lowerings: Lowerings
    _outbox: TurnOutbox
    _outcomes: Outcomes
    _refs: BufferRefs
    _resources: Resources
    _runs: Runs
    _spill: Spill
    _views: Views
    _watch: Watchdog
    under_way: dict[tuple[int, str], OnTheWay] = {}  # by session and slice; those of one share one record
    failed: dict[tuple[int, str], str] = {}  # slices with which what was asked for last was not done, and why
    resting: dict[int, None] = {}  # clients of which all slices are suspended, also those that are bound later

    # --- in ------------------------------------------------------------------------------------------------------

    def refused(self, session: int, name: str) -> str:
        """Why this slice cannot be moved or suspended now; "" if it can."""
        binding = self._resources.binding(session, name)
        if binding is None:
            return f"client {session} has no slice {name!r}"
        if (session, name) in self.under_way:
            return f"slice {name!r} {self.under_way[session, name].words}"
        if binding.place is None:
            return f"slice {name!r} {binding.reason}"
        return ""

    def move(self, session: int, name: str, now: int, away: Spans = spans.EMPTY, island: int = -1) -> str:
        """To the best place without these devices; on this island, if it is given. Returns why not, or ""."""
        each = self.under_way.get((session, name))
        if each is not None and each.phase != "parked":
            return f"slice {name!r} {each.words}"
        if each is None and (why := self.refused(session, name)):
            return why
        names = self._together(session, name) if each is None else each.names
        targets = [self._resources.elsewhere(session, one, away, island) for one in (name, *names)]
        client, islands = self._state.sessions[session], self._state.cluster.islands
        priced = [t for t in targets if t is not None and client.priced_on(islands[t.island].kind, names)]
        fit = [t for t in priced if all(self._resources.suits(session, one, t) for one in names)]
        target = fit[0] if fit else None
        if target is None:
            return f"slice {name!r} finds no other devices"
        if each is not None and (why := self._views_elsewhere(each)):
            return f"slice {name!r} {why}: resume it first"
        if each is None:
            each = self._enter(session, name, now, "preparing")
        else:
            each.turn("moved")
        each.target, each.why = target, "code for its new devices"
        for one in each.names:
            self._resources.aim(session, one, target)
            self.failed.pop((session, one), None)  # of an attempt before, while it was parked
        self._compile(each, target)
        return ""

    def _compile(self, each: OnTheWay, target: Place) -> None:
        """The client's programs for the target, ahead: it need not wait for that."""
        number, names = each.session.number, set(each.names)
        for record in each.session.programs.values():
            if record.blame is not None or not any(spec.name in names or spec.of in names for spec in record.ir.slices):
                continue
            places = [self._resources.place(number, spec.name) for spec in record.ir.slices]
            if all(places):
                there = tuple(moved(place, each.place, target) for place in places if place is not None)
                lie = one_by_one(record.layouts) or tuple(home(record.ir, there, value) for value in record.ir.args)
                args = tuple(replace(layout, place=moved(layout.place, each.place, target)) for layout in lie)
                with suppress(ProgramError):  # it has no cost on such devices: its runs are refused
                    rows = self._compilation.rows_of(self._lowerings.lower(record.ir, there, args))
                    rows.users += 1
                    each.ahead.append(rows)

    def _compiled(self, each: OnTheWay) -> None:
        """It waits for code no longer."""
        for rows in each.ahead:
            rows.users -= 1
        each.ahead, each.why = [], ""

    def suspend(self, session: int, name: str, now: int) -> str:
        """Returns why not, or ""."""
        each = self.under_way.get((session, name))
        if each is not None:
            each.asleep = True  # if it moves, or comes back: then as soon as it has
            each.gives_way_to, each.cause = None, ""  # it does not come back by itself
            self._hold(each, now)
            return ""
        if why := self.refused(session, name):
            return why
        each = self._enter(session, name, now)
        each.asleep = True
        self._hold(each, now)
        return ""

    def found(
        self, session: ClientRecord, found: SuspendedSlices, place: Place, mine: set[int], resident: set[int], now: int
    ) -> None:
        """The client is back after a restart. These slices of it were suspended, or were to be."""
        adopt = self._resources.adopt
        names = tuple(spec.name for spec in found.slices if adopt(session.number, spec, place, parked=True))
        if names:
            each = self._begin(session, names, place, now, "spilling")
            each.asleep, each.mine, each.resident = True, mine, resident
            self._hold(each, now)
            if found.returns:
                self.resume(session.number, names[0], now)

    def unfold(self, session: ClientRecord, place: Place, arrays: set[int], now: int) -> None:
        """The same; views among these arrays are folded, and no slice that is suspended has them."""
        first = min(ident for ident in arrays if self._buffers[ident].layout.place == place)  # another's may share it
        each = self._begin(session, (f"(of views, {first})",), place, now, "filling")
        each.detached, each.mine = True, arrays
        self._state.asleep.update(dict.fromkeys(arrays))

    def resume(self, session: int, name: str, now: int, given_back: bool = False) -> str:
        """Returns why not, or "". `given_back`: as a policy says."""
        each = self.under_way.get((session, name))
        if each is None or not each.asleep:
            return f"slice {name!r} is not suspended"
        if each.gives_way_to is not None and not given_back:
            return f"slice {name!r} {each.words}, and comes back by itself"
        each.asleep, each.gives_way_to, each.cause = False, None, ""
        self._hold(each, now)
        return ""

    def _together(self, session: int, name: str) -> tuple[str, ...]:
        """This slice, and the others of its client that lie where it lies."""
        place = self._resources.place(session, name)
        return tuple(
            b.spec.name for b in self._resources.bindings()
            if b.session == session and b.place == place and b.key not in self.under_way
        )  # fmt: skip

    def _enter(self, session: int, name: str, now: int, phase: str = "emptying") -> OnTheWay:
        place = self._resources.place(session, name)
        assert place is not None
        return self._begin(self._state.sessions[session], self._together(session, name), place, now, phase)

    def _begin(self, session: ClientRecord, names: tuple[str, ...], place: Place, now: int, phase: str) -> OnTheWay:
        number = session.number
        tickets = {b.spec.name: b.ticket for b in self._resources.bindings() if b.session == number}
        each = OnTheWay(session, names, place, now, tickets, phase=phase)
        for one in names:
            self.under_way[number, one] = each
            self.failed.pop((number, one), None)
        return each

    def has(self, buffer: Buffer) -> bool:
        """Slices that are on their way have it, or had it before they were released: no others take it along."""
        return any(buffer.id in (each.mine or ()) for each in self.under_way.values())

    def bindings(self, each: OnTheWay) -> list[Binding]:
        """Of its slices that are still bound."""
        found = [self._resources.binding(each.session.number, name) for name in each.names]
        return [b for b in found if b is not None and b.ticket == each.tickets.get(b.spec.name)]

    def waits(self, each: OnTheWay) -> str:
        """For what; "": for nothing that takes long."""
        devices = [b.reason.removeprefix("waits for ") for b in self.bindings(each) if b.place is None]
        return each.why or "".join(devices[:1])

    def _is_parked(self, each: OnTheWay) -> bool:
        return any(b.parked for b in self.bindings(each))

    def _views_elsewhere(self, each: OnTheWay) -> str:
        """Why a slice whose arrays are in host memory cannot be moved."""
        for b in self._here(each):
            if b.folded and not set(b.sources) <= (each.mine or set()):
                return "has views of arrays of other slices"
        return ""

    def _hold(self, each: OnTheWay, now: int) -> None:
        """What needs the slices waits from now on, and hears why. Not before a target has been prepared, nor when they
        are not here."""
        if each.phase == "preparing" or each.detached:
            return
        session, each.seen = each.session, ()
        words = {(session.number, b.spec.name): each.words for b in self.bindings(each) if b.held != each.words}
        for _, name in words:
            self._resources.hold(session.number, name, each.words)
        if each.mine is None or (each.asleep and not each.mine <= self._state.asleep.keys()):
            self._views.wait_again(session)
            self._runs.lower_again(now, lambda: self._choose(each), session)
            for number in sorted(each.runs & self._state.runs.keys()):
                self._dispatch.stop(self._state.runs[number])
        self._runs.renew_reasons(words)

    def _choose(self, each: OnTheWay) -> None:
        """What has not been admitted has been taken back: what there is now goes with these slices."""
        number = each.session.number
        if each.mine is None:
            places = frozenset(self._arrays.places(number, each.place, each.names))
            each.mine = {
                ident for b in self._buffers if b.client == number and b.layout.place in places
                and (b.owner is None or b.owner.copies is None) and not self.has(b)
                for ident in range(b.id, b.id + b.count)
            }  # fmt: skip
            each.runs = frozenset(
                run.id for run in self._state.runs.values()
                if run.using and run.session.number == number
                and any(slot.layout.place in places for slot in run.plan.slots)
            )  # fmt: skip
        if each.asleep:
            self._state.asleep.update(dict.fromkeys(each.mine))

    # --- forward -------------------------------------------------------------------------------------------------

    def work(self, now: int) -> bool:
        """Each as far as it can go now. True: something has moved."""
        changed = False
        for number, names in self._state.lost_asleep.items():
            which = ", ".join(map(str, [name for name in names if name][:20]))
            text = f"{self._state.client_text(number)} has lost arrays of slices that are suspended: {which}"
            self._outbox.effect(LogLine(text + (f", and {len(names) - 20} more" if len(names) > 20 else "")))
        self._state.lost_asleep.clear()
        for number in self.resting:
            for binding in self._resources.bindings():
                if binding.session == number and binding.place and binding.key not in self.under_way:
                    changed |= not self.suspend(*binding.key, now)
        for each in dict.fromkeys(self.under_way.values()):
            while self._step(each, now):
                changed = True
        return changed

    def _step(self, each: OnTheWay, now: int) -> bool:
        if self.is_over(each):
            return False
        if not each.detached and self._is_elsewhere(each):
            self._detach(each, now)
            return True
        was = each.phase
        if was in BY_BUFFER:
            state = self._state
            seen = (state.next_seq, len(state.in_flight), len(state.runs), self._ledger.eased, self._resources.version)
            if each.seen == seen or now < each.again:
                return False
            each.seen = seen
        steps: dict[str, Callable[[OnTheWay, int], None]] = {
            "preparing": self._prepare, "emptying": self._empty, "copying": self._copy,
            "spilling": self._spill_all, "parked": self._rest, "returning": self._return, "filling": self._fill,
        }  # fmt: skip
        steps[was](each, now)
        if each.why and each.phase == was and was in BY_BUFFER:
            each.again = now + AGAIN
            self._watch.begin_for(("slice", *each.names, each.session.number), now, AGAIN, lambda at: None)
        return each.phase != was or self.is_over(each)

    def is_over(self, each: OnTheWay) -> bool:
        return self.under_way.get((each.session.number, each.names[0])) is not each

    def _is_elsewhere(self, each: OnTheWay) -> bool:
        """Its client has released it, or a device was lost where it lay."""
        found = self.bindings(each)
        return len(found) < len(each.names) or any(each.place not in (b.place, b.back) for b in found)

    def _here(self, each: OnTheWay) -> list[Buffer]:
        """Its buffers that have contents, or will have."""
        found = [self._buffers.all.get(ident) for ident in sorted(each.mine or ())]
        return [buffer for buffer in found if buffer is not None and buffer.state != "poisoned"]

    def _prepare(self, each: OnTheWay, now: int) -> None:
        """Until its programs can run where it goes, or never will."""
        if not self._has_target(each):
            self._not_moved(each, "devices were lost where it was to go", now)
            self._compiled(each)
            self._give_up_target(each)
            each.turn("still parked" if self._is_parked(each) else "lost")
            self._hold(each, now)
            return
        ready = [self._compilation.ask(rows) for rows in each.ahead]
        never = [self._compilation.blame(rows.plan.id) is not None for rows in each.ahead]
        late = now - each.since > self._state.config.bounds.compile
        if late or all(map(any, zip(ready, never, strict=True))):
            self._compiled(each)
            each.turn("compiled")
            self._hold(each, now)

    def _empty(self, each: OnTheWay, now: int) -> None:
        """Until nothing is made there any more; to be suspended, until nothing uses what is there."""
        if each.target is None and not each.asleep:
            if self._is_parked(each):
                each.turn("still parked")
            else:
                self._release(each, now)
            return
        here = self._here(each)
        if any(buffer.promise or buffer.state in UNUSED for buffer in here):
            return
        if each.target is None:
            if each.runs.isdisjoint(self._state.runs):
                there = [b for b in here if b.on_device and not b.sources]
                each.resident.update(ident for b in there for ident in range(b.id, b.id + b.count))
                each.turn("idle")
            return
        each.run = self._copies.begin(each.session, each.words, here, each.place, each.target, now)
        each.turn("empty")

    # --- to other devices ------------------------------------------------------------------------------------------

    def _copy(self, each: OnTheWay, now: int) -> None:
        run = each.run
        if run is not None and run.state != "over":
            if self._has_target(each):
                return
            lost = Blame("host-lost", "devices were lost where it was to be copied")
            self._outcomes.fail(run, lost, now)
            if run.state != "over":
                return
        arrived = (run is None or run.blame is None) and self._has_target(each)
        old, target, copied = each.place, each.target, dict[int, int]()
        assert target is not None

        def change() -> None:
            if run is not None:
                views = [buffer.id for buffer in self._here(each) if buffer.shards]
                copied.update(self._copies.end(run, views if arrived else None, old, target))
            for b in self.bindings(each):
                self._resources.arrived(each.session.number, b.spec.name, arrived)

        self._runs.lower_again(now, change, each.session)
        each.run = each.target = None
        if arrived:
            self._wake(each)
            each.place, each.mine = target, set(copied.values())
            if all(b.place != old for b in self._resources.bindings()):
                self._lowerings.forget_place(old)
        else:
            each.settled = run is not None and run.blame is not None and run.blame.code == "no-memory"
            self._not_moved(each, str(run.blame) if run is not None else "devices were lost", now)
        if each.asleep:
            each.turn("over")
            self._hold(each, now)
        elif self._is_parked(each):
            each.turn("still parked")
        else:
            self._release(each, now)

    def _not_moved(self, each: OnTheWay, why: str, now: int) -> None:
        """If that was to be resumed, it is tried again."""
        if each.asleep or not self._is_parked(each):
            self._failed(each, f"was not moved: {why}")
            return
        each.why, each.again = why, now + LATER
        self._watch.begin_for(("slice", *each.names, each.session.number), now, LATER, lambda at: None)

    def _give_up_target(self, each: OnTheWay) -> None:
        each.target = None
        for b in self.bindings(each):
            self._resources.arrived(each.session.number, b.spec.name, moved=False)

    def _has_target(self, each: OnTheWay) -> bool:
        return all(b.target == each.target for b in self.bindings(each))

    # --- to host memory, and back -----------------------------------------------------------------------------------

    def _spill_all(self, each: OnTheWay, now: int) -> None:
        if not each.asleep:
            if not any(b.state in UNUSED for b in self._here(each)):
                self._want_devices(each)
            return
        here, each.why = self._folded_and_apart(each), ""
        for buffer in here:
            if self._spill.is_idle(buffer):
                if self._spill.room(buffer) is not None:
                    self._admission.spill((buffer,), now)
                else:
                    each.why = "room in host memory, or on disk"
            elif buffer.shared:
                each.why = "views of its arrays, on other slices"
        if all(b.state == "spilled" or b.folded for b in here):
            each.turn("away")
            for b in self.bindings(each):
                self._resources.park(each.session.number, b.spec.name)
            self._hold(each, now)
            text = f"slice {', '.join(map(repr, each.names))} of client {each.session.name!r} is suspended"
            self._outbox.effect(LogLine(text))
            self._runs.slices_bound(now)

    def _folded_and_apart(self, each: OnTheWay) -> list[Buffer]:
        """Its buffers, counted one by one, with views folded that nothing uses; views of views before these."""
        for buffer in reversed(self._here(each)):
            if buffer.shards and not (buffer.folded or buffer.users or buffer.shared):
                self._refs.fold(buffer)
            if buffer.count > 1:
                self._buffers.all.open(buffer, buffer.id)
        return self._here(each)

    def _rest(self, each: OnTheWay, now: int) -> None:
        if not each.asleep and now >= each.again:
            self._want_devices(each)

    def _want_devices(self, each: OnTheWay) -> None:
        """The first of its slices does so for all."""
        lead, *others = self.bindings(each)
        if lead.parked:
            here = each.settled and all(map(self._resources.usable, each.place.devices()))
            stays = here or self._views_elsewhere(each)
            self._resources.unpark(*lead.key, "place" if stays else "island" if others else "any")
        each.why = ""
        each.turn("resumed")

    def _return(self, each: OnTheWay, now: int) -> None:
        lead, *others = self.bindings(each)
        if each.asleep:
            self._resources.park(*lead.key)
            each.turn("suspended")
            self._runs.slices_bound(now)
        elif lead.place is not None:
            for b in others:
                if b.parked:
                    self._resources.follow(*b.key, lead)
            if lead.target is None:
                each.turn("there")
            else:
                each.target, each.since, each.why = lead.target, now, "code for its new devices"
                each.turn("moved")
                self._compile(each, lead.target)

    def _fill(self, each: OnTheWay, now: int) -> None:
        """Its arrays come back together, when there is room for all of them. Those that were not on the devices before,
        and that no view needs, come when they are needed."""
        if each.line:
            return
        here = self._here(each)
        if any(b.state in UNUSED for b in here):
            return
        needed = each.resident.union(*[b.sources for b in here if b.folded])
        away = [b for b in here if b.state == "spilled" and b.id in needed]
        if away and each.tried != self._ledger.eased:
            wanted = tuple((b.key, b.nbytes) for b in away)
            each.line = self._admission.join(Waiter(
                None, (each.place.island,), wanted, session=each.session,
                admitted=lambda at: self._restore(each, away, at), refused=lambda blame, at: self._refuse(each),
            ))  # fmt: skip
        elif not away:
            each.why = ""
            for view in sorted([b.id for b in here if b.folded]):  # one that another is a view of, first
                if any(self._is_away(self._buffers[source]) for source in self._buffers[view].sources):
                    each.why = "arrays of other slices, of which it has views"
                    return
                self._views.unfold(self._buffers[view])
            if each.asleep and not each.detached:
                each.turn("suspended")
            else:
                self._release(each, now)

    @staticmethod
    def _is_away(buffer: Buffer) -> bool:
        return buffer.folded or buffer.state in ("spilling", "spilled", "restoring")

    def _restore(self, each: OnTheWay, away: list[Buffer], now: int) -> None:
        each.line, each.seen = 0, ()
        for buffer in away:
            if buffer.id in self._buffers and buffer.state == "spilled":
                self._admission.restore(buffer.id, now)
            else:  # it was released meanwhile
                self._admission.not_needed(buffer)

    def _refuse(self, each: OnTheWay) -> None:
        each.line, each.tried, each.seen = 0, self._ledger.eased, ()
        each.why = "device memory for all of its arrays"

    # --- out -----------------------------------------------------------------------------------------------------

    def _release(self, each: OnTheWay, now: int) -> None:
        """What waited for the slices goes on."""
        number = each.session.number
        for name in each.names:
            self.under_way.pop((number, name), None)
        for b in self.bindings(each):
            self._resources.hold(number, b.spec.name, "")
        here = self._here(each)
        self._wake(each)
        if each.session.gone:
            return
        for name in each.names:
            for one in (name, *[spec.name for spec in self._resources.parts(number, name)]):
                self._runs.slice_changed(number, one, now)
        for named in [named for b in here if b.owner for named in (b.owner, *b.owner.others)]:
            if named.gets and named.ready:
                self._gets.ready(named, now)
        self._state.views.extend(self._views.waiting_of(each.session))
        self._runs.slices_bound(now)
        # what was suspended stays so where it is now
        for name in each.names if each.asleep and each.gives_way_to is None else ():
            self.suspend(number, name, now)

    def _wake(self, each: OnTheWay) -> None:
        """Its arrays need not stay in host memory; views must until they are made again."""
        for ident in each.mine or ():
            view = self._buffers.all.get(ident)
            if view is None or not view.folded:
                self._state.asleep.pop(ident, None)
        runs = self._state.runs.values()
        self._state.wake.extend(run for run in runs if run.state == "submitted" and run.session is each.session)

    def _detach(self, each: OnTheWay, now: int) -> None:
        """Its slices were released, or a device was lost: what was begun is taken back, and its arrays come back."""
        if each.target is not None or (each.asleep and each.phase in ("emptying", "spilling")):
            done = "moved" if each.target is not None else "suspended"
            self._failed(each, f"was not {done}: it was released, or devices were lost")
        run, each.run = each.run, None
        if run is not None:
            self._outcomes.fail(run, Blame("moved", "its slice is elsewhere"), now)
            self._copies.forget(run)
        if each.line:
            self._admission.leave(each.line)
            each.line = 0
        self._give_up_target(each)
        self._compiled(each)
        each.detached = True
        each.turn("detached")

    def audit(self) -> Iterator[tuple[str, int, int]]:
        """(what, as it should be, counted): a slice that rests costs no byte of a device."""
        for each in dict.fromkeys(self.under_way.values()):
            if each.phase == "parked":
                there = [b.id for b in self._here(each) if b.on_device and not b.folded]
                yield f"arrays on devices of slice {each.names[0]!r}, which rests", 0, len(there)

    def client_gone(self, session: ClientRecord, now: int) -> None:
        self.resting.pop(session.number, None)
        for each in [e for e in dict.fromkeys(self.under_way.values()) if e.session is session]:
            self._detach(each, now)
            self._release(each, now)
        for key in [key for key in self.failed if key[0] == session.number]:  # last: detaching may add to them
            del self.failed[key]

    def _failed(self, each: OnTheWay, why: str) -> None:
        text = f"slice {', '.join(map(repr, each.names))}"
        self._outbox.effect(LogLine(f"{text} of client {each.session.name!r} {why}"))
        self.failed.update(((each.session.number, name), f"{text} {why}") for name in each.names)
        while len(self.failed) > MOST_FAILED:
            del self.failed[next(iter(self.failed))]
