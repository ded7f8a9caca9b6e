"""Batching: Python processes send several messages as one.

    machine --Send--> Outbox --a turn of the sender's--> network --a turn of the receiver's--> machine

This follows the real backend (`backend/streams`): a message goes at once, with all that was said to the same process
while the sender could not write. Chunks of contents go the same way, between the messages about them. Ends of gangs
that come shortly after each other are reported together, by the same rule as the backend's (core's `ReportPacer`).

Neighbours: `core_sharing` says which processes do this; `cores` hands out the turns.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from core.link import batching
from core.protocol import Chunk
from core.protocol import effects as e

from ..network import Together
from .cores import COMPLETE, SEND, Cores

if TYPE_CHECKING:
    from ..hosts import Context, Process
    from .core_sharing import SharedMachines
    from .crowded_host import CrowdedHost


class Wires:
    def __init__(self, sim: Context, machines: SharedMachines) -> None:
        self._sim, self._machines = sim, machines
        self._outboxes: dict[tuple[int, int], ProcessOutbox] = {}
        self._ends: dict[object, GangEnds] = {}  # by process

    def ended(self, owner: CrowdedHost, end: e.Finished) -> None:
        """Takes in the end of a gang on a host."""
        cores = self._machines.of_process(owner.name)
        assert cores is not None
        assert cores.process_of is not None
        process = cores.process_of(owner.name)
        ends = self._ends.get((id(cores), process))
        if ends is None or not ends.owner.alive:
            ends = self._ends[id(cores), process] = GangEnds(self._sim, owner, cores)
        ends.put(owner, end)

    def put(self, owner: Process, to: int, message: Any, at: int) -> None:
        """Sends `message` at time `at`."""
        outbox = self._outboxes.get((owner.name, to))
        if outbox is None or outbox.owner is not owner:
            outbox = self._outboxes[owner.name, to] = ProcessOutbox(self._sim, self._machines, owner, to)
        outbox.put(message, at)


class ProcessOutbox:
    """Messages that one process has still to send to another."""

    def __init__(self, sim: Context, machines: SharedMachines, owner: Process, to: int) -> None:
        self.owner = owner
        self._sim, self._to = sim, to
        cores = machines.of_process(owner.name)
        assert cores is not None
        self._share = cores.share(owner, SEND)
        # (from when it may be written, message), in the order of the calls
        self._items: deque[tuple[int, Any]] = deque()
        self._rung = False
        self._turns = 0

    def put(self, message: Any, at: int) -> None:
        if self.owner.alive:
            self._items.append((max(at, self._items[-1][0]) if self._items else at, message))
            self._ring()

    def _ring(self) -> None:
        if not self._rung and self._items:
            self._rung = True
            self._sim.clock.at(max(self._sim.now, self._items[0][0]), self._ask)

    def _ask(self) -> None:
        self._turns += 1
        self._share.ask((self._to, self._turns), self._begin)

    def _begin(self) -> None:
        sim = self._sim
        found: list[Any] = []
        contents = 0
        while self._items and self._items[0][0] <= sim.now and len(found) < batching.MANY and contents < batching.BATCH:
            found.append(self._items.popleft()[1])
            contents += contents_of(found[-1])
        profile = sim.profile
        wire = Together(tuple(found), sum(map(sim.weights.of, found)), contents)
        cost = len(found) * profile.send + wire.nbytes * profile.send_byte_ps // 1000
        sim.clock.at(sim.now + cost + contents * profile.transfer_byte_ps // 1000, self._written, wire)

    def _written(self, wire: Together) -> None:
        sim = self._sim
        if self.owner.alive:
            sim.contents.gone(wire.messages)
            sim.network.send(self.owner.name, self._to, wire, wire.nbytes + wire.contents, sim.now)
        self._share.give_back(sim.now)
        self._rung = False
        self._ring()


class GangEnds:
    """Ends of gangs on the hosts of one process, on their way to the hosts' machines.

    Each host's ends are told when its pacer says so, each to its own host. All hosts whose ends are due are told in
    one turn, as an asyncio loop does it.
    """

    def __init__(self, sim: Context, owner: Process, cores: Cores) -> None:
        self.owner = owner
        self._sim = sim
        self._share = cores.share(owner, COMPLETE)  # the first host's share serves all hosts
        self._said: dict[CrowdedHost, list[e.Finished]] = {}
        self._turns = 0

    def put(self, host: CrowdedHost, end: e.Finished) -> None:
        said = self._said.setdefault(host, [])
        said.append(end)
        host.pacer.ended(end.seq)
        due = host.pacer.due(self._sim.now)
        if len(said) == 1 or due <= self._sim.now:
            self._sim.clock.at(due, self._ask)

    def _ask(self) -> None:
        if self._of_now():  # else they were told with earlier ones
            self._turns += 1
            self._share.ask((0, self._turns), self._begin)

    def _of_now(self) -> list[CrowdedHost]:
        """The hosts whose ends are due."""
        return [host for host in self._said if host.pacer.due(self._sim.now) <= self._sim.now]

    def _begin(self) -> None:
        sim = self._sim
        told = sorted(self._of_now(), key=lambda host: host.name)
        found = [(host, tuple(self._said.pop(host))) for host in told]
        cost = 0
        for host, said in found:
            host.pacer.reported(sim.now)
            cost += sim.profile.completing(len(said))
        sim.clock.at(sim.now + cost, self._tell, found)

    def _tell(self, found: list[tuple[CrowdedHost, tuple[e.Finished, ...]]]) -> None:
        at = self._sim.now
        for host, said in found:
            event = said[0] if len(said) == 1 else e.FinishedTogether(said)
            at = host.serve_until(event, at)
        self._share.give_back(at)


def contents_of(message: Any) -> int:
    return message.nbytes if isinstance(message, Chunk) else 0
