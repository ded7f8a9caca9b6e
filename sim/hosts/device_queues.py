"""Simulated devices: each runs its queue in order, without pre-emption; a collective starts on all its devices at
once.

    host --Launch--> (PCIe) --> device queues --> started when it heads the queues of all its devices
    host <--Finished-- (PCIe) <-- ended, its kernel's time later

If two gangs each head a queue in which the other waits, both wait for ever, as on real devices. A gang takes
its kernel's time on these devices, times the factor of its slowest host; values are not computed here. Devices that
compute on their hosts' cores (`OnCores`) take as long as they have to wait for cores, too.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from core.model import Cluster, Gang, GangSteps, Place, Plan, Spans, device_spans, spans
from core.protocol import Blame, Event, Finished, Launch
from core.record import PLACEHOLDER, Trace

from ..engine import SimClock


class Takes(NamedTuple):
    """What a gang takes; if it has several steps, what each of them does.

    own: nanoseconds that each device computes. links: nanoseconds that it waits for links. inline: whether the thread
    that enqueues the gang computes it. cores: how many of its host's cores it keeps busy, on average. roads: for how
    long it takes the links and the cards on which contents move, too (`sim.network.held_roads`); None: neither.
    rounds: of messages in a sum over its hosts.
    """

    own: int
    links: int
    inline: bool = False
    cores: float = 1.0
    roads: tuple[int, int] | None = None
    rounds: int = 0

    def slowed(self, slow: float) -> "Takes":
        own = int(self.own * slow)
        roads = self.roads and (int(self.roads[0] * slow), int(self.roads[1] * slow))
        return self._replace(own=own, links=int((self.own + self.links) * slow) - own, roads=roads)


class OnCores(Protocol):
    """Runs gangs on cores of hosts (`sim.shared_cores.computing`)."""

    def here(self, host: int) -> bool: ...

    def run(self, devices: Mapping[int, int], takes: Takes, then: Callable[[], None]) -> None: ...


Price = Callable[[Plan, Gang], Takes]
Longer = Callable[[int, int], float]  # (host, seq) -> the factor by which its devices take longer
WaitForRoads = Callable[[int, Place, int, tuple[int, int]], int]  # see `sim.network.Collectives.wait`
Sizes = Callable[[Plan, Gang, int], tuple[int, ...]]  # row counts of an irregular gang's outputs


class HostPart(msgspec.Struct, eq=False):
    """One host's part of a gang."""

    host: int
    devices: tuple[int, ...]
    missing: int  # devices at the head of whose queue it is not yet
    placeholders: bool
    arrived: int = -1  # when it was at the head of all its queues


class DeviceJob(msgspec.Struct, eq=False):
    """A gang on the devices that start it together: all its devices, or one host's if it is no collective."""

    seq: int
    plan: Plan
    gang: Gang
    missing: int  # hosts at the head of whose queues it is not yet
    parts: dict[int, HostPart] = {}
    running: bool = False
    ends: int = -1  # when, if that is known
    steps: GangSteps | None = None  # if it has several
    broken: bool = False  # a member is gone: the gang never ends, until its launches are abandoned


class GangOnDevices(NamedTuple):
    """A gang that is in the queues of devices.

    arrived: by host, when it was at the head of all its queues, if it was. ends: by host, when it ends, if it has
    started. slow: as hosts were when the first one started a gang that is no collective."""

    plan: Plan
    gang: Gang
    arrived: dict[int, int]
    ends: dict[int, int]
    waiting: tuple[int, ...]  # hosts that have it, and have not started it
    placeholders: bool
    slow: dict[int, float]
    steps: GangSteps | None


class SoloGang(msgspec.Struct, eq=False):
    """For the trace: a gang that is no collective. Each of its hosts runs it when it can."""

    left: int  # hosts that have not ended it
    slow: dict[int, float]  # as it was when the first host started
    arrived: dict[int, int] = {}
    ended: dict[int, int] = {}


