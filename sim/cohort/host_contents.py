"""Contents that move from hosts to hosts which are simulated together: when they come, as vectors over edges.

    executors --OpenSend, OpenRecv--> host_contents --batches--> ports --> host_contents --Received, Sent--> executors

An edge is a host that sends to another (`move_patterns`). What the transfer machines of the two would say to each other
follows from when the two open their ends. What is short is granted when the receiver opens (`core.transfer.credits`);
grants, offers and the news that contents have landed wait for nobody, since each has a thread of its own
(`sim.hosts.processes`). So contents leave the sender when both ends are open, and these messages are additions to
vectors. Contents of different transfers meet at the ports of cards and links (`sim.network.ports`), the same ports that
carry contents host by host. There they pass in the order in which they come, those of one nanosecond in one event.

So one event may be that of some edges: hosts may open their ends at different times, and wait for different contents.
When the contents of all hosts at one end are certain to come, all are told at once, with a vector of times. If
not, those of which it is certain are told when the first of them has its contents, and become a part of their own.

What is long, goes through a shared uplink, or may be anything in a sparse exchange goes host by host, by way of
core's own machines. So does what comes from an island, or goes to one, whose contents may not go together
(`CohortIsland.contents_together`). That is decided when the first end is ordered, and holds for the other end.

Neighbours: `commands` brings what executors open, and tells them what has come; `island` says what is ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from core.model import Layouts, Move, Plan, Spans, all_pieces, receives_by_host, spans
from core.protocol import Blame, OpenRecv, OpenSend, Received, Sent
from core.transfer import at_once, hosts_of

from ..engine import Ints
from ..network import Which
from .host_times import HostTimes, as_vector
from .move_patterns import ChunkWave, Edges, End, MoveCosts, Pattern

if TYPE_CHECKING:
    from ..hosts import Context
    from .island import CohortIsland
    from .parts import CohortPart, PartGroup

KEPT = 1024  # patterns that are remembered
NEVER = 1 << 62
NOBODY: Edges = np.zeros(0, dtype=np.intp)


class EndTimes:
    """One end of a transfer. By host: how many of its edges are not over, and when the last of them that is known is
    over; `due`: hosts that are certain and not told."""

    __slots__ = ("at", "blames", "due", "end", "left", "untold")

    def __init__(self, end: End) -> None:
        self.end = end
        self.left, self.at = end.edges.copy(), np.zeros(end.number, dtype=np.int64)
        self.due: list[Edges] = []
        self.untold = end.number
        self.blames: dict[int, tuple[int, Blame]] = {}  # by host: (the lowest sender that blames, its blame)


class Transferring:
    """A transfer that is ordered and not over. By edge: when its sender has opened its end; when its sender has taken
    the receiver's grant; when a thread has written the last of it; when a thread has taken the last of it; how many
    batches are still to come."""

    __slots__ = (
        "came", "granted", "left", "missing", "offered", "opened", "pattern", "receivers", "senders", "taken",
        "transfer", "void", "written",
    )  # fmt: skip

    def __init__(self, transfer: int, pattern: Pattern) -> None:
        self.transfer, self.pattern = transfer, pattern
        self.opened: Ints = np.full(pattern.number, NEVER, dtype=np.int64)
        self.granted: Ints = self.opened.copy()
        self.written: Ints = np.zeros(pattern.number, dtype=np.int64)
        self.taken: Ints = self.written.copy()
        self.left = pattern.batches.copy()
        self.offered = np.zeros(pattern.number, dtype=bool)
        self.void: dict[int, None] = {}  # edges by which nothing comes
        self.came = 0  # when the last batch so far arrives
        self.missing = pattern.number  # edges by which something is still to come
        self.senders, self.receivers = EndTimes(pattern.senders), EndTimes(pattern.receivers)


class HostContents:
    """`islands`: those that are cohorts now, by index. `ever`: those that are, or will be again."""

    def __init__(self, sim: Context, islands: Mapping[int, CohortIsland], ever: Callable[[int], bool]) -> None:
        self._sim, self._islands, self._ever = sim, islands, ever
        self._open: dict[int, Transferring] = {}
        self._until = -1  # when all is over of which that is known
        self._one_by_one: set[int] = set()  # moves of which one end is ordered, and whose hosts go one by one
        self._pattern = lru_cache(maxsize=KEPT)(self._pattern_between)

    # --- what goes together -----------------------------------------------------------------------------------

    def ordered(self, transfer: int, plan: Plan, move: Move) -> None:
        """Takes in that an end of a move is ordered, and decides at the first one whether its hosts go together."""
        if transfer in self._open:
            return
        if transfer in self._one_by_one:
            self._one_by_one.remove(transfer)
            return
        sources, targets = (tuple([plan.slots[slot].layout for slot in ends]) for ends in (move.sources, move.targets))
        ends = sources[0].place.island, targets[0].place.island
        if not move.sparse and all(map(self._together, ends)):
            self._begin(transfer, sources, targets)
        if transfer not in self._open and all(map(self._ever, ends)):
            self._one_by_one.add(transfer)

    def _together(self, index: int) -> bool:
        island = self._islands.get(index)
        return island is not None and island.contents_together

    def _begin(self, transfer: int, sources: Layouts, targets: Layouts) -> None:
        pattern = self._pattern(sources, targets)
        if pattern is not None:
            self._open[transfer] = Transferring(transfer, pattern)
            for end in (pattern.senders, pattern.receivers):
                history = self._islands[end.island].history
                if history is not None:
                    history.forget()

    def _pattern_between(self, sources: Layouts, targets: Layouts) -> Pattern | None:
        sim = self._sim
        receivers, most = list(hosts_of(targets[0].place, sim.hosts_of)), at_once(sim.pool, sim.chunk)
        first = receives_by_host(sources, targets, receivers[0], sim.hosts_of)
        if sum(nbytes for *_, nbytes in first) > most:  # as of most hosts then
            return None
        pieces = all_pieces(sources, targets, receivers, sim.hosts_of)
        into: dict[int, int] = {}
        for _, receiver, _, nbytes in pieces:
            into[receiver] = into.get(receiver, 0) + nbytes
        if not into or max(into.values()) > most:
            return None
        if not all(nbytes for *_, nbytes in pieces) or any(
            sim.contents.roads.by_uplink(*piece[:2]) for piece in pieces
        ):
            return None
        word = sim.profile.send + sim.network.latency + sim.profile.receive
        costs = MoveCosts(sim.profile, word, sim.chunk)
        return Pattern(sources, targets, pieces, sim.contents, costs)

    def has(self, transfer: int) -> bool:
        """Whether it is a move whose hosts go together, and of which some are not over."""
        return transfer in self._open

    def are_together(self, island: int) -> bool:
        """Whether some contents move together now, from this island or to it."""
        ends = (known.pattern for known in self._open.values())
        return self._until >= self._sim.now or any(
            island in (pattern.senders.island, pattern.receivers.island) for pattern in ends
        )

    def under_way(self) -> list[int]:
        """The moves whose hosts go together and of which some are not over."""
        return list(self._open)

    def hosts_at(self, transfer: int, sending: bool) -> Spans:
        """The hosts that send contents of such a move, or receive them."""
        pattern = self._open[transfer].pattern
        return (pattern.senders if sending else pattern.receivers).spans

    # --- both ends --------------------------------------------------------------------------------------------

    def opens(self, hosts: CohortPart | PartGroup, opening: OpenSend | OpenRecv, opens: HostTimes | int) -> None:
        """Takes in that these hosts open their ends at these times, none of them past."""
        known, when = self._open[opening.transfer], as_vector(opens, hosts.number)
        if isinstance(opening, OpenRecv):
            edges, at = known.pattern.receivers.edges_of(hosts.members)
            known.granted[edges] = when[at] + known.pattern.word[edges]
            self._sim.network.messages += int(np.count_nonzero(known.pattern.word[edges]))
            self._void(known, self._both(known, edges, known.opened))
            return
        edges, at = known.pattern.senders.edges_of(hosts.members)
        refused = np.isin(edges, list(known.void)) if known.void else NOBODY
        if len(refused) and refused.any():
            gone = edges[refused]
            over = np.maximum(when[at][refused], known.taken[gone] + known.pattern.word[gone])
            self._edges_over(known, known.senders, gone, over)
            edges, at = edges[~refused], at[~refused]
        if opening.blame is not None:
            self._spoil(known, edges, opening.blame, when[at])
            return
        known.opened[edges] = when[at]
        alone = self._both(known, edges, known.granted)
        if len(alone):
            self._offer_if_late(known, alone)

    def _both(self, known: Transferring, edges: Edges, other: Ints) -> Edges:
        """These edges are open at one end: sends along those that are open at the other, too; returns the rest."""
        there = other[edges] < NEVER
        if known.void:
            there &= ~np.isin(edges, list(known.void))
        both = edges if there.all() else edges[there]
        if len(both):
            late = known.granted[both] >= known.opened[both]
            if late.any():
                self._offer(known, both[late & ~known.offered[both]])
            self._send(known, both)
        return NOBODY if len(both) == len(edges) else edges[~there]

    def _offer_if_late(self, known: Transferring, edges: Edges) -> None:
        """Offers what will be ready before its grant can come: receivers that have not opened do so now or later."""
        now = self._sim.now
        edges = edges[(known.granted[edges] == NEVER) & ~known.offered[edges]]
        sure = known.opened[edges] <= now + known.pattern.word[edges]
        self._offer(known, edges[sure])
        if not sure.all():
            rest = edges[~sure]
            self._sim.clock.at(int(known.opened[rest].min()), self._offer_if_late, known, rest)

    def _offer(self, known: Transferring, edges: Edges) -> None:
        if not len(edges):
            return
        pattern = known.pattern
        known.offered[edges] = True
        known.written[edges] = known.opened[edges] + pattern.offer_write[edges]
        for wave in _among(pattern.offers, edges, pattern.number):
            self._leave(known, wave, known.written[wave.edges], offer=True)

    def _send(self, known: Transferring, edges: Edges) -> None:
        pattern, first = known.pattern, NEVER
        leave = np.maximum(known.opened, known.granted)
        for wave in _among(pattern.waves, edges, pattern.number):
            when = np.maximum(known.written[wave.edges], leave[wave.edges]) + wave.cost
            known.written[wave.edges] = when
            first = min(first, int(when.min()))
            self._leave(known, wave, when, offer=False)
        self._sim.clock.at(first, self._left, known.transfer)
        self._sim.contents.moved += int(pattern.nbytes[edges].sum())

    # --- on the way -------------------------------------------------------------------------------------------

    def _leave(self, known: Transferring, wave: ChunkWave, when: Ints, offer: bool) -> None:
        """These batches come to the first ports of their ways at these times."""
        if wave.free:
            self._land(known, wave.edges, when + wave.quick, wave.cost, offer)
        else:
            self._come_to(0, known, wave, when, when, offer)

    def _come_to(self, at: int, known: Transferring, wave: ChunkWave, when: Ints, ends: Ints, offer: bool) -> None:
        """Their first bytes come to a port then; their last ones not before `ends`."""
        leg = wave.legs[at]
        other = (known.pattern.sender if leg.far else known.pattern.receiver)[wave.edges]
        order = np.lexsort((wave.place[1], wave.place[0], other, leg.ports))
        wave, when, ends, other = wave.some(order), when[order], ends[order], other[order]
        leg = wave.legs[at]

        def passes(which: Which, starts: Ints) -> None:
            over = np.maximum(ends[which], starts + leg.took[which]) + leg.after[which]
            some = wave if isinstance(which, slice) else wave.some(which)
            if at + 1 < len(some.legs):
                self._come_to(at + 1, known, some, starts + leg.after[which], over, offer)
            else:
                self._land(known, some.edges, over, some.cost, offer)

        transfer = np.full(len(other), known.transfer, dtype=np.int64)
        self._sim.contents.ports.put_many(leg.ports, when, (other, transfer, *wave.place), leg.took, passes)

    def _land(self, known: Transferring, edges: Edges, when: Ints, cost: Ints, offer: bool) -> None:
        """Their last bytes arrive at these times."""
        if offer:
            cost = known.pattern.offer_take[edges]
        known.taken[edges] = np.maximum(known.taken[edges], when) + cost
        if offer:
            return
        known.came = max(known.came, int(when.max()))
        known.left[edges] -= 1
        over = known.left[edges] == 0
        edges = edges if over.all() else edges[over]
        if len(edges):
            self._landed(known, edges)

    def _landed(self, known: Transferring, edges: Edges) -> None:
        """All has come along these edges."""
        taken, pattern = known.taken[edges], known.pattern
        self._sim.network.messages += int(np.count_nonzero(pattern.word[edges]))
        known.missing -= len(edges)
        if not known.missing:
            self._sim.clock.at(known.came, self._came, known.transfer)
        self._edges_over(known, known.receivers, edges, taken)
        self._edges_over(known, known.senders, edges, taken + pattern.word[edges])

    # --- the ends are over ------------------------------------------------------------------------------------

    def _edges_over(self, known: Transferring, times: EndTimes, edges: Edges, when: Ints) -> None:
        hosts = times.end.of_edge[edges]
        if times.end.single:
            times.at[hosts] = when
            done = hosts
        else:
            np.maximum.at(times.at, hosts, when)
            np.subtract.at(times.left, hosts, 1)
            hosts = np.unique(hosts)
            done = hosts[times.left[hosts] == 0]
        if len(done):
            self._certain(known, times, done)

    def _certain(self, known: Transferring, times: EndTimes, hosts: Edges) -> None:
        """It is certain when these hosts' ends are over. All are told now, or some when the first of them is over."""
        times.due.append(hosts)
        if sum(map(len, times.due)) == times.end.number and not times.blames:
            self._tell(known, times)
        else:
            at = max(self._sim.now, int(times.at[hosts].min()))
            self._sim.clock.at(at, self._tell, known, times)

    def _tell(self, known: Transferring, times: EndTimes) -> None:
        if not times.due:
            return
        hosts = np.concatenate(times.due) if len(times.due) > 1 else times.due[0]
        times.due = []
        times.untold -= len(hosts)
        if not known.senders.untold and not known.receivers.untold:
            del self._open[known.transfer]
        if times.blames:
            for host in hosts.tolist():
                self._tell_some(known, times, spans.one(times.end.hosts[host]), times.at[host : host + 1])
        elif len(hosts) == times.end.number:
            self._tell_some(known, times, times.end.spans, times.at)
        else:
            hosts = np.sort(hosts)
            self._tell_some(known, times, spans.of(times.end.hosts[at] for at in hosts.tolist()), times.at[hosts])

    def _tell_some(self, known: Transferring, times: EndTimes, members: Spans, when: Ints) -> None:
        island = self._islands[times.end.island]
        if island.history is not None:
            self._until = max(self._until, int(when.max()))
        if len(when) < times.end.number:
            island.set_apart(members)
        for part in island.parts.among(members):
            part.open -= 1
        if times is known.senders:
            island.commands.told_later(members, Sent(known.transfer), ("sent", known.transfer), when)
        else:
            blame = times.blames.get(members[0][0])
            said = Received(known.transfer, None if blame is None else blame[1])
            island.commands.told_later(members, said, ("recv", known.transfer), when)

    # --- contents that do not come ----------------------------------------------------------------------------

    def dropped(self, hosts: CohortPart | PartGroup, transfer: int, blame: Blame, when: HostTimes | int) -> None:
        """These hosts give up their halves then, as far as the other end is not open yet. Otherwise contents come all
        the same, whether or not they would have come in time."""
        at = max(self._sim.now, int(as_vector(when, hosts.number).min()))
        self._sim.clock.at(at, self._drop, transfer, hosts.members, blame)

    def _drop(self, transfer: int, members: Spans, blame: Blame) -> None:
        known = self._open.get(transfer)
        if known is None:
            return
        for times, give_up in ((known.senders, self._spoil), (known.receivers, self._refuse)):
            edges, _ = times.end.edges_of(members)
            open_now = (known.opened[edges] < NEVER) & (known.granted[edges] < NEVER)
            edges = edges[~open_now & ~np.isin(edges, list(known.void))]
            if len(edges):
                give_up(known, edges, blame, np.full(len(edges), self._sim.now, dtype=np.int64))

    def _spoil(self, known: Transferring, edges: Edges, blame: Blame, when: Ints) -> None:
        """The senders have nothing to send, and say so. The ports are taken to have room for that."""
        pattern = known.pattern
        known.opened[edges] = when
        known.void.update(dict.fromkeys(edges.tolist()))
        passed = pattern.offer_write[edges] + pattern.offer_quick[edges] + pattern.offer_take[edges]
        known.taken[edges] = when + passed
        for sender, receiver in zip(pattern.sender[edges].tolist(), pattern.receiver[edges].tolist(), strict=True):
            said = known.receivers.blames.get(receiver)
            if said is None or sender < said[0]:
                known.receivers.blames[receiver] = sender, blame
        self._edges_over(known, known.senders, edges, when)
        self._void(known, edges[known.granted[edges] < NEVER])

    def _refuse(self, known: Transferring, edges: Edges, blame: Blame, when: Ints) -> None:
        """The receivers want nothing any more, and say that all has landed."""
        pattern = known.pattern
        known.void.update(dict.fromkeys(edges.tolist()))
        known.taken[edges] = when
        for receiver in pattern.receiver[edges].tolist():
            known.receivers.blames.setdefault(receiver, (-1, blame))
        self._edges_over(known, known.receivers, edges, when)
        there = edges[known.opened[edges] < NEVER]
        if len(there):
            self._edges_over(known, known.senders, there, known.taken[there] + pattern.word[there])

    def _void(self, known: Transferring, edges: Edges) -> None:
        """The receivers have opened their ends, and nothing comes along these edges if their senders have said so."""
        edges = edges[np.isin(edges, list(known.void))] if known.void else NOBODY
        if len(edges):
            opened = known.granted[edges] - known.pattern.word[edges]
            self._edges_over(known, known.receivers, edges, np.maximum(known.taken[edges], opened))

    def _left(self, transfer: int) -> None:
        self._sim.trace.left(transfer, self._sim.now)

    def _came(self, transfer: int) -> None:
        self._sim.last_seen = self._sim.now
        self._sim.trace.came(transfer, self._sim.now)


def _among(waves: Sequence[ChunkWave], edges: Edges, number: int) -> Iterator[ChunkWave]:
    """Their batches of these edges."""
    for wave in waves:
        if len(edges) == number:
            yield wave
            continue
        which = np.flatnonzero(np.isin(wave.edges, edges))
        if len(which):
            yield wave.some(which)
