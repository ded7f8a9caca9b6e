"""Where an island's gangs queue: a *lane* is one place with what waits for it, a *domain* is lanes that
overlap.

A lane is open while each of its devices has room in the window (a number of gangs; more, as long as they are short)
and nobody holds it back. It learns that from counters, one an atom, at the moment an atom fills up or gets room
again: nothing is searched, and 2048 devices that are always used together are one counter. Neighbours are the lanes
that share a device with it.

A lane is *alive* while something waits or runs there. Living lanes that are connected through neighbours
are one domain: its clients contend with each other, and with nobody else. Domains are kept as they change:
a lane that comes to life may join several, and one that dies may leave several behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ..model import Atoms, count
from .policy import Board


class Window(msgspec.Struct, frozen=True):
    """How far the order runs ahead of a device: so many `gangs`; and up to `most`, while those that are ahead take less
    than `span` nanoseconds together. What is short is not decided much earlier by that, and the way of a message to
    the host and back is covered by many of them only."""

    gangs: int
    span: int = 0
    most: int = 0

    def full(self, ahead: int, load: int) -> bool:
        return ahead >= self.gangs and (load >= self.span or ahead >= self.most)


class Lane:
    """One place: what waits for it, and what keeps that out. Only `Lanes` changes the second block."""

    __slots__ = (
        "barred", "domain", "flying", "full", "holds", "key", "late", "near", "passes", "ripe", "seen", "size",
    )  # fmt: skip

    def __init__(self, key: int, size: int) -> None:
        self.key = key
        self.size = size  # devices
        self.ripe: Board = {}
        self.late: Board = {}  # tickets that are not ripe
        self.seen: dict[int, int] = {}  # when a gang of each client last entered here
        self.flying = 0  # gangs of this place that are in the order
        self.passes = 0  # how often others have passed it since it was last served

        self.near: dict[int, Lane] = {}  # its neighbours, alive or not
        self.domain: Domain | None = None  # None while it is not alive
        self.full = 0  # how many of its atoms have no room in the window
        self.barred: Lane | None = None  # a neighbour that it has passed too often, and now waits for
        self.holds: dict[int, Lane] = {}  # those that wait for this one so

    def waits_for(self, other: Lane) -> bool:
        """Whether it is barred by `other`, or by one that is, and so on."""
        lane = self.barred
        while lane is not None and lane is not other:
            lane = lane.barred
        return lane is not None


class Domain(msgspec.Struct, eq=False):
    id: int
    lanes: dict[int, Lane] = {}
    open: dict[int, Lane] = {}  # those from which a gang may enter now
    clients: dict[int, int] = {}  # how many ripe queues each has here


class Lanes:
    def __init__(self, atoms: Atoms, window: Window, early: bool, tell: Callable[..., None]) -> None:
        self.atoms = atoms
        self.window = window
        self.early = early  # whether tickets that are not ripe may enter at all
        self.known: dict[int, Lane] = {}
        self.live: dict[int, Domain] = {}  # domains with an open lane
        self._tell = tell  # what has happened, and to which domains
        self._domains = 0
        self._ahead: dict[int, int] = {}  # gangs in the order, by atom
        self._load: dict[int, int] = {}  # and what they take together
        self._watch: dict[int, list[Lane]] = {}  # lanes, by atom
        atoms.splits.append(self._split)

    def get(self, key: int) -> Lane:
        return self.known.get(key) or self._make(key)

    def ahead(self, atom: int) -> int:
        return self._ahead.get(atom, 0)

    def is_full(self, atom: int) -> bool:
        return self.window.full(self._ahead.get(atom, 0), self._load.get(atom, 0))

    def refresh(self, lane: Lane) -> None:
        """Call when anything has changed that decides whether a gang may enter from here."""
        domain = lane.domain
        if domain is None:
            return
        if not lane.full and lane.barred is None and (lane.ripe or (lane.late and self.early)):
            if lane.key not in domain.open:
                domain.open[lane.key] = lane
                self.live[domain.id] = domain
        elif domain.open.pop(lane.key, None) is not None and not domain.open:
            del self.live[domain.id]

    def enter(self, lane: Lane, cost: int) -> None:
        """One more gang in the order, on all devices of this place."""
        lane.flying += 1
        for atom in self._changed(lane, 1, cost):
            for other in self._watch[atom]:
                other.full += 1
                if other.full == 1:
                    self.refresh(other)

    def leave(self, lane: Lane, cost: int) -> None:
        """One gang fewer."""
        lane.flying -= 1
        for atom in self._changed(lane, -1, -cost):
            for other in self._watch[atom]:
                other.full -= 1
                if not other.full:
                    self.refresh(other)
        if not (lane.flying or lane.ripe or lane.late):
            self.rest(lane)

    def _changed(self, lane: Lane, gangs: int, cost: int) -> list[int]:
        """Which of its atoms have become full by this, or have room again."""
        ahead, load, found = self._ahead, self._load, []
        most, span, least = self.window.most, self.window.span, self.window.gangs
        for atom in self.atoms.parts[lane.key]:
            count, spent = ahead.get(atom, 0), load.get(atom, 0)
            now, then = count + gangs, spent + cost
            was = count >= least and (spent >= span or count >= most)  # `Window.full`
            if was != (now >= least and (then >= span or now >= most)):
                found.append(atom)
            ahead[atom], load[atom] = now, then
        return found

    def bar(self, lane: Lane, other: Lane) -> None:
        """Nothing enters from `lane` before something from `other` has, or either has changed."""
        lane.barred = other
        other.holds[lane.key] = lane
        self.refresh(lane)

    def unbar(self, lane: Lane) -> None:
        if lane.barred is not None:
            del lane.barred.holds[lane.key]
            lane.barred = None
            self.refresh(lane)

    def release(self, lane: Lane) -> None:
        """It is no longer what others were held back for."""
        for other in list(lane.holds.values()):
            self.unbar(other)

    # Places, and devices that turn out to be different

    def _make(self, key: int) -> Lane:
        lane = self.known[key] = Lane(key, count(self.atoms.devices_of_key(key)))
        for atom in self.atoms.parts[key]:
            for other in self._watch.setdefault(atom, []):
                lane.near[other.key] = other
                other.near[key] = lane
            self._watch[atom].append(lane)
            lane.full += self.is_full(atom)
        return lane

    def _split(self, old: int, new: int) -> None:
        """All devices of an atom have had the same history, so a copy is exact."""
        if old not in self._watch:
            return
        self._watch[new] = list(self._watch[old])
        if self.ahead(old):
            self._ahead[new], self._load[new] = self._ahead[old], self._load[old]
        if self.is_full(old):
            for lane in self._watch[new]:
                lane.full += 1

    # Domains

    def rouse(self, lane: Lane) -> Domain:
        """Something waits here: the lane is alive. It joins what it touches into one domain."""
        if lane.domain is not None:
            return lane.domain
        touched = {other.domain.id: other.domain for other in lane.near.values() if other.domain is not None}
        if touched:
            domain, *others = sorted(touched.values(), key=lambda each: (-len(each.lanes), each.id))
            for other in others:
                self._merge(domain, other)
        else:
            self._domains += 1
            domain = Domain(self._domains)
        domain.lanes[lane.key] = lane
        lane.domain = domain
        return domain

    def rest(self, lane: Lane) -> None:
        """If nothing waits or runs here any more, the lane leaves its domain, which may fall apart."""
        domain = lane.domain
        if domain is None or lane.flying or lane.ripe or lane.late:
            return
        del domain.lanes[lane.key]
        lane.domain = None
        if not domain.lanes:
            self._tell("ended", domain.id)
        elif len(lane.near) > 1 and sum(other.domain is domain for other in lane.near.values()) > 1:
            for part in list(connected(domain.lanes))[1:]:
                self._part(domain, part)

    def _merge(self, domain: Domain, other: Domain) -> None:
        for lane in other.lanes.values():
            lane.domain = domain
        domain.lanes.update(other.lanes)
        domain.open.update(other.open)
        for client, queues in other.clients.items():
            domain.clients[client] = domain.clients.get(client, 0) + queues
        if self.live.pop(other.id, None) is not None:
            self.live[domain.id] = domain
        self._tell("merged", domain.id, other.id)

    def _part(self, domain: Domain, lanes: list[Lane]) -> None:
        """These have nothing to do with the rest of the domain: they are one of their own."""
        self._domains += 1
        other = Domain(self._domains)
        for lane in lanes:
            del domain.lanes[lane.key]
            other.lanes[lane.key] = lane
            lane.domain = other
            if domain.open.pop(lane.key, None) is not None:
                other.open[lane.key] = lane
            for client in lane.ripe:
                other.clients[client] = other.clients.get(client, 0) + 1
                domain.clients[client] -= 1
        if not domain.open:
            self.live.pop(domain.id, None)
        if other.open:
            self.live[other.id] = other
        self._tell("split", domain.id, other.id)
        for client in other.clients:
            self._tell("joined", client, other.id)
            if not domain.clients[client]:
                del domain.clients[client]
                self._tell("left", client, domain.id)


def connected(lanes: dict[int, Lane]) -> Iterator[list[Lane]]:
    """Those of these lanes that overlap, directly or in a chain, together."""
    seen: dict[int, None] = {}
    for start in lanes.values():
        if start.key in seen:
            continue
        part = [start]
        if len(lanes) > 1:
            seen[start.key] = None
            for lane in part:  # grows while it is walked
                for key, other in lane.near.items():
                    if key in lanes and key not in seen:
                        seen[key] = None
                        part.append(other)
        yield part
