"""Binds each session's slices to places, and binds them to new places when devices are lost.

Slices share devices; a new slice takes the least loaded ones. An exclusive slice has its devices alone, and waits
until it can. A slice that waits *claims* the place that is best for it. Later slices avoid that place if the two could
not share it. A claim is kept as long as its devices work, so a slice waits only for slices that come before it. All
is decided in the order of ranks, which the policy gives (`rank`), then of tickets, which slices get when they are first
bound, so the same calls give the same places.
A sub-slice (`subslices`) is bound, waits and moves with the slice that it is a part of.

A slice may be *held*: what needs it waits, though it has devices. While its arrays are copied elsewhere it has both
places (`aim`, `arrived`). While they are in host memory it is *parked*: others may have its devices, and a lost device
does not concern it (`park`). It gets the same ones back if they are free, or else others, which are a target then
(`unpark`).

No other module may remember a physical device: it must ask again after every remapping.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Sequence

import msgspec

from ..model import Cluster, Impossible, Place, SliceSpec, Spans, device_spans, spans
from .bindings import Binding, BoundSlice, Moved, MustWait, Within
from .inventory import Inventory
from .placing import Free, choose
from .refusal_texts import refuse, some, wish
from .refusals import Refusals
from .subslices import Key, SubSlices, part, refuse_part


class Resources:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.refusals = Refusals()
        # is asked before a session has another slice; raises Impossible if it may not
        self.check: Callable[[int, SliceSpec], None] = lambda session, spec: None
        self.rank: Callable[[int, SliceSpec], int] = lambda session, spec: 0  # says how urgent a new slice is
        self.elastic: Container[Key] = ()  # names of slices of several sizes, which no other slice may have
        self._inventories = [Inventory(island) for island in cluster.islands]
        self._bindings: dict[Key, Binding] = {}  # in order of tickets
        self.queue: dict[Key, None] = {}  # slices that wait, in the order in which they will be bound
        self._parts = SubSlices()
        self._tickets = 0
        self.version = 0  # grows when a slice is bound, moved or released

    def grow(self, cluster: Cluster) -> None:
        """There may be more hosts from now on; they are absent until they join."""
        self.cluster = cluster
        for inventory, island in zip(self._inventories, cluster.islands, strict=False):
            inventory.grow(island)
        self._inventories += [Inventory(island) for island in cluster.islands[len(self._inventories) :]]
        self.version += 1

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
        return _answer(known, known.reason)

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
        return _answer(parent, _reason_of_part(parent))

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
        return known is not None and known.place is None and known.claim is None and not known.held

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
        for other in [b for b in self._bindings.values() if b.session == session and b.beside == name]:
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
        found = []
        for key in list(self.queue):
            now = self._bind_or_wait(self._bindings[key])
            if now.place and not now.held:
                found.append((*key, BoundSlice(now.place)))
                found += [(key[0], spec.name, BoundSlice(part(now.place, spec.picks))) for spec in self._parts.of(*key)]
        return found

    def renewed(self) -> dict[Key, str]:
        """Return the waiting slices whose reasons have changed because a process was refused as a host, or accepted;
        and the reasons."""
        found: dict[Key, str] = {}
        for key in self.queue:
            known = self._bindings[key]
            reason = known.reason if known.claim else f"waits for {self._missing(known)}"
            if reason != known.reason:
                now = self._bindings[key] = msgspec.structs.replace(known, reason=reason)
                found[key] = reason
                for spec in self._parts.of(*key):
                    found[key[0], spec.name] = _reason_of_part(now)
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
                moved.append(Moved(*binding.key, old, now.place or _unbound(now, now.reason)))
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

    def could_be(
        self, binding: Binding, without: Sequence[Binding] = (), placed: Sequence[tuple[Binding, Place]] = ()
    ) -> Place | None:
        """Where this slice could be if those `without` devices had none, and those that are `placed` were there; None:
        nowhere."""
        for other in without:
            self._unbind(other)
        for other, place in placed:
            self._put(other, place)
        found = self._find_alone(binding, anyway=False)
        for other, place in placed:
            self._put(other, place, by=-1)
        for other in without:
            self._bind_again(other)
        return found

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
        place = self._find(binding, anyway=False)
        if place:
            now = msgspec.structs.replace(binding, place=place, claim=None, reason="", home=-1, back=None)
            if binding.back and place != binding.back:
                now = msgspec.structs.replace(now, place=binding.back, parked=True, target=place)
            self._put(binding, place)
            self.queue.pop(binding.key, None)
        else:
            claim = self._claim(binding)
            reason = self._blockers(binding, claim) if claim else self._missing(binding)
            now = msgspec.structs.replace(binding, claim=claim, reason=f"waits for {reason}")
            self.queue[binding.key] = None
        self._bindings[binding.key] = now
        self.version += 1
        return now

    def _unbind(self, binding: Binding) -> None:
        for place in binding.places:
            self._put(binding, place, by=-1)

    def _put(self, binding: Binding, place: Place, by: int = 1) -> None:
        self._inventories[place.island].put(place, binding.spec.exclusive, by)

    def _claim(self, binding: Binding) -> Place | None:
        """Return the place that the slice should wait for, or None if too few devices are up.

        It keeps its old claim if that is still possible. A new claim avoids the claims of others if it can.
        """
        claim = binding.claim
        if claim and self._inventories[claim.island].offers(claim, all_spares=claim.island == binding.home):
            return claim
        return self._find(binding, anyway=True) or self._find(binding, anyway=True, ignore_claims=True)

    def _find(
        self, binding: Binding, anyway: bool, ignore_claims: bool = False, away: Spans = spans.EMPTY
    ) -> Place | None:
        """Return the best place for the slice, without the devices `away`.

        With `anyway` it may be where other slices are now; with `ignore_claims`, where others will be before it.
        """
        name, number = binding.spec.name, binding.session
        mine = [b for b in self._bindings.values() if b.session == number and (b.beside or binding.beside)]
        beside = [b for b in mine if b.beside == name or b.spec.name == binding.beside]
        for other in beside:
            self._unbind(other)
        found = self._find_alone(binding, anyway, ignore_claims, away)
        for other in beside:
            self._bind_again(other)
        return found

    def _find_alone(
        self, binding: Binding, anyway: bool, ignore_claims: bool = False, away: Spans = spans.EMPTY
    ) -> Place | None:
        spec, anyway = binding.spec, anyway or binding.left
        claims = [] if ignore_claims else [b.claim for b in self._claims_ahead(binding) if b.claim]
        if back := binding.back:
            there = self._inventories[back.island].takes_back(back, spec.exclusive, anyway)
            there = there and (anyway or not any(self._overlap(claim, back) for claim in claims))
            if there or binding.within == "place":
                return back if there else None
        for inventories, all_spares in self._tiers(binding, self._matching(spec)):
            free: list[Free] = []
            for inventory in inventories:
                island = inventory.island
                barred = [device_spans(claim) for claim in claims if claim.island == island.index]
                barred.append(spans.meet(away, ((island.base_device, island.base_device + island.devices),)))
                usable = inventory.usable(spec.exclusive, barred, all_spares, anyway)
                free.append((inventory.island, usable, inventory.load))
            place = choose(spec, free)
            if place:
                return place
        return None

    def _bind_again(self, other: Binding) -> None:
        for place in other.places:
            self._put(other, place)

    @staticmethod
    def _tiers(binding: Binding, matching: list[Inventory]) -> list[tuple[list[Inventory], bool]]:
        """Return (islands, whether all spares may be used), in the order in which to search them."""
        island = binding.back.island if binding.back else binding.home
        home = [inventory for inventory in matching if inventory.island.index == island]
        others = [] if binding.within == "island" else [inventory for inventory in matching if inventory not in home]
        if not home:
            return [(others, False)]
        back = binding.back
        works = back is not None and home[0].takes_back(back, binding.spec.exclusive, anyway=True)
        return [(home, False), *([] if works else [(home, True)]), (others, False)]

    def _claims_ahead(self, binding: Binding) -> list[Binding]:
        """Return the earlier waiting slices with claims, that could not share devices with this one.

        A slice that waits for devices of this slice's own session is left out. It cannot be bound before the session
        releases them, so it must not block the session.
        """
        waiting = [self._bindings[key] for key in self.queue]
        own_slices = [b for b in self._bindings.values() if b.place and not b.parked and b.session == binding.session]
        return [
            b for b in waiting
            if b.claim and b.order < binding.order and self.bars(b, binding)
            and not any(self.bars(b, own) and self._overlap(b.claim, own.place) for own in own_slices)
        ]  # fmt: skip

    @staticmethod
    def _overlap(one: Place, other: Place | None) -> bool:
        return other is not None and spans.overlap(device_spans(one), device_spans(other))

    @staticmethod
    def bars(one: Binding, other: Binding) -> bool:
        """Whether these two slices cannot share devices."""
        return one.spec.exclusive or other.spec.exclusive

    # --- the reasons for waiting ----------------------------------------------------------------------------

    def _blockers(self, binding: Binding, claim: Place) -> str:
        """Return a text that names the slices that have the claimed devices, or will have them first."""
        island = self.cluster.islands[claim.island]
        wanted = device_spans(claim)
        rivals = [other for other in self._bindings.values() if self.bars(other, binding)]
        places = [(b, place) for b in rivals for place in b.places]
        here = list(dict.fromkeys(b for b, place in places if spans.overlap(device_spans(place), wanted)))
        earlier = self._claims_ahead(binding)
        first = [b for b in earlier if b.claim and spans.overlap(device_spans(b.claim), wanted)]
        text = f"devices {spans.text(wanted[:8])}{', ...' if len(wanted) > 8 else ''} of island {island.name!r}"
        for how, blockers in (("bound by", here), ("claimed before by", first)):
            if blockers:
                text += f", {how} {some([f'slice {b.spec.name!r} of session {b.session}' for b in blockers])}"
        return text

    def _missing(self, binding: Binding) -> str:
        """Return a text that names the hosts and devices that are not up, for a slice with too few devices."""
        parts, matching = [], self._matching(binding.spec)
        for inventory in matching:
            where = f"of island {inventory.island.name!r}"
            for state in ("absent", "lost", "draining"):
                hosts = inventory.hosts_in(state)
                if hosts:
                    parts.append(f"hosts {spans.text(hosts)} {where} ({state})")
            if inventory.cordoned:
                parts.append(f"hosts {spans.text(spans.of(sorted(inventory.cordoned)))} {where} (cordoned)")
            broken = inventory.broken()
            if broken:
                parts.append(f"devices {spans.text(broken)} {where} (lost)")
        return "; ".join([*parts, *self.refusals.words(inventory.island.index for inventory in matching)])

    def _matching(self, spec: SliceSpec) -> list[Inventory]:
        """Return the islands that have the name and the kind that the slice asks for."""
        return [
            inventory
            for inventory in self._inventories
            if spec.island in ("", inventory.island.name) and spec.kind in ("", inventory.island.kind)
        ]

    def _inventory_of_host(self, host: int) -> Inventory:
        return self._inventories[self.cluster.island_of_host(host).index]


def _answer(binding: Binding, reason: str) -> BoundSlice | MustWait:
    """Where it is; or, as `reason` says, why it cannot be used."""
    if binding.held:
        return MustWait(binding.held)
    return BoundSlice(binding.place) if binding.place else _unbound(binding, reason)


def _unbound(binding: Binding, reason: str) -> MustWait:
    """`reason`: why it, or a part of it, has no place."""
    if binding.spec.absent == "fail" and binding.claim is None:
        return MustWait(f"is down: it {reason}", fails=True)
    return MustWait(reason)


def _reason_of_part(parent: Binding) -> str:
    return f"is a part of slice {parent.spec.name!r}, which {parent.held or parent.reason}"
