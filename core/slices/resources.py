"""Binds each session's slices to places, and binds them to new places when devices are lost.

Slices share devices; a new slice takes the least loaded ones. An exclusive slice has its devices alone, and waits
until it can. A slice that waits *claims* the place that is best for it. Later slices avoid that place if the two could
not share it. A claim is kept as long as its devices work, so a slice waits only for slices that come before it. All
is decided in the order of ranks, which the policy gives (`rank`), then of tickets, which slices get when they are first
bound, so the same calls give the same places. A policy that places slices itself decides in the stead of this
(`decide`): then none claims anything, and each waits until it is started (`start`).
A sub-slice (`subslices`) is bound, waits and moves with the slice that it is a part of.

A slice may be *held*: what needs it waits, though it has devices. While its arrays are copied elsewhere it has both
places (`aim`, `arrived`). While they are in host memory it is *parked*: others may have its devices, and a lost device
does not concern it (`park`). It gets the same ones back if they are free, or else others, which are a target then
(`unpark`).

No other module may remember a physical device: it must ask again after every remapping.
"""

from collections.abc import Callable, Collection, Container, Iterator

import msgspec

from ..model import Cluster, Impossible, Place, SliceSpec, Spans, device_spans, spans
from .bindings import UNDECIDED, Binding, BoundSlice, Moved, MustWait, Within, answer, reason_of_part, unbound
from .inventory import Inventory
from .refusal_texts import refuse, wish
from .refusals import Refusals
from .search import PlaceSearch
from .subslices import Key, SubSlices, part, refuse_part
from .waiting_texts import blockers, missing


