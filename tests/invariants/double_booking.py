"""Checks that a device runs one gang at a time, in the order of the launches on it, and each gang once."""

from __future__ import annotations

from core.model import spans

from .checker_base import Checker
from .observations import Abandoned, FinishedSeen, HostJoined, HostLost, Launched, Observation, Started


class DoubleBooking(Checker):
    name = "double booking"
    sees = (HostJoined, HostLost, Launched, Started, FinishedSeen, Abandoned)

    def __init__(self) -> None:
        self._devices: dict[int, spans.Spans] = {}  # by host
        self._queue: dict[int, dict[int, None]] = {}  # device -> seqs launched and not ended, in order
        self._running: dict[int, int] = {}  # device -> seq
        self._abandoned: dict[int, None] = {}

    def saw(self, seen: Observation, now: int) -> None:
        match seen:
            case HostJoined(host=host):
                self._devices[host] = seen.devices
            case HostLost(host=host):
                for device in spans.items(self._devices.get(host, spans.EMPTY)):
                    self._queue.pop(device, None)
                    self._running.pop(device, None)
            case Launched(seq=seq):
                for device in spans.items(seen.devices):
                    self._queue.setdefault(device, {})[seq] = None
            case Started(seq=seq):
                for device in spans.items(seen.devices):
                    self._started(device, seq)
            case FinishedSeen(seq=seq):
                for device in spans.items(seen.devices):
                    self._finished(device, seq)
            case Abandoned(seq=seq):
                self._abandoned[seq] = None
            case _:
                pass

    def _started(self, device: int, seq: int) -> None:
        running = self._running.get(device)
        if running is not None:
            self.fail(f"device {device} started gang {seq} while it runs gang {running}")
        queue = self._queue.get(device, {})
        if seq not in queue:
            self.fail(f"device {device} started gang {seq}, which is not launched on it, or is over")
        first = next(waiting for waiting in queue if waiting == seq or waiting not in self._abandoned)
        if first != seq:
            self.fail(f"device {device} started gang {seq} before gang {first}, which was launched earlier")
        self._running[device] = seq

    def _finished(self, device: int, seq: int) -> None:
        if self._running.get(device) == seq:
            del self._running[device]
        elif seq not in self._abandoned:
            self.fail(f"device {device} finished gang {seq}, which it does not run")
        self._queue.get(device, {}).pop(seq, None)

    def at_rest(self, now: int) -> None:
        for device, queue in self._queue.items():
            for seq in queue:
                if seq not in self._abandoned:
                    state = "runs" if self._running.get(device) == seq else "has not started"
                    self.fail(f"device {device} still {state} gang {seq}")
