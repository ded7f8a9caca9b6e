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
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import msgspec

# (rank by the policy, time the run came, run, step, number of the ticket, ticket): the key by which a queue is ordered.
# The number is unique, so tickets themselves are never compared.
Entry = tuple[int, int, int, int, int, "Ticket"]
Queue = list[Entry]  # a heap; entries whose ticket has left the queue may remain, but not at the top
Board = dict[int, Queue]  # client -> its queue at one place; no queue is empty


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
    ripe: bool = (
        True  # False: its inputs come from another island, where the gangs that make them have not finished
    )
    owner: object = None  # for the controller's use

    number: int = 0  # unique and increasing, in the order of offers
    since: int = 0  # when it was offered
    devices: int = 0  # number of its devices
    state: str = "new"
    queue: Queue | None = None  # the queue that it waits in

    @property
    def age(self) -> tuple[int, int, int, int]:
        """A key that is smaller for an older ticket: runs by arrival, then steps of a run as they were traced."""
        return (self.submitted, self.run, self.step, self.number)


class Ready:
    """The gangs of one domain that may enter now and compete for devices. It is never empty."""

    __slots__ = ("_boards", "domain")

    def __init__(self, domain: int, boards: list[Board]) -> None:
        self.domain = domain
        self._boards = boards

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
        return min(board[client][0] for board in self._boards if client in board)[-1]

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

    @abstractmethod
    def pick(self, ready: Ready, now: int) -> Ticket:
        """Return the ticket of `ready` that enters next. Change nothing: see above."""

    def rank(self, ticket: Ticket) -> int:
        """Return the rank by which the tickets of a client at a place are ordered, lowest first.

        It is asked once, when the ticket is offered.
        """
        return 0
