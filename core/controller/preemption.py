"""Takes devices from slices for others that wait for them, where the policy of an island says so, and gives them back.

A slice that waits takes devices from those that the policy ranks after it (`Policy.slice_rank`, `Policy.preempts`).
These move if there is room elsewhere, and are suspended if there is none, so what has been admitted goes on to its end.
As soon as the other slice has its devices, they wait to come back like any slice that waits, in the order of ranks.

Two bounds hold with every policy. A slice that has come back keeps its devices for `Config.preempt_keep`; who is kept
waiting by that is reported. One that has been away for `Config.preempt_longest` comes before all others, so none
starves.

Neighbours: `Resources` knows who waits and where there would be room; `relocation` moves, suspends and resumes. The
functions that matter: `work`, `_take`, `_give_back`.
"""

from ..model import Spans, device_spans, spans
from ..protocol import LogLine
from ..slices import FIRST, Binding, Key, Resources
from .elastic import Elastic
from .on_the_way import OnTheWay
from .outbox import TurnOutbox
from .placements import Placements
from .relocation import Relocation
from .state import ControllerModule, State
from .watch import Watchdog


class Preemption(ControllerModule):
    _state: State
    _elastic: Elastic
    _outbox: TurnOutbox
    _placements: Placements
    _relocation: Relocation
    _resources: Resources
    _watch: Watchdog
    away: list[OnTheWay] = []  # slices that have given way, and are not back
    _kept: dict[Key, int] = {}  # slices that had, or could not, and until when they keep their devices
    _reported: set[tuple[Key, Key]] = set()  # who was kept waiting, and by whom
    _due: int = 0  # when to look again, though nothing has changed; 0: never
    _seen: tuple[int, int, int] = (-1, -1, -1)  # what places and moves were like when it was looked at last

    def work(self, now: int) -> bool:
        """True: a slice has begun to move, to rest, or to come back."""
        preempts = self._state.islands[0].scheduler.policy.preempts
        seen = (self._resources.version, len(self._relocation.under_way), len(self._relocation.resting))
        if self._seen == seen and not 0 < self._due <= now:
            return False
        self._seen, self._due = seen, 0
        begun, elastic = self._give_back(now), self._elastic.all and self._elastic.automatic
        for binding in self._resources.waiting() if elastic or preempts else ():
            if binding.session in self._relocation.resting:
                continue
            until = self._elastic.make_room(binding, now) if elastic else 0
            if until > now:
                self._due = min(self._due or until, until)
            elif preempts:
                begun |= self._take(binding, now)
        begun |= self._resources.version != seen[0]
        if self._due:
            self._watch.begin_for(("preempted",), now, self._due - now, lambda at: None)
        return begun

    # --- devices are taken ---------------------------------------------------------------------------------------

    def _take(self, wanted: Binding, now: int) -> bool:
        """For a slice that waits, from as few others as will do, those that the policy ranks last. No more than
        those that give way for it already, if they will do."""
        giving = [each for each in self._relocation.under_way.values() if each.gives_way_to == wanted.key]
        mine = [self._resources.binding(each.session.number, name) for each in giving for name in each.names]
        if giving and self._resources.could_be(wanted, [b for b in mine if b is not None]) is not None:
            return False  # these will do
        free, kept = [], list[tuple[int, Binding]]()
        for other in self._resources.bindings():
            if other.place and not other.held and other.rank > wanted.rank and other.session != wanted.session:
                until = self._kept.get(other.key, now)
                if until > now:
                    kept.append((until, other))
                else:
                    free.append(other)
        free.sort(key=lambda other: (-other.rank, -other.ticket))
        place = self._resources.could_be(wanted, free) if free else None
        if place is not None:
            low, high = 1, len(free)
            while low < high:
                middle = (low + high) // 2
                there = self._resources.could_be(wanted, free[:middle])
                low, high, place = (low, middle, there) if there else (middle + 1, high, place)
            here = [b for b in free[:low] if self._resources.bars(b, wanted) and _overlap(b, device_spans(place))]
            self._send_away(self._resources.claim(wanted, place), here, now)
            return True
        if kept and self._resources.could_be(wanted, [*free, *[other for _, other in kept]]) is not None:
            self._keep_waiting(wanted, *min(kept, key=lambda each: each[0]), now)
        return False

    def _send_away(self, wanted: Binding, here: list[Binding], now: int) -> None:
        """Elsewhere, if they can run there; else to host memory."""
        of, text = self._relocation, self._text(wanted.key)
        devices = device_spans(wanted.claim) if wanted.claim else spans.EMPTY
        for b in here:
            if b.key in of.under_way:
                continue  # with another one that lies there, too
            if b.key in of.failed or of.move(*b.key, now, devices):
                of.suspend(*b.key, now)
                self.away.append(of.under_way[b.key])
            each = of.under_way[b.key]
            each.gives_way_to, each.cause = wanted.key, text
            does = "is suspended" if each.asleep else "moves"
            self._outbox.effect(LogLine(f"{self._text(b.key)} {does}: it gives way to {text}"))

    def _keep_waiting(self, wanted: Binding, until: int, other: Binding, now: int) -> None:
        """It could have devices of a slice that has come back a moment ago, or cannot rest: that is said once."""
        self._due = min(self._due or until, until)
        if (wanted.key, other.key) not in self._reported:
            self._reported.add((wanted.key, other.key))
            left = (until - now) / 1e9
            text = f"{self._text(wanted.key)} waits for {self._text(other.key)}"
            self._outbox.effect(LogLine(f"{text}, which keeps its devices for {left:.3g} s more"))

    # --- and given back ------------------------------------------------------------------------------------------

    def _give_back(self, now: int) -> bool:
        """Those that gave way come back when the others have their devices, or when it has lasted too long."""
        begun = False
        for each in list(self.away):
            asked = each.asleep and each.gives_way_to is None  # it rests because somebody has asked for that, too
            if self._relocation.is_over(each) or asked:
                self.away.remove(each)
                self._came_back(each, now)
            else:
                begun |= self._look(each, now)
        return begun

    def _look(self, each: OnTheWay, now: int) -> bool:
        """True: it begins to come back."""
        number, config, other = each.session.number, self._state.config, each.gives_way_to
        soon, late = each.since + config.preempt_keep, each.since + config.preempt_longest
        if now >= late:
            for name in each.names:
                self._resources.prefer(number, name, FIRST)
        if other is None:  # it is about to come back
            again = late
        elif each.phase != "parked":
            again = soon
        else:
            again = late if self._waits(other) else now
        if now < again:
            self._due = min(self._due or again, again)
            return False
        if other is not None and each.phase != "parked":
            self._kept.update(((number, name), now + config.preempt_longest) for name in each.names)
            self._outbox.effect(LogLine(f"{self._text((number, each.names[0]))} stays: it waits for {each.why}"))
        return other is not None and not self._relocation.resume(number, each.names[0], now, given_back=True)

    def _came_back(self, each: OnTheWay, now: int) -> None:
        self._kept = {key: until for key, until in self._kept.items() if now < until}
        self._reported = {(one, other) for one, other in self._reported if self._waits(one) and other in self._kept}
        for name in each.names:
            key = (each.session.number, name)
            binding = self._resources.binding(*key)
            if binding is not None and binding.place:
                self._kept.setdefault(key, now + self._state.config.preempt_keep)
                self._resources.prefer(*key, self._placements.rank(key[0], binding.spec))

    def _waits(self, key: Key) -> bool:
        """It has no devices yet, and is to have some."""
        binding = self._resources.binding(*key)
        return binding is not None and binding.place is None and key[0] not in self._relocation.resting

    def _text(self, key: Key) -> str:
        session = self._state.sessions.get(key[0])
        return f"slice {key[1]!r} of client {session.name if session else key[0]!r}"


def _overlap(binding: Binding, devices: Spans) -> bool:
    return binding.place is not None and spans.overlap(device_spans(binding.place), devices)
