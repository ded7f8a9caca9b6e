"""Simulated devices: each runs its queue in order, without pre-emption; all devices of a collective start it together.

A gang that is at the head of some of its devices' queues but not of all waits. If gangs at the heads of queues wait
for each other, they wait for ever, as on real devices. `stuck` names them when nothing else happens any more.

Memory is counted on each device: outputs from the start of their gang, scratch while the gang runs, received buffers
from MakeBuffer on; until they are freed, or taken over by a donation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from core.model import GangSteps, spans
from core.model.plan import Code, Gang, Layout, Plan
from core.model.topology import Cluster
from core.protocol import effects
from core.protocol.effects import Copied, Event, Launch, LaunchFailed, MakeBuffer
from core.protocol.messages import Blame
from tests.invariants import observations as o

from . import contents
from .clock import Clock
from .filling import Filling


class Buffer:
    """A host's shards of a logical buffer."""

    __slots__ = ("devices", "digest", "filling", "here", "layout", "mine", "nbytes", "number", "shares")

    def __init__(self, number: int, layout: Layout, nbytes: int, devices: tuple[int, ...], mine: range) -> None:
        self.number = number
        self.layout = layout
        self.nbytes = nbytes  # on each of these devices
        self.devices = devices
        self.mine = mine  # all devices of its host
        self.here = False  # whether it takes memory of the devices
        self.digest: int | None = None  # None: not computed yet
        self.filling: Filling | None = None  # the transfer that it is received by
        self.shares: tuple[Buffer, ...] = ()  # of a view: whose memory it shares

    def read(self) -> int | None:
        """Return the digest of its contents now, or a wrong one if they are not complete."""
        if self.digest is None and self.filling is not None:
            self.digest = self.filling.digest()
        if self.digest is None and not contents.anything_on(self.layout, self.mine):
            return None  # this host has only empty shards of it
        return contents.torn("not computed yet", self.number) if self.digest is None else self.digest


class Part:
    """One host's part of a gang."""

    __slots__ = ("behind", "command", "devices", "donated", "epoch", "host", "inherited", "inputs", "outputs")

    def __init__(self, host: HostDevices, command: Launch, devices: tuple[int, ...], epoch: int) -> None:
        self.host = host
        self.command = command
        self.devices = devices
        self.epoch = epoch
        self.inputs = [host.buffers.get(buffer) for buffer in command.inputs]
        self.donated = [found for b in command.donated if (found := host.buffers.pop(b, None)) is not None]
        self.outputs: list[Buffer] = []
        self.inherited: list[Buffer] = []  # buffers donated to later gangs that were abandoned
        self.behind: list[int] = []  # buffers to free when it ends: they were donated to a launch that failed


class Job:
    """A gang on the devices that start it together: all of them, or those of one host if it is not a collective."""

    __slots__ = ("broken", "code", "gang", "missing", "parts", "running", "seq", "size", "slots", "steps")

    def __init__(self, seq: int, gang: Gang, code: Code, plan: Plan, size: int) -> None:
        self.seq = seq
        self.gang = gang
        self.code = code
        self.slots = plan.slots
        self.size = size
        self.missing = size  # number of its devices that have another gang at the head of their queue
        self.parts: dict[int, Part] = {}
        self.running = False
        self.broken = False  # a device of it was lost
        self.steps = GangSteps(gang.steps)


class HostDevices:
    def __init__(self, host: int, devices: range, memory: int) -> None:
        self.host = host
        self.devices = devices
        self.memory = memory
        self.used = dict.fromkeys(devices, 0)
        self.queues: dict[int, deque[Job]] = {device: deque() for device in devices}
        self.buffers: dict[int, Buffer] = {}
        self.dead: dict[int, None] = {}  # devices
        self.failed = -1  # a launch that failed: later launches are held until it is abandoned
        self.held: list[tuple[Launch, Plan, int]] = []
        self.off: dict[int, str] = {}  # what has left the devices: "memory" or "disk"
        self.writes, self.disk_busy = 0, False
        self.given_up: set[int] = set()  # held launches that were abandoned, and are left out in their turn


DAMAGED = Blame("lost", "its file is damaged")


