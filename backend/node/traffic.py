"""What a node has written and taken, in whole numbers that only grow: what messages cost is found by counting them.

A *frame* is one gRPC message, with one parcel or many in it; what goes by a `Lane` is a word of core's without a frame.
Neighbours: `node`, which counts; `cpu_times`, for CPU time to be divided by it; `seaway.tools.calibrating`, which does
that.
"""

from __future__ import annotations

import msgspec

from core.protocol import Done, Notes, Ordered, Reports


class Traffic:
    """`orders` and `steps` count as often as they are written: to two hosts twice. `said`: steps once, however many are
    told. `notes`: in what went by lanes; one that is alone goes without an envelope. `ends`: of gangs, one a host and
    gang; `groups`: messages in which they came."""

    __slots__ = (
        "bytes_in", "bytes_out", "ends", "frames_in", "frames_out", "groups", "near_in", "near_out", "notes",
        "orders", "parcels_in", "parcels_out", "said", "steps",
    )  # fmt: skip

    def __init__(self) -> None:
        self.frames_out = self.parcels_out = self.bytes_out = 0
        self.frames_in = self.parcels_in = self.bytes_in = 0
        self.near_out = self.near_in = self.notes = 0
        self.orders = self.steps = self.said = 0
        self.ends = self.groups = 0

    def wrote(self, parcels: int, nbytes: int) -> None:
        """A frame."""
        self.frames_out += 1
        self.parcels_out += parcels
        self.bytes_out += nbytes

    def took(self, parcels: int, nbytes: int) -> None:
        self.frames_in += 1
        self.parcels_in += parcels
        self.bytes_in += nbytes

    def said_near(self, message: msgspec.Struct) -> None:
        """By a lane: to a client, where this is the controller's."""
        self.near_out += 1
        self.notes += len(message.notes) if isinstance(message, Notes) else 1

    def ordered(self, message: msgspec.Struct, first: bool) -> None:
        """A word of core's is written to a peer, which is the first that it is written to."""
        if isinstance(message, Ordered):
            self.orders += 1
            self.steps += len(message.steps)
            self.said += len(message.steps) if first else 0

    def heard(self, message: msgspec.Struct | None) -> None:
        if isinstance(message, Reports):
            ends = sum(isinstance(report, Done) for report in message.reports)
            self.ends += ends
            self.groups += ends > 0

    def counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}
