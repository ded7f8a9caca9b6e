"""Counts what a node has written and read, so that the cost of messages can be computed. The counts only grow.

A *write* has one or more frames of one stream, and so has a *read*; a message on a `NearLane` has neither.
Neighbours: `node`, which counts; `seaway.tools.calibrating`, which divides the CPU time by these counts.
"""

import msgspec

from core.protocol import ClientMessages, Done, Ordered, Reports


class Traffic:
    """`orders` and `steps` count once for each host to which they are written. `said` counts steps once, however many
    hosts get them. `notes`: notes sent by lanes. `ends`: ends of gangs, one for
    each host and gang; `groups`: the messages in which they came."""

    __slots__ = (
        "bytes_in", "bytes_out", "ends", "frames_in", "frames_out", "groups", "near_in", "near_out", "notes",
        "orders", "reads_in", "said", "steps", "writes_out",
    )  # fmt: skip

    def __init__(self) -> None:
        self.writes_out = self.frames_out = self.bytes_out = 0
        self.reads_in = self.frames_in = self.bytes_in = 0
        self.near_out = self.near_in = self.notes = 0
        self.orders = self.steps = self.said = 0
        self.ends = self.groups = 0

    def wrote(self, frames: int, nbytes: int) -> None:
        """Counts a write."""
        self.writes_out += 1
        self.frames_out += frames
        self.bytes_out += nbytes

    def took(self, frames: int, nbytes: int) -> None:
        self.reads_in += 1
        self.frames_in += frames
        self.bytes_in += nbytes

    def said_near(self, message: msgspec.Struct) -> None:
        """Counts a message sent by a lane; from a controller, it goes to a client."""
        self.near_out += 1
        self.notes += len(message.notes) if isinstance(message, ClientMessages) else 1

    def ordered(self, message: msgspec.Struct, first: bool) -> None:
        """Counts an order written to a peer; `first`: not written to another peer before."""
        if isinstance(message, Ordered):
            self.orders += 1
            self.steps += len(message.steps)
            self.said += len(message.steps) if first else 0

    def heard(self, message: msgspec.Struct | None) -> None:
        if type(message) is Reports:
            ends = len([report for report in message.reports if type(report) is Done])
            self.ends += ends
            self.groups += ends > 0

    def counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}
