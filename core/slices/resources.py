"""Binds each session's slices to places, and binds them to new places when devices are lost.

Slices share devices; a new slice takes the least loaded ones. An exclusive slice has its devices alone, and waits
until it can. A slice that waits *claims* the place that is best for it. Later slices avoid that place if the two could
not share it. A claim is kept as long as its devices work, so a slice waits only for slices that came before it. All
is decided in the order of tickets, which slices get when they are first bound, so the same calls give the same places.
A sub-slice (`subslices`) is bound, waits and moves with the slice that it is a part of.

No other module may remember a physical device: it must ask again after every remapping.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from ..model import Cluster, Impossible, Place, SliceSpec, device_spans, spans
from .inventory import Inventory
from .placing import Free, choose
from .refusal_texts import refuse, some, wish
from .refusals import Refusals
from .subslices import Key, SubSlices, part, refuse_part


class BoundSlice(msgspec.Struct, frozen=True):
    place: Place


class MustWait(msgspec.Struct, frozen=True):
    """The slice can be bound, but not now."""

    reason: str  # what it waits for
    fails: bool = False  # what needs it is not to wait, but to fail: too few hosts are up (`SliceSpec.absent`)


class Moved(msgspec.Struct, frozen=True):
    """A slice that had to leave its place. If it waits for a new one, `retry` will return it."""

    session: int
    name: str
    old: Place
    new: Place | MustWait


class Binding(msgspec.Struct, frozen=True):
    """One slice of one session. It is bound and has a `place`, or waits and has a `reason`."""

    session: int
    spec: SliceSpec
    ticket: int
    place: Place | None = None
    claim: Place | None = None  # while it waits: the place that it will take, if there are enough devices
    reason: str = ""
    home: int = -1  # the island that it had to leave, if it waits for a new place

    @property
    def key(self) -> Key:
        return self.session, self.spec.name


class Resources:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.refusals = Refusals()
        # is asked before a session has another slice; raises Impossible if it may not
        self.check: Callable[[int, SliceSpec], None] = lambda session, spec: None
        self._inventories = [Inventory(island) for island in cluster.islands]
        self._bindings: dict[Key, Binding] = {}  # in order of tickets
        self._waiting: dict[Key, None] = {}  # in order of tickets
        self._parts = SubSlices()
        self._tickets = 0
        self.version = 0  # grows when a slice is bound, moved or released

    # --- hosts and devices come and go ----------------------------------------------------------------------

    def host_joined(self, host: int) -> None:
        """A host is new or has come back; all its devices can be used."""
        self._inventory_of_host(host).turn(host, "joined")

    def host_draining(self, host: int) -> None:
        """Bind no new slices to this host; `remap` moves the slices that it has."""
        self._inventory_of_host(host).turn(host, "draining")

    def host_lost(self, host: int) -> None:
        self._inventory_of_host(host).turn(host, "lost")

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
            known = Binding(session, spec, self._tickets)
            self._tickets += 1
            known = self._bind_or_wait(known)
        else:
            self._refuse_another(session, spec, known.spec)
        return BoundSlice(known.place) if known.place else _unbound(known, known.reason)

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
        if parent.place:
            return BoundSlice(part(parent.place, spec.picks))
        return _unbound(parent, _reason_of_part(parent))

    @staticmethod
    def _refuse_another(session: int, spec: SliceSpec, known: SliceSpec | None) -> None:
        """Raise Impossible if the session has another slice of this name."""
        if known is not None and known != spec:
            raise Impossible(
                f"this session's slice {spec.name!r} is bound as {wish(known)}; "
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
        return known is not None and known.place is None and known.claim is None

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
        self._waiting.pop(known.key, None)
        self._unbind(known)
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
        for key in list(self._waiting):
            now = self._bind_or_wait(self._bindings[key])
            if now.place:
                found.append((*key, BoundSlice(now.place)))
                found += [(key[0], spec.name, BoundSlice(part(now.place, spec.picks))) for spec in self._parts.of(*key)]
        return found

    def renewed(self) -> dict[Key, str]:
        """Return the waiting slices whose reasons have changed because a process was refused as a host, or accepted;
        and the reasons."""
        found: dict[Key, str] = {}
        for key in self._waiting:
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
        moving = [b for b in self._bindings.values() if b.place and b.place.island == island]
        moving = [b for b in moving if b.place and spans.overlap(device_spans(b.place), gone)] if gone else []
        for binding in moving:
            self._unbind(binding)
        moved = []
        for binding in moving:
            old, rest = binding.place, msgspec.structs.replace(binding, place=None, home=island)
            now = self._bind_or_wait(rest)
            if old:
                moved.append(Moved(*binding.key, old, now.place or _unbound(now, now.reason)))
                moved += self._moved_parts(now, old)
        order = sorted(self._waiting, key=lambda key: self._bindings[key].ticket)
        self._waiting = dict.fromkeys(order)
        return moved

    def _moved_parts(self, parent: Binding, old: Place) -> list[Moved]:
        found = []
        for spec in self._parts.of(*parent.key):
            new = self._part_of(parent, spec)
            place = new.place if isinstance(new, BoundSlice) else new
            found.append(Moved(parent.session, spec.name, part(old, spec.picks), place))
        return found

    def waiting(self) -> tuple[Binding, ...]:
        """Return the waiting slices in the order in which they will be bound."""
        return tuple(self._bindings[key] for key in self._waiting)

    # --- finding a place ------------------------------------------------------------------------------------

    def _bind_or_wait(self, binding: Binding) -> Binding:
        """Bind the slice if possible; else let it wait, with an updated claim and reason."""
        place = self._find(binding, anyway=False)
        if place:
            now = msgspec.structs.replace(binding, place=place, claim=None, reason="", home=-1)
            self._inventories[place.island].put(place, binding.spec.exclusive)
            self._waiting.pop(binding.key, None)
        else:
            claim = self._claim(binding)
            reason = self._blockers(binding, claim) if claim else self._missing(binding)
            now = msgspec.structs.replace(binding, claim=claim, reason=f"waits for {reason}")
            self._waiting[binding.key] = None
        self._bindings[binding.key] = now
        self.version += 1
        return now

    def _unbind(self, binding: Binding) -> None:
        if binding.place:
            self._inventories[binding.place.island].put(binding.place, binding.spec.exclusive, by=-1)

    def _claim(self, binding: Binding) -> Place | None:
        """Return the place that the slice should wait for, or None if too few devices are up.

        It keeps its old claim if that is still possible. A new claim avoids the claims of others if it can.
        """
        claim = binding.claim
        if claim and self._inventories[claim.island].offers(claim, all_spares=claim.island == binding.home):
            return claim
        return self._find(binding, anyway=True) or self._find(binding, anyway=True, ignore_claims=True)

    def _find(self, binding: Binding, anyway: bool, ignore_claims: bool = False) -> Place | None:
        """Return the best place for the slice.

        With `anyway` it may be where other slices are now; with `ignore_claims`, where others will be before it.
        """
        spec = binding.spec
        claims = [] if ignore_claims else [b.claim for b in self._claims_ahead(binding) if b.claim]
        for inventories, all_spares in self._tiers(binding, self._matching(spec)):
            free: list[Free] = []
            for inventory in inventories:
                barred = [claim for claim in claims if claim.island == inventory.island.index]
                usable = inventory.usable(spec.exclusive, barred, all_spares, anyway)
                free.append((inventory.island, usable, inventory.load))
            place = choose(spec, free)
            if place:
                return place
        return None

    @staticmethod
    def _tiers(binding: Binding, matching: list[Inventory]) -> list[tuple[list[Inventory], bool]]:
        """Return (islands, whether all spares may be used), in the order in which to search them."""
        home = [inventory for inventory in matching if inventory.island.index == binding.home]
        if not home:
            return [(matching, False)]
        others = [inventory for inventory in matching if inventory not in home]
        return [(home, False), (home, True), (others, False)]

    def _claims_ahead(self, binding: Binding) -> list[Binding]:
        """Return the earlier waiting slices with claims, that could not share devices with this one.

        A slice that waits for devices of this slice's own session is left out. It cannot be bound before the session
        releases them, so it must not block the session.
        """
        waiting = [self._bindings[key] for key in self._waiting]
        own_slices = [b for b in self._bindings.values() if b.place and b.session == binding.session]
        return [
            b for b in waiting
            if b.claim and b.ticket < binding.ticket and self._exclusive(b, binding)
            and not any(self._exclusive(b, own) and self._overlap(b.claim, own.place) for own in own_slices)
        ]  # fmt: skip

    @staticmethod
    def _overlap(one: Place, other: Place | None) -> bool:
        return other is not None and spans.overlap(device_spans(one), device_spans(other))

    @staticmethod
    def _exclusive(one: Binding, other: Binding) -> bool:
        """Whether these two slices cannot share devices."""
        return one.spec.exclusive or other.spec.exclusive

    # --- the reasons for waiting ----------------------------------------------------------------------------

    def _blockers(self, binding: Binding, claim: Place) -> str:
        """Return a text that names the slices that have the claimed devices, or will have them first."""
        island = self.cluster.islands[claim.island]
        wanted = device_spans(claim)
        rivals = [other for other in self._bindings.values() if self._exclusive(other, binding)]
        here = [b for b in rivals if b.place and spans.overlap(device_spans(b.place), wanted)]
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


def _unbound(binding: Binding, reason: str) -> MustWait:
    """`reason`: why it, or a part of it, has no place."""
    if binding.spec.absent == "fail" and binding.claim is None:
        return MustWait(f"is down: it {reason}", fails=True)
    return MustWait(reason)


def _reason_of_part(parent: Binding) -> str:
    return f"is a part of slice {parent.spec.name!r}, which {parent.reason}"
