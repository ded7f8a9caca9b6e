"""Empties hosts at an operator's word: no new slices come, those that are there move away, and then the host leaves.

A *cordoned* host keeps the slices that it has. One that *drains* is cordoned, and each slice that it has a part of is
moved as soon as there is another place for it. When none of a client's arrays is left there, the host is dismissed for
good: it ends, and may come back when the cordon is lifted. With a deadline it is dismissed then, whatever is left. A
host that asks to leave is emptied too, for as long as it says, or until nothing that is there moves any more.

Neighbours: `Resources` keeps cordons; `relocation` moves slices; `membership` lets hosts go. The functions that matter:
`cordon`, `drain`, `leaves`, `work`.
"""

import msgspec

from ..memory import Buffer, Buffers
from ..model import SliceSpec, device_spans, spans
from ..protocol import LogLine
from ..slices import LEFT, Binding, Resources
from .elastic import Elastic
from .membership import Membership
from .outbox import TurnOutbox
from .records import RunRecord
from .relocation import Relocation
from .runs import Runs
from .state import ControllerModule, State
from .watch import Watchdog

SOON, LATE = 1_000_000_000, 60_000_000_000  # nanoseconds between tries to move a slice


class Drain(msgspec.Struct, eq=False):
    host: int
    since: int
    until: int = 0  # the deadline; 0: none
    asked: str = ""  # why it asked to leave; then it does, whatever an operator wants
    ordered: bool = False  # an operator wants it, and it is not to come back
    cordoned: bool = False  # an operator does: it still is when this is over
    waits: str = ""  # why it is not empty yet
    seen: tuple[int, int] = (-1, -1)  # what places and moves were like when it was looked at last
    tried: dict[tuple[int, str], int] = {}  # slices, and when they may be tried again
    pause: int = SOON  # until the next try, after one that has failed
    adopted: list[tuple[int, str]] = []  # slices that stand for arrays whose slices were released


