"""The processes of the exact fidelity: each has one core machine, its threads, and the costs of its messages.

A thread takes an event for its cost (`profiles`) and tells the machine. The same thread then carries out the
commands in order, each for its cost; a message leaves at the moment when its cost has been paid.

The controller and a client have one thread each. A host has one thread that reads orders, one that passes them on,
one that enqueues on its devices, one that takes completions, and one for each transfer that comes on a connection.
A pool of threads takes reports and passes them up the tree; it also takes grants, and the news that contents have
landed. So what happens to a gang on one path does not depend
on what arrives on another, and a thousand hosts can be computed as one vector (`cohort`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from core.controller import Controller
from core.host import Host
from core.model import Plan
from core.protocol import Chunk, Grant, Landed, Offer, Spoilt
from core.protocol import effects as e
from core.protocol import messages as m

from ..engine import CoreShare, Order, SimThread, ThreadPool, TieBreak
from ..network import CONTROLLER, Together, is_quiet, rank

if TYPE_CHECKING:
    from .context import Context

KEPT = 1024  # threads, beside those that work
DATA = frozenset((Grant, Chunk, Offer, Spoilt, Landed))
WORDS = frozenset((Grant, Landed))  # from the receiver of contents to their sender
CARRIED = (Chunk, Offer, Spoilt)  # the other way: these stay in order


class Process:
    """A process: a machine, its timer, and the way out. `name`: its number among `peers`."""

    def __init__(self, sim: Context, name: int, machine: Any) -> None:
        self.sim, self.name, self.machine = sim, name, machine
        self.alive = True
        self._armed: int | None = None

    def come(self, sender: int, number: int, message: Any) -> None:
        """Takes in a message that has reached this process."""
        raise NotImplementedError

    def lose(self, sender: int, reason: str) -> None:
        """Takes in that the connection with a peer is lost for good."""
        raise NotImplementedError

    def serve(self, event: e.Event, now: int) -> int:
        """Tells the machine of an event; returns when all its commands have been carried out."""
        if not self.alive:
            return now
        effects = self.machine.handle(event, now)
        at = self.carry_out(effects, now)
        rings = self.machine.next_wakeup()
        if rings is not None and (self._armed is None or rings < self._armed):
            self.arm()
        return at

    def serve_until(self, event: e.Event, at: int) -> int:
        """Like `serve`, within a longer turn: carrying out the commands begins at `at`."""
        if not self.alive:
            return at
        effects = self.machine.handle(event, self.sim.now)
        at = self.carry_out(effects, at)
        self.arm()
        return at

    def take_all(self, sender: int, messages: Sequence[Any], at: int) -> int:
        """Takes a batch of messages in one turn; returns when that is over."""
        for message in messages:
            at = self.take(sender, message, at)
        return at

    def take(self, sender: int, message: Any, at: int) -> int:
        """Takes one message of a batch; returns when that is over."""
        raise NotImplementedError

    def carry_out(self, effects: Sequence[e.Command], at: int) -> int:
        raise NotImplementedError

    def send(self, to: int, message: Any, at: int) -> int:
        """Writes a message; returns when it is written. Each report is a message of its own, written by the pool."""
        sim = self.sim
        if sim.machines.batches and sim.machines.carries(self.name, to):
            return self._batch(to, message, at)
        if isinstance(message, m.Reports):
            for report in message.reports:
                one = m.Reports(message.island, message.epoch, message.tree, (report,))
                self.say(to, one, at, 0 if is_quiet(report) else sim.writing(one))
            return at
        nbytes = sim.weights.of(message)
        at += sim.profile.writing(nbytes)
        sim.network.send(self.name, to, message, nbytes, at)
        return at

    def _batch(self, to: int, message: Any, at: int) -> int:
        """Puts a message into a batch. Reports of idle moments go by themselves, and cost nothing."""
        if isinstance(message, m.Reports):
            quiet = [report for report in message.reports if is_quiet(report)]
            for report in quiet:
                one = m.Reports(message.island, message.epoch, message.tree, (report,))
                self.sim.network.send_report(self.name, to, one, at)
            if quiet:
                loud = tuple([report for report in message.reports if not is_quiet(report)])
                if not loud:
                    return at
                message = m.Reports(message.island, message.epoch, message.tree, loud)
        self.sim.machines.put(self, to, message, at)
        return at

    def say(self, to: int, report: m.Reports, at: int, cost: int) -> None:
        self.sim.network.send_report(self.name, to, report, at + cost)

    def arm(self) -> None:
        at = self.machine.next_wakeup()
        if at is not None and (self._armed is None or at < self._armed):
            self._armed = at
            self.sim.clock.at(max(at, self.sim.now), self._ring, at)

    def _ring(self, at: int) -> None:
        if self._armed == at and self.alive:
            self._armed = None
            self.serve(e.Wakeup(), self.sim.now)


class ControllerProcess(Process):
    def __init__(self, sim: Context, machine: Controller) -> None:
        super().__init__(sim, CONTROLLER, machine)
        share = sim.machines.share(self)
        self.lane = SimThread(sim.clock, self.serve, share)
        self._wire = SimThread(sim.clock, lambda came, now: self.take_all(came[0], came[1].messages, now), share)
        # Peers whose connection is lost. Messages to them are dropped, until the machine has been told of the first
        # message of their next connection, which is kept here.
        self._gone: dict[int, e.Effect | None] = {}
        # By sender: the number of its connection, and its rank among peers at the same nanosecond.
        self._senders: dict[int, tuple[int, int]] = {}

    def come(self, sender: int, number: int, message: Any) -> None:
        known = self._senders.get(sender)
        if known is None:
            known = self._senders[sender] = self.sim.connection(sender), rank(sender)
        peer, place = known
        if isinstance(message, Together):
            self._wire.put((place, number), self.sim.taking_wire(message), (sender, message))
            return
        event = e.MessageReceived(peer, message)
        if self._gone and self._gone.get(sender, event) is None:
            self._gone[sender] = event
        if isinstance(message, m.Reports) and is_quiet(message.reports[0]):
            self.serve(event, self.sim.now)
        else:
            self.lane.put((place, number), self.sim.taking(message), event)

    def take(self, sender: int, message: Any, at: int) -> int:
        event = e.MessageReceived(self.sim.connection(sender), message)
        if self._gone and self._gone.get(sender, event) is None:
            del self._gone[sender]
        return self.serve_until(event, at)

    def serve(self, event: e.Event, now: int) -> int:
        if self._gone and isinstance(event, e.MessageReceived):
            name = self.sim.process_of(event.peer)
            if self._gone.get(name) is event:
                del self._gone[name]
        return super().serve(event, now)

    def lose(self, sender: int, reason: str) -> None:
        """Takes in that the lease of a peer has run out."""
        if self.alive:
            self._gone[sender] = None
            self.lane.put((rank(sender), 1 << 62), 0, e.Disconnected(self.sim.connection(sender), reason))

    def carry_out(self, effects: Sequence[e.Command], at: int) -> int:
        sim = self.sim
        for effect in effects:
            match effect:
                case e.Send(peers=to, message=message):
                    if isinstance(message, m.Ordered):
                        at += sim.profile.step * len(message.steps)
                        self._see_steps(message)
                        if message.island in sim.islands or sim.regroups(message):
                            at = sim.islands[message.island].ordered(message, at)
                            continue
                    elif isinstance(message, (m.ClientMessages, m.Opened)):
                        self._see_numbers(sim.process_of(to[0]), message)
                    for peer in map(sim.process_of, to):
                        if peer not in self._gone:
                            at = self.send(peer, message, at)
                case e.FormWorld(island=island, epoch=epoch):
                    sim.clock.at(sim.now + sim.times.form, self._formed, island, epoch)
                case e.DropWorlds() | e.SuspensionsChanged() | e.HostsJoined():
                    pass  # a simulated world holds nothing, and its controller does not start again
                case e.LogLine() | e.PolicyReplaced() | e.OperatorAnswer():
                    self._tell(effect)
                case e.Close(peer=peer, reason=reason):
                    sim.trouble.close(sim.process_of(peer), reason)
                case _:
                    raise NotImplementedError(effect)
        return at

    def _see_steps(self, message: m.Ordered) -> None:
        """What is sent again may be of a run that is over; it was seen before."""
        runs = self.sim.controller.state.runs
        for step in message.steps:
            if not isinstance(step, m.GangStep | m.SendStep) or step.run not in runs:
                continue
            plan = runs[step.run].plan
            does: Any = plan.steps[step.step]
            if isinstance(step, m.GangStep):
                self.sim.gang_ordered(plan, does, step.seq)
            elif not does.sparse:
                ends = [tuple([plan.slots[slot].layout for slot in end]) for end in (does.sources, does.targets)]
                self.sim.contents.ordered(step.transfer, *ends)

    def _tell(self, effect: e.LogLine | e.PolicyReplaced | e.OperatorAnswer) -> None:
        if isinstance(effect, e.PolicyReplaced):
            self.sim.replaced.append((self.sim.now, effect))
        if effect.text:
            self.sim.tell(effect.text)

    def _see_numbers(self, client: int, message: m.Opened | m.ClientMessages) -> None:
        for note in message.notes if isinstance(message, m.ClientMessages) else (message,):
            if isinstance(note, m.Opened):
                self.sim.numbered(client, note.client)

    def _formed(self, island: int, epoch: int) -> None:
        self.lane.put((-1, epoch << 20 | island), 0, e.WorldUp(island, epoch))


class HostProcess(Process):
    """A host's agent, with its threads."""

    def __init__(self, sim: Context, host: int, machine: Host) -> None:
        super().__init__(sim, host, machine)
        self._threads: dict[Any, SimThread] = {}
        self._contents = TieBreak(sim.clock, self.serve, is_word)  # between the threads that take contents
        self._takers = ThreadPool(sim.clock, self._contents.put)  # these threads, one for each transfer
        self._enqueue_free = self._write_free = 0
        # gangs whose host work is done before their data come -> when it is done
        self._prepared: dict[int, int] = {}
        self._given_up: dict[int, None] = {}  # gangs that may not reach the devices any more
        # Other commands take no time on a machine with enough cores.
        self.acts: dict[type, Callable[[Any, int], int]] = {
            e.Send: self._send, e.Launch: self.launch, e.Prepare: self.prepare, e.CompileCode: self._compile,
            e.Reform: self._reform, e.Abandon: self._abandon, e.Stop: self._stop, e.CountRows: self._count,
            e.Cut: self._cut,
            e.SpillBuffer: self._copy, e.RestoreBuffer: self._copy, e.LogLine: self._say, e.Close: self._close,
        }  # fmt: skip

    def resume(self, parent: int, read: int, write: int, enqueue: int, hear: int, prepared: dict[int, int]) -> None:
        """Goes on with a past, from which threads are occupied until these times."""
        self.lane(m.Ordered, parent).free, self.lane(e.Finished, 0).free = read, hear
        self._write_free, self._enqueue_free, self._prepared = write, enqueue, prepared
        self.arm()

    @property
    def idle(self) -> bool:
        """Whether its threads have nothing to do, and no report waits here for those of other hosts."""
        lanes = all(lane.idle for lane in self._threads.values())
        return lanes and self._contents.idle and self._takers.idle and self.machine.relay.idle

    def past(self, parent: int) -> tuple[int, int, int, int, dict[int, int]]:
        """What `resume` needs, but for the parent."""
        read, hear = self.lane(m.Ordered, parent).free, self.lane(e.Finished, 0).free
        return read, self._write_free, self._enqueue_free, hear, self._prepared

    def come(self, sender: int, number: int, message: Any) -> None:
        sim, event = self.sim, e.MessageReceived(self.sim.to_hosts(sender), message)
        if isinstance(message, m.Reports):
            quiet = is_quiet(message.reports[0])
            self.take_report((sender, number), 0 if quiet else sim.taking(message), event)
        elif type(message) in WORDS:
            self.take_word((sender, number), sim.taking_contents(message), event)
        elif type(message) in DATA:
            self.take_contents((sender, number), sim.taking_contents(message), event)
        else:
            steps = len(message.steps) if isinstance(message, m.Ordered) else 0
            cost = sim.taking(message) + steps * sim.profile.relay_step
            self.lane(m.Ordered, sender).put((sender, number), cost, event)

    def take_report(self, order: Order, cost: int, event: e.Event) -> None:
        self.sim.clock.at(self.sim.now + cost, self.hear, event)

    def take_word(self, order: Order, cost: int, event: e.MessageReceived) -> None:
        at = self.sim.now + cost
        self.sim.clock.at(at, self._contents.put, event, at)

    def take_contents(self, order: Order, cost: int, event: e.MessageReceived) -> None:
        message: Any = event.message
        self._takers.put((order[0], message.transfer), cost, event)

    def hear(self, event: e.Event) -> None:
        self.serve(event, self.sim.now)

    def tell(self, event: e.Event) -> None:
        """Takes in an event of the host's devices, after PCIe."""
        if not self.alive:
            return
        if isinstance(event, e.Finished):
            self.lane(e.Finished, 0).put((0, event.seq), self.sim.profile.complete, event)
        else:
            self.serve(event, self.sim.now)

    def lose(self, sender: int, reason: str) -> None:
        if self.alive:
            gone = e.Disconnected(self.sim.to_hosts(sender), reason)
            self.sim.clock.at(self.sim.now, self.hear, gone)

    def lane(self, kind: Any, source: object) -> SimThread:
        """The thread that takes what comes from there."""
        lane = self._threads.get((kind, source))
        if lane is None:
            if len(self._threads) >= KEPT:
                self._threads = {other: thread for other, thread in self._threads.items() if not thread.idle}
            share = self.share(kind)
            lane = self._threads[kind, source] = SimThread(self.sim.clock, self.serve, share)
        return lane

    def share(self, kind: Any) -> CoreShare | None:
        """The share of the machine's cores for the thread that does this work; None: a core is always free."""
        return None

    def write_contents(self, order: Order, cost: int, send: Callable[[int], None], in_order: bool) -> None:
        """Writes contents by a pool of threads, which hold up nothing else; `in_order`: one after another on each
        connection. `send` gets the time that it has still to take."""
        send(cost)

    # --- the machine's commands -----------------------------------------------------------------------------

    def carry_out(self, effects: Sequence[e.Command], at: int) -> int:
        for effect in effects:
            if isinstance(effect, e.Send) and type(effect.message) in DATA:
                for peer in effect.peers:
                    self.sim.send_contents(self.name, self.sim.from_hosts(peer), effect.message, at)
                continue
            act = self.acts.get(type(effect))
            if act is not None:
                at = act(effect, at)
        return at

    def _send(self, effect: e.Send, at: int) -> int:
        """Sends a message; a thread of its own passes on orders."""
        if not isinstance(effect.message, m.Ordered):
            for peer in effect.peers:
                at = self.send(peer, effect.message, at)
            return at
        self.pass_on(effect, at)
        return at

    def pass_on(self, effect: e.Send, at: int) -> None:
        self._write_free = max(self._write_free, at)
        for peer in effect.peers:
            self._write_free = self.send(peer, effect.message, self._write_free)

    def prepare(self, effect: e.Prepare, at: int) -> int:
        self._prepared[effect.seq] = at + self.sim.profile.prepare
        return at

    def launch(self, effect: e.Launch, at: int) -> int:
        sim, profile = self.sim, self.sim.profile
        prepared = self._prepared.pop(effect.seq, None)
        if prepared is None:
            self._enqueue_free = max(self._enqueue_free, at) + profile.prepare + profile.enqueue
        else:
            self._enqueue_free = max(self._enqueue_free, at, prepared) + profile.enqueue
        plan = self.plan_of(effect.run)
        arrival = self._enqueue_free + sim.times.pcie_latency
        sim.clock.at(arrival, self.launched, effect, plan)
        return at

    def launched(self, effect: e.Launch, plan: Plan) -> None:
        if self.alive and effect.seq not in self._given_up:
            self.sim.fabric.launch(self.name, effect, plan)

    def _cut(self, effect: e.Cut, at: int) -> int:
        """No thread that enqueues is asked: the word may come to the devices before the gang."""
        self.sim.clock.at(at + self.sim.times.pcie_latency, self.sim.fabric.cut, self.name, effect.seq)
        return at

    def plan_of(self, run: int) -> Plan:
        plan = self.machine.executor.plan_of(run)
        assert plan is not None
        return plan  # type: ignore[no-any-return]

    def _compile(self, effect: e.CompileCode, at: int) -> int:
        ready = code_ready(self.sim, self.machine.executor.plan, effect)
        self.sim.clock.at(at + self.sim.times.compile, self.tell, ready)
        return at

    def _reform(self, effect: e.Reform, at: int) -> int:
        self._give_up(effect.abandon)
        self.sim.worlds.come(self.name, effect, at)
        return at

    def _abandon(self, effect: e.Abandon, at: int) -> int:
        self._give_up(effect.seqs)
        return at

    def _give_up(self, seqs: tuple[int, ...]) -> None:
        """Abandons gangs, also those on their way to the devices: there they would wait for ever."""
        self._given_up |= dict.fromkeys(seqs)
        self.sim.fabric.abandon(self.name, seqs)

    def _stop(self, effect: e.Stop, at: int) -> int:
        self.sim.clock.at(at, self.sim.trouble.stopped, self, effect.reason, effect.for_good)
        return at

    def _count(self, effect: e.CountRows, at: int) -> int:
        rows = self.sim.rows(self.name, effect)
        self.sim.clock.at(at + 2 * self.sim.times.pcie_latency, self.tell, rows)
        return at

    def _copy(self, effect: e.SpillBuffer | e.RestoreBuffer, at: int) -> int:
        took = self.sim.copy_time(self.name, effect, self.machine.executor.layout_of(effect.buffer))
        self.sim.clock.at(at + took, self.tell, e.Copied(effect.seq))
        return at

    def _say(self, effect: e.LogLine, at: int) -> int:
        self.sim.tell(effect.text)
        return at

    def _close(self, effect: e.Close, at: int) -> int:
        self.sim.tell(f"host {self.name} closes peer {effect.peer}: {effect.reason}")
        return at


def code_ready(sim: Context, plan_of: Callable[[int], Plan | None], asked: e.CompileCode) -> e.CodeReady:
    """The answer of a host that has compiled code. If it is asked about the code, the simulation's user knows."""
    plan = plan_of(asked.plan) if asked.about else None
    about = b"" if plan is None else sim.about_code(plan.codes[asked.code].key)
    return e.CodeReady(asked.plan, asked.code, None, about)


def nothing_said(key: str) -> bytes:
    """What simulated hosts say of code, if nobody has told them more."""
    return b""


def is_word(event: e.MessageReceived) -> bool:
    """A grant decides only when contents leave: it counts as late if they were ready in the same nanosecond."""
    return type(event.message) in WORDS
