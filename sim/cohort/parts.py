"""A part of an island: one executor, the hosts for which it stands, and when events happened at each host.

Each command of the executor has causes; a host carries it out when the last of them has happened there. Only recent
causes are kept; older ones count as long past. A part of a single host may also move contents: it has a transfer
machine, whose commands are carried out at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from core.model import Spans, spans
from core.protocol import effects as e
from core.protocol import end_of, peer_of
from core.protocol import messages as m

from ..engine import Ints
from .alike import AlikeHosts
from .routes import rows_of

if TYPE_CHECKING:
    from .island import CohortIsland

KEPT = 512  # causes of each kind that are kept


class Causes:
    """When events happened at the hosts of a part: a vector, or one number if the time was the same for all."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[int, Ints | int]] = {}

    def put(self, cause: e.Cause, when: Ints | int) -> None:
        times = self._kinds.setdefault(cause[0], {})
        times[cause[1]] = when
        if len(times) > KEPT:
            del times[next(iter(times))]

    def knows(self, cause: e.Cause) -> bool:
        return cause[1] in self._kinds.get(cause[0], {})

    def latest(self, causes: Sequence[e.Cause]) -> Ints | int:
        latest: Ints | int = 0
        for kind, which in causes:
            when = self._kinds.get(kind, {}).get(which, 0)
            if isinstance(when, int) and isinstance(latest, int):
                latest = max(latest, when)
            else:
                latest = np.maximum(latest, when)
        return latest

    def joined(self, other: Causes, mine: int, theirs: int, order: Any) -> Causes:
        """The causes of two parts that become one."""
        found = Causes()
        for kind in self._kinds | other._kinds:
            ours, others = self._kinds.get(kind, {}), other._kinds.get(kind, {})
            for which in sorted(ours | others):
                both = _vector(ours.get(which, 0), mine), _vector(others.get(which, 0), theirs)
                found.put((kind, which), np.concatenate(both)[order])
        return found

    def part(self, at: Any) -> Causes:
        """The causes for some of the hosts."""
        found = Causes()
        for kind, times in self._kinds.items():
            found._kinds[kind] = {
                which: when if isinstance(when, int) else when[at].copy() for which, when in times.items()
            }
        return found


