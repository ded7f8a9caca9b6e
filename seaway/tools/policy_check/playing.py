"""Plays one world: core's own scheduler, devices that run their queues in order, and a clock that jumps.

What is judged here, and not by `judge`, takes time to show: that a gang waits while hundreds that came later enter
before it, or that devices are kept free for too long.

The function that matters: `play`.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import msgspec

from core.model import Atoms, spans
from core.schedule import Scheduler, Ticket

from .judge import MakePolicy, Misdeed, gang_name, judge_of
from .random_worlds import ComingGang, PolicyWorld

STARVED = 600  # gangs that came later and have entered on its devices, while a gang waits
SPINS = 1_000  # times that a policy has itself asked again, with nothing else in between


class PlayedWorld(msgspec.Struct):
    """How it went: what was done wrong, if anything, and all that happened."""

    found: Misdeed | None
    log: list[str]
    asked: int


def play(world: PolicyWorld, make: MakePolicy, limit: int, may_starve: bool) -> PlayedWorld:
    """`limit`: nanoseconds for which devices may be kept free, beyond what runs there."""
    playing = _Playing(world, make, limit, may_starve)
    try:
        playing.run()
        found = None
    except Misdeed as misdeed:
        found = misdeed
    return PlayedWorld(found, playing.log, playing.judge.asked)


class _Playing:
    def __init__(self, world: PolicyWorld, make: MakePolicy, limit: int, may_starve: bool) -> None:
        self.log: list[str] = []
        self.now = 0
        self.judge = judge_of(make, self.say)
        self._atoms = Atoms()
        self._scheduler = Scheduler(self._atoms, self.judge, world.window, max_reserved=limit)
        self._may_starve = may_starve
        self._todo: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._gangs: dict[int, tuple[Ticket, ComingGang]] = {}  # number -> those that wait
        self._passed: dict[int, int] = {}  # number -> gangs that came later and entered on its devices
        self._queues: dict[int, deque[Ticket]] = {}  # device -> what is in its order
        self._running: dict[int, ComingGang] = {}  # number -> those in the order
        self._started: set[int] = set()
        self._left: dict[int, int] = {}  # client -> gangs to come, that wait, or run
        self._spins = 0
        for gang in world.coming:
            self._left[gang.client] = self._left.get(gang.client, 0) + 1 + gang.again
            self._at(gang.at, self._comes, gang)

    def run(self) -> None:
        while True:
            due = self._scheduler.next_wakeup()
            if self._todo and (due is None or self._todo[0][0] <= due):
                self.now, _, what, about = heappop(self._todo)
                self._spins = 0
                what(*about)
            elif due is not None:
                self.now = due
                self._spins += 1
                self.say("a time has come until which devices were reserved")
                self._scheduler.wakeup(due)
            else:
                return
            self._judge()
            self._enter()

    def say(self, text: str) -> None:
        self.log.append(f"{self.now / 1e6:9.3f} ms  {text}")

    # --- what happens

    def _at(self, when: int, what: Callable[..., None], *about: Any) -> None:
        self._count += 1
        heappush(self._todo, (when, self._count, what, about))

    def _comes(self, gang: ComingGang) -> None:
        self._count += 1
        ticket = Ticket(
            run=self._count, step=0, client=gang.client, place=self._atoms.intern_devices(gang.devices),
            cost=gang.cost, weight=gang.weight, priority=gang.priority,
            deadline=self.now + gang.due if gang.due else 0, submitted=self.now,
        )  # fmt: skip
        self._scheduler.offer(ticket, self.now)
        self._gangs[ticket.number] = ticket, gang
        about = [f"{gang.cost / 1e6:g} ms"]
        about += [f"weight {gang.weight}"] if gang.weight > 1 else []
        about += [f"priority {gang.priority}"] if gang.priority else []
        about += [f"due at {ticket.deadline / 1e6:g} ms"] if gang.due else []
        self.say(
            f"{gang_name(ticket)} of client {gang.client} comes, on devices {spans.text(gang.devices)}: "
            f"{', '.join(about)}"
        )
        if gang.patience:
            self._at(self.now + gang.patience, self._withdraw, ticket)

    def _withdraw(self, ticket: Ticket) -> None:
        found = self._gangs.pop(ticket.number, None)
        if found is not None:
            self.say(f"{gang_name(ticket)} is withdrawn")
            self._scheduler.withdraw(ticket.run)
            self._passed.pop(ticket.number, None)
            self._over(found[1], 1 + found[1].again)

    def _ends(self, ticket: Ticket) -> None:
        self.say(f"{gang_name(ticket)} ends")
        for low, high in self._atoms.devices_of_key(ticket.place):
            for device in range(low, high):
                self._queues[device].popleft()
        self._scheduler.finished(ticket, self.now)
        self._over(self._running.pop(ticket.number), 1)
        self._start()

    def _over(self, gang: ComingGang, gangs: int) -> None:
        self._left[gang.client] -= gangs
        if not self._left[gang.client]:
            self.say(f"client {gang.client} goes")
            self._scheduler.client_gone(gang.client)

    # --- what enters

    def _enter(self) -> None:
        while (ticket := self._pick()) is not None:
            _, gang = self._gangs.pop(ticket.number)
            self._running[ticket.number] = gang
            for low, high in gang.devices:
                for device in range(low, high):
                    self._queues.setdefault(device, deque()).append(ticket)
            self._passed.pop(ticket.number, None)
            self._start()
            if gang.again:
                self._comes(msgspec.structs.replace(gang, again=gang.again - 1))
            self._count_passed(ticket)

    def _pick(self) -> Ticket | None:
        try:
            ticket = self._scheduler.pick(self.now)
        except Exception:
            self._judge()  # a policy that breaks what it was shown may break the scheduler, too
            raise
        self._judge()
        return ticket

    def _start(self) -> None:
        """Gangs that are first on all their devices start."""
        for ticket in list(self._running_tickets()):
            if ticket.number not in self._started:
                self._started.add(ticket.number)
                gang = self._running[ticket.number]
                self._at(self.now + gang.lasts, self._ends, ticket)

    def _running_tickets(self) -> list[Ticket]:
        firsts = {queue[0].number: queue[0] for queue in self._queues.values() if queue}
        return [
            ticket
            for number, ticket in sorted(firsts.items())
            if all(
                self._queues[device][0] is ticket
                for low, high in self._running[number].devices
                for device in range(low, high)
            )
        ]

    # --- what is wrong

    def _judge(self) -> None:
        if self.judge.found is not None:
            raise self.judge.found
        if self._scheduler.overruns():
            raise Misdeed(
                "keeps devices",
                "kept devices free for too long: the gang that had waited longest would have entered without it here",
            )
        if self._spins > SPINS:
            raise Misdeed(
                "asks again and again",
                f"reserved devices {SPINS} times for a moment each, with nothing else in between: reserve them until "
                f"a time that matters, or, without `until`, until something happens",
            )

    def _count_passed(self, entered: Ticket) -> None:
        if self._may_starve:
            return
        for number, (ticket, gang) in self._gangs.items():
            if number < entered.number and spans.overlap(gang.devices, self._atoms.devices_of_key(entered.place)):
                passed = self._passed[number] = self._passed.get(number, 0) + 1
                if passed >= STARVED:
                    raise Misdeed(
                        "starves",
                        f"starved {gang_name(ticket)} of client {gang.client}: it came at {ticket.since / 1e6:g} ms, "
                        f"and {passed} gangs that came later have entered before it on its devices "
                        f"(a policy that is meant to do so: may_starve=True)",
                    )
