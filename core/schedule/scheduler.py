"""One island's scheduler: takes the gangs that may enter the island's order one at a time, as the policy says.

Call `offer` for a gang when all that it depends on has entered an order. Call `pick` until it returns None. Call
`finished` when a gang has ended. Four rules hold with every policy:

**Window.** A gang is eligible if each of its devices has fewer than `window` gangs ahead of it, or more if these are
short (`contention.Window`). The window covers the time of a message to a host and back, so that devices do not run
idle. A longer window only makes the policy decide earlier than it must. Each *device* has its own window, so work on
one half of an island does not delay the other half.

**Work conservation.** While a gang is eligible, one is picked. Devices are never kept idle for the sake of a share or
a priority. The next two rules are the only exceptions, and a policy that reserves devices (`reservations`); all have a
bound.

**Passing.** A wide gang needs room on all its devices at once. Narrow gangs could take each device as soon as it is
free, for ever. So the scheduler counts: a gang *passes* another if it enters although the policy prefers the other
gang, which wants some of the same devices and cannot enter because *some* of its devices have no room. Once a place
has been passed `max_passes` times since it was last served, no gang may pass it any more. A gang that the policy
prefers, for example by its priority, does not count as passing: the bound is on what the shape of a gang costs it, not
on the policy's decisions. When such a gang enters, the count starts again, and gangs that were barred for the place
may go on: it would be wrong to keep devices idle for a gang that the policy itself puts behind others. Nothing is
counted for a policy that reserves: it sees who waits for room, and keeps that room free.

**Late inputs.** A gang may be offered before its inputs exist (`ripe=False`: they come from another island, where the
gangs that make them have not finished). If it enters early, it starts as soon as its inputs arrive; that is the
purpose of asynchronous dispatch. But devices run gangs in order, so all gangs behind it wait until then, even if they
are ready. If it is held until it is ripe, it starts later, by the time of a message to the controller and back less
the time of the transfer; devices that have other work lose nothing by that. So early dispatch gains at most one round
trip for each hop between islands, and may lose any amount of time. The option `early` decides:

    always  gangs enter early. This is right if an island has one client.
    never   gangs enter when they are ripe. Nothing waits behind them, but each hop costs a round trip.
    idle    (default) a gang enters early if no ripe gang waits for any of the same devices, and if no other client
            has used any of them for `quiet` ns, since such a client may soon return with work that is ready. A single
            client gets `always`, several get `never`, and no estimate of the delay is needed.

A gang that waits alone on the island, and would be picked next whatever the policy says, is not queued (`_alone`). It
is queued as soon as another comes, or anything else happens before it is picked.

If a policy raises, or picks a gang that is not ready, fifo replaces it for good, and `faults` says why.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any, Literal

from ..model import Atoms
from .contention import Contention, Domain, PlaceQueue, Window, connected
from .policy import HOOKS, Board, Fifo, Policy, Ready, Reserve, SliceUse, Ticket, definers, writes
from .reservations import PATIENT, RESERVES, Reservations, WrongAnswer
from .waits import GangQueue, WaitingGang, first_of_each_queue, waiting_gang

EarlyEntry = Literal["always", "idle", "never"]


class Scheduler:
    def __init__(
        self,
        atoms: Atoms,
        policy: Policy | type[Policy],
        window: int | Window = 2,
        max_passes: int = 8,
        early: EarlyEntry = "idle",
        *,
        quiet: int = 1_000_000_000,
        max_reserved: int = PATIENT,
    ) -> None:
        window = Window(window) if isinstance(window, int) else window
        if window.gangs < 1 or max_passes < 0:
            raise ValueError(f"a window of {window.gangs} and {max_passes} passes: must be at least 1 and 0")
        self.faults: list[tuple[str, str]] = []  # (policy, what it did); the owner reports them
        self.news = False  # whether there are faults or overruns, or other devices are reserved than were
        self.max_passes = max_passes
        self.early = early
        self.quiet = quiet
        self.paused = False  # during a change of epoch, when nothing is picked
        self._atoms = atoms
        self._contention = Contention(atoms, window, early == "idle", self._tell)
        self._use(policy() if isinstance(policy, type) else policy)
        self.live = self._contention.live  # not empty if a gang may enter
        self._reservations = Reservations(atoms, self._contention, max_reserved)
        self.reserved = self._reservations.current  # what the policy keeps free now
        self._runs: dict[int, list[Ticket]] = {}  # run -> its tickets that wait
        self._alone: Ticket | None = None  # the only ticket that waits; it is in no queue
        self._offers = 0

    # --- called by the controller

    def offer(self, ticket: Ticket, now: int) -> None:
        """Let a gang wait to enter. Its place, cost and client must not change from here on."""
        ticket.turn("offer")
        if self.reserved:
            self._ask_again()
        lane = self._contention.known.get(ticket.place) or self._contention.get(ticket.place)
        self._offers += 1
        ticket.number, ticket.since = self._offers, now
        ticket.devices = lane.size
        if not self._runs and self._may_skip_queue and ticket.ripe and not lane.full and lane.barred is None:
            self._runs[ticket.run] = [ticket]
            domain = lane.domain or self._contention.rouse(lane)
            self.live[domain.id] = domain
            self._alone = ticket
            return
        if self._alone is not None:
            self._queue_alone()
        waiting = self._runs.get(ticket.run)
        if waiting is None:
            self._runs[ticket.run] = [ticket]
        else:
            waiting.append(ticket)
        self._push(ticket, lane)

    def pick(self, now: int) -> Ticket | None:
        """Return the gang that enters now, or None. Call this until it returns None, so that no device waits."""
        if self._alone is not None and not self.paused:
            return self._enter_alone(self._alone, now)
        while not self.paused:
            found = self._candidates(now)
            if found is None:
                break
            domain, boards = found
            if self._reserves:
                chosen = self._ask_or_reserve(domain, boards, now)
                if chosen is not None:
                    self._enter(chosen, domain, now)
                    return chosen
                continue
            ticket = _only(boards) if self._undivided else None
            if ticket is None:
                ticket = self._ask(Ready(domain.id, boards), now)
            if len(domain.lanes) == 1 or self._may_pass(ticket, domain, now):
                self._enter(ticket, domain, now)
                return ticket
        return None

    def finished(self, ticket: Ticket, now: int) -> None:
        """A gang of the order has ended, well or not: its devices have room."""
        ticket.turn("finish")
        if self._alone is not None:
            self._queue_alone()
        if self.reserved:
            self._ask_again()
        lane = self._contention.known[ticket.place]
        if "finished" in self._hooks:
            assert lane.domain is not None
            self._tell("finished", ticket, lane.domain.id, now)
        if self._reserves:
            self._reservations.finished(ticket, now)
        self._contention.leave(lane, ticket.cost)

    def wakeup(self, now: int) -> None:
        """A time may have come until which devices were kept."""
        due = self.next_wakeup()
        if due is not None and due <= now:
            self._ask_again()

    def next_wakeup(self) -> int | None:
        return self._reservations.next_wakeup()

    def closed_queues(self) -> int:
        """How many queues the policy has closed, counted anew."""
        return sum(lane.kept for lane in self._contention.known.values())

    def overruns(self) -> list[str]:
        """Return, once, what the policy has kept for too long."""
        found = self._reservations.overruns[:]
        self._reservations.overruns.clear()
        return found

    def ripen(self, ticket: Ticket) -> None:
        """The gang is ripe now: its inputs are here, or the gangs that make them have finished."""
        if ticket.ripe:
            return
        if self.reserved:
            self._ask_again()
        ticket.ripe = True
        queue = ticket.queue
        lane = self._contention.known.get(ticket.place)
        if queue is not None and lane is not None and lane.late.get(ticket.client) is queue:
            ticket.queue = None
            self._push(ticket, lane)
            self._clean(lane, lane.late, ticket.client)

    def withdraw(self, run: int) -> int:
        """Withdraw all gangs of a run that have not entered. Return their number."""
        return self._withdraw(list(self._runs.get(run, ())))

    def client_gone(self, client: int) -> int:
        """Withdraw all gangs of a client that have not entered, and let the policy forget it. Return their number."""
        number = self._withdraw([ticket for run in self._runs.values() for ticket in run if ticket.client == client])
        for lane in self._contention.known.values():
            lane.seen.pop(client, None)
        self._tell("gone", client)
        return number

    def _withdraw(self, tickets: list[Ticket]) -> int:
        if self._alone is not None:
            self._queue_alone()
        if self.reserved:
            self._ask_again()
        for ticket in tickets:
            self._take(ticket, "withdraw")
        return len(tickets)

    def waiting(self) -> list[WaitingGang]:
        """Return all gangs that wait, with the reason for each, the oldest run first."""
        tickets = [ticket for run in self._runs.values() for ticket in run]
        return [self._waiting(each) for each in sorted(tickets, key=lambda each: each.age)]

    def queues(self) -> list[GangQueue]:
        """Return what waits by client and place, with the reason for each, the oldest run first."""
        queues = first_of_each_queue(ticket for run in self._runs.values() for ticket in run)
        devices = self._atoms.devices_of_key
        return [GangQueue(self._waiting(first), devices(first.place), count) for first, count in queues]

    def _waiting(self, ticket: Ticket) -> WaitingGang:
        lane = self._contention.known[ticket.place]
        return waiting_gang(ticket, lane, self._contention, self.reserved, self.paused)

    # --- choosing

    def _candidates(self, now: int) -> tuple[Domain, list[Board]] | None:
        """Return gangs that may enter now and compete for devices, with their domain.

        They are ripe, or may enter early because no other client needs their devices. Their places overlap. Other
        places come in a later call, so a pick is cheap on an island with many small places.
        """
        for domain in self.live.values():
            if len(domain.open) == 1:
                for lane in domain.open.values():
                    if lane.ripe:
                        return domain, [lane.ripe]
            for lanes in connected(domain.open) if len(domain.open) > 1 else (list(domain.open.values()),):
                boards = [lane.ripe for lane in lanes if lane.ripe]
                if not boards and self.early == "idle":
                    boards = [early for lane in lanes if (early := self._early(lane, now))]
                if boards:
                    return domain, boards
        return None

    def _early(self, lane: PlaceQueue, now: int) -> Board:
        """Return the queues of this place whose gangs may enter before they are ripe (option `early="idle"`)."""
        near = (lane, *lane.near.values())
        if any(other.ripe for other in near):
            return {}
        recent = {c for other in near for c, when in other.seen.items() if now - when < self.quiet}
        return {client: queue for client, queue in lane.late.items() if not recent - {client}}

    def _ask(self, ready: Ready, now: int) -> Ticket:
        try:
            ticket = self.policy.pick(ready, now)
            if ticket in ready:
                return ticket  # type: ignore[return-value]  # whatever it is: `ready` has only tickets
            fault = RESERVES if isinstance(ticket, Reserve) else "picked what is not ready"
        except Exception as error:  # the policy is a user's code
            fault = _error_text(error)
        self._replace_policy(f"{fault} when asked to pick")
        return ready.best()

    def _ask_or_reserve(self, domain: Domain, boards: list[Board], now: int) -> Ticket | None:
        """Ask a policy that may reserve. None: nothing enters from these queues now."""
        self.news = True
        try:
            return self._reservations.ask(self.policy, domain, boards, now)
        except Exception as error:  # the policy is a user's code
            fault = str(error) if isinstance(error, WrongAnswer) else _error_text(error)
        self._replace_policy(f"{fault} when asked to pick")
        return Ready(domain.id, boards).best()

    def _ask_again(self) -> None:
        """Devices are not kept any more, unless the policy says so again."""
        self._reservations.release()
        self.news = True

    def _may_pass(self, ticket: Ticket, domain: Domain, now: int) -> bool:
        """Whether this gang may enter now. If it passes a gang that the policy prefers, count that.

        It may not if that gang has been passed too often.
        """
        lane = self._contention.known[ticket.place]
        near = [each for each in lane.near.values() if each.ripe]
        # those that the window keeps out, or a bar other than by this lane
        blocked = [each for each in near if (not each.waits_for(lane) if each.barred else each.full)]
        if blocked:
            preferred = self._ask(Ready(domain.id, [lane.ripe, *[each.ripe for each in blocked]]), now)
            if preferred.place != lane.key:
                passed = self._contention.known[preferred.place]
                if passed.passes >= self.max_passes:
                    self._contention.bar(lane, passed)
                    return False
                passed.passes += 1
                return True
        for other in near:  # the policy itself puts these behind this gang, so no other gang need wait for them
            other.passes = 0
            if other.holds:
                self._contention.release(other)
        return True

    def _enter(self, ticket: Ticket, domain: Domain, now: int) -> None:
        lane = self._contention.known[ticket.place]
        lane.passes = 0
        lane.seen[ticket.client] = now
        self._contention.enter(lane, ticket.cost)  # before it leaves its queue, so that the lane stays alive
        self._take(ticket, "enter")
        if self._reserves:
            self._reservations.entered(ticket, domain, now)
        if "entered" in self._hooks:
            self._tell("entered", ticket, domain.id, now)

    # --- a gang that waits alone

    def _enter_alone(self, ticket: Ticket, now: int) -> Ticket:
        """What `_enter` does, and `offer` would have done before, of a gang that is in no queue."""
        lane = self._contention.known[ticket.place]
        domain = lane.domain
        assert domain is not None
        ticket.turn("enter")
        lane.passes = 0
        lane.seen[ticket.client] = now
        self._alone = None
        self._runs.clear()
        self.live.clear()
        if "joined" in self._hooks:
            self._tell("joined", ticket.client, domain.id)
        self._contention.enter(lane, ticket.cost)
        if "left" in self._hooks:
            self._tell("left", ticket.client, domain.id)
        if "entered" in self._hooks:
            self._tell("entered", ticket, domain.id, now)
        return ticket

    def _queue_alone(self) -> None:
        """Something else happens before it is picked: let it wait in its queue, as others do."""
        ticket, self._alone = self._alone, None
        assert ticket is not None
        self._push(ticket, self._contention.known[ticket.place])

    # --- queues

    def _push(self, ticket: Ticket, lane: PlaceQueue) -> None:
        client = ticket.client
        domain = lane.domain or self._contention.rouse(lane)
        ripe = ticket.ripe or self.early == "always"
        board = lane.ripe if ripe else lane.late
        queue = board.get(client)
        if queue is None:
            queue = board[client] = []
            if ripe:
                known = domain.clients.get(client, 0)
                domain.clients[client] = known + 1
                if not known and "joined" in self._hooks:
                    self._tell("joined", client, domain.id)
            self._contention.refresh(lane)
        if lane.barred is not None:
            self._contention.unbar(lane)
        rank = self._rank(ticket) if self._ranks else 0
        heappush(queue, (rank, ticket.submitted, ticket.run, ticket.step, ticket.number, ticket))
        ticket.queue = queue

    def _take(self, ticket: Ticket, event: str) -> None:
        """Take a ticket out of its queue, because it enters or is withdrawn."""
        ticket.turn(event)
        lane = self._contention.known[ticket.place]
        board = lane.ripe if lane.ripe.get(ticket.client) is ticket.queue else lane.late
        ticket.queue = None
        if lane.holds:
            self._contention.release(lane)
        run = self._runs[ticket.run]
        if len(run) == 1:
            del self._runs[ticket.run]
        else:
            run.remove(ticket)
        self._clean(lane, board, ticket.client)

    def _clean(self, lane: PlaceQueue, board: Board, client: int) -> None:
        """Remove the entries of tickets that have left from the top of the queue; remove an empty queue."""
        queue = board[client]
        while queue and queue[0][-1].queue is not queue:
            heappop(queue)
        if queue:
            return
        del board[client]
        domain = lane.domain
        if board is lane.ripe and domain is not None:
            left = domain.clients[client] - 1
            domain.clients[client] = left
            if not left:
                del domain.clients[client]
                if "left" in self._hooks:
                    self._tell("left", client, domain.id)
            if not board:
                lane.passes = 0
        self._contention.refresh(lane)
        if self._reserves and not (lane.ripe or lane.late):
            self._reservations.forget(lane)
        if not lane.flying:
            self._contention.rest(lane)

    def _rank(self, ticket: Ticket) -> int:
        return self._ranked(self.policy.rank, ticket, "gang")

    def _ranked(self, rank: Callable[[Any], object], what: object, kind: str) -> int:
        try:
            answer = rank(what)
            if isinstance(answer, int):
                return answer
            fault = f"ranked a {kind} {answer!r}, which is not a whole number,"
        except Exception as error:  # the policy is a user's code
            fault = _error_text(error)
        self._replace_policy(f"{fault} when asked to rank")
        return 0

    def slice_rank(self, wanted: SliceUse) -> int:
        """How urgent a slice is among those that wait for devices, lowest first."""
        return self._ranked(self.policy.slice_rank, wanted, "slice")

    def _rank_again(self) -> None:
        policy = self.policy
        for lane in self._contention.known.values():
            self._contention.unbar(lane)
            for board in (lane.ripe, lane.late):
                for queue in board.values():
                    tickets = [entry[-1] for entry in queue if entry[-1].queue is queue]
                    queue[:] = [(self._rank(t), t.submitted, t.run, t.step, t.number, t) for t in tickets]
                    heapify(queue)
        if self.policy is not policy:  # it was replaced meanwhile
            self._rank_again()

    # --- the policy

    def _use(self, policy: Policy) -> None:
        """Use this policy from now on. Methods that it does not write are not called."""
        self.policy = policy
        self._hooks = self._contention.hears = frozenset(name for name in HOOKS if writes(policy, name))
        self._ranks = writes(policy, "rank")
        self._reserves = policy.reserves
        only = any(vars(kind).get("takes_the_only_one") for kind in definers(policy, "pick"))
        self._undivided = only and not self._reserves
        self._may_skip_queue = self._undivided and not self._ranks  # a gang that waits alone

    def _tell(self, event: str, *about: object) -> None:
        if event not in self._hooks:
            return
        try:
            getattr(self.policy, event)(*about)
        except Exception as error:  # the policy is a user's code
            self._replace_policy(f"{_error_text(error)} when told what has {event}")

    def _replace_policy(self, fault: str) -> None:
        self.faults.append((type(self.policy).__name__, fault))
        self._use(Fifo())
        self._ask_again()
        self._rank_again()


def _error_text(error: Exception) -> str:
    return f"raised {type(error).__name__}: {error}"


def _only(boards: list[Board]) -> Ticket | None:
    """Return the gang if there is only one, else None."""
    if len(boards) == 1 and len(boards[0]) == 1:
        for queue in boards[0].values():
            if len(queue) == 1:
                return queue[0][-1]
    return None
