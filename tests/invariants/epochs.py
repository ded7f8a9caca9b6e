"""Checks that hosts and the controller act only on messages of the current epoch."""

from __future__ import annotations

from core.model import Spans, spans

from .checker_base import Checker
from .observations import Entered, EpochFormed, HostLost, HostSeated, Launched, Obeyed, Observation, ReportsApplied


class Epochs(Checker):
    name = "epochs"
    sees = (HostSeated, HostLost, EpochFormed, Obeyed, ReportsApplied, Entered, Launched)

    def __init__(self) -> None:
        self._seats: dict[int, HostSeated] = {}  # by host
        self._numbers: dict[int, int] = {}  # host -> number of the last Ordered of its epoch
        self._formed: dict[int, tuple[int, Spans]] = {}  # island -> (epoch, members)

    def saw(self, seen: Observation, now: int) -> None:
        match seen:
            case HostLost(host=host):
                self._seats.pop(host, None)
                self._numbers.pop(host, None)
            case HostSeated(host=host):
                self._seated(seen, host)
            case EpochFormed():
                self._form(seen)
            case Obeyed(host=host, number=number):
                self._same_epoch(host, seen.epoch, f"acted on message {number}")
                if number <= self._numbers.get(host, -1):
                    self.fail(f"host {host} acted on message {number} after {self._numbers[host]}")
                self._numbers[host] = number
            case Launched(host=host):
                self._same_epoch(host, seen.epoch, f"launched gang {seen.seq}")
            case ReportsApplied(island=island, epoch=epoch):
                if epoch < self._formed.get(island, (-1,))[0]:
                    formed = self._formed[island][0]
                    self.fail(f"the controller took reports of epoch {epoch} on island {island}, now in {formed}")
            case Entered(island=island, epoch=epoch):
                formed, members = self._formed.get(island, (-1, spans.EMPTY))
                if epoch != formed or spans.minus(seen.hosts, members):
                    self.fail(
                        f"gang {seen.seq} of epoch {epoch} entered for hosts {spans.text(seen.hosts)}; island"
                        f" {island} is in epoch {formed} with hosts {spans.text(members)}"
                    )
            case _:
                pass

    def _seated(self, seen: HostSeated, host: int) -> None:
        before = self._seats.get(host)
        if before is not None and seen.epoch < before.epoch:
            self.fail(f"host {host} went back from epoch {before.epoch} to {seen.epoch}")
        if before is None or seen.epoch > before.epoch:  # with a new seat in the same epoch, numbers go on
            self._numbers.pop(host, None)
        self._seats[host] = seen

    def _form(self, seen: EpochFormed) -> None:
        before = self._formed.get(seen.island, (-1, spans.EMPTY))[0]
        if seen.epoch <= before:
            self.fail(f"island {seen.island} formed epoch {seen.epoch} after {before}")
        for host in spans.items(seen.members):
            seat = self._seats.get(host)
            if seat is not None and (seat.island, seat.epoch) != (seen.island, seen.epoch):
                self.fail(f"epoch {seen.epoch} formed while host {host} was in epoch {seat.epoch}")
        self._formed[seen.island] = (seen.epoch, seen.members)

    def _same_epoch(self, host: int, epoch: int, did: str) -> None:
        seat = self._seats.get(host)
        if seat is None:
            self.fail(f"host {host} {did} without a seat")
        if epoch != seat.epoch:
            self.fail(f"host {host}, in epoch {seat.epoch}, {did} of epoch {epoch}")
        formed, members = self._formed.get(seat.island, (-1, spans.EMPTY))
        if epoch < formed and spans.contains(members, host):
            self.fail(f"host {host} {did} of epoch {epoch}, but is a member of epoch {formed}")
