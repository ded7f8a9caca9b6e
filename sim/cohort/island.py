"""An island as a cohort: orders go down its tree, gangs run on its devices, reports go up.

The times of an order at all hosts follow from when it is written, the connections' latencies, when each relay is
free, and the order of the tree. The times of a gang's reports follow from when it ends. Nothing is decided here: the
controller decides what is ordered, and the executors decide what is done about it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from msgspec.structs import replace

from core.fanout import Tree, tree
from core.model import Gang, Island, Plan, Spans, spans
from core.protocol import effects as e
from core.protocol import messages as m

from ..engine import Ints, Unannounced
from ..engine import jitter as noise
from ..network import CONTROLLER, is_quiet, link_of
from .alike import OF_CONTENTS, AlikeHosts, PlaceFacts
from .client_contents import ClientContents
from .climbs import Climbs, is_loud, merged, report_about
from .commands import Commands
from .controller_reports import ControllerReports
from .event_times import EventTimes
from .gangs import CohortGang, CohortSoloGang, Gangs
from .history import History, ThreadTimes
from .host_contents import HostContents
from .host_times import HostTimes, ShiftedTimes, TimePatterns, as_vector, at_one, earliest, latest
from .order_times import OrderTimes
from .parts import CohortPart, PartGroup, Parts
from .routes import CohortTree, Rows
from .shared_executor import SharedExecutor
from .slice_parts import PartsBySlice, SlicePrograms
from .stream_names import StreamNames

if TYPE_CHECKING:
    from ..hosts import Context


class CohortIsland:
    def __init__(
        self, sim: Context, island: Island, moves: HostContents, due: int | None = None,
        executors: Sequence[tuple[Spans, SharedExecutor]] = (), names: StreamNames | None = None,
    ) -> None:  # fmt: skip
        """`due`: when its hosts will have to be simulated one by one, if ever. `executors`: of its hosts, if they have
        a past; `names`: what they have been told of."""
        remembers = due is not None
        self.sim, self.island, self.moves = sim, island, moves
        hosts = island.hosts
        # Whether contents may go to and from its hosts together. Hosts that will be simulated one by one soon have
        # transfer machines of their own: a fault may find contents under way, and spoils those of single hosts.
        self.contents_together = sim.regular
        self.contents = ClientContents(self)
        self.reports = ControllerReports(self)
        self._facts = facts = PlaceFacts(sim.hosts_of, self.contents_of, moves.hosts_at, one_may_send=True)
        alike = [AlikeHosts(members, sim.hosts_of, past=executor, facts=facts) for members, executor in executors] or [
            AlikeHosts(island.host_span, sim.hosts_of, incarnation=1, facts=facts)
        ]
        self.parts = Parts(island, alike, remembers)
        self.slices = PartsBySlice(island, self.parts, facts, remembers, bool(executors))
        self.patterns = TimePatterns(hosts)
        self.times = EventTimes(hosts, self.patterns)
        self.commands = Commands(self)
        self.gangs = Gangs(sim, island, self.patterns, self._over, self._over_at)
        self.climbs = Climbs(self)
        self.history = None if due is None else History(self, due)
        self.gangs.differ_later = remembers
        self.epoch = self.tree_number = -1
        self.names = names or StreamNames()
        self.jobs: dict[int, CohortGang | CohortSoloGang] = {}
        self._ending = -1  # the gang whose hosts are being told that it is over
        self.ending_alone: dict[int, CohortGang] = {}  # gangs that have ended on some of their hosts
        self._done_said: list[m.Done] = []
        self._all, self._everyone = slice(0, hosts), self.parts.everyone
        self._down = OrderTimes(sim, island, self._everyone)
        # when threads that enqueue, and that take completions, are free; a number if it is the same for all
        self._enqueue: HostTimes = ShiftedTimes(self.patterns.even, 0)
        self._hear: Ints | int = 0
        self._seen = -1  # the last order that all hosts have read
        self._said = -2  # what the last heartbeat said of that
        self.beats = True  # heartbeats are sent
        self._orders: deque[tuple[int, int]] = deque()  # (number, when all hosts have read it)
        self._settled = self._number = -1  # as the last order says, and its number
        self._members: dict[int, Member] = {}

    def contents_of(self, transfer: int) -> ClientContents | HostContents | None:
        """What carries the contents of a transfer whose hosts go together."""
        if transfer in self.contents.under_way:
            return self.contents
        return self.moves if self.moves.has(transfer) else None

    # --- seats ----------------------------------------------------------------------------------------------

    def must_re_form(self) -> NoReturn:
        """Raises: the controller gave up something, without an announced fault, since it took longer than its
        bound."""
        bounds = self.sim.config.bounds
        raise Unannounced(
            f"at {self.sim.now / 1e9:.3f} s the controller gave up what did not end in time on island "
            f"{self.island.name!r}, whose hosts must re-form: a cohort cannot do that. Simulate the hosts exactly "
            f"(fidelity='exact'), or raise the controller's bounds: they are {bounds}"
        )

    def seated(self, seat: m.Seat, shape: Tree | None = None, under_way: Sequence[m.GangStep] = ()) -> None:
        """Takes in the seat of the host that speaks for all, and hangs all hosts into the tree that they would have
        by themselves, or have had (`shape`). `under_way`: gangs on which none of them has reported."""
        self.speaker = seat.host
        self.epoch, self.tree_number, self._seen = seat.epoch, seat.tree, seat.last
        self.shape = shape or tree(seat.members, self.sim.config.fanout)
        self.tree = CohortTree(self.island, self.shape)
        one = m.Reports(self.island.index, self.epoch, self.tree_number, (m.Heartbeat(self.island.host_span, 0),))
        self.report_take = self.sim.taking(one)  # what any report costs the host that takes it
        self.report_extra = self.sim.writing(one) + self.sim.network.report_latency
        self.climbs.seated()
        seed, base, parents = self.sim.seed, self.island.base_host, self.shape.parents
        hosts = range(base, base + self.island.hosts)
        up = [link_of(host, parents.get(host, CONTROLLER)) for host in hosts]
        self._down.seated(self.shape)
        self._up = noise.keys(seed, np.array(up, dtype=np.uint64))
        if self.history is not None:
            self.history.seated(seat, under_way)

    def threads(self) -> ThreadTimes:
        hear = np.full(self.island.hosts, self._hear, dtype=np.int64)
        read, write, last = self._down.threads()
        return ThreadTimes(read.copy(), write.copy(), as_vector(self._enqueue).copy(), hear, last.copy())

    def resume(self, times: ThreadTimes) -> None:
        """Its hosts have a past, from which their threads are occupied until these times."""
        self._down.resume(times.read, times.write, times.last)
        self._enqueue, self._hear = times.enqueue, times.hear

    def doers(self) -> list[object]:
        """All that does something at some time for the hosts of this island alone."""
        return [self, self.reports, self.gangs, self.climbs, self.commands, *self.commands.threads()]

    def beat(self) -> bool:
        """Sends the heartbeats of all hosts, with the last order that all have read. False: until the next order, they
        would say nothing new, and none is sent."""
        now = self.sim.now
        while self._orders and self._orders[0][1] <= now:
            self._seen = self._orders.popleft()[0]
        self.beats = bool(self._orders) or self._seen != self._said
        if not self.beats:
            return False
        self._said = self._seen
        beat = m.Heartbeat(self._everyone, self._seen)
        # Heartbeats take as long as any message: the controller may act on elapsed time when it takes one in.
        self.reports.quiet(now + self.sim.network.latency, beat)
        return True

    # --- down -----------------------------------------------------------------------------------------------

    def ordered(self, message: m.Ordered, at: int) -> int:
        """Takes in an order that the controller begins to write at this time, to one root after another; returns when
        all are written."""
        sim, route = self.sim, self.tree.route(message.hosts)
        self.names.learn(message)
        if self.history is not None:
            if self.contents_together and self.history.is_near():
                self.contents_together = self._facts.one_may_send = False
            self.history.ordered(message, at)
        sim.network.messages += route.number
        nbytes = sim.weights.of(message)
        shares = self._divide(message)  # first: how a gang is entered depends on which hosts are one part
        self._remember(message)
        if self.gangs.alone:
            self._divide_alone(message, self.gangs.run_alone)
        read, all_read = self._down.send(message, route, at, nbytes)
        self.times.put(("order", message.number), self._all, self.island.hosts, read, sim.now)
        self._orders.append((message.number, all_read))
        if not self.beats:
            sim.beat_again(self)
        parts = self.parts
        self.commands.tell_each([
            (part, share)
            for owner, share in shares
            for part in (parts.among(share.hosts) if owner is None else (owner.part,))
        ])  # fmt: skip
        return at + sim.profile.writing(nbytes) * route.number

    def _remember(self, message: m.Ordered) -> None:
        """Remembers the gangs and reporting hosts that the order's steps name."""
        for step in message.steps:
            if isinstance(step, m.GangStep):
                plan = self.names.runs[step.run]
                gang = plan.steps[step.step]
                assert isinstance(gang, Gang)
                self.jobs[step.seq] = self.enter(step, plan, gang)
                if self.sim.fabric.failing:
                    self._see_whether_it_fails(gang)
                if not step.ack:
                    continue
            if type(step) is not m.FreeStep:
                self.names.step(step)

    def _see_whether_it_fails(self, gang: Gang) -> None:
        """A gang that is to fail on one host makes the hosts differ."""
        hosts = self.island.hosts_of(gang.place)
        if any(name == gang.name and spans.contains(hosts, host) for host, name in self.sim.fabric.failing):
            self.sim.clock.at(self.sim.now, self.sim.trouble.go_apart, self.island.index)

    def enter(self, step: m.GangStep, plan: Plan, gang: Gang) -> CohortGang | CohortSoloGang:
        """Adds a gang. Hosts of one part know together when each of them can run it. They take part together in
        each gang, so they end gangs in the order of their starts."""
        if gang.collective or spans.count(step.hosts) == 1:
            return self.gangs.enter(step.seq, plan, gang)
        together = len(self.parts.among(step.hosts)) == 1 and not self.slices.overlap(step.hosts)
        if together and self.gangs.in_step(gang.place):
            return self.gangs.enter(step.seq, plan, gang)
        return self.gangs.enter_alone(step.seq, plan, gang)

    # --- parts ----------------------------------------------------------------------------------------------

    def _contents_ordered(self, step: m.RecvStep | m.SendStep) -> None:
        if not step.client:
            self.moves.ordered(step.transfer, *self.names.move(step))
        elif isinstance(step, m.RecvStep):
            self.contents.put_ordered(step)
        else:
            sender = self.parts.of_host(step.hosts[0][0])
            self.contents.get_ordered(step, sender.executor.layout_of(step.step))

    def _divide(self, message: m.Ordered) -> list[tuple[SlicePrograms | None, m.Ordered]]:
        """Divides parts as an order demands; returns which slice, or None for the island, has which share of it."""
        parts, slices, now = self.parts, self.slices, self.sim.now
        shares: list[tuple[SlicePrograms | None, m.Ordered]] = [(None, message)]
        changed: list[CohortPart] = []
        if slices.known or message.plans:
            shares, changed = slices.shares(message, self._number, self._settled)
        elif not slices.none_waits(message):
            slices.see_waits(message)
        for step in message.steps:
            if isinstance(step, OF_CONTENTS):
                self._contents_ordered(step)
        if len(parts.all) > 1 and parts.due:
            parts.merge(self._number, self._settled, lambda cause: self.times.past(cause, now))
        self._number, self._settled = message.number, max(self._settled, message.settled)
        for owner, share in shares:
            if owner is None:
                changed += parts.divide(share)
        if changed:
            self._divided(changed)
        return shares

    def _divide_alone(self, message: m.Ordered, alone: Spans) -> None:
        """Makes parts of hosts that run gangs one by one and move contents: else ends of gangs were told too late."""
        for step in message.steps:
            if isinstance(step, OF_CONTENTS) and not step.client and self.moves.has(step.transfer):
                hosts = spans.meet(self.moves.hosts_at(step.transfer, isinstance(step, m.SendStep)), alone)
                self._divided(self.parts.single_out(hosts))

    def set_apart(self, members: Spans) -> None:
        """Makes parts of their own of these hosts, which are told something before others are. Where gangs of both are
        no collectives, what follows happens at each host by itself, and each is a part."""
        changed = self.parts.set_apart(members)
        alone, jobs = self.gangs.divide(members)
        self.jobs.update(jobs)
        self._divided(changed)
        self._divided(self.parts.single_out(alone))

    def _divided(self, changed: list[CohortPart]) -> None:
        for part in changed:
            for job in list(self.ending_alone.values()):
                self._catch_up(job, part)

    def _catch_up(self, job: CohortGang, part: CohortPart) -> None:
        """Tells a new part of a gang that has already ended on all its hosts; the undivided part was not told."""
        assert job.alone is not None
        if part.host in job.alone.heard and part.host not in job.alone.told:
            self._tell_if_over(job, part)

    def member(self, host: int) -> Member:
        found = self._members.get(host)
        if found is None:
            found = self._members[host] = Member(self, host)
        return found

    # --- gangs ----------------------------------------------------------------------------------------------

    def launched(
        self, hosts: CohortPart | PartGroup, launch: e.Launch, when: HostTimes | int, prepared: HostTimes | None
    ) -> None:
        """Takes in when these hosts launch a gang: a number only if it is one host."""
        profile, rows, whole = self.sim.profile, hosts.rows, hosts.number == self.island.hosts
        enqueue: HostTimes | int = self._enqueue if whole else self._enqueue_each()[rows]
        if isinstance(when, int) and not whole:
            enqueue = latest(enqueue)
        free = self.patterns.later(enqueue, when)
        if prepared is None:
            free = free + (profile.prepare + profile.enqueue)
        else:
            free = self.patterns.later(free, prepared) + profile.enqueue
        if whole:
            self._enqueue = free if not isinstance(free, int) else as_vector(free, 1)
        else:
            self._enqueue_each()[rows] = free if isinstance(free, int) else as_vector(free)
        ready = free + self.sim.times.pcie_latency
        job = self.jobs[launch.seq]
        if isinstance(job, CohortGang):
            at = self._all if hosts.number == job.where.number else self.gangs.hosts_before(hosts.members, job)
            self.gangs.enqueued(job, at, hosts.number, ready, launch.placeholders)
            return
        each = as_vector(ready, hosts.number)
        for index, row in enumerate(np.arange(self.island.hosts)[rows].tolist()):
            self.gangs.enqueued(job.jobs[row], slice(0, 1), 1, each[index : index + 1], launch.placeholders)

    def _enqueue_each(self) -> Ints:
        """To be changed for single hosts."""
        self._enqueue = each = as_vector(self._enqueue)
        return each

    def _over(self, job: CohortGang) -> None:
        """Takes in that a gang ends by `job.ends`: tells its hosts, in the order in which gangs end."""
        sim = self.sim
        sim.last_seen = sim.now
        heard = self._heard(job)
        del self.jobs[job.seq]
        self.times.put(("done", job.seq), job.where.rows, job.where.number, heard, sim.now)
        owner = self.slices.of_gang.pop(job.seq, None)
        said = self._tell_over(job, self.parts.among(job.where.hosts) if owner is None else [owner.part])
        if self.commands.prepared:
            self.commands.over(job.seq)
        if isinstance(heard, int) and not (sim.network.jitter or any(map(is_loud, said))):
            self.climbs.in_pattern(ShiftedTimes(self.patterns.even, heard), said, job.where.hosts)
        else:
            self.climbs.at_once(job.where.rows, heard, said, job.where.hosts)

    def _heard(self, job: CohortGang) -> Ints | int:
        """When the hosts have taken in that a gang has ended: one time, if it is the same on all of them."""
        sim, rows = self.sim, job.where.rows
        complete, known = sim.profile.complete, job.ends + sim.times.pcie_latency
        if isinstance(known, int) and job.where.number == self.island.hosts:
            if not isinstance(self._hear, int) and latest(self._hear) <= known:
                self._hear = known
            if isinstance(self._hear, int):
                self._hear = max(self._hear, known) + complete
                return self._hear
        hear = self._hear_each()
        heard: Ints | int
        last = latest(hear[rows])
        if isinstance(known, int) and (last <= known or job.where.number == 1):
            heard = max(last, known) + complete
        else:
            heard = np.maximum(hear[rows], known) + complete
        hear[rows] = heard
        return heard

    def _hear_each(self) -> Ints:
        if isinstance(self._hear, int):
            self._hear = np.full(self.island.hosts, self._hear, dtype=np.int64)
        return self._hear

    def _over_at(self, job: CohortGang, row: int) -> None:
        """Takes in that a gang has ended on this host. An executor is told when it has ended on all its hosts."""
        sim, alone = self.sim, job.alone
        assert alone is not None
        sim.last_seen = sim.now
        hear = self._hear_each()
        heard = max(int(hear[row]), sim.now + sim.times.pcie_latency) + sim.profile.complete
        hear[row] = heard
        host = self.island.base_host + row
        alone.heard[host] = heard
        self.ending_alone[job.seq] = job
        blame = self._tell_if_over(job, self.parts.of_host(host))
        if len(alone.heard) == alone.where.number:
            del self.jobs[job.seq], self.ending_alone[job.seq]
            self.commands.over(job.seq)
        done = m.Done(job.seq, spans.one(host), blame, self._sizes(job))
        self.climbs.report(done, job.where.rows, np.array([heard], dtype=np.int64), alone.where.hosts)

    def _tell_if_over(self, job: CohortGang, part: CohortPart) -> m.Blame | None:
        assert job.alone is not None
        mine, times, told = list(spans.items(part.members)), job.alone.heard, job.alone.told
        if not all(host in times for host in mine):
            return None
        told.update(dict.fromkeys(mine))
        heard = np.array([times[host] for host in mine], dtype=np.int64)
        self.commands.happen(part, ("done", job.seq), heard)
        said = self._tell_over(job, [part])
        return said[0].blame if said else None

    def _sizes(self, job: CohortGang) -> tuple[int, ...]:
        if job.steps is not None:
            return (job.steps.undone,)
        return self.sim.sizes(job.plan, job.gang, job.seq) if job.gang.irregular else ()

    def _tell_over(self, job: CohortGang, parts: list[CohortPart]) -> tuple[m.Done, ...]:
        """Tells these parts that a gang is over; returns their reports."""
        self._ending, said = job.seq, self._done_said
        self.commands.tell(parts, e.Finished(job.seq, None, self._sizes(job)))
        self._ending, self._done_said = -1, []
        return merged(said) if len(said) > 1 else tuple(said)

    def slow(self, row: int, factor: float) -> None:
        if self.gangs.slow is None:
            self.gangs.slow = np.ones(self.island.hosts)
        self.gangs.slow[row] = factor
        if self.history is not None:
            self.history.slowed(self.island.base_host + row, factor)

    # --- up -------------------------------------------------------------------------------------------------

    def report(self, report: Any, hosts: CohortPart | PartGroup, when: HostTimes | int) -> None:
        """Takes in what these hosts report at these times."""
        if isinstance(report, m.Done) and report.seq == self._ending:
            mine = report.hosts == hosts.members
            self._done_said.append(report if mine else replace(report, hosts=hosts.members))
            return
        if is_quiet(report):
            self._send_quiet(hosts, report, when)
            return
        taking_part = self.names.taking_part[report_about(report)]
        host, end = taking_part[0]
        if end - host == len(taking_part) == 1:  # alone, or as the one of alike hosts that sends what a client gets
            row = 0 if host == hosts.members[0][0] else spans.index(hosts.members, host)
            at = max(when if isinstance(when, int) else at_one(when, row), self.sim.now)
            if not is_loud(report):
                said = report if report.hosts == taking_part else replace(report, hosts=taking_part)
                self.climbs.of_one(said, host - self.island.base_host, at)
                return
            when, hosts = at, self.parts.group(taking_part)
        together = taking_part == hosts.members and hosts.number > 1 and not is_loud(report)
        if together and report.hosts != taking_part:
            report = replace(report, hosts=taking_part)
        if together and isinstance(when, ShiftedTimes) and not self.sim.network.jitter:
            if earliest(when) >= self.sim.now:
                self.climbs.in_pattern(when, (report,), taking_part)
                return
        times = np.maximum(as_vector(when, hosts.number), self.sim.now)
        if together:
            self.climbs.at_once(hosts.rows, times, (report,), taking_part)
        else:
            self.climbs.report(report, hosts.rows, times, taking_part)

    def jitter_up(self, rows: Rows, number: int) -> Ints | int:
        """By how much this report is late on its way from these hosts to those above them."""
        jitter = self.sim.network.jitter
        if not jitter:
            return 0
        return noise.each_below(jitter + 1, self._up[rows], number)

    def below(self, row: int) -> Spans:
        """A relay and the hosts below it."""
        return self.shape.below(self.island.base_host + row)

    def _send_quiet(self, part: CohortPart | PartGroup, report: Any, when: HostTimes | int) -> None:
        """Delivers a report that costs no CPU: it arrives with its last copy."""
        sim = self.sim
        times = as_vector(when, part.number) + self.tree.depths[part.rows] * sim.network.latency
        at = int(times.max())
        if isinstance(report, m.Compiled):
            self.reports.compiled(at, int(np.arange(self.island.hosts)[part.rows][times == at][-1]), report)
        else:
            self.reports.quiet(at, report)


# --- its hosts as their peers see them --------------------------------------------------------------------------------


class Member:
    """One host of a cohort, with the methods of a process that its peers call."""

    alive = True

    def __init__(self, island: CohortIsland, host: int) -> None:
        self._island, self.name = island, host

    def come(self, sender: int, number: int, message: Any) -> None:
        """Takes in messages about contents; all others come down the tree. A new seat means that hosts re-form,
        which a cohort cannot do."""
        if isinstance(message, m.Seat):
            self._island.must_re_form()
        if self._island.history is not None:
            self._island.history.came(self.name, sender, number, message)
        cost = self._island.sim.taking_contents(message)
        self._island.commands.come(self.name, sender, number, message, cost)

    def lose(self, sender: int, reason: str) -> None:
        if self._island.history is not None:
            self._island.history.lost(self.name, sender, reason)
        self._island.commands.lose(self.name, sender, reason)
