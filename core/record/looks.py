"""What goes on, as those who look again and again get it: plain data, one answer a look.

    Look(identity, cursor)  -->  LiveLook: a `LiveView` of the controller, an `Increment` of its trace, its hosts

A view has a line for each *kind* of thing that waits: gangs by client and place, runs by client, program and reason.
So its size does not grow with what waits. Neighbours: `increments`; `core.controller.live_view`, which makes the view;
drivers, which answer looks and know which hosts are connected.
"""

from __future__ import annotations

import msgspec

from ..model import Spans
from .increments import Increment, TraceCursor


class Look(msgspec.Struct, frozen=True):
    """identity: of the trace that `cursor` is of, from the last answer. hosts: whether to describe the hosts too."""

    identity: str = ""
    cursor: TraceCursor = TraceCursor()
    hosts: bool = True

    def cursor_of(self, identity: str, most: int) -> TraceCursor:
        """What the reader has of the trace with this identity. It gets no more than `most` rows of a table at once."""
        cursor = self.cursor if self.identity == identity else TraceCursor(most=self.cursor.most)
        return cursor if 0 < cursor.most <= most else msgspec.structs.replace(cursor, most=most)


class RefusalLine(msgspec.Struct, frozen=True):
    agent: str
    reason: str
    at: int


class IslandLine(msgspec.Struct, frozen=True):
    name: str
    phase: str
    epoch: int
    members: Spans
    policy: str
    under_way: int  # gangs and transfers in its order that are not over
    backlog: int  # messages that some host may not have seen
    broken: str = ""  # why its epochs broke again and again
    since: int = 0  # when the first of them did


class ClientLine(msgspec.Struct, frozen=True):
    number: int
    name: str
    weight: int
    priority: int
    programs: int
    runs: int  # that have not ended


class QueueLine(msgspec.Struct, frozen=True):
    """Gangs of one client that are ready for one place and have not entered the order, and why the first has not."""

    island: str
    client: str
    program: str
    step: str
    devices: Spans
    why: str
    text: str
    count: int
    since: int  # when the first was ready


class WaitLine(msgspec.Struct, frozen=True):
    """Runs of one program that wait for the same, or one other thing that waits. `hosts`: those it waits for."""

    island: str
    client: str
    program: str
    node: str
    hosts: Spans
    reason: str
    count: int
    since: int
    stalled: bool  # it has outlasted its soft bound


class LiveView(msgspec.Struct, frozen=True):
    islands: tuple[IslandLine, ...]
    clients: tuple[ClientLine, ...]
    queues: tuple[QueueLine, ...]
    waits: tuple[WaitLine, ...]
    refused: tuple[RefusalLine, ...]  # agents that may not be hosts
    left: dict[str, int]  # what is not over; by what it is
    stalls_ever: int
    incarnation: int

    def policies(self) -> dict[str, str]:
        """By island's name."""
        return {island.name: island.policy for island in self.islands}


class HostLine(msgspec.Struct, frozen=True):
    """offset: how far its clock is ahead of the controller's, within `bound` nanoseconds (-1: not known)."""

    agent: str = ""
    address: str = ""
    offset: int = 0
    bound: int = -1
    jumps: int = 0


class LiveLook(msgspec.Struct, frozen=True):
    """identity: of the trace; if it is not the one that was asked for, `trace` begins anew. Times are by the trace's
    clock. hosts: all of the cluster, in order, if asked for. said: the controller's last words to its operator."""

    identity: str
    began: int  # when the trace begins
    now: int
    view: LiveView | None  # of what is over, nobody knows it
    trace: Increment
    connected: Spans = ()  # hosts
    hosts: tuple[HostLine, ...] = ()
    said: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what is wrong with the recording itself
