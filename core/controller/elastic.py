"""Slices of any size in a range: says how large they are, and when they may grow or must shrink.

A client asks for sizes (`AskElastic`) and is told a slice of one of them (`Sized`), which it has from then on. When
another size can be had, another slice is bound, which may have devices of the first one, and the client is told of it.
It moves its arrays there and releases the first. Nothing is taken from it before.

    grow     when devices are free that nobody waits for, and it has had its size for `Config.preempt_keep`
    shrink   when a slice waits that is as urgent or more (`Policy.slice_rank`), and would have room then; or when its
             devices are lost, or on a host that drains, and there are not as many elsewhere

Neighbours: `Resources` knows where there is room; `preemption` asks for room before it takes devices otherwise. The
functions that matter: `asked`, `released`, `work`, `make_room`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ..model import Impossible, Place, SliceSpec, spans
from ..protocol import AskElastic, Blame, LogLine, Refused, Sized
from ..slices import FIRST, Binding, Key, Resources
from .outbox import TurnOutbox
from .records import ClientRecord
from .state import ControllerModule, State
from .watch import Watchdog

Placed = Sequence[tuple[Binding, Place]]  # slices, and where they would be instead


class ElasticRecord(msgspec.Struct, eq=False):
    session: ClientRecord
    name: str
    spec: SliceSpec
    sizes: tuple[int, ...]  # increasing
    slices: list[str] = []  # which it is: the last one of them; the client moves to it from those before
    told: str = ""  # the client knows this one
    why: str = ""
    since: int = 0  # when it got this size
    for_slice: Key | None = None  # shrinks so that this one has room


class Elastic(ControllerModule):
    _state: State
    _outbox: TurnOutbox
    _resources: Resources
    _watch: Watchdog
    all: dict[Key, ElasticRecord] = {}
    _seen: int = -1  # `Resources.version` when all were looked at last
    _due: int = 0  # when to look again, though nothing has changed; 0: never

    # --- in ------------------------------------------------------------------------------------------------------

    def asked(self, session: ClientRecord, call: AskElastic, now: int) -> str | None:
        """It waits for the smallest size, if it can have none now."""
        key, sizes = (session.number, call.name), tuple(sorted(set(call.sizes)))
        if key in self.all:
            return f"elastic slice {call.name!r} was asked for twice"
        if not sizes or sizes[0] < 1 or any(spec and (spec.of or spec.mesh) for spec in (call.slice, call.has)):
            return f"elastic slice {call.name!r} of sizes {call.sizes}: sizes are whole, from 1 on, and not of a mesh"
        each = ElasticRecord(session, call.name, call.slice, sizes, told=call.has.name if call.has else "", since=now)
        first = call.has or self._named(each, sizes[0])
        try:
            self._resources.bind(session.number, first)
        except Impossible as error:
            blame = Blame("refused", str(error))
            self._outbox.note(session.peer, Refused("elastic", call.request, blame))
            return None
        each.slices, self._seen = [first.name], -1
        self.all[key] = each
        return None

    def released(self, session: int, name: str) -> list[str]:
        """The slices that this elastic slice is: they are to be released; none if there is none of this name."""
        each = self.all.pop((session, name), None)
        return each.slices if each is not None else []

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
            if found := self._larger(each, current):
                self._become(each, found, "")
                self._resources.release(*current.key)
            self._tell(each, now)
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
        return found is not None and self._become(each, found, why) and self._tell(each, now)

    def _current(self, each: ElasticRecord) -> Binding | None:
        """What it is, or is becoming; the client may have released those before."""
        number = each.session.number
        there = [name for name in each.slices if self._resources.knows(number, name)]
        if len(there) < len(each.slices):
            each.slices, each.for_slice = there, None
        return self._resources.binding(number, there[-1]) if there else None

    def _must_leave(self, current: Binding) -> bool:
        """It lies on a host that gets no slices any more, and cannot move as it is."""
        assert current.place is not None
        hosts = spans.items(self._state.hosts_of(current.place))
        if not any(self._resources.is_cordoned(host) for host in hosts):
            return False
        return self._resources.elsewhere(*current.key) is None

    def _tell(self, each: ElasticRecord, now: int) -> bool:
        each.told, each.since = each.slices[-1], now
        binding = self._resources.binding(each.session.number, each.told)
        assert binding is not None
        self._outbox.note(each.session.peer, Sized(each.name, binding.spec, each.why))
        return True

    def _become(self, each: ElasticRecord, found: tuple[int, Place], why: str) -> bool:
        size, place = found
        spec = self._named(each, size)
        if not self._resources.adopt(each.session.number, spec, place, beside=each.slices[-1]):
            return False  # the client has called another one so
        each.slices, each.why = [*each.slices, spec.name], why
        if why:
            text = f"slice {each.name!r} of client {each.session.name!r} is to have {size} devices: {why}"
            self._outbox.effect(LogLine(text))
        return True

    def _named(self, each: ElasticRecord, size: int) -> SliceSpec:
        name = f"{each.name}@{size}"
        return replace(each.spec, name=f"{name}+" if name in each.slices else name, devices=size)

    # --- sizes ---------------------------------------------------------------------------------------------------

    def _larger(self, each: ElasticRecord, current: Binding) -> tuple[int, Place] | None:
        """Not while others wait for devices that it could have."""
        larger = each.sizes[bisect_left(each.sizes, current.spec.devices + 1) :]
        for b in self._resources.waiting() if larger else ():
            if b.claim and b.session != current.session and self._resources.bars(b, current):
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
        """For a slice that waits: those that are less urgent shrink, as few and as little as will do. Returns until
        when they may take their time; 0: none can."""
        keep = self._state.config.preempt_keep
        asked = [each for each in self.all.values() if each.for_slice == wanted.key]
        if asked:
            return asked[0].since + keep
        shrunk: list[tuple[ElasticRecord, int]] = []
        placed: list[tuple[Binding, Place]] = []
        for each, current in self._may_shrink(wanted):
            for size in reversed(each.sizes[: bisect_left(each.sizes, current.spec.devices)]):
                place = self._place(each, current, size, placed)
                if place is None:
                    continue
                room = self._resources.could_be(wanted, [current, *[b for b, _ in placed]], [*placed, (current, place)])
                if room is not None or size == each.sizes[0]:
                    shrunk.append((each, size))
                    placed.append((current, place))
                    break
            else:
                continue
            if room is not None:
                self._resources.claim(wanted, room)
                for (one, size), (_, there) in zip(shrunk, placed, strict=True):
                    if self._become(one, (size, there), f"slice {wanted.spec.name!r} waits for devices"):
                        one.for_slice = wanted.key
                        self._tell(one, now)
                return now + keep
        return 0

    def _may_shrink(self, wanted: Binding) -> list[tuple[ElasticRecord, Binding]]:
        """The least urgent first."""
        found = []
        for each in self.all.values():
            current = self._current(each)
            if current is None or len(each.slices) > 1 or not each.told or not current.place or current.held:
                continue
            if (
                current.session != wanted.session
                and current.rank >= wanted.rank
                and self._resources.bars(current, wanted)
            ):
                found.append((each, current))
        return sorted(found, key=lambda pair: (-pair[1].rank, -pair[1].ticket))
