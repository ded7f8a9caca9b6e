"""The controller's end of the ordered stream of one island: numbers messages, and keeps them until hosts have them.

There is one path to a host: the tree of the epoch. An island's `Stream` numbers all messages for the island. They go
down the tree over FIFO connections. A host's `relay.Inlet` takes a message only if it has the epoch and tree of the
seat, and a higher number than the last. So no message overtakes another, and none from an old path is taken.

When the tree changes (`refence`), nothing is sent until every member has a seat and has said how far it had come
(`rejoin`). Then the messages that some host lacks are sent again, *down the new tree* and *under new numbers*, before
any newer one. To send them directly to that host would make a second path, and a message down the tree could overtake
them.

Memory: the log holds the messages that some host may not have seen. These are the messages of about one beat period;
if a host is silent, those until its lease ends and it is removed. Frees and poison must always get through, so
`append` never refuses. The controller orders no new gangs while the log has `State.backlog` messages.
"""

from collections import deque

from msgspec.structs import replace

from ..model import Illegal, Plan, Spans, spans
from ..protocol import Ordered, RunHeader, Seat, Step
from .frontier import KEPT, Frontier
from .tree import Tree, tree


class Stream:
    """The controller's end.

    `number` is the last number given out. A restarted controller continues from the highest one that its hosts know.
    """

    def __init__(self, island: int, number: int = 0) -> None:
        self.island, self.number = island, number
        self.epoch = self.tree = -1
        self.shape = tree(spans.EMPTY, 1)
        self._fence = number  # `number` when the tree was last changed
        self.again = number  # up to here messages are older ones, sent again
        self.log: deque[Ordered] = deque()  # the messages that some host may not have seen
        self._seated: dict[int, int] | None = None  # while forming: host -> the last number that it had seen
        self._frontier = Frontier(self.shape, number)

    @property
    def backlog(self) -> int:
        return len(self.log)

    @property
    def forming(self) -> bool:
        """Whether a new tree waits for its hosts to be seated. What is appended meanwhile stays in the log."""
        return self._seated is not None

    @property
    def unseated(self) -> int:
        """The number of members that are not seated yet."""
        return 0 if self._seated is None else len(self.shape.parents) - len(self._seated)

    @property
    def missing(self) -> Spans:
        """The members that are not seated yet."""
        return spans.EMPTY if self._seated is None else spans.minus(self.shape.members, spans.of(self._seated))

    def append(
        self, plans: tuple[Plan, ...], runs: tuple[RunHeader, ...], steps: tuple[Step, ...], hosts: Spans, settled: int
    ) -> Ordered:
        """Number a message. Write it to `targets(hosts)`, which is empty while the tree is forming."""
        self.number = number = self.number + 1
        message = Ordered(self.island, self.epoch, self.tree, number, hosts, settled, plans, runs, steps)
        self.log.append(message)
        if self._seated is None:
            written = self._frontier.written
            written[hosts] = number
            if len(written) > KEPT:
                self._frontier.fold()
        return message

    def targets(self, hosts: Spans) -> tuple[int, ...]:
        """Return the roots to which the controller writes a message for these hosts."""
        return () if self._seated is not None else self._frontier.roots(hosts)

    def seen(self, hosts: Spans, number: int) -> None:
        """Take a Heartbeat of this epoch and tree, and trim the log.

        A number that was never given out counts as the last one given out. A host that sends a wrong number harms only
        itself.
        """
        if self._seated is not None:
            return  # nothing has been written to the new tree yet
        self._frontier.seen(hosts, number)
        if self.log:
            low = self._frontier.low(self.number)
            while self.log and self.log[0].number <= low:
                self.log.popleft()

    def reshape(self, shape: Tree) -> None:
        """Write to the same hosts, with the seats that they have, through the roots of another shape from now on. Only
        a simulator needs this: hosts for which one had spoken speak for themselves, or the other way round."""
        if self._seated is not None or shape.members != self.shape.members:
            raise Illegal(f"island {self.island} takes another shape only as it is, and while it stands")
        low = self.log[0].number - 1 if self.log else self.number
        self.shape, self._frontier = shape, Frontier(shape, low)
        for message in self.log:
            self._frontier.written[message.hosts] = message.number

    def refence(self, epoch: int, number: int, shape: Tree) -> None:
        """Change to this epoch, and to tree `number` of this shape. Send every member its `seat` next."""
        self.epoch, self.tree, self.shape = epoch, number, shape
        self._fence = self.number
        self._seated = {}
        if not shape.members:
            self._form({})

    def seat(self, host: int, abandon: tuple[int, ...] = (), dropped: tuple[int, ...] = ()) -> Seat:
        """Return the Seat to send directly to this member. It answers Seated: call `rejoin` then."""
        shape = self.shape
        return Seat(
            self.island, self.epoch, self.tree, host, shape.parent(host), shape.children(host), shape.members,
            self._fence, abandon, dropped,
        )  # fmt: skip

    def rejoin(self, host: int, last: int) -> tuple[Ordered, ...]:
        """This member is seated in this epoch and tree, and had seen its messages up to `last`.

        When the last member is seated, return the messages that must go down the new tree first, each to
        `targets(message.hosts)`. Return () until then, and for a host that is not a member.
        """
        if self._seated is None or not spans.contains(self.shape.members, host):
            return ()
        self._seated.setdefault(host, last)
        if len(self._seated) < len(self.shape.parents):
            return ()
        return self._form(self._seated)

    def _form(self, lasts: dict[int, int]) -> tuple[Ordered, ...]:
        """Keep the messages in the log that some member lacks, for just these members, under new numbers."""
        log, self.log, self._seated = self.log, deque(), None
        self._frontier = Frontier(self.shape, self._fence)
        by_last: dict[int, list[int]] = {}
        for host in sorted(lasts):
            by_last.setdefault(lasts[host], []).append(host)
        groups = [(last, spans.of(hosts)) for last, hosts in by_last.items()]
        for old in log:
            behind = spans.union(*(hosts for last, hosts in groups if last < old.number))
            lacking = spans.meet(old.hosts, behind)
            if lacking:
                self.number += 1
                self.log.append(replace(old, epoch=self.epoch, tree=self.tree, number=self.number, hosts=lacking))
                self._frontier.written[lacking] = self.number
        self.again = self.number
        return tuple(self.log)
