"""Slices lie where they lay in the record, if the cluster is the same one.

Shared slices are bound in the order in which clients come, and which comes first may be a matter of microseconds. If
another one did here, gangs would share other devices, and that would look like an effect of what was changed.

Neighbours: `workload` notes where slices lay; `whatif_runs` makes policies keep them there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from core.controller import Controller
from core.model import Place
from core.schedule.policy import ClusterView, Placement, Policy, SliceUse

Key = tuple[str, str]  # the names of a client and of its slice
Places = Mapping[Key, tuple[Place, ...]]  # in the order in which slices of these names were bound


class PlacesSeen:
    """Collects, event by event, where a controller binds slices first."""

    def __init__(self) -> None:
        self._version, self._tickets = -1, set[int]()
        self._found: dict[Key, list[Place]] = {}

    def look(self, controller: Controller) -> None:
        resources = controller.resources
        if resources.version == self._version:
            return
        self._version = resources.version
        for binding in resources.bindings():
            name = controller.client_name(binding.session)
            if binding.place is not None and name is not None and binding.ticket not in self._tickets:
                self._tickets.add(binding.ticket)
                self._found.setdefault((name, binding.spec.name), []).append(binding.place)

    def all(self) -> Places:
        return {key: tuple(places) for key, places in self._found.items()}


class RecordedPlaces(Placement):
    """Starts each slice where it lay, and what the record does not know where it fits."""

    places: ClassVar[Places] = {}
    _asked: dict[Key, list[int]]

    def decide(self, cluster: ClusterView) -> None:
        for use in cluster.waiting:
            place = self._place_of(use)
            if place is not None:
                island = next(each for each in cluster.islands if each.island.index == place.island)
                devices = [place.device(at) for at in range(place.size)]
                if cluster.start(use, island, devices=devices):
                    continue
            cluster.start(use)

    def _place_of(self, use: SliceUse) -> Place | None:
        key = use.client_name, use.name
        asked = self.__dict__.setdefault("_asked", {}).setdefault(key, [])
        if use.number not in asked:
            asked.append(use.number)
        places, nth = self.places.get(key, ()), asked.index(use.number)
        return places[nth] if nth < len(places) else None


def keeping(make: Callable[[], Policy], places: Places) -> Callable[[], Policy]:
    """Makes the same policy, under which slices lie at these places; one that places slices itself as it is."""

    def made() -> Policy:
        policy = make()
        kind = type(policy)
        if not isinstance(policy, Placement):
            own = {"places": places, "takes_the_only_one": kind.takes_the_only_one}
            policy.__class__ = type(kind.__name__, (kind, RecordedPlaces), own)
        return policy

    return made
