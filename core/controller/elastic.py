"""Slices of any size in a range: says how large they are, and when they may grow or must shrink.

A client asks for sizes (`AskElastic`) and is told a slice of one of them (`Sized`), which it has from then on. When
another size can be had, another slice is bound, which may have devices of the first one, and the client is told of it.
It moves its arrays there and releases the first. Nothing is taken from it before.

    grow     when devices are free that nobody waits for, and it has had its size for `Config.preempt_keep`
    shrink   when a slice waits that is as urgent or more (`Policy.slice_rank`), and would have room then; or when its
             devices are lost, or on a host that drains, and there are not as many elsewhere
    stay     when any slice waits that could have the devices of a larger one, to which the client has not moved on

Neighbours: `Resources` knows where there is room; `preemption` asks for room before it takes devices otherwise. The
functions that matter: `asked`, `released`, `work`, `make_room`.
"""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ..model import Impossible, Place, SliceSpec, spans
from ..protocol import AskElastic, Blame, LogLine, Refused, Sized
from ..slices import FIRST, UNDECIDED, Binding, Key, Resources
from .outbox import TurnOutbox
from .records import ClientRecord
from .runs import Runs
from .state import ControllerModule, State
from .watch import Watchdog

Placed = Sequence[tuple[Binding, Place]]  # slices, and where they would be instead
MOST, MOST_SIZES = 64, 4096  # elastic slices of a client, and sizes of each


class ElasticRecord(msgspec.Struct, eq=False):
    session: ClientRecord
    name: str
    spec: SliceSpec
    sizes: tuple[int, ...]  # increasing
    request: int
    # which it is, with its ticket: the last one of them; the client moves to it from those before
    slices: dict[str, int] = {}
    told: str = ""  # the client knows this one
    since: int = 0  # when it got this size
    for_slice: Key | None = None  # shrinks, or stays as it is, so that this one has room


