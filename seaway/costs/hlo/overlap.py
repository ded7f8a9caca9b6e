"""Finds how much of each collective a compiler hides behind computing, in text whose collectives are synchronous.

The rule: a device computes one thing at a time, and exchanges one thing at a time beside that. An operation begins when
its operands are there and nothing else uses its resource; of several, the one that most time depends on begins first.
That is a list schedule, which latency-hiding schedulers of compilers approximate. It takes no less than all computing
or all exchanging, and no more than their sum.

Rounds of a loop are scheduled together: where the data allow it, a round's exchanges run beside its neighbour's work,
as when a compiler pipelines a loop's collectives. A loop or branch as a whole runs alone. Operations are not cut into
parts, so nothing hides behind what it waits for, or what waits for it.
"""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from .loops import INDEX
from .text import HloComputation

ROUNDS = 8  # of a loop that are scheduled; all of its rounds are like their average
AHEAD = 2  # rounds that may be under way: what a further one gathers would take more memory


class Work(NamedTuple):
    """Nanoseconds that an operation takes of one of the resources. `alone`: nothing runs beside it."""

    compute: float = 0.0
    links: float = 0.0
    alone: bool = False


class OpTask(NamedTuple):
    work: Work
    after: frozenset[int] = frozenset()  # numbers of earlier tasks


def hidden(computation: HloComputation, works: Mapping[str, Work], rounds: int) -> dict[str, float]:
    """For each operation that exchanges: the nanoseconds of it beside which others compute, as a mean over rounds."""
    names = list(computation.ops)
    found = {name: 0.0 for name in names if works[name].links}
    for number, time in schedule(list(_Rounds(computation, works).tasks(rounds))).items():
        found[names[number % (len(names) + 1)]] += time / rounds
    return found


class _Rounds:
    """The operations of a computation as tasks: once, or for several rounds of the loop whose body it is."""

    def __init__(self, computation: HloComputation, works: Mapping[str, Work]) -> None:
        self.ops, self.works = computation.ops, works
        self.root = computation.ops[computation.root]
        self.places = {name: place for place, name in enumerate(self.ops)}

    def tasks(self, rounds: int) -> Iterator[OpTask]:
        """After the tasks of each round comes one that waits for all of them."""
        size = len(self.ops) + 1
        for turn in range(rounds):
            first = turn * size
            gate = {first - (AHEAD - 1) * size - 1} if turn >= AHEAD else set()
            for name, op in self.ops.items():
                needed = (name,) if op.opcode == "get-tuple-element" else op.operands
                made = {self._number(one, turn) for one in needed if one in self.ops}
                if op.opcode == "parameter" and turn:
                    made = {self._number(self.root.name, turn - 1)}
                yield OpTask(self.works[name], frozenset(gate | made - {-1}))
            yield OpTask(Work(), frozenset(range(first, first + size - 1)))

    def _number(self, name: str, turn: int) -> int:
        """The task that makes a value; -1 if it is there when the loop begins."""
        source = self._source(name)
        while isinstance(source, int):  # an element of what the round before returned
            turn -= 1
            if turn < 0:
                return -1
            source = self._source(self.root.operands[source]) if self.root.opcode == "tuple" else self.root.name
        return turn * (len(self.ops) + 1) + self.places[source]

    def _source(self, name: str) -> str | int:
        """The operation that makes a value, or a number: that element of the loop's state. An element of a tuple
        does not wait for the others, unless a barrier is between."""
        op = self.ops[name]
        if op.opcode != "get-tuple-element":
            return name
        whole, index = self._source(op.operands[0]), int(op.attribute(INDEX))
        if isinstance(whole, int):
            return whole
        if self.ops[whole].opcode == "tuple":
            return self._source(self.ops[whole].operands[index])
        return index if self.ops[whole].opcode == "parameter" else whole


def schedule(tasks: list[OpTask]) -> dict[int, float]:
    """For each task that exchanges: the nanoseconds of it during which another task computes."""
    run = _Run(tasks)
    while run.begin():
        run.end()
    return run.beside


class _Run:
    def __init__(self, tasks: list[OpTask]) -> None:
        self.tasks = tasks
        self.users: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for before in task.after:
                self.users[before].append(number)
        self.pressing = [0.0] * len(tasks)  # nanoseconds from a task's beginning to the end, on the longest way
        for number in reversed(range(len(tasks))):
            later = max((self.pressing[user] for user in self.users[number]), default=0.0)
            self.pressing[number] = later + tasks[number].work.compute + tasks[number].work.links
        self.missing = [len(task.after) for task in tasks]
        self.ready: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])  # to compute, to exchange
        self.running: dict[bool, tuple[float, int]] = {}  # by whether it exchanges: (its end, its number)
        self.now = 0.0
        self.beside: dict[int, float] = {}
        self._release([number for number, task in enumerate(tasks) if not task.after])

    def _release(self, numbers: list[int]) -> None:
        while numbers:
            number = numbers.pop()
            work = self.tasks[number].work
            if work.compute or work.links:
                heappush(self.ready[work.links > 0], (-self.pressing[number], number))
            else:
                numbers += self._after(number)

    def _after(self, number: int) -> list[int]:
        """The tasks that waited for this one alone."""
        for user in self.users[number]:
            self.missing[user] -= 1
        return [user for user in self.users[number] if not self.missing[user]]

    def begin(self) -> bool:
        """Begin what can begin now. False if everything is over."""
        for links in (False, True):
            if self.ready[links] and links not in self.running and not self._barred(links):
                number = heappop(self.ready[links])[1]
                work = self.tasks[number].work
                self.running[links] = self.now + work.compute + work.links, number
        return bool(self.running)

    def _barred(self, links: bool) -> bool:
        """Whether a task that runs alone keeps the next one from beginning, or is itself the next one."""
        if False in self.running:
            return self.tasks[self.running[False][1]].work.alone
        alone = bool(self.ready[False]) and self.tasks[self.ready[False][0][1]].work.alone
        return alone and (links or bool(self.running))

    def end(self) -> None:
        """Go on to the next end of a task."""
        until = min(end for end, _ in self.running.values())
        if len(self.running) == 2:
            number = self.running[True][1]
            self.beside[number] = self.beside.get(number, 0.0) + until - self.now
        self.now = until
        for links, (end, number) in list(self.running.items()):
            if end == until:
                del self.running[links]
                self._release(self._after(number))