class Drains(ControllerModule):
    _state: State
    _buffers: Buffers
    _elastic: Elastic
    _membership: Membership
    _outbox: TurnOutbox
    _relocation: Relocation
    _resources: Resources
    _runs: Runs
    _watch: Watchdog
    under_way: dict[int, Drain] = {}  # by host

    # --- in ------------------------------------------------------------------------------------------------------

    def cordon(self, host: int, on: bool, now: int) -> str:
        """Returns why not, or ""."""
        if on == self.is_cordoned(host):
            return f"host {host} is {'' if on else 'not '}cordoned"
        drain = self.under_way.get(host)
        if drain is None:
            self._resources.cordon(host, on)
        else:
            drain.cordoned = on
            drain.ordered &= on
            if not drain.asked:
                self._end(drain)
        if not on:
            self._state.drained.pop(host, None)
            self._runs.slices_bound(now)
        return ""

    def is_cordoned(self, host: int) -> bool:
        """As an operator wants it. One that is about to leave gets no new slices either."""
        drain = self.under_way.get(host)
        return self._resources.is_cordoned(host) if drain is None else drain.cordoned

    def drain(self, host: int, patience: int, now: int) -> str:
        """Returns why not, or "". `patience`: nanoseconds after which it leaves, whatever is left; 0: no matter how
        long."""
        if not self._is_here(host):
            return f"host {host} is not here"
        drain = self._begin(host, now)
        drain.ordered = drain.cordoned = True
        self._limit(drain, now + patience if patience else 0, now)
        return ""

    def leaves(self, host: int, reason: str, patience: int, now: int) -> None:
        """It asked for that, and ends after so many nanoseconds at the latest."""
        if patience <= 0 or not self._is_here(host):
            self._membership.leave(host, reason, now)
            return
        drain = self._begin(host, now)
        until = now + patience
        self._limit(drain, min(until, drain.until or until), now)
        drain.asked = drain.asked or reason or "it asked to leave"

    def _is_here(self, host: int) -> bool:
        return spans.contains(self._state.island_of_host(host).members, host)

    def _begin(self, host: int, now: int) -> Drain:
        if host not in self.under_way:
            self.under_way[host] = Drain(host, now, cordoned=self._resources.is_cordoned(host))
            self._state.draining[host] = None
            self._resources.cordon(host, True)
        return self.under_way[host]

    def _limit(self, drain: Drain, until: int, now: int) -> None:
        """A new deadline; a host that asked to leave has no more time than it had."""
        if drain.asked:
            until = min(until or drain.until, drain.until)
        drain.until = until
        if until:
            length = max(0, until - now)
            self._watch.begin_for(("drained", drain.host), now, length, lambda at: None)  # `work` looks at the time
        else:
            self._watch.end(("drained", drain.host))

    # --- forward -------------------------------------------------------------------------------------------------

    def work(self, now: int) -> bool:
        """True: something has moved."""
        moved = False
        for drain in list(self.under_way.values()):
            moved |= self._step(drain, now)
        return moved

    def _step(self, drain: Drain, now: int) -> bool:
        host, island = drain.host, self._state.island_of_host(drain.host)
        if not spans.contains(island.members, host) or host in island.leaving:
            self._end(drain)
            return False
        late = bool(drain.until) and now >= drain.until
        if not late:
            here = self._slices(host)
            if here:
                begun = self._move_away(drain, here, now)
                if begun or not drain.asked or any(map(self._moves, here)):
                    return begun
            elif run := next((run for run in self._state.runs.values() if _needs(run, host)), None):
                drain.waits = f"program {run.program.ir.name!r} of {self._state.client_text(run.session.number)}"
                return False
            elif left := self._left(host):
                drain.waits = f"arrays of {self._state.client_text(left[0].client)}"
                alone = next((buffer for buffer in left if not self._relocation.has(buffer)), None)
                return alone is not None and self._adopt(drain, alone)
        if drain.ordered:
            self._state.drained[host] = None
        if not drain.asked:
            text = f"host {host} has drained" if not late else f"host {host} leaves: its time is up"
            self._outbox.effect(LogLine(text))
        why = drain.asked or ("its time to drain was up" if late else "it was drained")
        self._membership.leave(host, why, now)
        return True

    def _end(self, drain: Drain) -> None:
        del self.under_way[drain.host], self._state.draining[drain.host]
        for what in ("drained", "drains on"):
            self._watch.end((what, drain.host))
        if not drain.cordoned:
            self._resources.cordon(drain.host, False)
        for key in drain.adopted:
            self._resources.release(*key)

    def _moves(self, binding: Binding) -> bool:
        """It is about to have other devices."""
        each = self._relocation.under_way.get(binding.key)
        return self._elastic.moves(binding) or (each is not None and each.phase != "parked")

    def _slices(self, host: int) -> list[Binding]:
        """Those that have a device of this host, or will have."""
        devices = self._state.island_of_host(host).island.devices_of(host)
        return [
            b for b in self._resources.bindings()
            if any(place and spans.overlap(device_spans(place), devices) for place in (b.place, b.target, b.back))
        ]  # fmt: skip

    def _move_away(self, drain: Drain, here: list[Binding], now: int) -> bool:
        """Those that can move begin to. True: one has. One whose move has failed is tried again later, and later."""
        seen = (self._resources.version, len(self._relocation.under_way))
        if drain.seen == seen and all(now < again for again in drain.tried.values()):
            return False
        begun = False
        for binding in here:
            moving = self._relocation.under_way.get(binding.key)
            if (moving is not None and moving.phase != "parked") or now < drain.tried.get(binding.key, 0):
                drain.waits = self._relocation.failed.get(binding.key, drain.waits)
                continue
            drain.waits = self._relocation.move(*binding.key, now)
            if drain.waits:
                drain.tried.pop(binding.key, None)  # there is no place: it is tried when that may be otherwise
                continue
            begun = True
            drain.pause = min(2 * drain.pause, LATE) if binding.key in drain.tried else SOON
            drain.tried[binding.key] = now + drain.pause
            self._watch.begin_for(("drains on", drain.host), now, drain.pause, lambda at: None)
        drain.seen = (self._resources.version, len(self._relocation.under_way))
        return begun

    def _left(self, host: int) -> list[Buffer]:
        """What somebody still has there."""
        return [
            b for b in self._buffers
            if b.state != "poisoned" and (b.handle or b.holds > b.users) and spans.contains(b.hosts, host)
            and b.client in self._state.sessions
        ]  # fmt: skip

    def _adopt(self, drain: Drain, buffer: Buffer) -> bool:
        """The slice on which it was made was released: there is to be one that can move."""
        place, number = buffer.layout.place, buffer.client
        kind = self._state.cluster.islands[place.island].kind
        spec = SliceSpec(f"{LEFT}, {self._resources.version})", place.size, kind=kind)
        drain.adopted.append((number, spec.name))
        return self._resources.adopt(number, spec, place)


def _needs(run: RunRecord, host: int) -> bool:
    """It has been admitted, and has something on this host."""
    return run.using and any(spans.contains(hosts, host) for hosts in run.rows.island_hosts.values())
