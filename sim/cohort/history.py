"""What a cohort remembers, so that its hosts can be simulated one by one from any moment on, with the same past.

An island with an announced fault is a cohort until the fault falls due. Only then do its hosts differ. It keeps a
checkpoint, and what it was told since. When the fault falls due, `sim.simulation.takeover` makes a process of each host
from the checkpoint, and plays what came since again, host by host, up to now.

A checkpoint lies between two orders, when the controller is about to write the second. It is no moment in time: what
follows from earlier orders may be under way, or still to come. It consists of
- executors, which have been told all that came before; for each part one;
- when each thread of a host will be free of what its executor has commanded;
- gangs that are under way: when each host will have enqueued them, or when they end;
- transfer machines.
Executors of a cohort are told of events as soon as these are certain. So no checkpoint is made while one has been told
of what comes later than the next order can at some host, or while a host's thread has contents in hand (`_may_cut`).
Contents that are on their way are no part of it: they come later, and are remembered as what comes from outside. And
processes begin with relays that know no earlier steps: a checkpoint serves from when the controller has heard the last
report on what was ordered before it (`Checkpoint.waits`).

Contents that go to hosts together (`client_contents`, `host_contents`) are not played again: nobody says what each host
and its peers said to each other. As long as the fault is far off, that does no harm. The first such contents end what
is remembered. The fault is near when what is under way may not be over before it (`is_near`): a multiple of how long
anything has been under way here, or a gang has taken anywhere, before the time for which it is announced. From then on
contents go host by host, and the next checkpoint is made when the last of those that went together are over.

If no checkpoint comes to serve for long (`MOST`), hosts are simulated one by one from then on: else what is played
again when the fault falls due would grow without a bound.

Neighbours: `island` and `commands` say what comes; `sim.simulation.takeover` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy, deepcopy
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from core.model import Gang, GangSteps, Plan, Spans, spans
from core.protocol import messages as m
from core.transfer import Transfer

from ..engine import Ints, Unannounced
from .climbs import report_about
from .gangs import NONE, CohortGang, CohortSoloGang
from .host_times import as_vector, latest
from .shared_executor import SharedExecutor

if TYPE_CHECKING:
    from .island import CohortIsland

SPACING = 16  # orders between two checkpoints, at least
MOST = 1024  # orders since a checkpoint: then hosts are simulated one by one, until a quieter moment
# How long before its fault an island begins to remember, at least; and how many times as long as anything took
LEAST, TIMES = 100_000_000, 8
ALWAYS = -1
Subject = tuple[Any, ...]
ReportedStep = m.GangStep | m.SendStep | m.RecvStep | m.SpillStep | m.RestoreStep


# --- what comes from outside, and when ------------------------------------------------------------------------


class OrderLeft(NamedTuple):
    """The controller writes an order, to one root after another, from `departs` on."""

    at: int
    message: m.Ordered
    departs: int


class ContentsCame(NamedTuple):
    at: int
    host: int
    sender: int
    number: int
    message: Any


class PeerGone(NamedTuple):
    at: int
    host: int
    sender: int
    reason: str


class Slowed(NamedTuple):
    at: int
    host: int
    factor: float


Input = OrderLeft | ContentsCame | PeerGone | Slowed


# --- a checkpoint ---------------------------------------------------------------------------------------------


class ThreadTimes(NamedTuple):
    """By host: when its threads that read orders, pass them on, enqueue, and take completions are free, and when its
    last order comes."""

    read: Ints
    write: Ints
    enqueue: Ints
    hear: Ints
    last: Ints


class GangUnderWay(NamedTuple):
    """A gang, or one host's part of it if it is no collective. By host: ready, when it is enqueued there; 0: not known;
    ends, when it ends there; None: it has not started; slow, as that was when its first host started. steps: if it has
    several."""

    seq: int
    plan: Plan
    gang: Gang
    hosts: tuple[int, ...]
    ready: Ints
    ends: Ints | None
    slow: dict[int, float] | None
    steps: GangSteps | None


class Checkpoint:
    def __init__(self, island: CohortIsland, order: int, inputs: int, told: int, sent: Ints) -> None:
        sim = island.sim
        self.at, self.order = sim.now, order
        self.inputs, self.told = inputs, told  # how many of them came before
        self.sent = sent.copy()  # orders, by host
        self.executors: list[tuple[Spans, SharedExecutor]] = [
            (part.members, part.executor.twin(part.members)) for part in island.parts.all
        ]
        self.threads = island.threads()
        self.prepared = {seq: as_vector(times).copy() for seq, times in island.commands.prepared.items()}
        self.transfers: dict[int, Transfer] = deepcopy(island.commands.transfers)
        self.gangs = list(_under_way(island))
        base = island.island.base_host
        self.slow = {
            host: sim.fabric.slow[host] for host in range(base, base + island.island.hosts) if host in sim.fabric.slow
        }
        self.under_way: tuple[m.GangStep, ...] = ()  # gangs on which relays wait for reports
        self.waits: dict[Subject, None] = {}  # for reports on this, before it serves
        self.serves = self.at  # after this time


def _under_way(island: CohortIsland) -> Iterable[GangUnderWay]:
    base = island.island.base_host
    everyone = np.arange(base, base + island.island.hosts)
    for seq, job in sorted(island.jobs.items()):
        alone = job if isinstance(job, CohortSoloGang) else None
        slow = None
        if alone is not None and alone.slow is not None:
            slow = {base + row: float(factor) for row, factor in enumerate(alone.slow)}
        for part in [job] if isinstance(job, CohortGang) else job.jobs.values():
            hosts = tuple(everyone[part.where.rows].tolist())
            started = not island.gangs.waits(part)
            ready = (
                np.zeros(len(hosts), dtype=np.int64) if part.ready is NONE else as_vector(part.ready, len(hosts)).copy()
            )
            ends = as_vector(part.ends, len(hosts)).copy() if started else None
            yield GangUnderWay(seq, part.plan, part.gang, hosts, ready, ends, slow, copy(part.steps))


class History:
    def __init__(self, island: CohortIsland, due: int) -> None:
        """`due`: when the first announced fault of this island falls due."""
        self._island, self._due = island, due
        # what the controller has ordered and not heard of -> (when that was, how long it takes)
        self._ordered: dict[Subject, tuple[int, int]] = {}
        self._longest = 0  # that anything has been under way
        self._work = 0  # how long all gangs take that are under way
        self._points: list[Checkpoint] = []
        self._inputs: list[Input] = []
        self._told: list[tuple[int, m.Report]] = []  # what the controller hears, and when
        self._heard_by = 0  # when it has heard all of that
        self._gone = [0, 0]  # how many of both were forgotten
        self._sent: Ints = np.zeros(island.island.hosts, dtype=np.int64)
        self._open: dict[Subject, Spans] = {}  # hosts whose reports the controller has not heard
        self._order = -1
        self._since = 0  # orders since the last checkpoint

    # --- what happens -----------------------------------------------------------------------------------------

    def seated(self, seat: m.Seat, under_way: Sequence[m.GangStep] = ()) -> None:
        """`under_way`: gangs that were ordered before, on which no host has reported."""
        self._order = seat.last
        self._cut()
        self._points[0].under_way, self._points[0].serves = tuple(under_way), ALWAYS
        self._open = {(m.Done, step.seq): step.hosts for step in under_way}

    def ordered(self, message: m.Ordered, departs: int) -> None:
        """Takes in an order before the island does."""
        self._since += 1
        if not self._island.contents_together or self._points:
            spaced = not self._points or self._since > SPACING + len(self._island.parts.all)
            if spaced and self._may_cut():
                self._cut()
        if self._points:
            self._inputs.append(OrderLeft(self._island.sim.now, message, departs))
        self._order = message.number
        route = self._island.tree.route(message.hosts)
        for rows in (route.roots, *[level.rows for level in route.levels]):
            self._sent[rows] += 1
        for step in message.steps:
            if isinstance(step, m.CompileStep):
                for code, hosts in zip(step.codes, step.hosts or repeat(message.hosts), strict=False):
                    self._open[m.Compiled, step.plan, code] = hosts
            elif isinstance(step, ReportedStep):
                self._await(step)
        if self._points and message.number - self._points[0].order > MOST:
            self._island.sim.clock.at(
                self._island.sim.now, self._island.sim.trouble.go_apart, self._island.island.index
            )

    def _await(self, step: ReportedStep) -> None:
        """Takes in that its hosts will report on it."""
        key = m.Done, step.seq
        self._open[key] = step.hosts
        took = 0
        if isinstance(step, m.GangStep):
            plan = self._island.names.runs[step.run]
            gang: Any = plan.steps[step.step]
            takes = self._island.sim.prices(plan, gang)
            took = int((takes.own + takes.links) * gang.steps * (1 + self._island.sim.noise.compute))
            if step.ack:
                self._open[m.Enqueued, step.seq] = step.hosts
        self._ordered[key] = self._island.sim.now, took
        self._work += took

    def came(self, host: int, sender: int, number: int, message: Any) -> None:
        self._take(ContentsCame(self._island.sim.now, host, sender, number, message))

    def lost(self, host: int, sender: int, reason: str) -> None:
        self._take(PeerGone(self._island.sim.now, host, sender, reason))

    def slowed(self, host: int, factor: float) -> None:
        self._take(Slowed(self._island.sim.now, host, factor))

    def _take(self, come: Input) -> None:
        if self._points:
            self._inputs.append(come)

    def told(self, reports: Iterable[m.Report], at: int) -> None:
        """The controller hears these reports at this time, which may be later than now."""
        self._heard_by = max(self._heard_by, at)
        for report in reports:
            if self._points:
                self._told.append((at, report))
            key = subject(report)
            left = self._open.get(key)
            if left is None:
                continue
            left = spans.minus(left, report.hosts)  # type: ignore[union-attr]  # all that are awaited have hosts
            if left:
                self._open[key] = left
                continue
            del self._open[key]
            ordered, took = self._ordered.pop(key, (at, 0))
            self._longest = max(self._longest, at - ordered)
            self._work -= took
            for point in self._points:
                if key in point.waits:
                    del point.waits[key]
                    point.serves = max(point.serves, at)

    # --- contents that go together --------------------------------------------------------------------------

    def is_near(self) -> bool:
        """Whether what is ordered now may be under way when the fault falls due."""
        sim = self._island.sim
        first = next(iter(self._ordered.values()), None)
        if first is not None:
            self._longest = max(self._longest, sim.now - first[0])
        around = LEAST + sim.times.compile + TIMES * (self._longest + sim.longest_gang) + self._work
        return sim.now + around >= self._due

    def forget(self) -> None:
        """Contents go to hosts together from now on, which cannot be played again."""
        if not self._points:
            return  # it remembers nothing then
        self._gone = [self._gone[0] + len(self._inputs), self._gone[1] + len(self._told)]
        self._points, self._inputs, self._told = [], [], []

    # --- checkpoints ------------------------------------------------------------------------------------------

    def _may_cut(self) -> bool:
        """Whether all that executors were told has happened everywhere before the next order can come there."""
        island, sim = self._island, self._island.sim
        soon = sim.now + sim.network.latency
        if island.gangs.ending or island.ending_alone or not island.commands.idle:
            return False
        if island.contents.together or island.moves.are_together(island.island.index):
            return False
        if latest(island.threads().hear) > soon:
            return False
        # hosts that run a gang by themselves have all started it, or none
        return not any(
            not job.gang.collective and not island.gangs.waits(job) and latest(job.arrived) > sim.now
            for job in island.jobs.values()
            if isinstance(job, CohortGang)
        )

    def _cut(self) -> None:
        inputs, told = len(self._inputs) + self._gone[0], len(self._told) + self._gone[1]
        point = Checkpoint(self._island, self._order, inputs, told, self._sent)
        point.waits = dict.fromkeys(self._open)
        point.serves = max(point.at, self._heard_by)
        self._points.append(point)
        self._since = 0
        first = self._serving() or self._points[0]
        self._points = self._points[self._points.index(first) :]
        del self._inputs[: first.inputs - self._gone[0]], self._told[: first.told - self._gone[1]]
        self._gone = [first.inputs, first.told]

    def latest(self) -> Checkpoint:
        """The last checkpoint that serves now. Raises Unannounced if none does, since contents went together."""
        sim = self._island.sim
        if not self._points and self._is_quiet():
            self._cut()
            self._points[0].serves = ALWAYS
        found = self._serving()
        if found is None:
            raise Unannounced(
                f"a fault falls due at {sim.now / 1e9:.3f} s on island {self._island.island.name!r}, whose hosts are "
                "simulated in a cohort that does not remember what contents they have moved: this fault was not "
                f"announced, or something has been under way for much longer than {self._longest / 1e9:.3f} s. "
                "Announce it with Simulation(faults=[...]), or simulate the hosts exactly (fidelity='exact')"
            )
        return found

    def _serving(self) -> Checkpoint | None:
        now = self._island.sim.now
        for point in reversed(self._points):
            if not point.waits and point.serves < now:
                return point
        return None

    def _is_quiet(self) -> bool:
        """Whether nothing is under way, and nothing that executors were told is still to come."""
        island, now = self._island, self._island.sim.now
        threads = island.threads()
        busy = max(latest(times) for times in threads)
        return self._may_cut() and not self._open and not island.jobs and max(busy, self._heard_by) < now

    def since(self, point: Checkpoint) -> list[Input]:
        return self._inputs[point.inputs - self._gone[0] :]

    def heard(self, point: Checkpoint) -> dict[Subject, Spans]:
        """The hosts, by subject, whose reports the controller has heard although they follow this checkpoint."""
        now, found = self._island.sim.now, dict[Subject, Spans]()
        for at, report in self._told[point.told - self._gone[1] :]:
            hosts: Spans = getattr(report, "hosts", spans.EMPTY)
            if at < now and hosts:
                found[subject(report)] = spans.union(found.get(subject(report), spans.EMPTY), hosts)
        return found


def subject(report: m.Report) -> Subject:
    if isinstance(report, m.Compiled):
        return m.Compiled, report.plan, report.code
    return report_about(report)