class CohortPart:
    def __init__(
        self, island: CohortIsland, executor: AlikeHosts, members: Spans, causes: Causes | None = None
    ):
        self.island, self.executor = island, executor
        self.causes = causes or Causes()
        # gangs whose host work is done before their data come -> when it is done
        self.prepared: dict[int, Ints | int] = {}
        self.open = 0  # halves of transfers that have not ended
        self._acts: dict[type, Callable[[Any], None]] = {
            e.Launch: self._launch, e.Prepare: self._prepare, e.ToController: self._up, e.CompileCode: self._compile,
            e.OpenSend: self._later, e.OpenRecv: self._later, e.ExpectRecv: self._later,
            e.DropTransfer: self._later, e.CountRows: self._count,
            e.SpillBuffer: self._copy, e.RestoreBuffer: self._copy,
            e.Reform: self._unable, e.Abandon: self._unable,
        }  # fmt: skip
        self.stand_for(members)

    def stand_for(self, members: Spans) -> None:
        self.members = members
        self.number = spans.count(members)
        self.rows = rows_of(members, self.island.island)
        self.host = members[0][0]

    def split(self, members: Spans) -> CohortPart:
        """Divides the part: returns a new part with these members."""
        mine = list(spans.items(self.members))
        theirs = list(spans.items(members))
        at = np.searchsorted(mine, theirs)
        rest = np.setdiff1d(np.arange(len(mine)), at)
        other = CohortPart(self.island, self.executor.split(members), members, self.causes.part(at))
        other.prepared = _some(self.prepared, at)
        self.causes, self.prepared = self.causes.part(rest), _some(self.prepared, rest)
        self.stand_for(spans.minus(self.members, members))
        return other

    def take_in(self, other: CohortPart) -> None:
        """Adds the hosts of another part, which behave like these again."""
        self.executor.absorb(other.executor)
        members = spans.union(self.members, other.members)
        order = list(spans.items(self.members)), list(spans.items(other.members))
        at = np.argsort(np.concatenate(order), kind="stable")
        self.causes = self.causes.joined(other.causes, len(order[0]), len(order[1]), at)
        self.prepared = {}
        self.stand_for(members)

    # --- events and commands --------------------------------------------------------------------------------

    def tell(self, event: e.Event, cause: e.Cause, when: Ints | int) -> None:
        """Tells the executor of an event. `cause`: the event's name; `when`: its times at the hosts."""
        self.causes.put(cause, when)
        for effect in self.executor.handle(event, self.island.sim.now):
            act = self._acts.get(type(effect))
            if act is not None:
                act(effect)

    def _vector(self, when: Ints | int) -> Ints:
        return _vector(when, self.number)

    def _prepare(self, effect: e.Prepare) -> None:
        self.prepared[effect.seq] = self.causes.latest(effect.causes) + self.island.sim.profile.prepare

    def _launch(self, effect: e.Launch) -> None:
        island, when = self.island, self._vector(self.causes.latest(effect.causes))
        self.causes.put(("launch", effect.seq), when)
        island.launched(self, effect, when, self.prepared.pop(effect.seq, None))

    def _up(self, effect: e.ToController) -> None:
        self.island.report(self, effect.report, self.causes.latest(effect.causes))

    def _compile(self, effect: e.CompileCode) -> None:
        sim, when = (
            self.island.sim,
            self._vector(self.causes.latest(effect.causes)) + self.island.sim.times.compile,
        )
        cause = ("code", effect.plan << 20 | effect.code)
        ready = e.CodeReady(effect.plan, effect.code)
        sim.clock.at(max(sim.now, int(when.max())), self.island.told_later, self.members, ready, cause, when)

    def _copy(self, effect: e.SpillBuffer | e.RestoreBuffer) -> None:
        sim = self.island.sim
        took = sim.copy_time(self.executor.layout_of(effect.buffer))
        when = self._vector(self.causes.latest(effect.causes)) + took
        copied, cause = e.Copied(effect.seq), ("done", effect.seq)
        sim.clock.at(max(sim.now, int(when.min())), self.island.told_later, self.members, copied, cause, when)

    def _unable(self, effect: e.Command) -> None:
        raise NotImplementedError(f"{effect}: an island in trouble is simulated host by host")

    # --- contents: parts of one host ------------------------------------------------------------------------

    def _later(self, effect: Any) -> None:
        """Hands a command to the transfer machine when its causes have happened."""
        sim = self.island.sim
        when = _one(self.causes.latest(effect.causes))
        if isinstance(effect, e.OpenSend | e.OpenRecv):
            self.open += 1
        if isinstance(effect, e.OpenSend):
            self.causes.put(("sending", effect.transfer), when)
        if when > sim.now:
            sim.clock.at(when, self.move, effect)
        else:
            self.move(effect)

    def _count(self, effect: e.CountRows) -> None:
        sim, when = self.island.sim, _one(self.causes.latest(effect.causes))
        at = max(sim.now, when + 2 * sim.times.pcie_latency)
        sim.clock.at(at, self.tell, sim.rows(self.host, effect), ("count", effect.transfer), at)

    def come(self, sender: int, number: int, message: Any, cost: int) -> None:
        self.island.lane(self.host, sender).put(
            (sender, number), cost, e.MessageReceived(end_of(self.island.sim.to_hosts(sender)), message)
        )

    def lose(self, peer: int, reason: str) -> None:
        if self.number == 1:
            self.move(e.Disconnected(end_of(self.island.sim.to_hosts(peer)), reason))

    def move(self, event: e.Event) -> int:
        """Tells the transfer machine of an event; returns when the thread is free again: now."""
        island = self.island
        sim = island.sim
        at = sim.now
        todo: deque[Any] = deque(island.transfer(self.host).handle(event, at))
        while todo:
            said = todo.popleft()
            match said:
                case e.Send(peers=to, message=message):
                    for end in to:
                        sim.send_contents(self.host, sim.from_hosts(peer_of(end)), message, at)
                case e.Received(transfer=transfer):
                    self.open -= 1
                    self.tell(said, ("recv", transfer), sim.now)
                case e.Sent(transfer=transfer):
                    self.open -= 1
                    self.tell(said, ("sent", transfer), sim.now)
                case _:
                    pass
        return at


def _vector(when: Ints | int, number: int) -> Ints:
    return np.full(number, when, dtype=np.int64) if isinstance(when, int) else when


def _one(when: Ints | int) -> int:
    """The time at a part's only host."""
    return when if isinstance(when, int) else int(when[0])


def _some(times: dict[int, Ints | int], at: Any) -> dict[int, Ints | int]:
    return {seq: when if isinstance(when, int) else when[at].copy() for seq, when in times.items()}


def report_about(report: m.Report) -> tuple[type, int]:
    return type(report), getattr(report, "seq", getattr(report, "transfer", -1))


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
        self._island.part_of(self.name).come(
            sender, number, message, self._island.sim.taking_contents(message)
        )

    def lose(self, sender: int, reason: str) -> None:
        self._island.part_of(self.name).lose(sender, reason)
