"""The moment at which the hosts of an island differ: a cohort becomes a process for each host, with the same past.

    take_over(sim, cohort)      now, in the middle of whatever is under way

A cohort is told of what is certain before it happens at each host, so it does not have the state of any host at one
moment. But it has remembered a checkpoint, and all that came from outside since (`sim.cohort.history`). So the clock is
set back, processes are made from the checkpoint, what came is brought to them again, and they do what they did, host
by host, up to now. Nobody else hears of it: the cohort has told the rest of the world already. What they have begun and
not finished, such as messages on their way, goes on from now.

What the cohort would have done from now on is dropped. The controller knew the island as a tree with one root. Now it
is given the real tree, and hears what some of the roots have reported by now: of a report of many hosts a cohort tells
only when it is whole. What contents are under way between cards is no part of it: from some time before the fault on,
contents are moved host by host.

What one island plays again is some tens of orders long (`history.SPACING`), however long the simulation has been
running, unless one gang or one transfer has been under way all that time.

Neighbours: `fault_injection` asks for it; `regrouping` is the other way round; `boot` is how islands begin.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from core.model import Spans, spans
from core.protocol import effects as e
from core.protocol import messages as m
from core.record import Trace

from ..cohort import CohortIsland, ContentsCame, Input, OrderLeft, PeerGone, subject
from ..engine import NOTHING, Order
from ..hosts import HostProcess
from ..network import CONTROLLER, report_number

if TYPE_CHECKING:
    from .simulation import Simulation


def take_over(sim: Simulation, cohort: CohortIsland) -> None:
    island = cohort.island
    hosts = range(island.base_host, island.base_host + island.hosts)
    replay = Replay(sim, cohort)
    doers = set(map(id, cohort.doers()))
    sim.clock.drop(lambda call, args: id(getattr(call, "__self__", None)) in doers)
    sim.controller_process.lane.recant(hosts)
    replay.play()
    sim.controller.reshape(island.index)
    replay.tell()


class Replay:
    def __init__(self, sim: Simulation, cohort: CohortIsland) -> None:
        assert cohort.history is not None
        self._sim, self._cohort = sim, cohort
        self._point = cohort.history.latest()
        self._inputs = cohort.history.since(self._point)
        self._heard = cohort.history.heard(self._point)
        self._reported: list[tuple[int, m.Reports]] = []  # by roots
        # by root and number: what of it the controller is not told yet
        self._said: dict[Order, list[m.Report]] = {}

    def play(self) -> None:
        """Makes the hosts, and has them do again what they did."""
        sim, fabric, network = self._sim, self._sim.fabric, self._sim.network
        before = sim.last_seen, network.messages, len(sim.told)
        trace, fabric.trace = fabric.trace, Trace()
        arrive, network.arrive = network.arrive, self._arrive
        slow, sim.replaying = fabric.slow.copy(), True
        failing, fabric.failing = fabric.failing, {}  # no gang that is over has been found to fail
        sim.clock.replay(self._point.at, self._begin)
        fabric.slow.update(slow)
        fabric.failing = failing
        fabric.trace, network.arrive, sim.replaying = trace, arrive, False
        sim.last_seen, network.messages = before[0], before[1]
        del sim.told[before[2] :]

    # --- what the controller hears ----------------------------------------------------------------------------

    def tell(self) -> None:
        """Tells the controller what each root has reported by now. What still waits for its turn there, waits on."""
        lane, island = self._sim.controller_process.lane, self._cohort.island
        lane.exchange(self._one_root)
        for root, message in self._reported:
            (report,) = message.reports
            hosts: Spans = getattr(report, "hosts", spans.EMPTY)
            unheard = spans.minus(hosts, self._heard.get(subject(report), spans.EMPTY))
            if unheard and not isinstance(report, m.Heartbeat):
                self._say(root, replace(report, hosts=unheard))
        lane.unfold(range(island.base_host, island.base_host + island.hosts), self._from_root)
        lane.exchange(lambda order, what: self._from_root(order) if what is NOTHING else what)
        for root, number in list(self._said):  # the controller has taken it in before now
            said = self._from_root((root, number))
            self._sim.controller_process.carry_out(self._sim.controller.handle(said, self._sim.now), self._sim.now)
        lane.catch_up()

    def _one_root(self, order: Order, what: Any) -> Any:
        """What the cohort has said, and the controller has not taken in, costs what it did. But it comes from one root,
        and so says what this root says. The others' have come before."""
        message = what.message if isinstance(what, e.MessageReceived) else None
        if not isinstance(message, m.Reports) or message.island != self._cohort.island.index:
            return what
        own, shape = [], self._cohort.shape
        for report in message.reports:
            hosts: Spans = report.hosts  # type: ignore[union-attr]  # a cohort reports nothing of one host
            for root in shape.roots_for(hosts):
                part = replace(report, hosts=spans.meet(hosts, shape.below(root)))
                if root == order[0]:
                    own.append(part)
                else:
                    self._say(root, part)
        return self._message(order[0], own) if own else NOTHING

    def _say(self, root: int, report: m.Report) -> None:
        """This root has reported it, which is another message than those of other roots."""
        self._said.setdefault((root, report_number(report)), []).append(report)

    def _from_root(self, order: Order) -> Any:
        """What the root says in the message of this number."""
        reports = self._said.pop(order, None)
        return NOTHING if reports is None else self._message(order[0], reports)

    def _message(self, root: int, reports: list[m.Report]) -> e.MessageReceived:
        cohort = self._cohort
        message = m.Reports(cohort.island.index, cohort.epoch, cohort.tree_number, tuple(reports))
        return e.MessageReceived(self._sim.connection(root), message)

    # --- the checkpoint ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        sim, point = self._sim, self._point
        members = self._cohort.parts.everyone
        for host in spans.items(members):
            sim.fabric.slow.pop(host, None)
        sim.fabric.slow.update(point.slow)
        for alike, executor in point.executors:
            for host in spans.items(alike):
                twin = executor.twin(spans.one(host))
                twin.stand_for(spans.one(host))
                sim.lone_hosts[host] = sim.new_host(host, twin, point.transfers.get(host))
        for client, host in sim.met:
            if spans.contains(members, host):  # contents that went together made no links
                sim.network.link(client, host)
        for host in spans.items(members):
            self._connect(host)
            self._resume(sim.lone_hosts[host])
        self._devices()
        for each in self._inputs:
            sim.clock.at(each.at, self._take, each)

    def _connect(self, host: int) -> None:
        """Makes the links that the host and its parent have used."""
        network, row = self._sim.network, host - self._cohort.island.base_host
        parent = self._cohort.shape.parent(host)
        if self._point.sent[row]:
            link = network.link(parent, host)
            link.count += int(self._point.sent[row])
            link.last = int(self._point.threads.last[row])
        if self._point.at > self._sim.times.beat:
            network.link(host, parent)

    def _resume(self, process: HostProcess) -> None:
        sim, point, host = self._sim, self._point, process.name
        row, shape = host - self._cohort.island.base_host, self._cohort.shape
        seat = m.Seat(
            self._cohort.island.index, self._cohort.epoch, self._cohort.tree_number, host, shape.parent(host),
            shape.children(host), shape.members, point.order,
        )  # fmt: skip
        beaten = point.at // sim.times.beat * sim.times.beat
        process.machine.relay.seated(seat, beaten, [])
        process.machine.relay.expect(point.under_way, shape.members)
        read, write, enqueue, hear = (int(times[row]) for times in point.threads[:4])
        prepared = {seq: int(times[row]) for seq, times in point.prepared.items() if times[row] >= 0}
        process.resume(shape.parent(host), read, write, enqueue, hear, prepared)

    def _devices(self) -> None:
        """What is in the queues of devices, and what will come there from what was commanded before."""
        sim, now = self._sim, self._point.at
        fabric = sim.fabric
        for under_way in self._point.gangs:
            seq, plan, gang, hosts, ready, ends, slow, known = under_way
            steps = copy(known)
            if ends is None:
                if steps is not None and steps.undone:
                    fabric.cut(hosts[0], seq)
                for host, at in zip(hosts, ready.tolist(), strict=True):
                    if at > now:
                        sim.clock.at(at, fabric.enqueue, host, seq, plan, gang)
                    elif at:
                        fabric.enqueue(host, seq, plan, gang, at=at)
            elif gang.collective:
                fabric.runs(hosts, seq, plan, gang, int(ends[0]), steps)
            else:
                fabric.alone(seq, gang, slow or {})
                for host, end in zip(hosts, ends.tolist(), strict=True):
                    fabric.runs((host,), seq, plan, gang, end, steps)

    # --- what came since --------------------------------------------------------------------------------------

    def _take(self, come: Input) -> None:
        sim = self._sim
        if isinstance(come, OrderLeft):
            self._write(come.message, come.departs)
        elif isinstance(come, ContentsCame):
            sim.lone_hosts[come.host].come(come.sender, come.number, come.message)
        elif isinstance(come, PeerGone):
            sim.lone_hosts[come.host].lose(come.sender, come.reason)
        else:
            sim.fabric.slow[come.host] = come.factor

    def _write(self, message: m.Ordered, at: int) -> None:
        sim = self._sim
        nbytes = sim.weights.of(message)
        for root in self._cohort.shape.roots_for(message.hosts):
            at += sim.profile.writing(nbytes)
            sim.network.send(CONTROLLER, root, message, nbytes, at)

    def _arrive(self, receiver: int, sender: int, number: int, message: Any) -> None:
        if receiver == CONTROLLER:
            self._reported.append((sender, message))
        else:
            self._sim.lone_hosts[receiver].come(sender, number, message)
