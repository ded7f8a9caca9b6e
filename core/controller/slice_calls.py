"""What clients ask for their slices, and operators for those of clients: to be moved, suspended or resumed.

A client hears when all that it asked for is done, or why it was not; an operator at once whether it has begun.
Neighbours: `clients` brings calls; `relocation` does it. The functions that matter: `called`, `operate`, `work`.
"""

import msgspec

from ..model import Impossible, device_spans, spans
from ..protocol import Blame, OperateSlices, Refused, Relocate, Relocated
from ..slices import Resources
from .outbox import TurnOutbox
from .records import ClientRecord
from .relocation import Relocation
from .state import ControllerModule, State

MOST = 64  # calls of a client that have not been answered


class AskedFor(msgspec.Struct, eq=False):
    """What a client has asked for and has not heard of."""

    session: ClientRecord
    call: Relocate
    slices: list[tuple[int, str]]


class SliceCalls(ControllerModule):
    _state: State
    _outbox: TurnOutbox
    _relocation: Relocation
    _resources: Resources
    asked: list[AskedFor] = []

    def called(self, session: ClientRecord, call: Relocate, now: int) -> str | None:
        """A client asks for its own slices."""
        names = [call.slice] if call.slice else self._names(session.number)
        try:
            if sum(each.session is session for each in self.asked) >= MOST:
                raise Impossible(f"{MOST} such calls of this client have not been answered")
            island = self._state.cluster.island(call.island).index if call.island else -1
            wrong = self.operate(OperateSlices(session.number, call.action, call.slice, island=island), now)
        except Impossible as error:
            wrong = str(error)
        if wrong:
            self._outbox.note(session.peer, Refused("relocate", call.request, Blame("refused", wrong)))
        else:
            self.asked.append(AskedFor(session, call, [(session.number, name) for name in names]))
        return None

    def _answer(self) -> None:
        """Clients hear of what is done."""
        for each in [each for each in self.asked if each.session.gone or not self._is_under_way(each)]:
            self.asked.remove(each)
            wrong = [self._relocation.failed[key] for key in each.slices if key in self._relocation.failed]
            if wrong:
                blame = Blame("moved", wrong[0])
                self._outbox.note(each.session.peer, Refused("relocate", each.call.request, blame))
            else:
                self._outbox.note(each.session.peer, Relocated(each.call.request))

    def _is_under_way(self, each: AskedFor) -> bool:
        phases = [self._relocation.under_way[key].phase for key in each.slices if key in self._relocation.under_way]
        return any(phase != "parked" or each.call.action == "resume" for phase in phases)

    def _names(self, session: int) -> list[str]:
        return [b.spec.name for b in self._resources.bindings() if b.session == session]

    def operate(self, event: OperateSlices, now: int) -> str:
        """What an operator asks for. Returns why nothing of it can be done, or ""."""
        number, names = event.client, [event.slice]
        if number not in self._state.sessions:
            return f"there is no client {number}"
        if event.action == "resume":  # the others stay suspended, and one that is bound later is not
            self._relocation.resting.pop(number, None)
        if not event.slice:
            names = self._names(number)
            if event.action == "suspend":
                self._relocation.resting[number] = None
        wrong = [self._operate(event, name, now) for name in names]
        if not event.slice and event.action == "suspend":
            return ""  # those that cannot be suspended yet are when they can
        return min(wrong, default=f"client {number} has no slices")

    def _operate(self, event: OperateSlices, name: str, now: int) -> str:
        if event.action == "move":
            islands = self._state.island_of_host
            hosts = [devices for host in spans.items(event.away) for devices in islands(host).island.devices_of(host)]
            if not hosts and event.island < 0 and (place := self._resources.place(event.client, name)):
                hosts = list(device_spans(place))  # away from here
            return self._relocation.move(event.client, name, now, spans.normal(hosts), event.island)
        return (self._relocation.suspend if event.action == "suspend" else self._relocation.resume)(
            event.client, name, now
        )

    def work(self, now: int) -> bool:
        """What is on its way goes on. True: something has moved."""
        changed = self._relocation.work(now)
        if self.asked:
            self._answer()
        return changed
