"""What the executors of an island command, and when each host carries it out.

One event is told to all parts that it concerns. What several parts then command alike is carried out for all their
hosts together, as vectors: launches, and reports. Contents whose hosts go together are carried elsewhere. Others are
moved host by host: each host has a transfer machine, whose commands are carried out at once.

Neighbours: `parts` has the executors, `event_times` when events happened; `client_contents` and `host_contents` carry
contents whose hosts go together; `island` takes launches and reports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from core.model import Spans
from core.protocol import effects as e
from core.protocol import end_of, peer_of
from core.protocol import messages as m
from core.transfer import Transfer

from ..engine import Ints, ThreadPool, TieBreak
from ..hosts import WORDS, code_ready, is_word
from .climbs import report_about
from .gangs import CohortGang
from .host_times import HostTimes, as_vector, at_one, earliest
from .parts import CohortPart, PartGroup
from .routes import Rows

if TYPE_CHECKING:
    from .island import CohortIsland


ALIKE = (m.Done, m.Enqueued)  # reports that say no more of a host than that it is one of them


class Commands:
    def __init__(self, island: CohortIsland) -> None:
        self.island, self.sim = island, island.sim
        self.transfers: dict[int, Transfer] = {}  # by host
        self._contents: dict[int, TieBreak] = {}  # by host: between its threads that take contents
        self._threads = ThreadPool(self.sim.clock, self._taken)  # that take contents: one for each transfer
        self._words = count()
        # gangs whose host work is done before their data come -> when it is done
        self.prepared: dict[int, HostTimes] = {}
        self._until = 0  # when all that is still to be done for single hosts will be done
        self._others: dict[type, Callable[[CohortPart, Any], None]] = {
            e.CompileCode: self._compile, e.SpillBuffer: self._copy, e.RestoreBuffer: self._copy,
            e.OpenSend: self._later, e.OpenRecv: self._later, e.ExpectRecv: self._later,
            e.DropTransfer: self._later, e.CountRows: self._count, e.Reform: self._unable, e.Abandon: self._unable,
            e.Cut: self._cut,
        }  # fmt: skip

    @property
    def idle(self) -> bool:
        """Whether nothing is under way that single hosts do one after another."""
        return self._until < self.sim.now and all(lane.idle for lane in self.threads())

    def threads(self) -> list[TieBreak | ThreadPool]:
        """Those of single hosts, which take contents."""
        return [*self._contents.values(), self._threads]

    # --- events -------------------------------------------------------------------------------------------

    def tell(self, parts: Sequence[CohortPart], event: e.Event) -> None:
        """Tells parts of an event whose times are known."""
        self.tell_each([(part, event) for part in parts])

    def tell_each(self, told: Sequence[tuple[CohortPart, e.Event | m.Ordered]]) -> None:
        """Tells parts what concerns each. Launches come first, in the order of gangs: each host enqueues in that order.
        What moves contents may tell parts of more, and comes last."""
        now, together = self.sim.now, self.island.parts.together
        others: list[tuple[CohortPart, Any]] = []
        launches: dict[Any, tuple[Any, list[CohortPart]]] = {}
        reports: dict[Any, tuple[Any, list[CohortPart]]] = {}
        alike = 0
        effect: Any
        for part, event in told:
            alike += not part.of_slice
            for effect in part.executor.handle(event, now):
                kind = type(effect)
                if kind is e.Launch or kind is e.Prepare:
                    key = (effect.seq, kind is e.Launch, effect.causes, kind is e.Launch and effect.placeholders)
                    launches.setdefault(key, (effect, []))[1].append(part)
                elif kind is e.ToController:
                    report = effect.report
                    about = report_about(report), effect.causes, getattr(report, "blame", None)
                    which = about if type(report) in ALIKE else len(reports)
                    reports.setdefault(which, (effect, []))[1].append(part)
                elif kind is e.MakeBuffer:
                    self._make(effect, part)
                elif kind is e.MakeView or kind is e.VoidView:
                    self._made(effect, part)
                elif kind in self._others:
                    others.append((part, effect))
        if alike > 1:
            self.island.parts.told(alike)
        for key in launches if len(launches) == 1 else sorted(launches, key=_first):
            effect, parts = launches[key]
            self._launch(effect, together(parts))
        for effect, parts in reports.values():
            self._report(effect, together(parts))
        for part, effect in others:
            self._others[type(effect)](part, effect)

    def happen(self, part: CohortPart | PartGroup, cause: e.Cause, when: HostTimes | int) -> None:
        self.island.times.put(cause, part.rows, part.number, when, self.sim.now)

    def when(self, part: CohortPart | PartGroup, causes: Sequence[e.Cause]) -> HostTimes | int:
        return self.island.times.latest(causes, part.rows, part.number)

    def told_later(self, members: Spans, event: e.Event, cause: e.Cause, when: HostTimes | int) -> None:
        """Tells an event to hosts that were one part when it began, and may be several parts now."""
        island = self.island
        hosts = island.parts.group(members)
        island.times.put(cause, hosts.rows, hosts.number, when, self.sim.now)
        if isinstance(event, e.CodeReady):
            self.tell(island.slices.of_code(event.plan, members), event)
        else:
            self.tell(island.parts.among(members), event)

    # --- gangs and reports --------------------------------------------------------------------------------

    def _launch(self, effect: e.Launch | e.Prepare, hosts: CohortPart | PartGroup) -> None:
        when = self.island.times.latest(effect.causes, hosts.rows, hosts.number)
        if isinstance(effect, e.Prepare):
            self._prepare(effect.seq, hosts, when)
            return
        if isinstance(when, int) and hosts.number > 1:
            when = as_vector(when, hosts.number)
        self.island.times.put(("launch", effect.seq), hosts.rows, hosts.number, when, self.sim.now)
        prepared = self.prepared.get(effect.seq) if self.prepared else None
        if isinstance(prepared, np.ndarray):
            prepared = prepared[hosts.rows] if prepared[hosts.rows][0] >= 0 else None
        elif prepared is not None and hosts.number < self.island.island.hosts:
            prepared = as_vector(prepared)[hosts.rows]
        self.island.launched(hosts, effect, when, prepared)

    def _prepare(self, seq: int, hosts: CohortPart | PartGroup, when: HostTimes | int) -> None:
        done = (as_vector(when, hosts.number) if isinstance(when, int) else when) + self.sim.profile.prepare
        if hosts.number == self.island.island.hosts:
            self.prepared[seq] = done
        else:
            self.prepare(seq, hosts.rows, as_vector(done))

    def prepare(self, seq: int, rows: Rows, at: Ints | int) -> None:
        """The host work of a gang will be done on some hosts at these times."""
        prepared = self.prepared.get(seq)
        if not isinstance(prepared, np.ndarray):
            prepared = self.prepared[seq] = np.full(self.island.island.hosts, -1, dtype=np.int64)
        prepared[rows] = at

    def _make(self, effect: e.MakeBuffer, part: CohortPart) -> None:
        """Contents that came with a call wait for memory, and gangs for them."""
        if effect.literal is not None:
            self._made(effect, part)

    def _made(self, effect: e.MakeBuffer | e.MakeView | e.VoidView, part: CohortPart) -> None:
        """What waited for more than the order: gangs may wait for it."""
        if len(effect.causes) > 1:
            self.happen(part, ("made", effect.buffer), self.when(part, effect.causes))

    def _cut(self, part: CohortPart, effect: e.Cut) -> None:
        """The word to the first of these hosts decides."""
        job, when = self.island.jobs.get(effect.seq), earliest(self.when(part, effect.causes))
        at = max(self.sim.now, when + self.sim.times.pcie_latency)
        self._until = max(self._until, at)
        if isinstance(job, CohortGang):
            self.sim.clock.at(at, self.island.gangs.cut, job)

    def over(self, seq: int) -> None:
        """A gang has ended everywhere."""
        self.prepared.pop(seq, None)

    def _report(self, effect: e.ToController, hosts: CohortPart | PartGroup) -> None:
        when = self.island.times.latest(effect.causes, hosts.rows, hosts.number)
        self.island.report(effect.report, hosts, when)

    # --- code and copies ----------------------------------------------------------------------------------

    def _compile(self, part: CohortPart, effect: e.CompileCode) -> None:
        sim = self.sim
        when = as_vector(self.when(part, effect.causes), part.number) + sim.times.compile
        cause = ("code", effect.plan << 20 | effect.code)
        ready = code_ready(sim, part.executor.plan, effect)
        self._until = max(self._until, int(when.max()))
        sim.clock.at(max(sim.now, int(when.max())), self.told_later, part.members, ready, cause, when)

    def _copy(self, part: CohortPart, effect: e.SpillBuffer | e.RestoreBuffer) -> None:
        sim = self.sim
        took = sim.copy_time(part.host, effect, part.executor.layout_of(effect.buffer))
        when = as_vector(self.when(part, effect.causes), part.number) + took
        copied, cause = e.Copied(effect.seq), ("done", effect.seq)
        self._until = max(self._until, int(when.max()))
        sim.clock.at(max(sim.now, int(when.min())), self.told_later, part.members, copied, cause, when)

    def _unable(self, part: CohortPart, effect: e.Command) -> None:
        raise NotImplementedError(f"{effect}: hosts of a cohort cannot re-form")

    # --- contents: parts of one host ----------------------------------------------------------------------

    def _later(self, part: CohortPart, effect: Any) -> None:
        """Hands a command to the transfer machine when its causes have happened."""
        sim, host = self.sim, part.host
        if self._goes_together(part, effect):
            return
        when = at_one(self.when(part, effect.causes))
        self._until = max(self._until, when)
        if isinstance(effect, e.OpenSend | e.OpenRecv):
            part.open += 1
        if isinstance(effect, e.OpenSend):
            self.happen(part, ("sending", effect.transfer), when)
        if when > sim.now:
            sim.clock.at(when, self.move, host, effect)
        else:
            self.move(host, effect)

    def _goes_together(self, part: CohortPart, effect: Any) -> bool:
        """Whether a command is about contents whose hosts go together, which is taken in then."""
        found = self.island.contents_of(effect.transfer)
        if found is not None and not isinstance(effect, e.ExpectRecv):
            sender = part.executor.sender_of(effect.transfer)
            hosts: CohortPart | PartGroup = part
            if sender is not None and sender != part.members:
                hosts = self.island.parts.group(sender)
            when = self.island.times.latest(effect.causes, hosts.rows, hosts.number)
            if isinstance(effect, e.DropTransfer):
                found.dropped(hosts, effect.transfer, effect.blame, when)
                return True
            part.open += 1
            if isinstance(effect, e.OpenSend):
                self.happen(hosts, ("sending", effect.transfer), when)
            found.opens(hosts, effect, when)
            return True
        return isinstance(effect, e.DropTransfer) and part.number > 1  # it is over

    def _count(self, part: CohortPart, effect: e.CountRows) -> None:
        sim, when = self.sim, at_one(self.when(part, effect.causes))
        at = max(sim.now, when + 2 * sim.times.pcie_latency)
        self._until = max(self._until, at)
        sim.clock.at(at, self.tell_host, part.host, sim.rows(part.host, effect), ("count", effect.transfer))

    def tell_host(self, host: int, event: e.Event, cause: e.Cause) -> None:
        """Tells one host, which is a part by itself, what happens to it now."""
        part = self.island.parts.of_host(host)
        self.happen(part, cause, self.sim.now)
        self.tell((part,), event)

    def come(self, host: int, sender: int, number: int, message: Any, cost: int) -> None:
        event = e.MessageReceived(end_of(self.sim.to_hosts(sender)), message)
        # each word is taken by a thread of its own
        key = next(self._words) if type(message) in WORDS else (host, sender, message.transfer)
        self._threads.put(key, cost, (host, event))

    def lose(self, host: int, peer: int, reason: str) -> None:
        if host in self.transfers:
            self.move(host, e.Disconnected(end_of(self.sim.to_hosts(peer)), reason))

    def _tie(self, host: int) -> TieBreak:
        found = self._contents.get(host)
        if found is None:
            made = TieBreak(self.sim.clock, lambda event, now: self.move(host, event), is_word)
            found = self._contents[host] = made
        return found

    def _taken(self, what: tuple[int, e.MessageReceived], now: int) -> None:
        host, event = what
        self._tie(host).put(event, now)

    def move(self, host: int, event: e.Event) -> None:
        """Tells a host's transfer machine of an event."""
        sim = self.sim
        at = sim.now
        transfer = self.transfers.get(host)
        if transfer is None:
            transfer = self.transfers[host] = Transfer(host, sim.pool, sim.chunk)
        for said in transfer.handle(event, at):  # some for each chunk
            if isinstance(said, e.Send):
                for end in said.peers:
                    sim.send_contents(host, sim.from_hosts(peer_of(end)), said.message, at)
            elif isinstance(said, e.Received | e.Sent):
                self.island.parts.of_host(host).open -= 1
                self.tell_host(host, said, ("sent" if isinstance(said, e.Sent) else "recv", said.transfer))


def _first(key: tuple[Any, ...]) -> tuple[int, bool]:
    return key[0], key[1]
