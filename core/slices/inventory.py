"""Keeps the state of one island's devices: which can be used, how many slices each has, which are held exclusively."""

from __future__ import annotations

from collections.abc import Sequence
from operator import gt

from ..model import Illegal, Island, Place, Spans, device_spans, spans

# (state, event) -> state of a host; any other pair is Illegal. A host that joins again has all its devices back.
HOST = {
    ("absent", "joined"): "up",
    ("lost", "joined"): "up",
    ("draining", "joined"): "up",
    ("up", "joined"): "up",
    ("up", "draining"): "draining",
    ("draining", "draining"): "draining",
    ("up", "lost"): "lost",
    ("draining", "lost"): "lost",
    ("lost", "lost"): "lost",
}


class Inventory:
    """The hosts and devices of one island. Arrays are indexed by device, counted from the island's first."""

    def __init__(self, island: Island) -> None:
        self.island = island
        self.states = ["absent"] * island.hosts
        self.alive = bytearray(island.devices)  # 1 if its host is up and it works
        self.load = [0] * island.devices  # number of slices on it
        # how many exclusive slices have it: several only of one client, while one takes the place of another
        self.held = [0] * island.devices
        self.cordoned: set[int] = set()  # hosts that get no new slices, and keep those that they have

    def grow(self, island: Island) -> None:
        """The island has more hosts from now on, behind those that it has."""
        hosts, devices = island.hosts - self.island.hosts, island.devices - self.island.devices
        self.island = island
        self.states += ["absent"] * hosts
        self.alive += bytes(devices)
        self.load += [0] * devices
        self.held += bytes(devices)

    def turn(self, host: int, event: str) -> None:
        at = host - self.island.base_host
        state = HOST.get((self.states[at], event))
        if state is None:
            raise Illegal(f"host {host} is {self.states[at]}: it cannot be {event}")
        self.states[at] = state
        self._mark(self.alive, self.island.devices_of(host), int(state == "up"))

    def lose_device(self, device: int) -> None:
        host = self.island.host_of(device)
        state = self.states[host - self.island.base_host]
        if state not in ("up", "draining"):
            raise Illegal(f"device {device} is on host {host}, which is {state}: it cannot be lost")
        self._mark(self.alive, spans.one(device), 0)

    def put(self, place: Place, exclusive: bool, by: int = 1) -> None:
        """Add a slice at this place, or remove it with `by=-1`."""
        base = self.island.base_device
        for low, high in device_spans(place):
            cut = slice(low - base, high - base)
            self.load[cut] = [level + by for level in self.load[cut]]
            if exclusive:
                self.held[cut] = [count + by for count in self.held[cut]]

    def usable(self, exclusive: bool, barred: Sequence[Spans], all_spares: bool, anyway: bool) -> Sequence[int]:
        """Return, for each device, whether a new slice may have it.

        `barred` are devices that it must avoid. With `anyway` it may also have devices that other slices have now.
        """
        found = bytearray(self.alive)
        for host in (*self._unused_spares(all_spares), *self.cordoned):
            self._mark(found, self.island.devices_of(host), 0)
        for devices in barred:
            self._mark(found, devices, 0)
        return found if anyway else self._untaken(found, exclusive)

    def _untaken(self, found: bytearray, exclusive: bool) -> Sequence[int]:
        taken: Sequence[int] = self.load if exclusive else self.held
        return bytes(map(gt, found, taken))

    def takes_back(self, place: Place, exclusive: bool, anyway: bool) -> bool:
        """Whether a slice that left these devices for a while may have them again. A cordon does not keep it away."""
        usable = self.alive if anyway else self._untaken(self.alive, exclusive)
        base = self.island.base_device
        return all(all(usable[low - base : high - base]) for low, high in device_spans(place))

    def offers(self, place: Place, all_spares: bool) -> bool:
        """Whether a slice may have this whole place once other slices have released it."""
        usable, base = self.usable(False, (), all_spares, anyway=True), self.island.base_device
        return all(all(usable[low - base : high - base]) for low, high in device_spans(place))

    def gone(self) -> Spans:
        """Return the devices that cannot be used now. `find` is fast in the usual case, that all can."""
        base, found, at = self.island.base_device, list[tuple[int, int]](), self.alive.find(0)
        while at >= 0:
            end = self.alive.find(1, at)
            end = self.island.devices if end < 0 else end
            found.append((base + at, base + end))
            at = self.alive.find(0, end)
        return tuple(found)

    def hosts_in(self, *states: str) -> Spans:
        first = self.island.base_host
        return spans.of(first + at for at, state in enumerate(self.states) if state in states)

    def broken(self) -> Spans:
        """Return the lost devices of hosts that are up."""
        return spans.meet(self.gone(), spans.normal(self._devices_up()))

    def _devices_up(self) -> list[tuple[int, int]]:
        return [span for host in spans.items(self.hosts_in("up")) for span in self.island.devices_of(host)]

    def _unused_spares(self, all_spares: bool) -> list[int]:
        """Return the spare hosts that slices may not use.

        One spare replaces each regular host that is out, beginning with spares that have slices already. With
        `all_spares` slices may use every spare.
        """
        island = self.island
        if not island.spares or all_spares:
            return []
        first = island.base_host + island.regular
        spares = [host for host in range(first, first + island.spares) if self.states[host - island.base_host] == "up"]
        spares.sort(key=lambda host: (not self._loaded(host), host))
        return spares[self._hosts_to_replace() :]

    def _hosts_to_replace(self) -> int:
        """Return the number of regular hosts that have joined and are now lost, leaving, or without a device."""
        devices_per_host, first = self.island.devices_per_host, self.island.base_host
        return sum(
            state in ("lost", "draining")
            or (state == "up" and first + at in self.cordoned)
            or (state == "up" and not all(self.alive[at * devices_per_host : (at + 1) * devices_per_host]))
            for at, state in enumerate(self.states[: self.island.regular])
        )

    def _loaded(self, host: int) -> bool:
        at = (host - self.island.base_host) * self.island.devices_per_host
        return any(self.load[at : at + self.island.devices_per_host])

    def _mark(self, array: bytearray, devices: Spans, value: int) -> None:
        base = self.island.base_device
        for low, high in devices:
            array[low - base : high - base] = bytes((value,)) * (high - low)