class Fabric:
    """All devices of the cluster. `tell(host, event)` reaches a host's machine; `slow` scales its gangs' costs."""

    def __init__(
        self, cluster: Cluster, clock: Clock, tell: Callable[[int, Event], None],
        observe: Callable[[o.Observation], None] | None, complain: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.cluster = cluster
        self.clock = clock
        self.tell = tell
        self.observe = observe
        self.complain = complain
        self.hosts: dict[int, HostDevices] = {}
        self.jobs: dict[tuple[int, int], Job] = {}  # (seq, host if it is not a collective, else -1)
        self.slow: dict[int, float] = {}
        self.broken: dict[int, int] = {}  # island -> the epoch in which its hosts' connections broke
        self.copy_time = 1_000
        self.disk_fails = 0  # the disk of each second host fails from this write on; 0: never
        self.damaged = 0  # files of each so manieth buffer cannot be read: 1: of all; 0: of none
        self.failures: dict[tuple[int, str], str] = {}  # (host, gang's name) -> "launch" or "run": once
        self.finished = 0
        # gangs that wait until all hosts know that the one before has ended
        self._ending: list[Job] | None = None

    def boot(self, host: int) -> None:
        """Start a host process, with nothing on its devices."""
        island = self.cluster.island_of_host(host)
        ((low, high),) = island.devices_of(host)
        self.hosts[host] = HostDevices(host, range(low, high), island.memory)
        if self.observe:
            self.observe(o.HostJoined(host, ((low, high),), island.memory))

    def die(self, host: int) -> None:
        """End a host process. Collectives that it was part of do not end until they are abandoned."""
        mine = self.hosts.pop(host, None)
        if mine is None:
            return
        for key, job in list(self.jobs.items()):
            if job.parts.pop(host, None) is not None:
                job.broken = True
                if not job.parts:
                    del self.jobs[key]
        if self.observe:
            self.observe(o.HostLost(host))

    # --- gangs ------------------------------------------------------------------------------------------

    def launch(self, host: int, command: Launch, plan: Plan, epoch: int) -> None:
        mine = self.hosts[host]
        if mine.failed >= 0:
            mine.held.append((command, plan, epoch))
            return
        if command.seq in mine.given_up:
            mine.given_up.remove(command.seq)
            self._leave_out(mine, command, plan)
            return
        gang = plan.steps[command.step]
        assert isinstance(gang, Gang)
        devices = tuple(d for d in contents.devices(gang.place) if d in mine.devices)
        if self.failures.get((host, gang.name)) == "launch":
            del self.failures[host, gang.name]
            self._leave_out(mine, command, plan)
            mine.failed = command.seq
            failed = LaunchFailed(command.seq, Blame("user", "no such kernel"))
            self.clock.after(0, self.tell, host, failed)
            return
        if self.observe:
            self.observe(
                o.Launched(
                    host, command.seq, epoch, spans.of(devices), command.inputs, command.outputs,
                    command.donated, command.placeholders,
                )
            )  # fmt: skip
        part = Part(mine, command, devices, epoch)
        for number, slot in zip(command.outputs, gang.outputs, strict=True):
            described = plan.slots[slot]
            buffer = Buffer(number, described.layout, described.nbytes, devices, mine.devices)
            mine.buffers[number] = buffer
            part.outputs.append(buffer)
        key = (command.seq, -1 if gang.collective else host)
        job = self.jobs.get(key)
        if job is None:
            size = gang.place.size if gang.collective else len(devices)
            job = self.jobs[key] = Job(command.seq, gang, plan.codes[gang.computation], plan, size)
        job.parts[host] = part
        for device in devices:
            queue = mine.queues[device]
            queue.append(job)
            if queue[0] is job and device not in mine.dead:
                job.missing -= 1
        if not job.missing:
            self._start(job)

    def _leave_out(self, mine: HostDevices, command: Launch, plan: Plan) -> None:
        """Do not enqueue this launch, but handle its buffers as if it had been enqueued and had ended."""
        gang = plan.steps[command.step]
        assert isinstance(gang, Gang)
        devices = tuple(d for d in contents.devices(gang.place) if d in mine.devices)
        queues = [queue for device in devices if (queue := mine.queues[device])]
        for number in command.donated:
            if queues:
                queues[0][-1].parts[mine.host].behind.append(number)  # the gang ahead may still read it
            else:
                self.free(mine.host, number)
        for number, slot in zip(command.outputs, gang.outputs, strict=True):
            buffer = Buffer(number, plan.slots[slot].layout, plan.slots[slot].nbytes, devices, mine.devices)
            buffer.digest = contents.SPOILT
            mine.buffers[number] = buffer
            if self.observe:
                self.observe(o.BufferMade(mine.host, number))

    def _start(self, job: Job) -> None:
        if job.running or job.broken:
            return
        if self._ending is not None:
            self._ending.append(job)
            return
        job.running = True
        gang, slow = job.gang, 1.0
        for host, part in job.parts.items():
            slow = max(slow, self.slow.get(host, 1.0))
            if self.observe:
                self.observe(o.Started(host, job.seq, spans.of(part.devices)))
            for read in part.inputs:
                if read is not None and not read.here and read.digest != contents.SPOILT:
                    self.complain(f"gang {job.seq} reads buffer {read.number}, not on the devices of host {host}")
            heirs = {job.slots[slot].takes for slot in gang.outputs}
            for slot, buffer in zip(gang.donated, part.donated, strict=False):
                if slot in heirs and buffer.here:
                    self._release(part.host, buffer)
            for buffer in part.outputs:
                self._allocate(part.host, buffer)
            if gang.temp:
                self._take(part.host, f"gang {job.seq}", part.devices, gang.temp)
        self.clock.after(job.steps.begin(self.clock.now, int(gang.cost * slow) // gang.steps), self._end, job)

    def cut(self, host: int, seq: int) -> None:
        """End a gang of several steps with the step that is under way."""
        job = self.jobs.get((seq, -1)) or self.jobs.get((seq, host))
        if job is None:
            return  # it is over, or its launch is held
        if job.gang.steps == 1:
            self.complain(f"host {host} is to cut gang {seq}, which has one step")
        job.steps.cut(self.clock.now)
        if job.running:
            self.clock.at(job.steps.ends, self._end, job)

    def _end(self, job: Job) -> None:
        if not job.running or job.broken:
            return  # it was abandoned, or will be
        gang, heads = job.gang, []
        if self.jobs.pop((job.seq, -1 if gang.collective else next(iter(job.parts))), None) is not job:
            return  # it was cut, and is over
        digests = self._compute(job)
        events: list[tuple[int, Event]] = []
        for host, part in job.parts.items():
            if self.hosts.get(host) is not part.host:
                continue  # the host has died since
            heads += self._leave(job, part)
            sizes = [job.steps.undone] if gang.steps > 1 else []
            for buffer, digest in zip(part.outputs, digests, strict=True):
                buffer.digest = digest
                if gang.irregular:
                    sizes.append(self._shrink(part.host, buffer, digest))
            self.finished += 1
            blame = self._failure(job, host, part)
            if blame is not None:
                for buffer in part.outputs:
                    buffer.digest = contents.SPOILT
            events.append((host, effects.Finished(job.seq, blame, tuple(sizes))))
        # The next gangs start when all hosts know of the end, so that memory which they free then is free.
        self._ending = heads
        for host, event in events:
            self.tell(host, event)
        self._ending = None
        for head in heads:
            if not head.missing:
                self._start(head)

    def _failure(self, job: Job, host: int, part: Part) -> Blame | None:
        gang = job.gang
        if gang.collective and len(job.parts) > 1 and self.broken.get(gang.place.island) == part.epoch:
            return Blame("peer", "connection closed by peer")
        if self.failures.get((host, gang.name)) == "run":
            del self.failures[host, gang.name]
            return Blame("user", "it divided by zero")
        return None

    def _compute(self, job: Job) -> list[int]:
        """Return the digests of the outputs. Inputs must be the same logical arrays on all hosts, and be here."""
        outputs, inputs = len(job.gang.outputs), []
        if any(part.command.placeholders for part in job.parts.values()):
            return [contents.SPOILT] * outputs
        for at in range(len(job.gang.inputs)):
            seen: list[int | None] = []
            for host, part in job.parts.items():
                buffer = part.inputs[at]
                if buffer is None:
                    self.complain(f"gang {job.seq} reads buffer {part.command.inputs[at]}, not on host {host}")
                    seen.append(contents.torn("missing", job.seq, host))
                else:
                    seen.append(buffer.read())
            inputs.append(contents.one_of((each for each in seen if each is not None), "gang", job.seq))
        return contents.outputs(job.code, tuple(inputs), outputs)

    def _leave(self, job: Job, part: Part) -> list[Job]:
        """End a gang on this host's devices. Return the gangs that are at the head of all their queues now."""
        mine, heads = part.host, []
        if self.observe:
            self.observe(o.FinishedSeen(mine.host, job.seq, spans.of(part.devices)))
        for number in part.behind:
            ahead = self._ahead(job, mine, mine.buffers[number])
            if ahead is not None:
                ahead.parts[mine.host].behind.append(number)
            else:
                self.free(mine.host, number)
        if job.running and job.gang.temp:
            self._give(mine, f"gang {job.seq}", part.devices, job.gang.temp)
        for buffer in (*part.donated, *part.inherited):
            ahead = self._ahead(job, mine, buffer)
            if ahead is not None:  # the job was abandoned; the one ahead of it makes the buffer, or reads it
                ahead.parts[mine.host].inherited.append(buffer)
            elif buffer.here:
                self._release(mine, buffer)
        for device in part.devices:
            queue = mine.queues[device]
            first = queue[0] is job
            queue.remove(job)
            if first and queue and device not in mine.dead:
                queue[0].missing -= 1
                if not queue[0].missing:
                    heads.append(queue[0])
        return heads

    def _ahead(self, job: Job, mine: HostDevices, buffer: Buffer) -> Job | None:
        for device in buffer.devices:
            queue = mine.queues[device]
            if job in queue and queue[0] is not job:
                return queue[queue.index(job) - 1]
        return None

    def _shrink(self, mine: HostDevices, buffer: Buffer, digest: int) -> int:
        """Reduce an irregular output from its bound to its actual size. Return that size."""
        bound = max((box[0][1] - box[0][0] for box in contents.boxes(buffer.layout) if box), default=0)
        size = contents.size(digest, bound)
        if bound and mine.buffers.get(buffer.number) is buffer and buffer.here:
            self._release(mine, buffer)
            buffer.nbytes = buffer.nbytes * size // bound
            self._allocate(mine, buffer)
        return size

    def abandon(self, host: int, seqs: tuple[int, ...]) -> None:
        """Take these gangs off this host's devices, running or not. Nothing more is reported of them."""
        mine = self.hosts[host]
        held, mine.held = mine.held, []
        if mine.failed in seqs:
            mine.failed = -1
        mine.given_up.update(command.seq for command, _, _ in held if command.seq in seqs)
        for command, plan, epoch in held:
            # it is held again if the failed launch is still not abandoned
            self.launch(host, command, plan, epoch)
        for seq in sorted(seqs, reverse=True):  # so that none starts because one ahead of it is removed
            for key in ((seq, -1), (seq, host)):
                job = self.jobs.get(key)
                if job is None or host not in job.parts:
                    continue
                heads = self._leave(job, job.parts[host])
                for buffer in job.parts[host].outputs:
                    buffer.digest = contents.SPOILT
                del job.parts[host]
                if not job.parts:
                    job.running = False
                    del self.jobs[key]
                for head in heads:
                    if not head.missing:
                        self._start(head)

    def lose(self, device: int) -> None:
        """Break a device: it starts no gang any more, and its current gang does not end by itself."""
        mine = self.hosts[self.cluster.host_of(device)]
        mine.dead[device] = None
        queue = mine.queues[device]
        if queue:
            queue[0].broken = True

    # --- buffers ----------------------------------------------------------------------------------------

    def make(self, host: int, command: MakeBuffer) -> None:
        mine = self.hosts[host]
        layout = command.layout
        devices = tuple(d for d in contents.devices(layout.place) if d in mine.devices)
        buffer = Buffer(command.buffer, layout, contents.nbytes(layout), devices, mine.devices)
        if command.buffer in mine.buffers:
            self.complain(f"host {host} makes buffer {command.buffer}, which it has")
        mine.buffers[command.buffer] = buffer
        if command.literal is not None:
            buffer.digest = contents.literal(command.literal)
        if self.observe:
            self.observe(o.BufferMade(host, command.buffer))
        self._allocate(mine, buffer)

    def free(self, host: int, number: int) -> None:
        mine = self.hosts[host]
        buffer = mine.buffers.pop(number, None)
        mine.off.pop(number, None)
        if self.observe:
            self.observe(o.BufferFreed(host, number))
        if buffer is None:
            self.complain(f"host {host} frees buffer {number}, which it does not have")
        elif buffer.shares:
            if self.observe:
                for source in buffer.shares:
                    if mine.buffers.get(source.number) is source:  # and no gang has taken it over
                        self.observe(o.BufferUnused(host, source.number, f"view {number}"))
        elif buffer.here:
            self._release(mine, buffer)

    def spill(self, host: int, seq: int, number: int, back: bool, disk: bool) -> None:
        """Copy a buffer to host memory, or to disk, or back. It takes memory at both ends meanwhile."""
        mine = self.hosts[host]
        buffer = mine.buffers.get(number)
        word = "restore" if back else "spill"
        if buffer is None or buffer.here == back:
            self.complain(f"host {host} cannot {word} buffer {number}")
            return
        if self.observe:
            self.observe(o.BufferUsed(host, number, f"{word} {seq}"))
        if back:
            self._allocate(mine, buffer)
        no_disk = ""
        if disk:
            if mine.disk_busy:
                self.complain(f"host {host}: two copies use the disk at a time")
            mine.disk_busy = True
            mine.writes += not back
            if host % 2 and 0 < self.disk_fails <= mine.writes and not back:
                no_disk = "full"
        elif back and mine.off.get(number) == "disk":
            self.complain(f"host {host} is to {word} buffer {number} from memory, and it is on disk")
        if not back:
            mine.off[number] = "disk" if disk and not no_disk else "memory"
            self._fit_off(mine)
        self.clock.after(self.copy_time, self._copied, mine, seq, buffer, word, disk, no_disk)

    def _copied(self, mine: HostDevices, seq: int, buffer: Buffer, word: str, disk: bool, no_disk: str) -> None:
        if self.hosts.get(mine.host) is not mine:
            return
        blame = None
        if disk:
            mine.disk_busy = False
        if word == "spill":
            self._release(mine, buffer)
        elif self.unreadable(mine, buffer.number):
            blame, buffer.digest = DAMAGED, contents.SPOILT
        if word == "restore":
            mine.off.pop(buffer.number, None)
        if self.observe:
            self.observe(o.BufferUnused(mine.host, buffer.number, f"{word} {seq}"))
        self.tell(mine.host, Copied(seq, blame, no_disk))

    def unreadable(self, mine: HostDevices, number: int) -> bool:
        return bool(self.damaged) and mine.off.get(number) == "disk" and number % self.damaged == 0

    def _fit_off(self, mine: HostDevices) -> None:
        """What has left the devices fits where it is. A disk that fails leaves it in memory, bounded or not."""
        island, used = self.cluster.island_of_host(mine.host), {"memory": 0, "disk": 0}
        for number, where in mine.off.items():
            buffer = mine.buffers[number]
            used[where] += buffer.nbytes * len(buffer.devices)
        if not self.disk_fails and (used["memory"] > island.host_memory or used["disk"] > island.host_disk):
            room = f"{island.host_memory} and {island.host_disk}"
            self.complain(f"host {mine.host} holds {used} bytes of what has left its devices, of {room}")

    def _allocate(self, mine: HostDevices, buffer: Buffer) -> None:
        buffer.here = True
        self._take(mine, f"buffer {buffer.number}", buffer.devices, buffer.nbytes)

    def _release(self, mine: HostDevices, buffer: Buffer) -> None:
        buffer.here = False
        self._give(mine, f"buffer {buffer.number}", buffer.devices, buffer.nbytes)

    def _take(self, mine: HostDevices, what: str, devices: tuple[int, ...], nbytes: int) -> None:
        for device in devices:
            mine.used[device] = used = mine.used[device] + nbytes
            if self.observe:
                self.observe(o.Allocated(device, what, nbytes))
            if used > mine.memory:
                self.complain(f"{what} makes {used} bytes on device {device} of {mine.memory}")

    def _give(self, mine: HostDevices, what: str, devices: tuple[int, ...], nbytes: int) -> None:
        for device in devices:
            mine.used[device] -= nbytes
            if self.observe:
                self.observe(o.Released(device, what))

    # --- mistakes ---------------------------------------------------------------------------------------

    def idle(self) -> bool:
        return not any(queue for mine in self.hosts.values() for queue in mine.queues.values())

    def stuck(self) -> list[str]:
        """Return texts that name the gangs that are at the head of a queue and cannot start. Call this at rest."""
        found: dict[str, None] = {}
        for mine in self.hosts.values():
            for device, queue in mine.queues.items():
                if queue and not queue[0].running:
                    found[self._why(queue[0], device)] = None
        return list(found)

    def _why(self, job: Job, device: int) -> str:
        blocking: dict[str, None] = {}
        for host, part in job.parts.items():
            for other in part.devices:
                queue = part.host.queues[other]
                if queue and queue[0] is not job:
                    blocking[f"device {other} of host {host} is at gang {queue[0].seq} {queue[0].gang.name!r}"] = None
        absent = [
            d for d in contents.devices(job.gang.place)
            if job.gang.collective and all(d not in part.devices for part in job.parts.values())
        ]  # fmt: skip
        if absent:
            blocking[f"devices {spans.text(spans.of(absent))} have not launched it"] = None
        return f"gang {job.seq} {job.gang.name!r} waits at device {device}: " + "; ".join(blocking)