class Elastic(ControllerModule):
    _state: State
    _outbox: TurnOutbox
    _resources: Resources
    _runs: Runs
    _watch: Watchdog
    all: dict[Key, ElasticRecord] = {}
    automatic: bool = True  # False: the policy says how large they are, while their devices are there
    _seen: int = -1  # `Resources.version` when all were looked at last
    _due: int = 0  # when to look again, though nothing has changed; 0: never

    def __post_init__(self) -> None:
        self._resources.elastic = self.all

    # --- in ------------------------------------------------------------------------------------------------------

    def asked(self, session: ClientRecord, call: AskElastic, now: int) -> str | None:
        """It waits for the smallest size, if it can have none now."""
        number, resources = session.number, self._resources
        if (number, call.name) in self.all:
            return f"elastic slice {call.name!r} was asked for twice"
        if any(spec and (spec.of or spec.mesh) for spec in (call.slice, call.has)):
            return f"elastic slice {call.name!r} is to be a part of another one, or a mesh"
        sizes = tuple(sorted({size for size in call.sizes if size > 0}))
        told = call.has.name if call.has else ""
        each = ElasticRecord(session, call.name, call.slice, sizes, call.request, told=told, since=now)
        try:
            if not 0 < len(sizes) <= MOST_SIZES or sum(key[0] == number for key in self.all) >= MOST:
                raise Impossible(f"a client has {MOST} elastic slices at most, of {MOST_SIZES} sizes from 1 on each")
            if resources.knows(number, call.name):
                raise Impossible(
                    f"this session's slice {call.name!r} has one size; now it asks for one of several: release it "
                    "first, or give one of them another name"
                )
            first = call.has or self._named(each, sizes[0])
            resources.bind(number, first)
        except Impossible as error:
            self._outbox.note(session.peer, Refused("elastic", call.request, Blame("refused", str(error))))
            return None
        names = [first.name]
        if call.has and call.before and resources.binding(number, call.before) and call.before != first.name:
            names = [call.before, first.name]  # it had not moved on yet
            resources.place_beside(number, first.name, call.before)
            self._runs.slices_bound(now)
        found = [(name, resources.binding(number, name)) for name in names]
        each.slices = {name: binding.ticket for name, binding in found if binding is not None}
        self.all[number, call.name] = each
        self._seen = -1
        return None

    def released(self, session: int, name: str) -> list[str]:
        """The slices that this elastic slice is: they are to be released; none if there is none of this name."""
        each = self.all.pop((session, name), None)
        return [*each.slices] if each is not None else []

    def moves(self, binding: Binding) -> bool:
        """Whether it is one that the client is to leave for another size."""
        number, name = binding.key
        return any(
            each.session.number == number and name in each.slices and len(each.slices) > 1 for each in self.all.values()
        )

    def client_gone(self, session: int) -> None:
        for key in [key for key in self.all if key[0] == session]:
            del self.all[key]

    # --- forward -------------------------------------------------------------------------------------------------

    def work(self, now: int) -> bool:
        """True: another slice was bound."""
        if self._seen == self._resources.version and not 0 < self._due <= now:
            return False
        self._due, changed = 0, False
        for each in list(self.all.values()):
            changed |= self._look(each, now)
        self._seen = self._resources.version
        if self._due:
            self._watch.begin_for(("elastic",), now, self._due - now, lambda at: None)
        return changed

    def _look(self, each: ElasticRecord, now: int) -> bool:
        current = self._current(each)
        if current is None:  # the client has released it
            del self.all[each.session.number, each.name]
            return False
        if not each.told and current.place:  # it has one, and the client has not heard of it: a larger one will do
            found = self._larger(each, current)
            if found and self._become(each, found, ""):
                self._resources.release(*current.key)
            self._tell(each, "", now)
            return found is not None
        if len(each.slices) > 1 or current.held or not each.told:
            return False
        if current.place is None or self._must_leave(current):
            found = self._largest(each, current, each.sizes)
            why = "a host drains" if current.place else "its devices were lost"
        else:
            found, why = self._larger(each, current), "there are more devices"
            again = each.since + self._state.config.preempt_keep
            if found is not None and now < again:
                self._due = min(self._due or again, again)
                found = None
        return found is not None and self._become(each, found, why) and self._tell(each, why, now)

    def _current(self, each: ElasticRecord) -> Binding | None:
        """What it is, or is becoming; the client may have released those before."""
        number, found = each.session.number, None
        for name, ticket in list(each.slices.items()):
            binding = self._resources.binding(number, name)
            if binding is not None and binding.ticket == ticket:
                found = binding
            else:
                del each.slices[name]
                each.for_slice = None
        return found

    def _must_leave(self, current: Binding) -> bool:
        """It lies on a host that is being emptied, and cannot move as it is."""
        assert current.place is not None
        hosts = spans.items(self._state.hosts_of(current.place))
        if not any(host in self._state.draining for host in hosts):
            return False
        return self._resources.elsewhere(*current.key) is None

    def _tell(self, each: ElasticRecord, why: str, now: int, stays: Binding | None = None) -> bool:
        """`stays`: what it was before the last one, which it is not to be."""
        *_, last = each.slices
        binding = stays or self._resources.binding(each.session.number, last)
        assert binding is not None
        each.told, each.since = binding.spec.name, now
        taken_back = last if stays else ""
        self._outbox.note(each.session.peer, Sized(each.request, each.name, binding.spec, why, taken_back))
        return True

    def _become(self, each: ElasticRecord, found: tuple[int, Place], why: str) -> bool:
        size, place = found
        spec, number = self._named(each, size), each.session.number
        if not self._resources.adopt(number, spec, place, beside=list(each.slices)[-1]):
            return False
        binding = self._resources.binding(number, spec.name)
        assert binding is not None
        each.slices[spec.name] = binding.ticket
        if why:
            self._say(each, size, why)
        return True

    def _say(self, each: ElasticRecord, size: int, why: str) -> None:
        text = f"slice {each.name!r} of client {each.session.name!r} is to have {size} devices: {why}"
        self._outbox.effect(LogLine(text))

    def _named(self, each: ElasticRecord, size: int) -> SliceSpec:
        """By a name that the client has not used for another one."""
        name = f"{each.name}@{size}"
        while self._resources.knows(each.session.number, name):
            name += "+"
        return replace(each.spec, name=name, devices=size)

    # --- a policy says so ----------------------------------------------------------------------------------------

    def sizes_of(self, key: Key) -> tuple[int, ...]:
        """Those that the slice may have; none if it has one size."""
        return next((each.sizes for each in self._of(key)), ())

    def resize(self, session: int, name: str, size: int, now: int) -> bool:
        """False: there is no room, or it is not what its client has moved to."""
        for each in self._of((session, name)):
            current = self._current(each)
            if current is None or not current.place or len(each.slices) > 1 or current.held or not each.told:
                return False
            place = self._place(each, current, size) if size in each.sizes and size != current.spec.devices else None
            why = "the policy says so"
            return place is not None and self._become(each, (size, place), why) and self._tell(each, why, now)
        return False

    def _of(self, key: Key) -> list[ElasticRecord]:
        return [each for each in self.all.values() if each.session.number == key[0] and key[1] in each.slices]

    # --- sizes ---------------------------------------------------------------------------------------------------

    def _larger(self, each: ElasticRecord, current: Binding) -> tuple[int, Place] | None:
        """Not while others wait for devices that it could have."""
        if not self.automatic:
            return None
        larger = each.sizes[bisect_left(each.sizes, current.spec.devices + 1) :]
        for b in self._resources.waiting() if larger else ():
            if (b.claim or b.reason == UNDECIDED) and self._resources.bars(b, current):
                return None
        return self._largest(each, current, larger)

    def _largest(self, each: ElasticRecord, current: Binding, sizes: Sequence[int]) -> tuple[int, Place] | None:
        """The largest of these sizes that can be had, and where. A larger one is harder to have, so not all are
        tried."""
        low, high, best = 0, len(sizes), None
        while low < high:
            middle = (low + high) // 2
            place = self._place(each, current, sizes[middle])
            if place is None:
                high = middle
            else:
                low, best = middle + 1, (sizes[middle], place)
        return best

    def _place(self, each: ElasticRecord, current: Binding, size: int, placed: Placed = ()) -> Place | None:
        """Where it would lie, now that others will be where they are `placed`, and have not left what they have."""
        number, spec, more = each.session.number, self._named(each, size), size - current.spec.devices
        try:
            if more > 0:
                self._resources.check(number, replace(spec, devices=more))
        except Impossible:
            return None  # its account may have no more
        binding = Binding(number, spec, -1, rank=FIRST)
        return self._resources.could_be(binding, [current], placed)

    # --- others wait ---------------------------------------------------------------------------------------------

    def make_room(self, wanted: Binding, now: int) -> int:
        """For a slice that waits: those that are less urgent shrink, as few and as little as will do; first of all,
        those stay as they are that have not moved on to more. Returns until when they may take their time; 0: none
        can, or they have not."""
        keep = self._state.config.preempt_keep
        again = max([each.since + keep for each in self.all.values() if each.for_slice == wanted.key], default=0)
        if now < again:
            return again
        shrunk: list[tuple[ElasticRecord, tuple[int, Place], Binding]] = []
        for each, current in self._may_shrink(wanted):
            stays, found = self._may_stay(each), None
            if stays is not None and stays.place:
                found = stays.spec.devices, stays.place
            elif len(each.slices) == 1:
                sizes = each.sizes[: bisect_left(each.sizes, current.spec.devices)]
                found = self._as_large_as(wanted, each, current, sizes, [(b, place) for _, (_, place), b in shrunk])
            if found is None:
                continue
            shrunk.append((each, found, current))
            if self._room(wanted, shrunk) is not None:
                break
        else:
            return 0
        for one in shrunk[:-1]:
            others = [each for each in shrunk if each is not one]
            if self._room(wanted, others) is not None:
                shrunk = others  # it need not
        room = self._room(wanted, shrunk)
        assert room is not None
        self._resources.claim(wanted, room)
        until, why = 0, f"slice {wanted.spec.name!r} waits for devices"
        for each, found, _ in shrunk:
            stays = self._may_stay(each)
            if stays is not None:
                self._say(each, found[0], why)
            elif not self._become(each, found, why):
                continue
            each.for_slice, until = wanted.key, now + keep
            self._tell(each, why, now, stays)
        return until

    def _room(
        self, wanted: Binding, shrunk: Sequence[tuple[ElasticRecord, tuple[int, Place], Binding]]
    ) -> Place | None:
        placed = [(current, place) for _, (_, place), current in shrunk]
        return self._resources.could_be(wanted, [current for current, _ in placed], placed)

    def _as_large_as(
        self, wanted: Binding, each: ElasticRecord, current: Binding, sizes: Sequence[int], placed: Placed
    ) -> tuple[int, Place] | None:
        """The largest of these sizes with which there is room for the other one; the smallest one if with none."""
        low, high, best = 0, len(sizes), None
        while low < high:
            middle = (low + high) // 2 if best else 0  # the smallest one first: in most cases none will do
            place = self._place(each, current, sizes[middle], placed)
            there = [*placed, (current, place)] if place else []
            if place and self._resources.could_be(wanted, [b for b, _ in there], there):
                low, best = middle + 1, (sizes[middle], place)
            elif best is None:
                return (sizes[middle], place) if place else None
            else:
                high = middle
        return best

    def _may_shrink(self, wanted: Binding) -> list[tuple[ElasticRecord, Binding]]:
        """Those that have not moved on to more, whatever they are; then the least urgent first."""
        found = []
        for each in self.all.values():
            current = self._current(each)
            if current is None or not each.told or not current.place or current.held:
                continue
            stays = self._may_stay(each) is not None
            if not stays and (len(each.slices) > 1 or current.rank < wanted.rank):
                continue
            if self._resources.bars(current, wanted) and self._may_be(wanted, current):
                found.append((not stays, -current.rank, -current.ticket, each, current))
        return [(each, current) for *_, each, current in sorted(found, key=lambda one: one[:3])]

    def _may_stay(self, each: ElasticRecord) -> Binding | None:
        """What it was before, if it is larger now, and the client may not have moved on."""
        if len(each.slices) < 2 or each.told != list(each.slices)[-1]:
            return None
        before, last = (self._resources.binding(each.session.number, name) for name in each.slices)
        if before is None or last is None or before.spec.devices > last.spec.devices:
            return None
        return before if before.place and not before.held and not self._must_leave(before) else None

    def _may_be(self, wanted: Binding, current: Binding) -> bool:
        """Whether the one could be on the island where the other is."""
        return current.place is not None and self._resources.suits(*wanted.key, current.place)
