"""Checks that allocations on a device never exceed its memory, and that a gang's scratch memory ends with the gang."""

from __future__ import annotations

from core.model import spans

from .checker_base import Checker
from .observations import Allocated, HostJoined, HostLost, Observation, Released


class MemoryChecker(Checker):
    name = "memory"
    sees = (HostJoined, HostLost, Allocated, Released)

    def __init__(self) -> None:
        self._devices: dict[int, spans.Spans] = {}  # by host
        self._capacity: dict[int, int] = {}  # by device, for hosts that are up
        self._taken: dict[int, dict[str, int]] = {}  # device -> allocation -> bytes
        self._used: dict[int, int] = {}  # by device
        self.peak: dict[int, int] = {}  # by device; only for callers that want to know it

    def saw(self, seen: Observation, now: int) -> None:
        match seen:
            case HostJoined(host=host):
                self._devices[host] = seen.devices
                for device in spans.items(seen.devices):
                    self._capacity[device] = seen.memory
                    self._taken[device] = {}
                    self._used[device] = 0
            case HostLost(host=host):
                for device in spans.items(self._devices.pop(host, spans.EMPTY)):
                    del self._capacity[device], self._taken[device], self._used[device]
            case Allocated():
                self._allocated(seen)
            case Released(device=device, what=what):
                if what not in self._taken.get(device, {}):
                    self.fail(f"device {device} released {what}, which it does not have")
                self._used[device] -= self._taken[device].pop(what)
            case _:
                pass

    def _allocated(self, seen: Allocated) -> None:
        device, what, nbytes = seen.device, seen.what, seen.nbytes
        if device not in self._capacity:
            self.fail(f"{what} was allocated on device {device}, which is not there")
        taken = self._taken[device]
        if what in taken:
            self.fail(f"device {device} allocated {what} twice")
        used, capacity = self._used[device] + nbytes, self._capacity[device]
        if used > capacity:
            largest = sorted(taken.items(), key=lambda item: -item[1])[:6]
            there = ", ".join(f"{name}: {size}" for name, size in largest)
            self.fail(f"device {device} has {capacity} bytes; {what} of {nbytes} makes it {used} (there: {there})")
        taken[what] = nbytes
        self._used[device] = used
        self.peak[device] = max(self.peak.get(device, 0), used)

    def at_rest(self, now: int) -> None:
        for device, taken in self._taken.items():
            for what in taken:
                if what.startswith("gang "):
                    self.fail(f"device {device} still has the scratch of {what}")
