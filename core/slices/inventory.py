"""One island's devices: which can be used, how many slices each carries, which are held by one alone."""

from __future__ import annotations

from collections.abc import Sequence
from operator import gt

from ..model import Illegal, Island, Place, Spans, device_spans, spans

# What becomes of a host; what is not here is Illegal. By joining again a host comes back, with all its
# devices.
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
    """Arrays by device, counted from the island's first; one byte says yes or no."""

    def __init__(self, island: Island) -> None:
        self.island = island
        self.states = ["absent"] * island.hosts
        self.alive = bytearray(island.devices)  # its host is up and it works
        self.load = [0] * island.devices
        self.held = bytearray(island.devices)  # exclusively

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
        """A slice comes (or with by=-1 goes)."""
        base = self.island.base_device
        for low, high in device_spans(place):
            cut = slice(low - base, high - base)
            self.load[cut] = [level + by for level in self.load[cut]]
        if exclusive:
            self._mark(self.held, device_spans(place), int(by > 0))

    def usable(
        self, exclusive: bool, barred: Sequence[Place], all_spares: bool, anyway: bool
    ) -> Sequence[int]:
        """By device, whether a slice may have it. `barred`: places it must leave alone; `anyway`: even what
        others have now, since they will let go."""
        found = bytearray(self.alive)
        for host in self._reserve(all_spares):
            self._mark(found, self.island.devices_of(host), 0)
        for place in barred:
            self._mark(found, device_spans(place), 0)
        if anyway:
            return found
        taken: Sequence[int] = self.load if exclusive else self.held
        return bytes(map(gt, found, taken))

    def offers(self, place: Place, all_spares: bool) -> bool:
        """Whether a slice may have all of it, when others have let go."""
        usable, base = self.usable(False, (), all_spares, anyway=True), self.island.base_device
        return all(all(usable[low - base : high - base]) for low, high in device_spans(place))

    def gone(self) -> Spans:
        """Devices that cannot be used now."""
        island = self.island
        return self._where(self.alive, range(island.devices), island.base_device)

    def hosts_in(self, *states: str) -> Spans:
        first = self.island.base_host
        return spans.of(first + at for at, state in enumerate(self.states) if state in states)

    def broken(self) -> Spans:
        """Devices lost on hosts that are up."""
        return spans.meet(self.gone(), spans.normal(self._devices_up()))

    def _devices_up(self) -> list[tuple[int, int]]:
        return [span for host in spans.items(self.hosts_in("up")) for span in self.island.devices_of(host)]

    def _reserve(self, all_spares: bool) -> list[int]:
        """Spare hosts that stay out of it: one spare stands in for each regular host that is out, no more;
        those that already carry slices first. A slice that must move may use all, if nothing else helps."""
        island = self.island
        if not island.spares or all_spares:
            return []
        first = island.base_host + island.regular
        spares = [
            host
            for host in range(first, first + island.spares)
            if self.states[host - island.base_host] == "up"
        ]
        spares.sort(key=lambda host: (not self._loaded(host), host))
        return spares[self._out() :]

    def _out(self) -> int:
        """Regular hosts that were here and are not, or not whole."""
        per_host = self.island.per_host
        return sum(
            state in ("lost", "draining")
            or (state == "up" and not all(self.alive[at * per_host : (at + 1) * per_host]))
            for at, state in enumerate(self.states[: self.island.regular])
        )

    def _loaded(self, host: int) -> bool:
        at = (host - self.island.base_host) * self.island.per_host
        return any(self.load[at : at + self.island.per_host])

    def _mark(self, array: bytearray, devices: Spans, value: int) -> None:
        base = self.island.base_device
        for low, high in devices:
            array[low - base : high - base] = bytes((value,)) * (high - low)

    @staticmethod
    def _where(array: bytearray, within: range, base: int) -> Spans:
        """Where it is 0, as spans: found by C loops, for a whole island of good devices is the usual case."""
        found = []
        at = array.find(0, within.start)
        while at >= 0:
            end = array.find(1, at)
            end = within.stop if end < 0 else end
            found.append((base + at, base + end))
            at = array.find(0, end)
        return tuple(found)
