"""What the controller commands its driver, and what it is told: worlds, hosts that may not be hosts, whose a peer is,
what people read.

Start with `effects`, which has the words. Neighbours: `core.controller`; the drivers.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ..model import Account, Cluster, Place, SliceSpec, Spans
from .effect_base import Command, Event
from .wire import Blame

# --- controller -> its driver, and back: the collective world of an island ---------------------------------


class FormWorld(Command, frozen=True):
    """Set up what the members of this epoch need to join its world: a coordination service, and addresses.

    Keep what was set up for earlier epochs until DropWorlds. Answer: WorldUp or WorldFailed.
    """

    island: int
    epoch: int
    members: tuple[tuple[int, int], ...]  # spans of hosts


class DropWorlds(Command, frozen=True):
    """All members have joined this epoch's world: take down what was set up for earlier epochs."""

    island: int
    epoch: int


class WorldUp(Event, frozen=True):
    island: int
    epoch: int


class WorldFailed(Event, frozen=True):
    island: int
    epoch: int
    blame: Blame


class HostRefused(Event, frozen=True):
    """A process asked to be a host here and was refused. Core tells the clients that wait for hosts."""

    island: int  # the island that it asked for; -1 if any, or if not known
    name: str
    reason: str


class HostAccepted(Event, frozen=True):
    """The driver has accepted the process of this name as a host: it will join."""

    name: str


# --- an operator -> the controller ------------------------------------------------------------------------------


class OperateSlices(Event, frozen=True):
    """Move slices of a client to other devices, or suspend or resume them. Answer: OperatorAnswer."""

    client: int
    action: Literal["move", "suspend", "resume"]
    slice: str = ""  # "": all that it has
    away: tuple[tuple[int, int], ...] = ()  # of a move: not to these hosts (spans)
    island: int = -1  # of a move: to this island; -1: to any


class OperateHost(Event, frozen=True):
    """Give a host no new slices; or empty it, and let it leave; or do neither any more. Answer: OperatorAnswer."""

    host: int
    action: Literal["cordon", "uncordon", "drain"]
    patience: int = 0  # of a drain: nanoseconds after which the host leaves, whatever is left on it; 0: any time


class GrowCluster(Event, frozen=True):
    """The cluster is to be this one from now on: what there is, and more. Answer: OperatorAnswer."""

    cluster: Cluster


class OperatorAnswer(Command, frozen=True):
    """What was asked for last has begun; or why it has not."""

    wrong: str

    @property
    def text(self) -> str:
        return f"refused: {self.wrong}" if self.wrong else ""


# --- what is suspended, for a later start of the controller ------------------------------------------------------


class SuspendedSlices(msgspec.Struct, frozen=True):
    """Slices of a client that lie at one place and are suspended, or are to be. None: only `rests` is said."""

    client: int
    slices: tuple[SliceSpec, ...] = ()
    place: Place | None = None
    arrays: Spans = ()  # that go with them, by the controller's ids
    resident: Spans = ()  # of these: those that were on the devices, and come back together
    rests: bool = False  # so are all others of the client, and those that it binds later
    returns: bool = False  # they have given way to others, and come back by themselves


class SuspensionsChanged(Command, frozen=True):
    """This is suspended now: `SuspensionsKnown` is to say it at a later start."""

    slices: tuple[SuspendedSlices, ...]


class SuspensionsKnown(Event, frozen=True):
    """What was suspended when an earlier start of the controller ended. This comes before any client."""

    slices: tuple[SuspendedSlices, ...]


# --- what a later start is told of hosts ---------------------------------------------------------------------------


class HostsJoined(Command, frozen=True):
    """These hosts may have something of this start or an earlier one: `HostsKnown` is to say it at the next start."""

    hosts: Spans


class HostsKnown(Event, frozen=True):
    """Only these hosts may have something of earlier starts. This comes before any host; if it does not come, all
    may."""

    hosts: Spans


# --- whose a connection is ---------------------------------------------------------------------------------------


class PeerIdentified(Event, frozen=True):
    """Whose this connection is, by what it has shown the driver. This comes before all that is said on it.

    `client`: the number that it has proved to have had, if it comes back; 0 if it has proved none.
    """

    peer: int
    account: Account
    client: int = 0


class Used(msgspec.Struct):
    """What an account has used, in all or in an hour."""

    device_time: int = 0  # nanoseconds, of all devices together
    bytes_in: int = 0  # contents that its clients have put
    bytes_out: int = 0  # ... and got
    runs: int = 0  # that they submitted, and that were not refused for a quota


class UsageKnown(Event, frozen=True):
    """What was used before this start of the controller, by account and number of the hour, by the driver's clock. This
    comes before any client."""

    rows: tuple[tuple[str, int, Used], ...]


class PolicyReplaced(Command, frozen=True):
    """An island's policy broke its contract, and fifo replaces it from now on. The driver must show this to users."""

    island: str
    policy: str
    fault: str  # for example "raised KeyError: 'x' when asked to pick"

    @property
    def text(self) -> str:
        return f"island {self.island!r}: policy {self.policy} {self.fault}; fifo has taken over"