class Resources(PlaceSearch):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.refusals = Refusals()
        # is asked before a session has another slice; raises Impossible if it may not
        self.check: Callable[[int, SliceSpec], None] = lambda session, spec: None
        self.rank: Callable[[int, SliceSpec], int] = lambda session, spec: 0  # says how urgent a new slice is
        # says which of the slices that wait are to `start` (`decided_by`); None: each that can, in order
        self.decide: Callable[[], None] | None = None
        self._started: list[Key] = []
        self.elastic: Container[Key] = ()  # names of slices of several sizes, which no other slice may have
        self._parts = SubSlices()
        self._tickets = 0
        self.version = 0  # grows when a slice is bound, moved or released

    def grow(self, cluster: Cluster) -> None:
        """There may be more hosts from now on; they are absent until they join."""
        self.cluster = cluster
        for inventory, island in zip(self._inventories, cluster.islands, strict=False):
            inventory.grow(island)
        if self._bindings.notes:
            self._bindings.changed.update(dict.fromkeys(self._bindings))
        self._inventories += [Inventory(island) for island in cluster.islands[len(self._inventories) :]]
        self.version += 1

    def decided_by(self, decide: Callable[[], None] | None) -> None:
        self.decide, self._bindings.notes = decide, decide is not None
        self.version += 1

    def changed(self) -> list[Key]:
        """Slices of which anything has changed since this was asked last."""
        found = list(self._bindings.changed)
        self._bindings.changed.clear()
        return found

    # --- hosts and devices come and go ----------------------------------------------------------------------

    def host_joined(self, host: int) -> None:
        """A host is new or has come back; all its devices can be used."""
        self._inventory_of_host(host).turn(host, "joined")
        self.version += 1

    def host_draining(self, host: int) -> None:
        """Bind no new slices to this host; `remap` moves the slices that it has."""
        self._inventory_of_host(host).turn(host, "draining")

    def host_lost(self, host: int) -> None:
        self._inventory_of_host(host).turn(host, "lost")
        self.version += 1

    def cordon(self, host: int, on: bool) -> None:
        """Bind no new slices to this host; those that it has stay. Or do so again."""
        cordoned = self._inventory_of_host(host).cordoned
        (cordoned.add if on else cordoned.discard)(host)
        self.version += 1

    def is_cordoned(self, host: int) -> bool:
        return host in self._inventory_of_host(host).cordoned

    def device_lost(self, device: int) -> None:
        self._inventories[self.cluster.island_of_device(device).index].lose_device(device)
        self.version += 1

    def usable(self, device: int) -> bool:
        island = self.cluster.island_of_device(device)
        return bool(self._inventories[island.index].alive[device - island.base_device])

    def load(self, device: int) -> int:
        """Return how many slices are bound to this device."""
        island = self.cluster.island_of_device(device)
        return self._inventories[island.index].load[device - island.base_device]

    # --- slices ---------------------------------------------------------------------------------------------

    def bind(self, session: int, spec: SliceSpec) -> BoundSlice | MustWait:
        """Bind the slice at its first use; return the same binding until it is released. Raise Impossible."""
        if spec.of:
            return self._bind_part(session, spec)
        known = self._bindings.get((session, spec.name))
        if known is None:
            self._refuse_another(session, spec, self._parts.get(session, spec.name))
            refuse(self.cluster, spec)
            self.check(session, spec)
            known = Binding(session, spec, self._tickets, rank=self.rank(session, spec))
            self._tickets += 1
            known = self._bind_or_wait(known)
            self._sort_waiting()
        else:
            self._refuse_another(session, spec, known.spec)
        return answer(known, known.reason)

    def _bind_part(self, session: int, spec: SliceSpec) -> BoundSlice | MustWait:
        known = self._parts.get(session, spec.name)
        if known is None:
            other = self._bindings.get((session, spec.name))
            self._refuse_another(session, spec, other.spec if other else None)
            parent = self._bindings.get((session, spec.of))
            whole = parent.spec if parent else self._parts.get(session, spec.of)
            refuse_part(spec, whole, [name for number, name in self._bindings if number == session])
            self._parts.add(session, spec)
        else:
            self._refuse_another(session, spec, known)
        return self._part_of(self._bindings[session, spec.of], spec)

    @staticmethod
    def _part_of(parent: Binding, spec: SliceSpec) -> BoundSlice | MustWait:
        if parent.place and not parent.held:
            return BoundSlice(part(parent.place, spec.picks))
        return answer(parent, reason_of_part(parent))

    def _refuse_another(self, session: int, spec: SliceSpec, known: SliceSpec | None) -> None:
        """Raise Impossible if the session has another slice of this name."""
        elastic = (session, spec.name) in self.elastic
        if elastic or (known is not None and known != spec):
            raise Impossible(
                f"this session's slice {spec.name!r} is bound as {wish(known) if known else 'one of several sizes'}; "
                f"now it asks for {wish(spec)}: release it first, or give one of them another name"
            )

    def _placed(self, session: int, name: str) -> Binding | None:
        """What says where this slice lies: its own binding, or that of the slice that it is a part of."""
        spec = self._parts.get(session, name)
        return self._bindings.get((session, spec.of if spec else name))

    def knows(self, session: int, name: str) -> bool:
        """Whether there is such a slice, bound or waiting."""
        return self._placed(session, name) is not None

    def lacks_hosts(self, session: int, name: str) -> bool:
        """Whether this slice waits because too few hosts are up, not only because other slices have the devices."""
        known = self._placed(session, name)
        if known is None or known.place or known.claim or known.held:
            return False
        return self.decide is None or self._lacks(known)

    def place(self, session: int, name: str) -> Place | None:
        known, spec = self._placed(session, name), self._parts.get(session, name)
        if known is None or known.place is None:
            return None
        return part(known.place, spec.picks) if spec else known.place

    def release(self, session: int, name: str) -> tuple[str, ...]:
        """Release a slice, and its sub-slices. Return their names; none if there is no such slice. Call `retry`,
        because others may wait for its devices."""
        spec = self._parts.get(session, name)
        if spec is not None:
            self._parts.drop(session, spec)
            self.version += 1
            return (name,)
        known = self._bindings.pop((session, name), None)
        if known is None:
            return ()
        self.version += 1
        self.queue.pop(known.key, None)
        self._unbind(known)
        for other in [b for b in self._bindings.beside() if b.session == session and b.beside == name]:
            self.place_beside(*other.key, "")
        parts = self._parts.of(session, name)
        for each in parts:
            self._parts.drop(session, each)
        return (name, *[each.name for each in parts])

    def devices_of(self, sessions: Collection[int]) -> int:
        """How many devices their slices have, or wait for; each slice counts, shared or exclusive."""
        return sum(known.spec.devices for (session, _), known in self._bindings.items() if session in sessions)

    def release_session(self, session: int) -> None:
        for key in [key for key in self._bindings if key[0] == session]:
            self.release(*key)  # and its sub-slices

    def retry(self) -> list[tuple[int, str, BoundSlice]]:
        """Bind the waiting slices that can be bound now, and return them with their sub-slices. Update the reasons of
        all others.

        Call this after any change.
        """
        if self.decide is not None:
            self.decide()
        started, self._started = self._started, []
        bound = [b for key in started if (b := self._bindings.get(key))]
        if self.decide is None:  # or no longer
            bound += [self._bind_or_wait(self._bindings[key]) for key in list(self.queue)]
        found = []
        for now in bound:
            key = now.key
            if now.place and not now.held:
                found.append((*key, BoundSlice(now.place)))
                found += [(key[0], spec.name, BoundSlice(part(now.place, spec.picks))) for spec in self._parts.of(*key)]
        return found

    def renewed(self) -> dict[Key, str]:
        """Return the waiting slices whose reasons have changed because a process was refused as a host, or accepted,
        or (if a policy places them) hosts have come or gone; and the reasons."""
        found: dict[Key, str] = {}
        for key in self.queue:
            known = self._bindings[key]
            reason = known.reason if known.claim else self._without_claim(known)
            if reason != known.reason:
                now = self._bindings[key] = msgspec.structs.replace(known, reason=reason)
                found[key] = reason
                for spec in self._parts.of(*key):
                    found[key[0], spec.name] = reason_of_part(now)
        return found

    def remap(self, island: int) -> list[Moved]:
        """Find new places for the slices of this island that have lost a device or whose host drains.

        Other slices stay. The oldest slice chooses first: on its own island, then there with all spares, then on
        other islands. Sub-slices move with their parents.
        """
        gone = self._inventories[island].gone()
        for binding in [b for b in self._bindings.values() if gone and (b.target or b.back)]:
            self._give_up_lost(binding, gone)
        moving = [b for b in self._bindings.values() if b.place and b.place.island == island and not b.parked]
        moving = [b for b in moving if b.place and spans.overlap(device_spans(b.place), gone)] if gone else []
        for binding in moving:
            self._unbind(binding)
            self._bindings[binding.key] = msgspec.structs.replace(binding, place=None, target=None)
        moved = []
        for binding in moving:
            old = binding.place
            rest = msgspec.structs.replace(binding, place=None, home=island, target=None)
            now = self._bind_or_wait(rest)
            if old:
                moved.append(Moved(*binding.key, old, now.place or unbound(now, now.reason)))
                moved += self._moved_parts(now, old)
        self._sort_waiting()
        return moved

    def _sort_waiting(self) -> None:
        self.queue = dict.fromkeys(sorted(self.queue, key=lambda key: self._bindings[key].order))

    def _give_up_lost(self, binding: Binding, gone: Spans) -> None:
        """Where it was to go, or waits to come back to, a device is lost."""
        if binding.target and spans.overlap(device_spans(binding.target), gone):
            self._put(binding, binding.target, by=-1)
            self._bindings[binding.key] = msgspec.structs.replace(binding, target=None)
        elif binding.back and spans.overlap(device_spans(binding.back), gone):
            self._bindings[binding.key] = msgspec.structs.replace(binding, claim=None)

    def _moved_parts(self, parent: Binding, old: Place) -> list[Moved]:
        found = []
        for spec in self._parts.of(*parent.key):
            new = self._part_of(parent, spec)
            place = new.place if isinstance(new, BoundSlice) else new
            found.append(Moved(parent.session, spec.name, part(old, spec.picks), place))
        return found

    def waiting(self) -> tuple[Binding, ...]:
        """Return the waiting slices in the order in which they will be bound."""
        return tuple(self._bindings[key] for key in self.queue)

    # --- slices go elsewhere, or rest ---------------------------------------------------------------------------

    def binding(self, session: int, name: str) -> Binding | None:
        """Of a slice that is no part of another."""
        return self._bindings.get((session, name))

    def bindings(self) -> tuple[Binding, ...]:
        return tuple(self._bindings.values())

    def parts(self, session: int, name: str) -> tuple[SliceSpec, ...]:
        return self._parts.of(session, name)

    def is_held(self, session: int, name: str) -> bool:
        known = self._bindings.get((session, name))
        return known is not None and known.held != ""

    def adopt(self, session: int, spec: SliceSpec, place: Place, beside: str = "", parked: bool = False) -> bool:
        """A slice is bound to this place, whatever else is there: arrays of released slices belong to it from now on,
        so that they can be moved with it; or it takes the place of another one; or its arrays have left these devices
        (`parked`). False: there is one of this name."""
        key = (session, spec.name)
        if self.knows(*key):
            return False
        rank = self.rank(session, spec)
        binding = Binding(session, spec, self._tickets, place, rank=rank, beside=beside, parked=parked)
        self._bindings[key] = binding
        self._tickets += 1
        if not parked:
            self._put(binding, place)
        self.version += 1
        return True

    def place_beside(self, session: int, name: str, other: str) -> None:
        """It takes the place of this other slice of its session; "": of none. Call `retry`."""
        binding = self._bindings[session, name]
        self._bindings[session, name] = msgspec.structs.replace(binding, beside=other)

    def hold(self, session: int, name: str, why: str) -> None:
        """What needs this slice waits from now on; "": it does no longer."""
        self._bindings[session, name] = msgspec.structs.replace(self._bindings[session, name], held=why)
        self.version += 1

    def elsewhere(self, session: int, name: str, away: Spans = spans.EMPTY, island: int = -1) -> Place | None:
        """The best other place for a slice, without these devices, on this island if it is given; None if there is
        none now."""
        binding = self._bindings[session, name]
        old, spec = binding.place, binding.spec
        assert old is not None
        if island >= 0:
            spec = msgspec.structs.replace(spec, island=self.cluster.islands[island].name)
        if not binding.parked:
            self._put(binding, old, by=-1)  # it may keep some of its devices
        found = self._find(msgspec.structs.replace(binding, spec=spec, back=None), anyway=False, away=away)
        if not binding.parked:
            self._put(binding, old)
        return found if found and device_spans(found) != device_spans(old) else None

    def suits(self, session: int, name: str, place: Place) -> bool:
        """Whether a slice may lie on the island of this place."""
        return self._inventories[place.island] in self._matching(self._bindings[session, name].spec)

    def aim(self, session: int, name: str, place: Place) -> None:
        """Its arrays are to be copied there: nobody else gets these devices meanwhile."""
        binding = self._bindings[session, name]
        self._put(binding, place)
        self._bindings[session, name] = msgspec.structs.replace(binding, target=place)

    def arrived(self, session: int, name: str, moved: bool) -> None:
        """The copy is over: the slice has its new place alone, or (not `moved`) its old one."""
        binding = self._bindings[session, name]
        target = binding.target
        if target is None:
            return  # a device was lost there
        binding = msgspec.structs.replace(binding, target=None)
        if moved:
            self._unbind(binding)
            binding = msgspec.structs.replace(binding, place=target, parked=False)
        else:
            self._put(binding, target, by=-1)
        self._bindings[session, name] = binding
        self.version += 1

    def park(self, session: int, name: str) -> None:
        """None of its arrays is on its devices; or it wants none any more. Call `retry`, because others may wait."""
        binding = self._bindings[session, name]
        self._unbind(binding)
        self.queue.pop(binding.key, None)
        rest = msgspec.structs.replace(binding, parked=True, place=binding.place or binding.back, target=None)
        self._bindings[session, name] = msgspec.structs.replace(rest, back=None, claim=None, reason="", within="any")
        self.version += 1

    def unpark(self, session: int, name: str, within: Within = "any") -> None:
        """It wants devices again, and waits for them if there are none now; then `retry` gives it them. If they are
        not those that it had, they are its target: its arrays are to be copied there."""
        binding = self._bindings[session, name]
        back = msgspec.structs.replace(binding, parked=False, place=None, back=binding.place, within=within)
        self._bind_or_wait(back)
        self._sort_waiting()

    def follow(self, session: int, name: str, lead: Binding) -> None:
        """It was parked where this one was, and goes where that goes."""
        binding = self._bindings[session, name]
        if lead.target:
            self.aim(session, name, lead.target)
        elif lead.place:
            self._put(binding, lead.place)
            self._bindings[session, name] = msgspec.structs.replace(binding, parked=False)

    # --- a slice gets devices of others -------------------------------------------------------------------------

    def claim(self, binding: Binding, place: Place) -> Binding:
        """It waits for this place from now on."""
        now = msgspec.structs.replace(binding, claim=place, reason=f"waits for {self._blockers(binding, place)}")
        self._bindings[binding.key] = now
        return now

    def prefer(self, session: int, name: str, rank: int) -> None:
        """It waits before those of a higher rank."""
        if (binding := self._bindings.get((session, name))) and binding.rank != rank:
            self._bindings[session, name] = msgspec.structs.replace(binding, rank=rank)
            self._sort_waiting()
            self.version += 1

    def audit(self) -> Iterator[tuple[str, int, int]]:
        """(what, as it is kept, counted anew); and that nobody shares what it has alone."""
        for inventory in self._inventories:
            index, name = inventory.island.index, inventory.island.name
            there = [(b, place) for b in self._bindings.values() for place in b.places if place.island == index]
            held = [(b.session, device_spans(place)) for b, place in there if b.spec.exclusive]
            alone = sum(place.size for b, place in there if b.spec.exclusive)
            yield f"slices on devices of island {name!r}", sum(inventory.load), sum(place.size for _, place in there)
            yield f"devices of island {name!r} that slices have alone", sum(inventory.held), alone
            for number, mine in held:
                others = [device_spans(place) for b, place in there if b.session != number and not b.left]
                shared = any(spans.overlap(mine, theirs) for theirs in others)
                yield f"others where client {number} is alone", 0, shared

    # --- finding a place ------------------------------------------------------------------------------------

    def _bind_or_wait(self, binding: Binding) -> Binding:
        """Bind the slice if possible; else let it wait, with an updated claim and reason."""
        if self.decide is not None:
            return self._wait(binding, None, self._without_claim(binding))
        place = self._find(binding, anyway=False)
        if place:
            return self._bound(binding, place)
        claim = self._claim(binding)
        reason = self._blockers(binding, claim) if claim else self._missing(binding)
        return self._wait(binding, claim, f"waits for {reason}")

    def _bound(self, binding: Binding, place: Place) -> Binding:
        now = msgspec.structs.replace(binding, place=place, claim=None, reason="", home=-1, back=None)
        if binding.back and place != binding.back:
            now = msgspec.structs.replace(now, place=binding.back, parked=True, target=place)
        self._put(binding, place)
        self.queue.pop(binding.key, None)
        self._bindings[binding.key] = now
        self.version += 1
        return now

    def _wait(self, binding: Binding, claim: Place | None, reason: str) -> Binding:
        now = msgspec.structs.replace(binding, claim=claim, reason=reason)
        self.queue[binding.key] = None
        self._bindings[binding.key] = now
        self.version += 1
        return now

    def start(self, key: Key, place: Place) -> None:
        """A slice that waits gets this place; `retry` returns it."""
        self._bound(self._bindings[key], place)
        self._started.append(key)

    # --- the reasons for waiting ----------------------------------------------------------------------------

    def _blockers(self, binding: Binding, claim: Place) -> str:
        rivals = [other for other in self._bindings.values() if self.bars(other, binding)]
        return blockers(self.cluster.islands[claim.island], claim, rivals, self._claims_ahead(binding))

    def _without_claim(self, binding: Binding) -> str:
        lacks = self.decide is None or self._lacks(binding)
        return f"waits for {self._missing(binding)}" if lacks else UNDECIDED

    def _missing(self, binding: Binding) -> str:
        return missing(self._matching(binding.spec), self.refusals)

    def _inventory_of_host(self, host: int) -> Inventory:
        return self._inventories[self.cluster.island_of_host(host).index]
