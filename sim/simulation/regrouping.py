"""The moment at which the hosts of an island are alike again: processes become a cohort, with the same past.

    Regrouping.ordered(message)     the controller is about to write an order to hosts that are simulated one by one

A fault is over when its island stands as it is: all members are seated, no host is cut off or expected back, and
nothing is under way that one host does and another does not. Then the hosts' executors, threads and devices say all
that a cohort knows. The best moment is when an order leaves, as for a checkpoint (`sim.cohort.history`): mostly what
was ordered before has been read everywhere by then, and what was reported has been heard. It is tried again and again,
less and less often, until it is so. Hosts that are not members, because they are lost, stay as they are.

Executors whose states are equal are one part of the cohort. What gangs are in the devices' queues goes on there. If
another fault is announced, or a gang that will be ordered is to fail, the cohort keeps checkpoints from here on; if
not, contents go to its hosts together, too.

Neighbours: `takeover` is the other way round; `sim.hosts.processes` and `device_queues` say what is under way.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from core.model import Plan, Spans, spans
from core.protocol import messages as m

from ..cohort import CohortGang, CohortIsland, HostContents, SharedExecutor, StreamNames, ThreadTimes
from ..hosts import GangOnDevices, HostProcess
from ..network import is_quiet
from .faults import divided

if TYPE_CHECKING:
    from .simulation import Simulation

SELDOM = 15  # orders between two attempts, at most


class Regrouping:
    def __init__(self, sim: Simulation, moves: HostContents) -> None:
        self._sim, self._moves = sim, moves
        self._apart: dict[int, Attempts] = {}  # islands whose hosts are simulated one by one, since a fault

    def apart(self, island: int, names: StreamNames) -> None:
        """From now on the hosts of this island are simulated one by one. `names`: what they have been told of."""
        self._apart[island] = Attempts(names)

    def ordered(self, message: m.Ordered) -> bool:
        """Takes in an order that is about to be written. Returns whether its island has become a cohort."""
        attempts = self._apart.get(message.island)
        if attempts is None:
            return False
        if attempts.due(message) and self._regroup(message, attempts.names):
            del self._apart[message.island]
            return True
        self._learn(message, attempts.names)
        return False

    def _learn(self, message: m.Ordered, names: StreamNames) -> None:
        names.learn(message)
        for step in message.steps:
            if isinstance(step, m.SendStep | m.RecvStep) and not step.client and step.run in names.runs:
                self._moves.ordered(step.transfer, *names.move(step))
            names.step(step)

    def _regroup(self, message: m.Ordered, names: StreamNames) -> bool:
        sim, index = self._sim, message.island
        standing = sim.controller.standing(index, message.number)
        if standing is None:
            return False
        seat, shape = standing
        still = StillHosts(sim, index, seat.members, names)
        gangs = still.gangs()
        if gangs is None:
            return False
        due = sim.now if still.will_fail else divided(still.announced, sim.cluster).get(index)
        begin = Beginning(sim, index, still.hosts, gangs)
        island = begin.island(self._moves, names, due, replace(seat, last=message.number - 1), shape)
        sim.together(island, still.hosts)
        return True


class Attempts:
    """When to try. The number of orders from one attempt to the next is odd, since every second order may be one that
    always leaves while another is under way."""

    def __init__(self, names: StreamNames) -> None:
        self.names = names
        self._gap = self._left = 1
        self._path = (-1, -1)

    def due(self, message: m.Ordered) -> bool:
        path = message.epoch, message.tree
        if path != self._path:  # hosts have just taken their seats: less is under way than ever
            self._path, self._gap, self._left = path, 1, 1
        self._left -= 1
        if self._left:
            return False
        self._gap = self._left = min(2 * self._gap + 1, SELDOM)
        return True


# --- whether nothing differs between hosts ----------------------------------------------------------------------------


class StillHosts:
    """The members of an island, and whether only gangs are under way on them."""

    def __init__(self, sim: Simulation, island: int, members: Spans, names: StreamNames) -> None:
        self._sim, self._island, self._members, self._names = sim, island, members, names
        self.hosts = {host: sim.lone_hosts[host] for host in spans.items(members)}
        self.announced: list[Any] = []  # faults that are still to come

    def gangs(self) -> dict[int, GangOnDevices] | None:
        """By seq: the gangs on these hosts' devices; None if anything else is under way, or some hosts have begun or
        ended a gang and others have not."""
        sim, hosts = self._sim, self.hosts.values()
        if not all(host.alive and host.idle and host.machine.executor.may_merge for host in hosts):
            return None
        if any(sim.lone_hosts[host].alive for host in self._others()):  # it is to begin anew
            return None
        if self._damaged() or sim.network.holds(self._members) or not self._nothing_comes():
            return None
        if sim.controller_process.lane.has(self._from_here):
            return None
        gangs = sim.fabric.under_way(self._members)
        if gangs is None or not all(self._together(gang) for gang in gangs.values()):
            return None
        return gangs if all(self._launched(host, gangs) for host in self.hosts) else None

    def _others(self) -> list[int]:
        """Hosts of the island that are not members."""
        island = self._sim.controller.cluster.islands[self._island]
        return [host for host in spans.items(island.host_span) if host not in self.hosts]

    def _damaged(self) -> bool:
        """Whether a gang that is to fail is under way here, or a device is lost to which gangs may be given."""
        sim = self._sim
        fails = any(host in self.hosts and name in self._under_way(host) for host, name in sim.fabric.failing)
        return fails or any(
            sim.cluster.host_of(device) in self.hosts and sim.controller.resources.usable(device)
            for device in sim.fabric.dead
        )

    def _under_way(self, host: int) -> set[str]:
        """The names of gangs that are under way on this host."""
        steps = [step for step, _ in self.hosts[host].machine.executor.gangs_under_way().values()]
        return {self._names.runs[step.run].steps[step.step].name for step in steps}

    @property
    def will_fail(self) -> bool:
        """Whether a gang that is still to come is to fail on this island."""
        return any(self._is_here(host) for host, _ in self._sim.fabric.failing)

    def _nothing_comes(self) -> bool:
        """Whether nothing is under way to these hosts or from them, but heartbeats."""
        return not any(self._comes(getattr(call, "__self__", None), call.__name__, args)
                       for call, args in self._sim.clock.calls())  # fmt: skip

    def _comes(self, owner: object, call: str, args: tuple[Any, ...]) -> bool:
        sim, hosts = self._sim, self.hosts
        if owner is sim.network:
            link, _, message = args
            return link.alive and (link.sender in hosts or link.receiver in hosts) and not is_beat(message)
        if isinstance(owner, HostProcess):
            return hosts.get(owner.name) is owner and call != "_ring"
        if owner is sim.fabric:
            return call != "_end" and args[0] in hosts
        if owner is sim and call != "_beat":
            return any(isinstance(name, int) and name in hosts for name in args[:2])
        if owner is sim.trouble:
            return self._repairs(call, args)
        return False

    def _repairs(self, call: str, args: tuple[Any, ...]) -> bool:
        """Whether a fault of this island, or of a client, is not over. (`network.holds` says what is cut.)"""
        sim = self._sim
        if call == "befall":
            self.announced.append(args[0])
        if call == "_lost":
            return sim.trouble.is_unheard(args[0]) and (args[0] < 0 or self._is_here(args[0]))
        if call in ("stopped", "_restart"):
            process = args[0]
            return self._is_here(process.name) and sim.lone_hosts.get(process.name) is process
        return False

    def _is_here(self, host: int) -> bool:
        return self._sim.island_of(host) == self._island

    def _from_here(self, event: Any) -> bool:
        """Whether the controller is still to be told of something by a host of this island, or of the loss of one."""
        peer = getattr(event, "peer", -1)
        return 0 <= peer < self._sim.cluster.hosts and self._is_here(peer)

    def _together(self, gang: GangOnDevices) -> bool:
        """Whether all its hosts have started it, or none has."""
        hosts = self._sim.cluster.islands[self._island].hosts_of(gang.gang.place)
        return not gang.ends or len(gang.ends) == spans.count(hosts)

    def _launched(self, host: int, gangs: dict[int, GangOnDevices]) -> bool:
        """Whether the devices have what the host has launched."""
        known = self.hosts[host].machine.executor.gangs_under_way()
        launched = {seq for seq, (_, launched) in known.items() if launched}
        return launched == {seq for seq, gang in gangs.items() if host in gang.ends or host in gang.waiting}


def is_beat(message: Any) -> bool:
    return isinstance(message, m.Reports) and all(map(is_quiet, message.reports))


# --- a cohort with a past ---------------------------------------------------------------------------------------------


class Beginning:
    def __init__(
        self, sim: Simulation, index: int, hosts: dict[int, HostProcess], gangs: dict[int, GangOnDevices]
    ) -> None:
        self._sim, self._at, self._hosts, self._gangs = sim, sim.controller.cluster.islands[index], hosts, gangs

    def island(
        self, moves: HostContents, names: StreamNames, due: int | None, seat: m.Seat, shape: Any
    ) -> CohortIsland:
        sim, base = self._sim, self._at.base_host
        island = CohortIsland(sim, self._at, moves, due, self._executors(), names)
        island.resume(self._threads(island, shape))
        for host, process in self._hosts.items():
            island.commands.transfers[host] = process.machine.transfer
            if host in sim.fabric.slow:
                island.slow(host - base, sim.fabric.slow[host])
        for client in {client for client, host in sim.met if host in self._hosts}:
            island.contents.resume(client, spans.of(host for host in self._hosts if (client, host) in sim.met))
        steps: dict[int, m.GangStep] = {}
        for process in self._hosts.values():
            steps |= {seq: step for seq, (step, _) in process.machine.executor.gangs_under_way().items()}
        in_order = [steps[seq] for seq in sorted(steps)]
        for step in in_order:
            self._gang(island, step, names.runs[step.run])
        island.seated(seat, shape, in_order)
        return island

    def _executors(self) -> list[tuple[Spans, SharedExecutor]]:
        """One of those whose states are equal, with the hosts for which it is to stand."""
        alike: dict[Hashable, list[int]] = {}
        for host, process in self._hosts.items():
            executor = process.machine.executor
            alike.setdefault(executor.remembered(lambda cause: True), []).append(host)
        found = []
        for hosts in alike.values():
            executor, members = self._hosts[hosts[0]].machine.executor, spans.of(hosts)
            executor.stand_for(members)
            found.append((members, executor))
        return found

    def _threads(self, island: CohortIsland, shape: Any) -> ThreadTimes:
        times = ThreadTimes(*(np.zeros(self._at.hosts, dtype=np.int64) for _ in ThreadTimes._fields))
        for host, process in self._hosts.items():
            row, parent = host - self._at.base_host, shape.parent(host)
            *threads, prepared = process.past(parent)
            for vector, at in zip(times, (*threads, self._sim.network.link(parent, host).last), strict=True):
                vector[row] = at
            for seq, at in prepared.items():
                island.commands.prepare(seq, slice(row, row + 1), at)
        return times

    def _gang(self, island: CohortIsland, step: m.GangStep, plan: Plan) -> None:
        gang: Any = plan.steps[step.step]
        job = island.jobs[step.seq] = island.enter(step, plan, gang)
        here = self._gangs.get(step.seq)
        if here is None:
            return
        if isinstance(job, CohortGang):
            self._resume(island, job, here)
            return
        if here.slow:
            job.slow = np.array([here.slow.get(self._at.base_host + row, 1.0) for row in range(self._at.hosts)])
        for each in job.jobs.values():
            self._resume(island, each, here)

    def _resume(self, island: CohortIsland, job: CohortGang, here: GangOnDevices) -> None:
        hosts = list(spans.items(job.where.hosts))
        job.steps = here.steps
        if here.ends:
            ends = np.array([here.ends[host] for host in hosts], dtype=np.int64)
            arrived = np.array([here.arrived.get(host, 0) for host in hosts], dtype=np.int64)
            one = job.gang.collective or job.alone is not None
            island.gangs.resume(job, arrived, int(ends[0]) if one else ends)
            return
        has = [at for at, host in enumerate(hosts) if host in here.waiting]
        if has:
            # Where it is not at the head, its turn comes when the gang before it ends. (0 would be: not enqueued.)
            ready = np.array([here.arrived.get(hosts[at], self._sim.now) for at in has], dtype=np.int64)
            island.gangs.enqueued(job, np.array(has), len(has), ready, here.placeholders)
