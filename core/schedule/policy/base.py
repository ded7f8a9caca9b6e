"""A policy chooses which of the gangs that may enter an island's order enters next; this is all it needs to
know.

Your own takes ten lines. It may keep state, and must not know a clock: `now` is an argument.

    class Lottery(Policy):
        '''A client wins as often as its weight says.'''

        def __init__(self, chance: random.Random) -> None:
            self.chance = chance

        def pick(self, ready: Ready, now: int) -> Ticket:
            heads = ready.heads()
            return self.chance.choices(heads, [ticket.weight for ticket in heads])[0]

Policies choose *between runs*. What may enter at all (predecessors, compilation, memory, the window) is
decided before a policy is asked, and gangs on devices that have nothing to do with one another are never
compared: each time, it is shown the gangs of one *domain*, a group of places that overlap one another,
directly or in a chain.

A policy is asked a second question with the same words: when its choice enters while a gang on some of the
same devices waits for others of its devices, "which of these would you have taken?" tells whether that gang
is being passed. So `pick` answers and changes nothing; what a policy learns, it learns in `entered`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import msgspec

# What orders a queue: rank by the policy, then age (oldest run first, its steps as traced). The number is
# unique, so that tickets themselves are never compared.
Entry = tuple[int, int, int, int, int, "Ticket"]
Queue = list[Entry]  # a heap; an entry whose ticket has left the queue is dead, and never at the top
Board = dict[int, Queue]  # the queues at one place, by client; none is empty


class Ticket(msgspec.Struct, eq=False):
    """One gang that may enter its island's order: all that it waits for *in other orders* is behind it.

    The controller makes it, offers it, and reads it back when it is picked; the scheduler fills in the last
    block.
    """

    run: int
    step: int
    client: int
    place: int  # key of its devices, from `Atoms.intern`
    cost: int  # expected nanoseconds on each device
    weight: int = 1
    priority: int = 0  # higher goes first
    deadline: int = 0  # absolute; 0 stands for none
    submitted: int = 0  # when its run came
    ripe: bool = True  # False: inputs come from another island, and what makes them has not finished
    owner: object = None  # whatever the controller wants to find again

    number: int = 0  # unique and increasing, in the order of offers
    since: int = 0  # when it was offered: how long it has waited
    devices: int = 0  # on how many devices it runs
    state: str = "new"
    queue: Queue | None = None

    @property
    def age(self) -> tuple[int, int, int, int]:
        """Smaller is older: runs by arrival, steps of a run as they were traced."""
        return (self.submitted, self.run, self.step, self.number)


class Ready:
    """Gangs of one domain that may enter now, and of which one keeps others waiting. Never empty."""

    __slots__ = ("_boards", "domain")

    def __init__(self, domain: int, boards: list[Board]) -> None:
        self.domain = domain
        self._boards = boards

    def heads(self) -> list[Ticket]:
        """The first of each queue: one a client, or one a client and place. The cheap way to look around."""
        return [queue[0][-1] for board in self._boards for queue in board.values()]

    def entries(self) -> list[Entry]:
        """As `heads`, with what orders them: entries compare as their tickets would."""
        return [queue[0] for board in self._boards for queue in board.values()]

    def best(self) -> Ticket:
        """Lowest `rank` of all; among equals, the oldest."""
        return min(self.entries())[-1]

    def clients(self) -> list[int]:
        return list(dict.fromkeys(client for board in self._boards for client in board))

    def oldest(self, client: int) -> Ticket:
        """The client's first, by `rank` and then by age (by age alone, unless the policy ranks)."""
        return min(board[client][0] for board in self._boards if client in board)[-1]

    def __iter__(self) -> Iterator[Ticket]:
        """Every one of them, in no particular order (yet always the same)."""
        for board in self._boards:
            for queue in board.values():
                yield from (entry[-1] for entry in queue if entry[-1].queue is queue)

    def __contains__(self, ticket: object) -> bool:
        """Whether this is a ticket that may enter now: what the scheduler checks of a policy's choice."""
        if not isinstance(ticket, Ticket) or ticket.queue is None:
            return False
        for board in self._boards:  # noqa: SIM110 - asked for each gang, and faster than any()
            if board.get(ticket.client) is ticket.queue:
                return True
        return False


class Memory:
    """What happens, for a policy that learns from it. Each does nothing unless it is written."""

    def entered(self, ticket: Ticket, domain: int, now: int) -> None:
        """This gang has entered the order."""

    def joined(self, client: int, domain: int) -> None:
        """The client had nothing that waits ready in this domain, and now has."""

    def left(self, client: int, domain: int) -> None:
        """The client's last gang that waited ready in this domain has entered, or was withdrawn."""

    def gone(self, client: int) -> None:
        """The client will not come back."""

    # Domains follow the work: they live while gangs wait or run there. Numbers are never used again.

    def merged(self, domain: int, other: int) -> None:
        """A gang came whose devices join the two; what `other` was is part of `domain` now."""

    def split(self, domain: int, other: int) -> None:
        """What held it together is over: part of `domain` is `other` from now on. Clients that wait there
        then join it, and leave `domain` if that was all they had."""

    def ended(self, domain: int) -> None:
        """Nothing waits or runs there any more."""


class Policy(Memory, ABC):
    """Subclass this, and pass the class, or an instance for each island. Only `pick` must be written."""

    takes_the_only_one: ClassVar[bool] = False  # True: `pick` need not be asked while only one gang may enter

    @abstractmethod
    def pick(self, ready: Ready, now: int) -> Ticket:
        """One of `ready`."""

    def rank(self, ticket: Ticket) -> int:
        """Orders the tickets of a client at a place, lowest first; fixed when the ticket is offered."""
        return 0
