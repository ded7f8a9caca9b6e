"""Checks that all hosts launch their gangs in one order, that of the global sequence, and leave none out.

The check is for each device, because gangs that share a device share a queue. Two gangs that two devices launch in
opposite orders deadlock.
"""

from __future__ import annotations

from core.model import Spans, spans

from .checker_base import Checker
from .observations import Abandoned, Entered, HostLost, Launched, Observation


class OneOrder(Checker):
    name = "one order"
    sees = (HostLost, Entered, Launched, Abandoned)

    def __init__(self) -> None:
        self._newest = -1  # the last seq that entered, on any island
        # host -> gangs that it must still launch -> their devices
        self._due: dict[int, dict[int, Spans]] = {}
        self._last: dict[int, int] = {}  # device -> the last seq launched on it
        self._abandoned: dict[int, None] = {}

    def saw(self, seen: Observation, now: int) -> None:
        match seen:
            case HostLost(host=host):
                self._due.pop(host, None)
            case Entered():
                if seen.seq <= self._newest:
                    self.fail(f"gang {seen.seq} entered after {self._newest}: the sequence must only grow")
                self._newest = seen.seq
                for host in spans.items(seen.hosts):
                    self._due.setdefault(host, {})[seen.seq] = seen.devices
            case Launched():
                self._launched(seen)
            case Abandoned(seq=seq):
                self._abandoned[seq] = None
            case _:
                pass

    def _launched(self, seen: Launched) -> None:
        due = self._due.get(seen.host, {})
        due.pop(seen.seq, None)
        for seq, devices in list(due.items()):
            if seq > seen.seq:
                break
            if seq in self._abandoned:
                del due[seq]
            elif spans.overlap(devices, seen.devices):
                shared = spans.text(spans.meet(devices, seen.devices))
                self.fail(f"host {seen.host} launched gang {seen.seq} before gang {seq} on devices {shared}")
        for device in spans.items(seen.devices):
            last = self._last.get(device, -1)
            if seen.seq <= last:
                self.fail(f"host {seen.host} launched gang {seen.seq} after gang {last} on device {device}")
            self._last[device] = seen.seq
