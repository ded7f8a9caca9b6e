"""Collectives on the roads of contents: they take the links and cards of their gang's devices, as contents do.

When a gang starts, its collectives enter the timetable of these roads. They begin when its devices have computed, or
when all that came to the ports before the gang started has passed, if that is later. From then on they hold each road
for as long as those that use it take. So the end of a gang is known when it starts, in both fidelities. Contents that
come later pass before the collectives if they are over by then, and else behind them (`ports`).

A gang holds the ports of devices of which it has some, and those of all a host's devices if it has them all. Gangs do
not wait for each other here: those with devices in common come one after another, and others have links and cards of
their own.

Neighbours: `sim.hardware.ici` says how long collectives take which roads; `roads` names the ports.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.model import Cluster, Place, Spans, device_spans, spans

from ..engine import Ints
from .ports import Hold, Ports

LINKS, CARDS = 0, 1
ROADS = dict.fromkeys(("own", "from", "to", "links", "links in", "side", "side in"), LINKS)
ROADS |= dict.fromkeys(("out", "in", "cards", "cards in"), CARDS)
KEPT = 1 << 14  # gangs whose waits are remembered, more than are played again when a fault falls due


class HeldRoad:
    """One of the two roads of a place: when its last gang holds it, and the ports that this concerns."""

    __slots__ = ("hold", "ports")

    def __init__(self) -> None:
        self.hold = Hold()
        self.ports: Ints = np.zeros(0, dtype=np.int64)


class Collectives:
    """`chips`: by island, how many devices a chip has."""

    def __init__(self, cluster: Cluster, ports: Ports, chips: Sequence[int]) -> None:
        self._cluster, self._ports, self._chips = cluster, ports, chips
        # (number, road, devices, whether a gang must have all of them)
        self._uses: dict[int, tuple[int, int, Spans, bool]] = {}
        self._places: dict[Place, tuple[HeldRoad, HeldRoad]] = {}
        self._waits: dict[int, int] = {}  # by `seq`

    def wait(self, seq: int, place: Place, due: int, roads: tuple[int, int]) -> int:
        """A gang starts that will have computed at `due`, and then takes these two roads for so long. Returns how long
        it has to wait; the same if it is asked again, when what has been is played again."""
        known = self._waits.get(seq)
        if known is not None:
            return known
        held = self._places.get(place) or self._enter(place)
        begin = due
        for road, took in zip(held, roads, strict=True):
            if took and len(road.ports):
                begin = max(begin, self._ports.free_at(road.ports))
        for road, took in zip(held, roads, strict=True):
            self._ports.take(road.hold, begin, begin + took)
        self._waits[seq] = begin - due
        if len(self._waits) > KEPT:
            del self._waits[next(iter(self._waits))]
        return begin - due

    def _enter(self, place: Place) -> tuple[HeldRoad, HeldRoad]:
        held = self._places[place] = HeldRoad(), HeldRoad()
        for use in self._uses.values():
            self._meet(*use, place, held)
        return held

    def add(self, port: int, name: tuple[Any, ...]) -> None:
        """Takes in a port that contents pass."""
        road, owner = ROADS.get(name[0]), name[1]
        if road is None or port in self._uses:
            return
        whole = isinstance(owner, int)  # a host
        if whole:
            devices = spans.of(self._cluster.devices_of(owner))
        else:
            chip = self._chips[self._cluster.island_of_device(owner[0]).index] if road == LINKS else 1
            devices = spans.normal((device, device + chip) for device in owner)
        use = self._uses[port] = port, road, devices, whole
        for place, held in self._places.items():
            self._meet(*use, place, held)

    def _meet(
        self, port: int, road: int, devices: Spans, whole: bool, place: Place, held: tuple[HeldRoad, HeldRoad]
    ) -> None:
        mine = device_spans(place)
        if spans.within(devices, mine) if whole else spans.overlap(devices, mine):
            held[road].ports = np.append(held[road].ports, port)
            self._ports.may_be_held(port, held[road].hold)
