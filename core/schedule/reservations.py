"""Devices that a policy keeps free: for which queues, until when, and for how long at most.

A policy that answers `Reserve` closes all queues it was asked about, as a full window would. They are open again when
the time that it named has come, or when a gang of the island comes, ends or is withdrawn: then it is asked again.

**The bound.** No queue is closed like this for ever. From the first such answer that it meets until a gang enters from
it, it waits at most `limit` ns, and three times as long as all that runs in its domain should have taken then: waiting
for running gangs is what reservations are for. After that its oldest gang enters, and `overruns` says so.

Neighbours: `scheduler` asks the policy and tells of gangs; `outlook` is what the policy is shown. The functions that
matter: `ask`, `release`, `next_wakeup`.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from operator import attrgetter

import msgspec

from ..model import Atoms, Spans, spans
from .contention import Contention, Domain, PlaceQueue
from .outlook import ExpectedEnds, GangInOrder, Outlook
from .policy import Board, Policy, Ready, Reserve, Ticket

PATIENT = 60_000_000_000  # nanoseconds for which a policy may keep devices free ...
TIMES = 3  # ... and so many times as long as what runs should take
DEVICES_KEPT = 256  # sets of lanes whose devices are not worked out again
RESERVES = "answered Reserve, which takes `reserves = True` in its class,"  # said of other policies


class WrongAnswer(Exception):
    """What a policy answered wrongly, in words."""


class Reservation(msgspec.Struct, eq=False):
    """Devices on which the policy lets nothing enter, though something may."""

    devices: Spans
    gang: Ticket | None  # for which gang, if it has come
    client: int  # for whom; -1: for nobody in particular
    ends: int  # when the policy is asked again, at the latest
    lanes: Sequence[PlaceQueue] = ()


class Reservations:
    def __init__(self, atoms: Atoms, lanes: Contention, limit: int) -> None:
        self.limit = limit
        self.current: list[Reservation] = []
        self.overruns: list[str] = []  # what was kept too long; the owner reports it
        self._atoms = atoms
        self._contention = lanes
        self._bounds: dict[int, int] = {}  # lane -> when it has been closed for long enough
        self._running: dict[int, list[GangInOrder]] = {}  # lane -> what has entered and not ended, in order
        self._entered = 0
        self._expected: dict[int, ExpectedEnds] = {}  # by domain, while they hold
        self._reshaped = 0  # what `Contention.reshaped` was then
        self._devices = lru_cache(DEVICES_KEPT)(self._devices_of)

    # --- what runs

    def entered(self, ticket: Ticket, domain: Domain, now: int) -> None:
        self._entered += 1
        gang = GangInOrder(ticket, self._entered, now, now)
        self._running.setdefault(ticket.place, []).append(gang)
        self._bounds.pop(ticket.place, None)
        known = self._known(domain, now)
        if known is not None:
            known.add(gang)

    def finished(self, ticket: Ticket, now: int) -> None:
        """The gangs behind it on its devices start now at the earliest."""
        running, lane = self._running, self._contention.known[ticket.place]
        mine = [each for each in running.get(ticket.place, ()) if each.ticket is not ticket]
        if mine:
            running[ticket.place] = mine
        else:
            running.pop(ticket.place, None)
        for each in mine:
            each.since = now
        for key in lane.near.keys() & running.keys():
            for each in running[key]:
                each.since = now
        if lane.domain is not None:
            self._expected.pop(lane.domain.id, None)

    def forget(self, lane: PlaceQueue) -> None:
        """Nothing waits there any more."""
        self._bounds.pop(lane.key, None)
        if lane.domain is not None and not lane.flying:
            self._expected.pop(lane.domain.id, None)  # the domain may be over

    def _known(self, domain: Domain, now: int) -> ExpectedEnds | None:
        """Return what was worked out for this domain, if it holds still."""
        if self._reshaped != self._contention.reshaped:
            self._reshaped = self._contention.reshaped
            self._expected.clear()
        found = self._expected.get(domain.id)
        return found if found is not None and found.hold(now) else None

    def _ends(self, domain: Domain, now: int) -> ExpectedEnds:
        found = self._known(domain, now)
        if found is None:
            running = self._running
            order = [each for key in running.keys() & domain.lanes.keys() for each in running[key]]
            order.sort(key=attrgetter("number"))
            found = self._expected[domain.id] = ExpectedEnds(self._contention, order, now)
        return found

    # --- what is kept

    def ask(self, policy: Policy, domain: Domain, boards: list[Board], now: int) -> Ticket | None:
        """Return what the policy picks; None if it reserves the devices. Raises what it raises, or `WrongAnswer`."""
        late = self._overdue(boards, type(policy).__name__, now)
        if late is not None:
            return late
        lanes = [self._contention.get(next(iter(board.values()))[0][-1].place) for board in boards]
        outlook = Outlook(self._atoms, self._contention, domain, lanes, partial(self._ends, domain, now), now)
        ready = Ready(domain.id, boards, outlook)
        answer = policy.pick(ready, now)
        if isinstance(answer, Reserve):
            self._keep(answer, lanes, outlook, now)
            return None
        if answer not in ready:
            raise WrongAnswer("picked what is not ready")
        return answer

    def _keep(self, answer: Reserve, ready: Sequence[PlaceQueue], outlook: Outlook, now: int) -> None:
        """Close these queues as the policy asks."""
        gang, until = answer.gang, answer.until
        whom: object = gang  # whatever a user's code says
        when: object = until
        if whom is not None and (not isinstance(whom, Ticket) or whom.queue is None):
            raise WrongAnswer("reserved devices for what does not wait")
        if when is not None and (not isinstance(when, int) or when <= now):
            raise WrongAnswer(f"reserved devices until {until!r}, which is no time to come (it is {now}),")
        fresh = now + self.limit + TIMES * (outlook.last_end() - now)
        bound = min(self._bounds.setdefault(lane.key, fresh) for lane in ready)
        devices = self._devices(tuple([lane.key for lane in ready]))
        client = gang.client if gang is not None else -1 if answer.client is None else answer.client
        self.current.append(Reservation(devices, gang, client, min(bound, until or bound), ready))
        self._contention.keep(ready)

    def _devices_of(self, lanes: tuple[int, ...]) -> Spans:
        return spans.union(*map(self._atoms.devices_of_key, lanes))

    def release(self) -> None:
        """Open all queues again: something has happened, or a time has come."""
        current = self.current[:]
        self.current.clear()
        for reservation in current:
            self._contention.let_go(reservation.lanes)

    def _overdue(self, boards: Sequence[Board], policy: str, now: int) -> Ticket | None:
        """Return the gang that enters whatever the policy says, if one of these queues was closed for too long."""
        if not self._bounds:
            return None
        heads = [queue[0] for board in boards for queue in board.values()]
        late = [head for head in heads if self._bounds.get(head[-1].place, now + 1) <= now]
        if not late:
            return None
        ticket = min(late)[-1]
        where = spans.text(self._atoms.devices_of_key(ticket.place))
        self.overruns.append(
            f"policy {policy} kept devices {where} for too long: run {ticket.run} has entered without it"
        )
        return ticket

    def next_wakeup(self) -> int | None:
        """When the policy is to be asked again, if nothing happens before."""
        return min((each.ends for each in self.current), default=None)