class Fabric:
    """All simulated devices. `tell(host, event)` gets the events of a host's devices; the caller adds PCIe."""

    def __init__(
        self, clock: SimClock, cluster: Cluster, trace: Trace, price: Price, longer: Longer,
        sizes: Sizes, tell: Callable[[int, Event], None], wait: WaitForRoads, computing: OnCores | None = None,
    ) -> None:  # fmt: skip
        self._wait = wait
        self._computing = computing  # None: devices do not use their hosts' cores
        self._clock, self._cluster = clock, cluster
        self.trace = trace
        self._price, self._longer, self._sizes, self._tell = price, longer, sizes, tell
        self._queues: dict[int, deque[DeviceJob]] = {}
        self._jobs: dict[tuple[int, int], DeviceJob] = {}  # (seq, host if it is no collective, else -1)
        self._alone: dict[int, SoloGang] = {}
        self.slow: dict[int, float] = {}  # by host
        self.failing: dict[tuple[int, str], Blame] = {}  # (host, gang's name): its next execution there fails
        self.dead: dict[int, None] = {}  # devices
        self._cut_early: dict[int, None] = {}  # gangs that were cut before any device was given them
        self.finished = 0

    def launch(self, host: int, launch: Launch, plan: Plan) -> None:
        """Puts a launch that has reached the devices of this host into their queues."""
        gang = plan.steps[launch.step]
        assert isinstance(gang, Gang)
        self.enqueue(host, launch.seq, plan, gang, launch.placeholders)

    def enqueue(self, host: int, seq: int, plan: Plan, gang: Gang, placeholders: bool = False, at: int = -1) -> None:
        """`at`: when it was at the head of all its queues, if that is past."""
        job, part = self._add(host, seq, plan, gang, placeholders)
        for device in part.devices:
            if self._queues[device][0] is job and device not in self.dead:
                self._at_head(job, part)
        if at >= 0 and part.arrived >= 0:
            part.arrived = at

    def _add(self, host: int, seq: int, plan: Plan, gang: Gang, placeholders: bool) -> tuple[DeviceJob, HostPart]:
        key = (seq, -1 if gang.collective else host)
        job = self._jobs.get(key)
        if job is None:
            hosts = spans.count(_hosts_of(self._cluster, gang)) if gang.collective else 1
            job = self._jobs[key] = DeviceJob(seq, plan, gang, hosts)
            if gang.steps > 1:
                job.steps = GangSteps(gang.steps)
                if self._cut_early.pop(seq, 0) is None:
                    job.steps.cut(self._clock.now)
        taken = device_spans(gang.place)
        mine = tuple([device for device in self._cluster.devices_of(host) if spans.contains(taken, device)])
        part = job.parts[host] = HostPart(host, mine, len(mine), placeholders)
        for device in mine:
            self._queues.setdefault(device, deque()).append(job)
        return job, part

    def cut(self, host: int, seq: int) -> None:
        """A host has told its devices to end a gang with the step under way. It may be still to come; or over, and then
        nobody asks for it any more."""
        job = self._jobs.get((seq, -1)) or self._jobs.get((seq, host))
        if job is None:
            self._cut_early[seq] = None
        elif job.steps is not None:
            job.steps.cut(self._clock.now)
            if job.ends > job.steps.ends:
                job.ends = job.steps.ends
                self._clock.at(job.ends, self._end, job)

    def runs(
        self, hosts: Sequence[int], seq: int, plan: Plan, gang: Gang, ends: int, steps: GangSteps | None = None
    ) -> None:
        """These hosts' devices run a gang already, and will until it ends."""
        now = self._clock.now
        jobs = []
        for host in hosts:
            job, part = self._add(host, seq, plan, gang, False)
            part.missing, part.arrived = 0, now
            job.running, job.missing, job.ends, job.steps = True, 0, ends, steps
            jobs.append(job)
        if not gang.collective:
            self.alone(seq, gang, dict(self.slow)).arrived.update(dict.fromkeys(hosts, now))
        for job in dict.fromkeys(jobs):
            self._clock.at(ends, self._end, job)

    def alone(self, seq: int, gang: Gang, slow: dict[int, float]) -> SoloGang:
        """A gang that is no collective. `slow`: as it was when its first host started."""
        found = self._alone.get(seq)
        if found is None:
            found = self._alone[seq] = SoloGang(spans.count(_hosts_of(self._cluster, gang)), slow)
        return found

    def _at_head(self, job: DeviceJob, part: HostPart) -> None:
        part.missing -= 1
        if part.missing:
            return
        part.arrived = self._clock.now
        job.missing -= 1
        if not job.missing and not job.broken:
            self._start(job)

    def _start(self, job: DeviceJob) -> None:
        job.running = True
        now = self._clock.now
        slows = self._record(job, now)
        slow = max([1.0, *(slows.get(host, 1.0) * self._longer(host, job.seq) for host in job.parts)])
        takes = self._price(job.plan, job.gang)
        if slow != 1.0:
            takes = takes.slowed(slow)
        computing = self._computing
        if computing is None or not any(map(computing.here, job.parts)):
            each = takes.own + takes.links
            if takes.roads is not None and job.gang.collective and job.steps is None:
                each += self._wait(job.seq, job.gang.place, now + takes.own, takes.roads)
            job.ends = now + (each if job.steps is None else job.steps.begin(now, each))
            self._clock.at(job.ends, self._end, job)
        else:  # which do not end it early
            job.steps, steps = None, job.gang.steps
            takes = takes._replace(own=takes.own * steps, links=takes.links * steps)
            devices = {host: len(part.devices) for host, part in job.parts.items()}
            computing.run(devices, takes, lambda: self._end(job))

    def _record(self, job: DeviceJob, started: int) -> dict[int, float]:
        """Records a start in the trace; returns how slow the hosts are."""
        trace, seq = self.trace, job.seq
        flags = PLACEHOLDER if any(part.placeholders for part in job.parts.values()) else 0
        if job.gang.collective:
            arrived = [job.parts[host].arrived for host in sorted(job.parts)]
            trace.started(seq, arrived, started, flags)
            return self.slow
        (part,) = job.parts.values()
        if seq not in self._alone:
            trace.update(seq, flags, started=started)
        alone = self.alone(seq, job.gang, dict(self.slow))
        alone.arrived[part.host] = part.arrived
        return alone.slow

    def _end(self, job: DeviceJob) -> None:
        if job.broken:
            return
        key = job.seq, -1 if job.gang.collective else next(iter(job.parts))
        if key not in self._jobs:
            return  # it was cut, and is over
        del self._jobs[key]
        sizes = self._sizes(job.plan, job.gang, job.seq) if job.gang.irregular else ()
        if job.steps is not None:
            sizes = (job.steps.undone,)
        heads: list[tuple[DeviceJob, HostPart]] = []
        for part in job.parts.values():
            heads += self._leave(job, part)
            self.finished += 1
            blame = self.failing.pop((part.host, job.gang.name), None) if self.failing else None
            self._tell(part.host, Finished(job.seq, blame, sizes))
        self._over(job)
        for head, part in heads:
            self._at_head(head, part)

    def _over(self, job: DeviceJob) -> None:
        if job.gang.collective:
            self.trace.update(job.seq, ended=self._clock.now)
            return
        alone = self._alone[job.seq]
        (host,) = job.parts
        alone.ended[host] = self._clock.now
        alone.left -= 1
        if not alone.left:
            del self._alone[job.seq]
            self.trace.hosts(job.seq, [alone.arrived[host] for host in sorted(alone.arrived)])
            self.trace.ends(job.seq, [alone.ended[host] for host in sorted(alone.ended)])

    def _leave(self, job: DeviceJob, part: HostPart) -> list[tuple[DeviceJob, HostPart]]:
        """Removes a job from the queues of this host's devices; returns the jobs that are at the head of a queue
        now."""
        heads = []
        for device in part.devices:
            queue = self._queues[device]
            first = queue[0] is job
            queue.remove(job)
            if first and queue and device not in self.dead:
                heads.append((queue[0], queue[0].parts[part.host]))
        return heads

    # --- hosts that are simulated together again --------------------------------------------------------

    def under_way(self, hosts: Spans) -> dict[int, GangOnDevices] | None:
        """By seq: the gangs of these hosts' devices. None: some have ended a gang, or have given it up, and others have
        not."""
        found: dict[int, GangOnDevices] = {}
        for (seq, _), job in sorted(self._jobs.items()):
            if not any(spans.contains(hosts, host) for host in job.parts):
                continue
            alone = self._alone.get(seq)
            if job.broken or (job.running and job.ends < 0) or (alone is not None and alone.ended):
                return None
            gang = found.get(seq)
            if gang is None:
                slow = {} if alone is None else alone.slow
                gang = found[seq] = GangOnDevices(job.plan, job.gang, {}, {}, (), False, slow, job.steps)
            for host, part in job.parts.items():
                if part.arrived >= 0:
                    gang.arrived[host] = part.arrived
                if job.running:
                    gang.ends[host] = job.ends
                else:
                    gang = gang._replace(waiting=(*gang.waiting, host))
                gang = found[seq] = gang._replace(placeholders=gang.placeholders or part.placeholders)
        return found

    def leave_to_others(self, hosts: Spans) -> None:
        """From now on, others run the gangs of these hosts' devices."""
        for key, job in list(self._jobs.items()):
            if any(spans.contains(hosts, host) for host in job.parts):
                job.broken = True
                del self._jobs[key]
                self._alone.pop(key[0], None)
        for host in spans.items(hosts):
            for device in self._cluster.devices_of(host):
                self._queues.pop(device, None)

    # --- faults -----------------------------------------------------------------------------------------

    def abandon(self, host: int, seqs: tuple[int, ...]) -> None:
        """The devices of this host drop these gangs, running or not, and report nothing more about them."""
        for seq in seqs:
            for key in ((seq, -1), (seq, host)):
                job = self._jobs.get(key)
                if job is None or host not in job.parts:
                    continue
                job.broken = True
                heads = self._leave(job, job.parts.pop(host))
                if not job.parts:
                    del self._jobs[key]
                for head, part in heads:
                    self._at_head(head, part)

    def die(self, host: int) -> None:
        """The host's process is gone, and its queues with it."""
        for key, job in list(self._jobs.items()):
            if host in job.parts:
                job.broken = True
                del job.parts[host]
                if not job.parts:
                    del self._jobs[key]
        for device in self._cluster.devices_of(host):
            self._queues.pop(device, None)

    def lose(self, device: int) -> None:
        """A device fails: what runs on it never ends."""
        self.dead[device] = None
        for job in self._queues.get(device, ()):
            job.broken = True


def _hosts_of(cluster: Cluster, gang: Gang) -> spans.Spans:
    return cluster.islands[gang.place.island].hosts_of(gang.place)
