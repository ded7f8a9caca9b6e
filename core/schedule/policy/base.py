"""The interface of a policy: it chooses the gang that enters an island's order next, among the gangs that may enter.

You can write your own in ten lines. It may keep state. It must not read a clock: `now` is an argument.

    class Lottery(Policy):
        '''Draws a client at random, in proportion to the weights.'''

        def __init__(self, chance: random.Random) -> None:
            self.chance = chance

        def pick(self, ready: Ready, now: int) -> Ticket:
            heads = ready.heads()
            return self.chance.choices(heads, [ticket.weight for ticket in heads])[0]

Policies choose *between runs*. The scheduler decides before it asks a policy which gangs may enter at all
(predecessors, compilation, memory, the window). It shows a policy only the gangs of one *domain* at a time. A domain
is a group of places that overlap, directly or in a chain, so gangs that share no devices are never compared.

The scheduler calls `pick` for a second purpose too. If the chosen gang could enter before a gang that wants some of
the same devices and waits for others, it asks which of the two the policy would take, to find out whether that gang is
being passed. So `pick` must change nothing. A policy that learns from what happens does so in `entered`.

A policy may also answer `Reserve`: nothing enters now, and the devices are kept. Its class says `reserves = True`. It
is shown what runs and what waits for room (`Ready.running`, `Ready.waiting`), and the scheduler does not count for it
who passes whom: it looks after wide gangs itself. `reservations` says how long devices are kept at most.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

import msgspec

from ...model import Illegal, Spans
from .slice_use import SliceUse

# (rank by the policy, time the run came, run, step, number of the ticket, ticket): the key by which a queue is ordered.
# The number is unique, so tickets themselves are never compared.
Entry = tuple[int, int, int, int, int, "Ticket"]
Queue = list[Entry]  # a heap; entries whose ticket has left the queue may remain, but not at the top
Board = dict[int, Queue]  # client -> its queue at one place; no queue is empty


# Event -> state of a ticket before -> after. A withdrawn ticket may be offered again at another place.
TICKET = {
    "offer": {"new": "waiting", "withdrawn": "waiting"},
    "enter": {"waiting": "entered"},
    "withdraw": {"waiting": "withdrawn"},
    "finish": {"entered": "over"},
}


class Ticket(msgspec.Struct, eq=False):
    """One gang that may enter its island's order, because all that it depends on has entered an order.

    The controller makes and offers it, and gets it back when it is picked. The scheduler sets the last block.
    """

    run: int
    step: int
    client: int
    place: int  # key of its devices, from `Atoms.intern`
    cost: int  # expected nanoseconds on each device
    weight: int = 1
    priority: int = 0  # a higher one goes first
    deadline: int = 0  # absolute time; 0 means none
    submitted: int = 0  # when its run came
    # False: its inputs come from another island, where the gangs that make them have not finished
    ripe: bool = True
    owner: object = None  # for the controller's use

    number: int = 0  # unique and increasing, in the order of offers
    since: int = 0  # when it was offered
    devices: int = 0  # number of its devices
    state: str = "new"
    queue: Queue | None = None  # the queue that it waits in

    def turn(self, event: str) -> None:
        after = TICKET[event].get(self.state)
        if after is None:
            raise Illegal(f"{event} of a gang (run {self.run}, step {self.step}) that is {self.state}")
        self.state = after

    @property
    def age(self) -> tuple[int, int, int, int]:
        """A key that is smaller for an older ticket: runs by arrival, then steps of a run as they were traced."""
        return (self.submitted, self.run, self.step, self.number)


class Reserve(msgspec.Struct, frozen=True, eq=False):
    """The answer that nothing enters now: the devices of all gangs that are ready are kept free.

    They are kept until `until`, or until a gang of the island comes, ends or is withdrawn. Then the policy is asked
    again. Without `until`, only such an event ends it. `gang` or `client` says for whom, if for anybody: traces and
    `status` show it.
    """

    gang: Ticket | None = None  # one that waits
    until: int | None = None  # absolute time
    client: int | None = None  # whose next gang has not come yet


class RunningGang(msgspec.Struct, frozen=True, eq=False):
    """A gang of the order that has not ended, with what may be expected of it."""

    ticket: Ticket
    entered: int
    starts: int  # when the gangs before it on its devices should be over, or were
    ends: int  # later than now: one that is late is expected to need as much time again as it is late


class Surroundings(Protocol):
    """What a policy that reserves is shown beside the gangs that may enter; `core.schedule.outlook` has it."""

    def waiting(self) -> list[Ticket]: ...
    def running(self) -> list[RunningGang]: ...
    def free_at(self, ticket: Ticket) -> int: ...
    def overlap(self, one: Ticket, other: Ticket) -> bool: ...
    def devices(self, ticket: Ticket) -> Spans: ...
    def free(self) -> Spans: ...


class _NothingShown:
    """What other policies find in the place of it."""

    def __getattr__(self, name: str) -> Any:
        raise TypeError("only a policy whose class says `reserves = True` is shown what runs and what waits")


NOTHING_SHOWN: Any = _NothingShown()  # raises whatever it is asked


class Ready:
    """The gangs of one domain that may enter now and compete for devices. It is never empty."""

    __slots__ = ("_around", "_boards", "domain")

    def __init__(self, domain: int, boards: list[Board], around: Surroundings | None = None) -> None:
        self.domain = domain
        self._boards = boards
        self._around = around if around is not None else NOTHING_SHOWN

    def heads(self) -> list[Ticket]:
        """Return the first ticket of each queue; there is a queue for each client and place. This is cheap."""
        return [queue[0][-1] for board in self._boards for queue in board.values()]

    def entries(self) -> list[Entry]:
        """Return the first entry of each queue. Entries compare by rank, then by age."""
        return [queue[0] for board in self._boards for queue in board.values()]

    def best(self) -> Ticket:
        """Return the ticket with the lowest `rank`; among equals, the oldest."""
        return min(self.entries())[-1]

    def clients(self) -> list[int]:
        return list(dict.fromkeys(client for board in self._boards for client in board))

    def oldest(self, client: int) -> Ticket:
        """Return the client's first ticket by `rank`, then by age. Without a `rank` of its own: by age."""
        entries = [board[client][0] for board in self._boards if client in board]
        if not entries:
            raise ValueError(f"client {client} has no gang that may enter now: clients() names those that do")
        return min(entries)[-1]

    def queues(self) -> list[list[Ticket]]:
        """Return all tickets by queue, each queue in its order. This sorts them, so `heads` is cheaper."""
        queues = [queue for board in self._boards for queue in board.values()]
        return [[entry[-1] for entry in sorted(queue) if entry[-1].queue is queue] for queue in queues]

    # For policies that reserve. Times are absolute; those to come rest on the costs of gangs.

    def waiting(self) -> list[Ticket]:
        """Return the first ticket of each other queue of the domain. These may not enter now, mostly because some of
        their devices have no room."""
        return self._around.waiting()

    def running(self) -> list[RunningGang]:
        """Return the gangs of the domain that have entered and not ended, in their order."""
        return self._around.running()

    def free_at(self, ticket: Ticket) -> int:
        """Return when all devices of this gang should be free, if nothing more enters; now, if they are free."""
        return self._around.free_at(ticket)

    def overlap(self, one: Ticket, other: Ticket) -> bool:
        """Whether the two gangs have a device in common."""
        return self._around.overlap(one, other)

    def devices(self, ticket: Ticket) -> Spans:
        """Return the gang's devices, as (first, one past the last) of each row of consecutive numbers."""
        return self._around.devices(ticket)

    def free(self) -> Spans:
        """Return the devices of the domain for which nothing is in the order."""
        return self._around.free()

    def __iter__(self) -> Iterator[Ticket]:
        """Yield all tickets, in no particular order, but always the same."""
        for board in self._boards:
            for queue in board.values():
                yield from (entry[-1] for entry in queue if entry[-1].queue is queue)

    def __contains__(self, ticket: object) -> bool:
        """Whether this is a ticket that may enter now. The scheduler checks a policy's choice with it."""
        if not isinstance(ticket, Ticket) or ticket.queue is None:
            return False
        for board in self._boards:  # noqa: SIM110 - called for each gang, and faster than any()
            if board.get(ticket.client) is ticket.queue:
                return True
        return False


