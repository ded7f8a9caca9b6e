"""What others must hear of an island's policy: that it failed, and which devices it keeps free, and for whom.

A policy that reserves is asked again when a time comes that it has named (`Reserve.until`), or the scheduler's bound.
Both are waits of the watchdog, so they come as `Wakeup`, which is an event like others: logged, replayed, and the same
in the simulator as on devices.

Neighbours: the scheduler decides what is kept (`core/schedule/reservations`); `trace_rows` records it; `snapshot` shows
it. The function that matters: `look`.
"""

from collections.abc import Iterator
from functools import partial

import msgspec

from ..model import Spans
from ..protocol import LogLine, PolicyReplaced
from ..schedule import Reservation
from .outbox import TurnOutbox
from .records import RunRecord
from .state import ControllerModule, IslandState, State
from .trace_rows import Tracing
from .watch import Watchdog


class KeptDevices(msgspec.Struct, frozen=True):
    """Devices of an island that its policy keeps free. "" and -1: for nobody in particular."""

    devices: Spans
    client: int
    client_name: str
    program: str
    node: str
    since: int


class PolicyNews(ControllerModule):
    _state: State
    _outbox: TurnOutbox
    _tracing: Tracing | None
    _watch: Watchdog
    _kept: list[dict[tuple[Spans, int], KeptDevices]] = []
    _due: list[int | None] = []

    def __post_init__(self) -> None:
        self.grown()

    def grown(self) -> None:
        """There are islands now that were not there before."""
        new = self._state.islands[len(self._kept) :]
        self._kept += [{} for _ in new]
        self._due += [None for _ in new]

    def look(self, island: IslandState, now: int) -> None:
        """At the end of a turn in which the policy failed, or was asked and may reserve, or reserves no more."""
        scheduler, kept, name = island.scheduler, self._kept[island.island.index], island.island.name
        scheduler.news = False
        faults, scheduler.faults = scheduler.faults, []
        for policy, fault in faults:
            self._outbox.effect(PolicyReplaced(name, policy, fault))
        for text in scheduler.overruns():
            self._outbox.effect(LogLine(f"island {name!r}: {text}"))
        found = {(each.devices, each.client): each for each in scheduler.reserved}
        for key in [key for key in kept if key not in found]:
            gone = kept.pop(key)
            if self._tracing is not None:
                self._tracing.unreserved(gone.devices, gone.client)
        for key, each in found.items():
            if key not in kept:
                kept[key] = self._described(each, now)
                if self._tracing is not None:
                    self._tracing.reserved(each.devices, key[1])
        self._wake(island, now)

    def kept(self, island: int) -> tuple[KeptDevices, ...]:
        return tuple(self._kept[island].values())

    def audit(self) -> Iterator[tuple[str, int, int]]:
        """(what, as it is kept, counted anew): what is reserved is known here, and its end will come."""
        for island, kept, due in zip(self._state.islands, self._kept, self._due, strict=True):
            name, scheduler = island.island.name, island.scheduler
            reserved, closed = scheduler.reserved, scheduler.closed_queues()
            anew = len({(each.devices, each.client) for each in reserved})
            yield f"reservations on island {name!r}", len(kept), anew
            yield f"closed queues of island {name!r}", closed, sum(len(each.lanes) for each in reserved)
            yield f"the end of reservations on island {name!r}", due or -1, scheduler.next_wakeup() or -1

    def _described(self, each: Reservation, now: int) -> KeptDevices:
        session = self._state.sessions.get(each.client)
        program, node = "", ""
        if each.gang is not None:
            assert isinstance(each.gang.owner, RunRecord)
            session = each.gang.owner.session  # of the account that is called `each.client`
            program, node = each.gang.owner.describe(each.gang.step)
        name = session.name if session is not None else ""
        return KeptDevices(each.devices, each.client, name, program, node, now)

    def _wake(self, island: IslandState, now: int) -> None:
        at, index = island.scheduler.next_wakeup(), island.island.index
        if at == self._due[index]:
            return
        self._due[index] = at
        if at is None:
            self._watch.end(("reserved", index))
        else:
            self._watch.begin_for(("reserved", index), now, at - now, partial(self._come, island))

    def _come(self, island: IslandState, now: int) -> None:
        self._due[island.island.index] = None
        island.scheduler.wakeup(now)
