"""What policies are told of slices, and what a `Placement` says is to become of them.

A policy that is a `Placement` decides instead of `Resources` which of the slices that wait have devices, and instead of
`preemption` which are to give some up. It is asked whenever slices or devices have changed. A slice that it suspends
wants its devices back as soon as it has left them, so it waits like any other. If the policy raises, slices wait in
order from then on, as under policies that are no placement.

Neighbours: `Resources` finds and keeps places; `relocation` moves and suspends; `elastic` has slices of several sizes.
The functions that matter: `rank`, `work`, `_decide`.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter

from ..model import Gang, Move, SliceSpec, Spans, device_spans, spans
from ..protocol import LogLine, PolicyReplaced
from ..schedule.policy import ClusterView, IslandUse, Placement, SliceUse
from ..slices import Binding, Key, Resources
from .elastic import Elastic
from .on_the_way import OnTheWay
from .outbox import TurnOutbox
from .relocation import Relocation
from .runs import Runs
from .state import ControllerModule, State
from .watch import Watchdog

LEAVE = 10_000_000_000  # nanoseconds that a slice has at least for leaving its devices
# A slice that comes and goes so often at one time stays for so many nanoseconds: no turn is without an end.
FLIPS, SHORTEST = 3, 1_000_000
ANY: Key = (-1, "")  # a slice gives way to whatever the policy starts instead


class Placements(ControllerModule):
    _state: State
    _elastic: Elastic
    _outbox: TurnOutbox
    _relocation: Relocation
    _resources: Resources
    _runs: Runs
    _watch: Watchdog
    placement: Placement | None = None
    _uses: dict[Key, SliceUse] = {}
    _waiting: dict[Key, SliceUse] = {}
    _running: dict[Key, SliceUse] = {}
    _keys: dict[int, Key] = {}  # by number of a slice
    _kept: Spans = spans.EMPTY  # devices that are kept in this decision
    _islands: list[IslandUse] = []
    _away: dict[OnTheWay, int] = {}  # slices that it has suspended, and that do not wait yet: until when they must
    _stays: dict[Key, int] = {}  # slices that could not leave, or were moved, and until when they are left alone
    _flips: dict[Key, int] = {}  # slices that came and were to go at one time, and how often
    _due: int = 0  # when to ask again, though nothing has changed; 0: never
    _asked: tuple[int, int, int] = (-1, -1, -1)  # what places and moves were like when it had answered last
    _seen: tuple[int, int, int] = (-1, -1, -1)  # and what they were like when it had, of those times that `work` asked

    def __post_init__(self) -> None:
        self._resources.rank = self.rank
        policy = self._state.islands[0].scheduler.policy
        if isinstance(policy, Placement):
            self.placement = policy
            self._resources.decided_by(self._decide)
            self._elastic.automatic = not policy.resizes

    # --- what policies are told ----------------------------------------------------------------------------------

    def rank(self, session: int, spec: SliceSpec) -> int:
        """Asked when a slice is bound first. The policies of all islands are of one kind."""
        return self._state.islands[0].scheduler.slice_rank(self._use(session, spec))

    def _use(self, session: int, spec: SliceSpec) -> SliceUse:
        of, now = self._state.sessions[session], self._state.now
        return SliceUse(
            of.share, spec.name, spec.devices, spec.exclusive, of.weight, of.priority, of.name, spec.kind, spec.island,
            spec.mesh, (), dict(spec.expected or ()), now + spec.due if spec.due else 0, asked=now, since=now,
        )  # fmt: skip

    def _renew(self, now: int) -> None:
        """Slices have been bound, have moved or gone."""
        for key in self._resources.changed():
            binding, use = self._resources.binding(*key), self._uses.get(key)
            if use is not None and (binding is None or binding.ticket != use.number):
                self._forget(key, use)
                use = None
            if binding is not None and not binding.left:
                self._renew_one(key, binding, use, now)

    def _forget(self, key: Key, use: SliceUse) -> None:
        for table in (self._uses, self._waiting, self._running):
            table.pop(key, None)
        self._stays.pop(key, None)
        self._flips.pop(key, None)
        self._keys.pop(use.number, None)

    def _renew_one(self, key: Key, binding: Binding, use: SliceUse | None, now: int) -> None:
        if use is None:
            use = self._uses[key] = self._use(key[0], binding.spec)
            use.number, use.sizes = binding.ticket, self._elastic.sizes_of(key)
            self._keys[use.number] = key
            if before := self._uses.get((key[0], binding.beside)):
                use.asked, use.began, use.had = before.asked, before.began, before.until(now)
        places = binding.places
        place, each = places[0] if places else None, self._relocation.under_way.get(key)
        at = self._state.cluster.islands[place.island] if place else None
        if (at and at.index) != (use.at and use.at.index):
            use.had, use.since = use.until(now), now
            if use.began < 0:
                use.began = now
        use.at = at  # it may have grown
        use.where = device_spans(place) if place else spans.EMPTY
        leaves = each is not None and (each.asleep or each in self._away)
        use.state = ("leaving" if leaves else "running") if at else "waiting"
        self._waiting.pop(key, None)
        self._running.pop(key, None)
        if at is not None:
            self._running[key] = use
        elif key in self._resources.queue:
            self._waiting[key] = use

    # --- it is asked ---------------------------------------------------------------------------------------------

    def work(self, now: int) -> bool:
        """True: it has done something."""
        seen = self._known()
        if self._seen == seen and not 0 < self._due <= now:
            return False
        self._due = 0 if self._due <= now else self._due
        for each in [*self._away]:
            self._look(each, now)
        self._runs.slices_bound(now)
        self._seen = self._asked  # a run that has one slice now may ask for another
        if self._due:
            self._watch.begin_for(("placement",), now, max(1, self._due - now), lambda at: None)
        return self._seen != seen

    def _known(self) -> tuple[int, int, int]:
        return self._resources.version, len(self._relocation.under_way), len(self._relocation.resting)

    def _look(self, each: OnTheWay, now: int) -> None:
        """Once it has left, it wants its devices back. One that cannot leave, for want of room in host memory, stays,
        and is left alone for a while."""
        number, late = each.session.number, self._away[each]
        if self._relocation.is_over(each) or each.detached or not each.asleep or each.gives_way_to is None:
            del self._away[each]
        elif each.phase == "parked" or now >= late:
            if each.phase != "parked":
                longest = max(self._state.config.preempt_longest, LEAVE)
                self._stays.update(((number, name), now + longest) for name in each.names)
                text = f"slice {each.names[0]!r} of client {each.session.name!r} stays: it waits for {each.why}"
                self._outbox.effect(LogLine(text))
            del self._away[each]
            self._relocation.resume(number, each.names[0], now, given_back=True)
        else:
            self.wake(late)

    def _decide(self) -> None:
        """Asked by `Resources` when slices that wait might have devices."""
        now = self._state.now
        self._renew(now)
        self._kept, self._islands = spans.EMPTY, []
        if self.placement is not None and (self._waiting or self._running):
            try:
                self.placement.decide(ClusterView(self, now))
            except Exception as error:  # the policy is a user's code
                self._replace(f"raised {type(error).__name__}: {error} when asked to place slices")
        self._asked = self._known()

    def _replace(self, fault: str) -> None:
        name, self.placement = type(self.placement).__name__, None
        self._resources.decided_by(None)
        self._elastic.automatic = True
        for each in self._away:
            self._relocation.resume(each.session.number, each.names[0], self._state.now, given_back=True)
        self._away.clear()
        for island in self._state.islands:
            self._outbox.effect(PolicyReplaced(island.island.name, name, fault))

    # --- what it sees, and says (`ClusterView`) ----------------------------------------------------------------------

    def islands(self) -> Sequence[IslandUse]:
        if not self._islands:
            for island in self._state.cluster.islands:
                self._islands.append(IslandUse(island, self._free))
        return self._islands

    def _free(self, island: int) -> Sequence[int]:
        return self._resources.free(island, self._kept)

    def waiting(self) -> list[SliceUse]:
        resting = self._relocation.resting
        found = [use for key, use in self._waiting.items() if key[0] not in resting]
        return sorted(found, key=attrgetter("number"))

    def running(self) -> list[SliceUse]:
        return sorted(self._running.values(), key=attrgetter("number"))

    def suits(self, use: SliceUse) -> list[int]:
        return self._resources.matching(self._keys[use.number])

    def fits(self, use: SliceUse, island: int, gone: Sequence[SliceUse]) -> bool:
        keys = self._keys
        return self._resources.could_follow(keys[use.number], self._kept, island, (keys[one.number] for one in gone))

    def transfers(self) -> Mapping[tuple[str, str], int]:
        state, found = self._state, dict[tuple[str, str], int]()
        for entry in state.in_flight.values():
            run = entry.run
            if run is not None and entry.kind == "recv":
                move, slots = run.plan.steps[entry.step], run.plan.slots
                assert isinstance(move, Move)
                targets = [slots[target] for target in move.targets]
                islands = slots[move.sources[0]].layout.place.island, entry.island
                ends = state.cluster.islands[islands[0]].name, state.cluster.islands[islands[1]].name
                found[ends] = found.get(ends, 0) + sum(each.nbytes * each.layout.place.size for each in targets)
        return found

    def start(self, use: SliceUse, island: int, devices: Sequence[int], layout: str) -> bool:
        key = self._keys[use.number]
        if key not in self._waiting or key[0] in self._relocation.resting:
            return False
        place = self._resources.could_start(key, self._kept, island, devices, layout)
        if place is not None:
            self._resources.start(key, place)
            self._renew(self._state.now)
        return place is not None

    def keep(self, use: SliceUse, island: int) -> bool:
        place = self._resources.could_start(self._keys[use.number], self._kept, island, anyway=True)
        if place is not None:
            self._kept = spans.union(self._kept, device_spans(place))
        return place is not None

    def suspend(self, use: SliceUse) -> bool:
        key, now = self._keys[use.number], self._state.now
        if use.state != "running" or key in self._relocation.under_way:
            return False
        # one that has come back goes on for a while
        back = use.since + self._state.config.preempt_keep if use.had else 0
        if use.since == now and use.had:
            self._flips[key] = self._flips.get(key, 0) + 1
            back += SHORTEST * (self._flips[key] > FLIPS)
        else:
            self._flips.pop(key, None)
        kept = max(back, self._stays.get(key, 0))
        if now < kept:
            self.wake(kept)
            return False
        self._stays.pop(key, None)
        if self._relocation.suspend(*key, now):
            return False
        each = self._relocation.under_way[key]
        each.gives_way_to, each.cause = ANY, f"others, as policy {type(self.placement).__name__} says"
        # what has been admitted ends first, with one step of each of its gangs
        runs = [self._state.runs[number] for number in each.runs if number in self._state.runs]
        gangs = [(row.cost, gang) for run in runs for row, gang in zip(run.rows.steps, run.plan.steps, strict=True)]
        takes = sum(cost // gang.steps for cost, gang in gangs if isinstance(gang, Gang))
        self._away[each] = now + takes + max(self._state.config.preempt_keep, LEAVE)
        use.state = "leaving"
        text = f"slice {use.name!r} of client {use.client_name!r} is suspended: it gives way to {each.cause}"
        self._outbox.effect(LogLine(text))
        return True

    def move(self, use: SliceUse, island: int) -> bool:
        key, now = self._keys[use.number], self._state.now
        if use.state != "running" or key in self._relocation.under_way:
            return False
        if key in self._relocation.failed and now < self._stays.get(key, 0):
            self.wake(self._stays[key])
            return False
        if self._relocation.move(*key, now, self._kept, island):
            return False
        self._stays[key] = now + max(self._state.config.preempt_keep, SHORTEST)
        return True

    def resize(self, use: SliceUse, devices: int) -> bool:
        done = self._elastic.resize(*self._keys[use.number], devices, self._state.now)
        self._renew(self._state.now)
        return done

    def wake(self, at: int) -> None:
        if at > self._state.now:
            self._due = min(self._due or at, at)
