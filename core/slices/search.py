"""Finds where a slice could be: among the devices that are free, that will be, or that would be if others left.

Neighbours: `resources` says what is bound where, and changes it; `placing` chooses among the devices that are offered.
"""

from collections.abc import Iterable, Sequence

import msgspec

from ..model import Cluster, Impossible, Place, SliceSpec, Spans, device_spans, spans
from .bindings import Binding, Bindings
from .grids import compact
from .inventory import Inventory
from .placing import Free, choose, wants_block
from .refusal_texts import wish
from .subslices import Key


class PlaceSearch:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._inventories = [Inventory(island) for island in cluster.islands]
        self._bindings = Bindings()  # in order of tickets
        self.queue: dict[Key, None] = {}  # slices that wait, in the order in which they will be bound

    def could_be(
        self, binding: Binding, without: Sequence[Binding] = (), placed: Sequence[tuple[Binding, Place]] = (),
        away: Spans = spans.EMPTY,
    ) -> Place | None:  # fmt: skip
        """Where this slice could be, `away` from these devices, if those `without` devices had none, and those that are
        `placed` were there; None: nowhere."""
        for other in without:
            self._unbind(other)
        for other, place in placed:
            self._put(other, place)
        found = self._find_alone(binding, anyway=False, away=away)
        for other, place in placed:
            self._put(other, place, by=-1)
        for other in without:
            self._bind_again(other)
        return found

    def could_start(
        self, key: Key, kept: Spans, island: int = -1, devices: Sequence[int] = (), layout: str = "",
        anyway: bool = False,
    ) -> Place | None:  # fmt: skip
        """Where a slice that waits could be, without the devices `kept`: on this island if it is given, on these
        devices if they are, in this layout; or only where it was, if it can come back nowhere else. None: nowhere.
        `anyway`: where others are now, too."""
        binding = self._bindings[key]
        spec, suits = binding.spec, self.matching(key)
        if binding.within == "place":
            island, devices, layout = -1, (), ""
        elif island >= 0 and island not in suits:
            return None
        elif island >= 0:
            spec = msgspec.structs.replace(spec, island=self.cluster.islands[island].name)
        if layout and layout != spec.layout:
            spec = msgspec.structs.replace(spec, layout=layout, mesh=())
        if not devices:
            return self._find(msgspec.structs.replace(binding, spec=spec), anyway, ignore_claims=True, away=kept)
        inventory = self._inventories[self.cluster.island_of_device(devices[0]).index]
        base, size = inventory.island.base_device, inventory.island.devices
        here = [device - base for device in devices if base <= device < base + size]
        if len(set(here)) != len(devices) or len(here) != spec.devices or inventory.island.index not in suits:
            raise Impossible(f"{len(devices)} devices, {devices[0]} first, are no place for {wish(spec)}")
        kept = spans.meet(kept, inventory.island.device_span)
        usable = inventory.usable(spec.exclusive, (kept,), all_spares=False, anyway=anyway)
        there = all(usable[at] for at in here)
        return Place(inventory.island.index, compact(devices)) if there else None

    def could_follow(self, key: Key, kept: Spans, island: int, gone: Iterable[Key]) -> bool:
        """Whether this island has room for a slice, without the devices `kept`, when these are `gone` and leave as many
        as it wants. It is a question only if it needs a block of a torus, or the devices that it had."""
        binding, on = self._bindings[key], self.cluster.islands[island]
        if binding.within != "place" and not wants_block(on, binding.spec):
            return True
        there = msgspec.structs.replace(binding, spec=msgspec.structs.replace(binding.spec, island=on.name))
        return self.could_be(there, [self._bindings[each] for each in gone], away=kept) is not None

    def free(self, island: int, kept: Spans) -> list[int]:
        """The devices of this island, without those `kept`, that can be used, and that no slice has."""
        inventory = self._inventories[island]
        kept = spans.meet(kept, inventory.island.device_span)
        usable = inventory.usable(True, (kept,), all_spares=False, anyway=False)
        return [inventory.island.base_device + at for at, free in enumerate(usable) if free]

    def matching(self, key: Key) -> list[int]:
        """The islands that have the name and the kind that the slice asks for, and where it may come back to."""
        binding = self._bindings[key]
        if binding.back is not None and binding.within != "any":
            return [binding.back.island]
        return [inventory.island.index for inventory in self._matching(binding.spec)]

    def _claim(self, binding: Binding) -> Place | None:
        """Return the place that the slice should wait for, or None if too few devices are up.

        It keeps its old claim if that is still possible. A new claim avoids the claims of others if it can.
        """
        claim = binding.claim
        if claim and self._inventories[claim.island].offers(claim, all_spares=claim.island == binding.home):
            return claim
        return self._find(binding, anyway=True) or self._find(binding, anyway=True, ignore_claims=True)

    def _lacks(self, binding: Binding) -> bool:
        """Too few hosts are up for it."""
        spec, matching = binding.spec, self._matching(binding.spec)
        if any(each.alive.count(1) >= spec.devices and not wants_block(each.island, spec) for each in matching):
            return False
        return self._find(binding, anyway=True, ignore_claims=True) is None

    def _find(
        self, binding: Binding, anyway: bool, ignore_claims: bool = False, away: Spans = spans.EMPTY
    ) -> Place | None:
        """Return the best place for the slice, without the devices `away`.

        With `anyway` it may be where other slices are now; with `ignore_claims`, where others will be before it.
        """
        name, number = binding.spec.name, binding.session
        beside = [b for b in self._bindings.beside() if b.session == number and b.beside == name]
        if binding.beside and (other := self._bindings.get((number, binding.beside))):
            beside.append(other)
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
            was = self._inventories[back.island]
            there = was.takes_back(back, spec.exclusive, anyway) and spec.island in ("", was.island.name)
            there = there and not spans.overlap(away, device_spans(back))
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

    def _matching(self, spec: SliceSpec) -> list[Inventory]:
        """Return the islands that have the name and the kind that the slice asks for."""
        return [
            inventory
            for inventory in self._inventories
            if spec.island in ("", inventory.island.name) and spec.kind in ("", inventory.island.kind)
        ]

    def _unbind(self, binding: Binding) -> None:
        for place in binding.places:
            self._put(binding, place, by=-1)

    def _bind_again(self, other: Binding) -> None:
        for place in other.places:
            self._put(other, place)

    def _put(self, binding: Binding, place: Place, by: int = 1) -> None:
        self._inventories[place.island].put(place, binding.spec.exclusive, by)
