"""The queues of an island's gangs: a *lane* is the queue of one place, a *domain* is a group of lanes that overlap.

A lane is open while each of its devices has room in the window, no other lane bars it, and the policy does not keep
its devices free. Counters tell it so, one for each atom, when an atom becomes full or has room again. So nothing is
searched, and 2048 devices that are always used together are one counter. The neighbours of a lane are the lanes that
share a device with it.

A lane is *alive* while a gang waits or runs there. Lanes that are alive and connected through neighbours form one
domain: its clients contend with each other, and with no other clients. Domains change with the lanes: a lane that
becomes alive may join several domains into one, and a lane that stops being alive may split its domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from ..model import Atoms, count
from .policy import Board


class Window(msgspec.Struct, frozen=True):
    """How many gangs the order may have ahead of a device: `gangs`, or up to `most` if these take less than `span`.

    It takes many short gangs to keep a device busy while a message travels to its host and back. Because they are
    short, more of them do not make the policy decide much earlier.
    """

    gangs: int
    span: int = 0  # nanoseconds, all gangs ahead together
    most: int = 0

    def full(self, ahead: int, load: int) -> bool:
        return ahead >= self.gangs and (load >= self.span or ahead >= self.most)


class PlaceQueue(msgspec.Struct, eq=False):
    """The gangs that wait for one place, and what keeps them from entering. Only `Contention` changes the second
    block."""

    key: int
    size: int  # number of devices
    ripe: Board = {}  # queues of ripe tickets
    late: Board = {}  # queues of tickets that are not ripe
    seen: dict[int, int] = {}  # client -> when a gang of its last entered here
    flying: int = 0  # number of gangs of this place in the order
    passes: int = 0  # how often other gangs have passed this place since it was last served

    near: dict[int, PlaceQueue] = {}  # its neighbours, alive or not
    domain: Domain | None = None  # None while it is not alive
    full: int = 0  # how many of its atoms have no room in the window
    barred: PlaceQueue | None = None  # a neighbour that it has passed too often; that one must enter first
    holds: dict[int, PlaceQueue] = {}  # the lanes that this one bars
    kept: bool = False  # whether the policy keeps its devices free: see `reservations`

    def waits_for(self, other: PlaceQueue) -> bool:
        """Whether `other` bars it, directly or through further lanes."""
        lane = self.barred
        while lane is not None and lane is not other:
            lane = lane.barred
        return lane is not None


class Domain(msgspec.Struct, eq=False):
    """Lanes that are alive and connected through neighbours."""

    id: int
    lanes: dict[int, PlaceQueue] = {}
    open: dict[int, PlaceQueue] = {}  # the lanes from which a gang may enter now
    clients: dict[int, int] = {}  # client -> number of its ripe queues here


class AtomLoad(msgspec.Struct, eq=False):
    """The gangs in the order that use one atom, and the lanes that have it."""

    lanes: list[PlaceQueue]
    gangs: int = 0
    cost: int = 0  # of these gangs together
    full: bool = False  # whether the window lets no more gangs in


class Contention:
    """All lanes and domains of an island."""

    def __init__(self, atoms: Atoms, window: Window, early: bool, tell: Callable[..., None]) -> None:
        self.atoms = atoms
        self.window = window
        self.early = early  # whether tickets that are not ripe may enter at all
        self.known: dict[int, PlaceQueue] = {}
        self.live: dict[int, Domain] = {}  # domains with an open lane
        self._tell = tell  # tells the policy what has happened to which domains
        self.hears: frozenset[str] = frozenset()  # what the policy wants to be told of
        self.reshaped = 0  # how often a domain has taken in another one, or has been split
        self._domains = 0  # the last number given to a domain
        self._loads: dict[int, AtomLoad] = {}  # by atom
        atoms.splits.append(self._split)

    def get(self, key: int) -> PlaceQueue:
        return self.known.get(key) or self._make(key)

    def ahead(self, atom: int) -> int:
        return self._loads[atom].gangs

    def is_full(self, atom: int) -> bool:
        return self._loads[atom].full

    def refresh(self, lane: PlaceQueue) -> None:
        """Update whether the lane is open. Call this after every change that may decide it."""
        domain = lane.domain
        if domain is None:
            return
        open_ = not lane.full and lane.barred is None and not lane.kept
        if open_ and (lane.ripe or (lane.late and self.early)):
            if lane.key not in domain.open:
                domain.open[lane.key] = lane
                self.live[domain.id] = domain
        elif domain.open.pop(lane.key, None) is not None and not domain.open:
            del self.live[domain.id]

    def enter(self, lane: PlaceQueue, cost: int) -> None:
        """Count one more gang in the order, on all devices of this place."""
        lane.flying += 1
        loads, window = self._loads, self.window
        for atom in self.atoms.parts[lane.key]:
            load = loads[atom]
            load.gangs += 1
            load.cost += cost
            if load.gangs >= window.gangs and not load.full and window.full(load.gangs, load.cost):
                load.full = True
                for other in load.lanes:
                    other.full += 1
                    if other.full == 1 and (other.ripe or other.late):
                        self.refresh(other)

    def leave(self, lane: PlaceQueue, cost: int) -> None:
        """Count one gang less."""
        lane.flying -= 1
        loads, window = self._loads, self.window
        for atom in self.atoms.parts[lane.key]:
            load = loads[atom]
            load.gangs -= 1
            load.cost -= cost
            if load.full and (load.gangs < window.gangs or not window.full(load.gangs, load.cost)):
                load.full = False
                for other in load.lanes:
                    other.full -= 1
                    if not other.full and (other.ripe or other.late):
                        self.refresh(other)
        if not (lane.flying or lane.ripe or lane.late):
            self.rest(lane)

    def bar(self, lane: PlaceQueue, other: PlaceQueue) -> None:
        """Let nothing enter from `lane` until a gang enters from `other`, or the queues of either change."""
        lane.barred = other
        other.holds[lane.key] = lane
        self.refresh(lane)

    def unbar(self, lane: PlaceQueue) -> None:
        if lane.barred is not None:
            del lane.barred.holds[lane.key]
            lane.barred = None
            self.refresh(lane)

    def release(self, lane: PlaceQueue) -> None:
        """Unbar all lanes that this one bars."""
        for other in list(lane.holds.values()):
            self.unbar(other)

    # What a policy keeps free

    def keep(self, lanes: Sequence[PlaceQueue]) -> None:
        """Close these lanes of a domain, which are open."""
        domain = lanes[0].domain
        assert domain is not None
        for lane in lanes:
            lane.kept = True
            del domain.open[lane.key]
        if not domain.open:
            del self.live[domain.id]

    def let_go(self, lanes: Sequence[PlaceQueue]) -> None:
        """Open these lanes again, if nothing else keeps them closed."""
        for lane in lanes:
            lane.kept = False
            if not lane.full:
                self.refresh(lane)

    # New places, and atoms that are split

    def _make(self, key: int) -> PlaceQueue:
        lane = self.known[key] = PlaceQueue(key, count(self.atoms.devices_of_key(key)))
        for atom in self.atoms.parts[key]:
            load = self._loads.get(atom)
            if load is None:
                load = self._loads[atom] = AtomLoad([])
            for other in load.lanes:
                lane.near[other.key] = other
                other.near[key] = lane
            load.lanes.append(lane)
            lane.full += load.full
        return lane

    def _split(self, old: int, new: int) -> None:
        """Give the new atom the counters of the old one: all devices of an atom have had the same history."""
        load = self._loads.get(old)
        if load is None:
            return
        self._loads[new] = AtomLoad(load.lanes.copy(), load.gangs, load.cost, load.full)
        for lane in load.lanes if load.full else ():
            lane.full += 1

    # Domains

    def rouse(self, lane: PlaceQueue) -> Domain:
        """Make a lane alive because a gang waits there. Return its domain, joined from those of its neighbours."""
        if lane.domain is not None:
            return lane.domain
        touched: dict[int, Domain] = {}
        if lane.near:
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

    def rest(self, lane: PlaceQueue) -> None:
        """Take a lane out of its domain if no gang waits or runs there any more. This may split the domain."""
        domain = lane.domain
        if domain is None or lane.flying or lane.ripe or lane.late:
            return
        del domain.lanes[lane.key]
        lane.domain = None
        if not domain.lanes:
            if "ended" in self.hears:
                self._tell("ended", domain.id)
        elif [other.domain for other in lane.near.values()].count(domain) > 1:
            for part in list(connected(domain.lanes))[1:]:
                self._part(domain, part)

    def _merge(self, domain: Domain, other: Domain) -> None:
        self.reshaped += 1
        for lane in other.lanes.values():
            lane.domain = domain
        domain.lanes.update(other.lanes)
        domain.open.update(other.open)
        for client, queues in other.clients.items():
            domain.clients[client] = domain.clients.get(client, 0) + queues
        if self.live.pop(other.id, None) is not None:
            self.live[domain.id] = domain
        self._tell("merged", domain.id, other.id)

    def _part(self, domain: Domain, lanes: list[PlaceQueue]) -> None:
        """Move these lanes, which are not connected with the rest of the domain, to a domain of their own."""
        self.reshaped += 1
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


def connected(lanes: dict[int, PlaceQueue]) -> Iterator[list[PlaceQueue]]:
    """Yield the lanes in groups that overlap, directly or in a chain."""
    seen: dict[int, None] = {}
    for start in lanes.values():
        if start.key in seen:
            continue
        part = [start]
        if len(lanes) > 1:
            seen[start.key] = None
            for lane in part:  # it grows during the loop
                if len(part) == len(lanes):
                    break  # where many overlap, soon all of them are found
                found = [other for key, other in lane.near.items() if key in lanes and key not in seen]
                seen.update([(other.key, None) for other in found])
                part += found
        yield part
