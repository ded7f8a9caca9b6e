"""Checks that a gang is launched on all of its hosts or on none. Only the end of an epoch may break a gang off.

If a host skipped a gang, the other hosts' collective would pair with its next one and give silently wrong numbers. A
launch with placeholders counts as a launch: it lets the other hosts' collective end.
"""

from __future__ import annotations

from core.model import Spans, spans

from .checker_base import Checker
from .observations import Abandoned, Entered, HostJoined, HostLost, Launched, Observation


class GangAtomicity(Checker):
    name = "gang atomicity"
    sees = (HostJoined, HostLost, Entered, Launched, Abandoned)

    def __init__(self) -> None:
        self._lost: dict[int, None] = {}
        self._partial: dict[int, tuple[Entered, Spans]] = {}  # seq -> (gang, hosts that have not launched it)
        self._devices: dict[int, Spans] = {}  # seq -> devices on which no host has launched it yet
        self._abandoned: dict[int, None] = {}

    def saw(self, seen: Observation, now: int) -> None:
        match seen:
            case HostJoined(host=host):
                self._lost.pop(host, None)
            case HostLost(host=host):
                self._lost[host] = None
            case Entered(seq=seq):
                if seq in self._devices:
                    self.fail(f"gang {seq} entered an order twice")
                self._partial[seq] = (seen, seen.hosts)
                self._devices[seq] = seen.devices
            case Launched():
                self._launched(seen)
            case Abandoned(seq=seq):
                self._abandoned[seq] = None
            case _:
                pass

    def _launched(self, seen: Launched) -> None:
        seq, host = seen.seq, seen.host
        if seq not in self._devices:
            self.fail(f"host {host} launched gang {seq}, which is in no order")
        gang, left = self._partial.get(seq, (None, spans.EMPTY))
        if gang is not None and not spans.contains(gang.hosts, host):
            self.fail(f"host {host} launched gang {seq}, which is for hosts {spans.text(gang.hosts)}")
        if gang is None or not spans.contains(left, host):
            self.fail(f"host {host} launched gang {seq} a second time")
        devices = self._devices[seq]
        if spans.minus(seen.devices, devices):
            self.fail(f"host {host} launched gang {seq} on devices {spans.text(seen.devices)}, not all its own")
        self._devices[seq] = spans.minus(devices, seen.devices)
        left = spans.minus(left, spans.one(host))
        if left:
            self._partial[seq] = (gang, left)
            return
        del self._partial[seq]
        if self._devices[seq]:
            self.fail(f"gang {seq}: no host launched it on devices {spans.text(self._devices[seq])}")

    def at_rest(self, now: int) -> None:
        for seq, (gang, left) in self._partial.items():
            alive = [host for host in spans.items(left) if host not in self._lost]
            if seq not in self._abandoned and (alive or left != gang.hosts):
                self.fail(
                    f"gang {seq} of run {gang.run} was not launched on hosts {spans.text(left)}"
                    f" of {spans.text(gang.hosts)}, and no end of an epoch abandoned it"
                )