class PolicyEvents:
    """The events that a policy may learn from. A method that a policy does not write does nothing."""

    def entered(self, ticket: Ticket, domain: int, now: int) -> None:
        """This gang has entered the order."""

    def finished(self, ticket: Ticket, domain: int, now: int) -> None:
        """This gang of the order has ended, well or not."""

    def joined(self, client: int, domain: int) -> None:
        """The client has a gang that waits ready in this domain, and had none before."""

    def left(self, client: int, domain: int) -> None:
        """The client's last gang that waited ready in this domain has entered, or was withdrawn."""

    def gone(self, client: int) -> None:
        """The client has ended and will not come back."""

    # A domain exists while gangs wait or run there. Numbers of domains are never used again.

    def merged(self, domain: int, other: int) -> None:
        """The two domains are one, called `domain`, because a gang came that shares devices with both."""

    def split(self, domain: int, other: int) -> None:
        """Part of `domain` is `other` from now on, because no gang connects them any more.

        Calls of `joined` follow for clients that wait in `other`, and of `left` for those that wait only there.
        """

    def ended(self, domain: int) -> None:
        """No gang waits or runs in this domain any more."""


class Policy(PolicyEvents, ABC):
    """The base class of policies. Pass a subclass, or an instance for each island. Only `pick` must be written."""

    takes_the_only_one: ClassVar[bool] = False  # if True, `pick` is not called while only one gang may enter
    preempts: bool = False  # if True, a slice that waits takes devices of those that `slice_rank` puts after it
    reserves: ClassVar[bool] = False  # if True, `pick` may answer `Reserve`, and is shown what runs and waits

    @abstractmethod
    def pick(self, ready: Ready, now: int) -> Ticket | Reserve:
        """Return the ticket of `ready` that enters next. Change nothing: see above."""

    def rank(self, ticket: Ticket) -> int:
        """Return the rank by which the tickets of a client at a place are ordered, lowest first.

        It is asked once, when the ticket is offered.
        """
        return 0

    def slice_rank(self, wanted: SliceUse) -> int:
        """Return the rank by which slices wait for devices, lowest first. It is asked once, when a slice is first used.

        If the policy `preempts`, one that waits takes devices of those with a higher rank: these move elsewhere, or are
        suspended until it has released its own.
        """
        return 0


HOOKS = ("entered", "finished", "joined", "left", "gone", "merged", "split", "ended")  # methods of `PolicyEvents`


def writes(policy: Policy, method: str) -> bool:
    """Whether the policy writes this method, and does not inherit the one that does nothing."""
    own: object = getattr(policy, "__dict__", {}).get(method)
    return own is not None or getattr(type(policy), method, None) is not getattr(Policy, method)


def definers(policy: Policy, method: str) -> list[type]:
    """Return the class that defines this method of the policy, in a list; [] if the object itself does."""
    if method in getattr(policy, "__dict__", {}):
        return []
    return [kind for kind in type(policy).__mro__ if method in vars(kind)][:1]
