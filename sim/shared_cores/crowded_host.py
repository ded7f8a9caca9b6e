"""A host's agent on a machine with too few cores: the threads and pools of `HostProcess`, each of which waits for a
core.

`HostProcess` computes in advance when threads are free and when a pool has done its work. Here that happens step by
step, since the wait for a core is not known in advance. With enough cores, and a profile without costs that only
processes on shared cores have (`complete_more`, `literal`, `sum`, `transfer_end`), the result is the same, to the
nanosecond.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from core.host import Host
from core.link import ReportPacer
from core.model import Gang, Plan
from core.protocol import effects as e
from core.protocol import messages as m

from ..engine import HELD, Order, SimThread
from ..hosts import DATA, KEPT, HostProcess, Takes
from ..network import Together, report_number, transfer_of
from .cores import COMPLETE, CONTENTS, ENQUEUE, PASS_ON, PREPARE, READ, REPORTS, WRITE, Cores, Share

if TYPE_CHECKING:
    from ..hosts import Context, SimClient
    from .core_sharing import SharedMachines


# --- a client's thread ------------------------------------------------------------------------------------------------


class ThreadTurn:
    """The next call of a client."""

    def __init__(self, client: SimClient, share: Share) -> None:
        self._client, self._share = client, share
        self._begun = -1  # when it got its core; -1: it waits for one
        self._calls = 0
        self.under_way = False
        self._due = False  # its time has been paid, and the user has not made the call yet
        self.come = client.sim.env.event()

    def begin(self) -> None:
        if not self.under_way and not self._due:
            self.under_way, self._begun = True, -1
            self.come = self._client.sim.env.event()
            self._calls += 1
            self._share.ask((0, self._calls), self._have_core)

    @property
    def soonest(self) -> int:
        """When the call is due, or a lower bound while the thread waits for a core."""
        sim = self._client.sim
        if not self.under_way:
            return sim.now
        return (self._begun if self._begun >= 0 else sim.now) + sim.profile.client_call

    def _have_core(self) -> None:
        sim = self._client.sim
        self._begun = sim.now
        sim.clock.at(sim.now + sim.profile.client_call, self._is_due)

    def _is_due(self) -> None:
        self._share.give_back(self._client.sim.now)
        self.under_way, self._due = False, True
        self.come.succeed()

    def take(self) -> None:
        """Marks the call as made."""
        self._due = False


THREADS: dict[Any, int] = {m.Ordered: READ, DATA: CONTENTS, e.Finished: COMPLETE}


class Launching:
    """A launch on its way to the enqueuing thread: it waits for the launches before it, and until it is prepared."""

    __slots__ = ("effect", "plan", "prepared")

    def __init__(self, effect: e.Launch, plan: Plan, prepared: bool) -> None:
        self.effect, self.plan = effect, plan
        self.prepared = prepared  # True: a pool prepares it; False: the enqueuing thread does


class CrowdedHost(HostProcess):
    def __init__(self, sim: Context, host: int, machine: Host, cores: Cores, machines: SharedMachines) -> None:
        super().__init__(sim, host, machine)
        self._cores, self._wires = cores, machines.wires
        clock = sim.clock
        self._pass_on = SimThread(clock, self._pass, self._thread(PASS_ON))
        self._enqueue = SimThread(clock, self._enqueued, self._thread(ENQUEUE))
        self._reports, self._preparing = self._thread(REPORTS), self._thread(PREPARE)
        self._writers: dict[tuple[int, int], SimThread] = {}  # by peer and transfer
        self._ahead: dict[int, bool] = {}  # gangs that a pool prepares -> whether that is done
        self._coming: dict[int, int] = {}  # transfers that are received -> how many arrays
        self._launches: deque[Launching] = deque()
        self._computes = machines.computes(host)  # whether its devices compute on its cores
        self._held = -1  # the gang that the enqueuing thread computes
        self.pacer = ReportPacer()
        self._python = cores.process_of is not None
        self.acts |= {
            e.MakeBuffer: self._make, e.OpenRecv: self._coming_in, e.Received: self._received, e.OpenSend: self._opened,
        }  # fmt: skip
        self._wire = SimThread(
            clock, lambda came, now: self.take_all(came[0], came[1].messages, now), self._thread(READ)
        )

    def _thread(self, number: int) -> Share:
        return self._cores.share(self, number)

    def share(self, kind: Any) -> Share | None:
        return self._thread(THREADS[kind])

    # --- reports, contents, orders ------------------------------------------------------------------------

    def take_report(self, order: Order, cost: int, event: e.Event) -> None:
        if cost:
            self._reports.work(order, cost, self.hear, event)
        else:
            super().take_report(order, cost, event)

    def take_word(self, order: Order, cost: int, event: e.MessageReceived) -> None:
        self._thread(CONTENTS).work(order, cost, self.hear, event)

    def take_contents(self, order: Order, cost: int, event: e.MessageReceived) -> None:
        message: Any = event.message
        self.lane(DATA, (order[0], message.transfer)).put(order, cost, event)

    def say(self, to: int, report: m.Reports, at: int, cost: int) -> None:
        if cost:
            order = (to, report_number(report.reports[0]))
            self._from(at, self._reports.work, order, cost, self._send_report, to, report)
        else:
            super().say(to, report, at, cost)

    def _send_report(self, to: int, report: m.Reports) -> None:
        if self.alive:
            self.sim.network.send_report(self.name, to, report, self.sim.now)

    def write_contents(self, order: Order, cost: int, send: Callable[[int], None], in_order: bool) -> None:
        if not cost:
            send(0)
            return
        if not in_order:
            self._thread(WRITE).work(order, cost, self._write, send, 0)
            return
        whose = order[0], transfer_of(order[1])
        writer = self._writers.get(whose)
        if writer is None:
            if len(self._writers) >= KEPT:
                self._writers = {other: thread for other, thread in self._writers.items() if not thread.idle}
            writer = self._writers[whose] = SimThread(self.sim.clock, self._write, self._thread(WRITE))
        writer.put(order, cost, send)

    def _write(self, send: Callable[[int], None], now: int) -> int:
        if self.alive:
            send(0)
        return now

    def pass_on(self, effect: e.Send, at: int) -> None:
        message = effect.message
        assert isinstance(message, m.Ordered)
        self._from(at, self._pass_on.put, (0, message.number), 0, effect)

    def _pass(self, effect: e.Send, now: int) -> int:
        if self.alive:
            for peer in effect.peers:
                now = self.send(peer, effect.message, now)
        return now

    # --- gangs --------------------------------------------------------------------------------------------

    def prepare(self, effect: e.Prepare, at: int) -> int:
        self._ahead[effect.seq] = False
        cost = self.sim.profile.prepare
        self._from(at, self._preparing.work, (0, effect.seq), cost, self._prepared_ahead, effect.seq)
        return at

    def _prepared_ahead(self, seq: int) -> None:
        self._ahead[seq] = True
        self._go_on()

    def _make(self, effect: e.MakeBuffer, at: int) -> int:
        """Makes a buffer on the enqueuing thread, before any gang that reads it."""
        if effect.literal is not None:
            self._make_buffer(effect.buffer, at)
        return at

    def _coming_in(self, effect: e.OpenRecv, at: int) -> int:
        self._coming[effect.transfer] = len(effect.buffers)
        return at

    def _received(self, effect: e.Received, at: int) -> int:
        arrays = self._coming.pop(effect.transfer, 1)
        for _ in range(arrays if effect.blame is None else 0):
            self._make_buffer(effect.transfer, at)
        return at + self.sim.profile.transfer_end

    def _opened(self, effect: e.OpenSend, at: int) -> int:
        return at + self.sim.profile.transfer_end

    def _make_buffer(self, what: int, at: int) -> None:
        """Makes contents into a buffer."""
        cost = self.sim.profile.literal
        if cost:
            self._from(at, self._enqueue.put, (0, what), cost, None)

    def launch(self, effect: e.Launch, at: int) -> int:
        launching = Launching(effect, self.plan_of(effect.run), effect.seq in self._ahead)
        self.pacer.launched(effect.seq)
        self._from(at, self._begin_launch, launching)
        return at

    def _begin_launch(self, launching: Launching) -> None:
        self._launches.append(launching)
        self._go_on()

    def _go_on(self) -> None:
        """Enqueues launches in their order, as far as they are prepared: devices run them in that order."""
        profile = self.sim.profile
        while self._launches:
            first = self._launches[0]
            seq = first.effect.seq
            if first.prepared and not self._ahead[seq]:
                return
            self._launches.popleft()
            self._ahead.pop(seq, None)
            cost = profile.enqueue + profile.sum * self._takes(first).rounds
            if not first.prepared:
                cost += profile.prepare
            self._enqueue.put((0, seq), cost, first)

    def _takes(self, launching: Launching) -> Takes:
        gang = launching.plan.steps[launching.effect.step]
        assert isinstance(gang, Gang)
        return self.sim.prices(launching.plan, gang)

    def _enqueued(self, launching: Launching | None, now: int) -> int:
        if launching is None:
            return now
        effect, plan = launching.effect, launching.plan
        self.sim.clock.at(now + self.sim.times.pcie_latency, self.launched, effect, plan)
        if not self._computes or not self._takes(launching).inline or effect.seq in self._given_up:
            return now
        self._held = effect.seq
        return HELD

    def _over(self, seq: int) -> None:
        if seq == self._held:
            self._held = -1
            self._enqueue.go_on()

    def _give_up(self, seqs: tuple[int, ...]) -> None:
        super()._give_up(seqs)
        self.pacer.abandoned(seqs)
        if self._held in seqs:
            self._over(self._held)

    # --- Python processes: one thread works at a time, and messages are batched ----------------------------------

    def come(self, sender: int, number: int, message: Any) -> None:
        if isinstance(message, Together):
            self._wire.put((sender, number), self.sim.taking_wire(message), (sender, message))
        else:
            super().come(sender, number, message)

    def take(self, sender: int, message: Any, at: int) -> int:
        if isinstance(message, m.Ordered):
            at += len(message.steps) * self.sim.profile.relay_step
        return self.serve_until(e.MessageReceived(self.sim.to_hosts(sender), message), at)

    def tell(self, event: e.Event) -> None:
        if isinstance(event, e.Finished):
            self._over(event.seq)
        if not self._python or not isinstance(event, e.Finished):
            super().tell(event)
        elif self.alive:
            self._wires.ended(self, event)

    def _from(self, at: int, call: Callable[..., object], *args: Any) -> None:
        if at > self.sim.now:
            self.sim.clock.at(at, call, *args)
        else:
            call(*args)
