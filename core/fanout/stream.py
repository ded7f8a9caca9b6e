"""The ordered stream of one island: numbered and kept at the controller's end, fenced at each host's.

One path leads to a host: the tree of the epoch. Everything for an island is numbered by its `Stream` and goes down
that tree over FIFO connections. A host's `relay.Inlet` takes a message only if it has the seat's epoch and tree and
a higher number than the last. So nothing overtakes, and nothing that an old path still holds is taken.

When the tree changes (`refence`), nothing is sent until every member has been seated and has said how far it
had come (`rejoin`). Then what some host lacks goes out again, *down the new tree* and *under new numbers*,
before anything newer. Sending it to that host directly would be a second path, which a message down the tree
could overtake.

Memory: the log holds the messages that some host may not have seen. These are the messages of one beat period and of
the beat's way up; while a host is silent, all until its lease ends and it is fenced out. Frees and poison must always
get through, so `append` never refuses; the controller looks at `full` (backlog >= limit) and orders no new gangs while
it is true.

Neighbours: `controller.islands` has a `Stream` for each island; `frontier` says how far its hosts have come; `tree`
has the shape. Read `append` first, then `refence` and `rejoin`.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from ..model import Plan, Spans, spans
from ..protocol import Ordered, RunHeader, Seat, Step
from .frontier import Frontier
from .tree import Tree, tree


class Stream:
    """The controller's end. `number`: the last number given out. A restarted controller goes on from the numbers of its
    hosts."""

    def __init__(self, island: int, limit: int = 4096, number: int = 0) -> None:
        self.island, self.limit, self.number = island, limit, number
        self.epoch = self.tree = -1
        self.shape = tree(spans.EMPTY, 1)
        self._fence = number  # `number` when the tree was last changed
        self._log: deque[Ordered] = deque()
        self._seated: dict[int, int] | None = None  # while forming, by host: how far it had come
        self._frontier = Frontier(self.shape, number)

    @property
    def backlog(self) -> int:
        """Messages that some host may not have seen."""
        return len(self._log)

    @property
    def full(self) -> bool:
        return len(self._log) >= self.limit

    @property
    def forming(self) -> bool:
        """A new tree waits for its hosts to be seated; what is appended meanwhile stays in the log."""
        return self._seated is not None

    @property
    def unseated(self) -> int:
        """How many members the forming waits for."""
        return 0 if self._seated is None else len(self.shape.parents) - len(self._seated)

    @property
    def missing(self) -> Spans:
        """The members that the forming waits for."""
        return (
            spans.EMPTY if self._seated is None else spans.minus(self.shape.members, spans.of(self._seated))
        )

    def append(
        self,
        plans: tuple[Plan, ...],
        runs: tuple[RunHeader, ...],
        steps: tuple[Step, ...],
        hosts: Spans,
        settled: int,
    ) -> Ordered:
        """Number one message. Write it to `targets(hosts)`, which is empty while the tree is forming."""
        self.number += 1
        message = Ordered(
            self.island, self.epoch, self.tree, self.number, hosts, settled, plans, runs, steps
        )  # fmt: skip
        self._log.append(message)
        if self._seated is None:
            self._frontier.written(hosts, self.number)
        return message

    def targets(self, hosts: Spans) -> tuple[int, ...]:
        """The hosts to which the controller writes messages for these hosts."""
        return () if self._seated is not None else self._frontier.roots(hosts)

    def seen(self, hosts: Spans, number: int) -> None:
        """A Beat of this epoch and tree. A beat that does not cover all hosts below a root changes nothing yet. A
        number that was never given out counts as the last that was: a host that lies about it harms only itself."""
        if self._seated is not None:
            return  # no host has been written to yet
        self._frontier.seen(hosts, number)
        if self._log:
            low = self._frontier.low(self.number)
            while self._log and self._log[0].number <= low:
                self._log.popleft()

    def refence(self, epoch: int, number: int, shape: Tree) -> None:
        """From now on this epoch and tree `number`, of this shape. Seat every member next (`seat`)."""
        self.epoch, self.tree, self.shape = epoch, number, shape
        self._fence = self.number
        self._seated = {}
        if not shape.members:
            self._form({})

    def seat(self, host: int, abandon: tuple[int, ...] = (), dropped: tuple[int, ...] = ()) -> Seat:
        """What to send this member directly. It answers Seated, and that is `rejoin`."""
        shape = self.shape
        return Seat(
            self.island, self.epoch, self.tree, host, shape.parent(host), shape.children(host), shape.members,
            self._fence, abandon, dropped,
        )  # fmt: skip

    def rejoin(self, host: int, last: int) -> tuple[Ordered, ...]:
        """This member is seated (in this epoch and tree) and had seen all that was for it up to `last`.

        When the last member is, the tree opens: the answer is what must go down it first, each message to
        `targets(message.hosts)`. Until then, and for a host that is no member, the answer is empty."""
        if self._seated is None or not spans.contains(self.shape.members, host):
            return ()
        self._seated.setdefault(host, last)
        if len(self._seated) < len(self.shape.parents):
            return ()
        return self._form(self._seated)

    def _form(self, lasts: dict[int, int]) -> tuple[Ordered, ...]:
        """Keep the messages that some member lacks, narrowed to the members that lack them, in the old order under new
        numbers."""
        log, self._log, self._seated = self._log, deque(), None
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
                self._log.append(
                    replace(old, epoch=self.epoch, tree=self.tree, number=self.number, hosts=lacking)
                )
                self._frontier.written(lacking, self.number)
        return tuple(self._log)
