"""What the controller says of what happens inside a turn, for those who check it (`Controller(observe=...)`).

Islands, seqs and buffers have the controller's ids; runs and programs have the client's names.
"""

import msgspec

from ..model import Cluster, Spans
from ..protocol import Blame


class Observation(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Base of all observations."""


class EpochFormed(Observation, frozen=True):
    """All members have reported: the island works again."""

    island: int
    epoch: int
    members: Spans


class ClusterGrown(Observation, frozen=True):
    """Hosts may join from now on that were not in it before."""

    cluster: Cluster


class ReportsApplied(Observation, frozen=True):
    """The controller has acted on Reports of this epoch (and did not drop them)."""

    island: int
    epoch: int


class Entered(Observation, frozen=True):
    """A gang has entered its island's order: the controller has sent its GangStep."""

    seq: int
    run: int
    step: int
    island: int
    epoch: int
    hosts: Spans
    devices: Spans


class Abandoned(Observation, frozen=True):
    """The controller has ended an epoch and abandoned this gang: hosts drop it wherever it is."""

    seq: int


class ViewFolded(Observation, frozen=True):
    """Hosts have been told to forget a view that is still held; or, once more, to make it."""

    buffer: int
    folded: bool


class BufferHeld(Observation, frozen=True):
    """The buffer has one more reference."""

    buffer: int
    holder: str  # "client 2", "run 17"


class BufferLetGo(Observation, frozen=True):
    """The holder has dropped one reference."""

    buffer: int
    holder: str


class BufferLost(Observation, frozen=True):
    """A failure has destroyed the buffer. Its holders have been told, and hosts may free what is left of it."""

    buffer: int


class RunSubmitted(Observation, frozen=True):
    """The controller has accepted the client's call."""

    client: int
    run: int  # the client's name for it


class RunEndSeen(Observation, frozen=True):
    """The client was told that the run has ended."""

    client: int
    run: int
    blame: Blame | None = None


class ProgramAwaited(Observation, frozen=True):
    """The client has registered the program, and will be told when it is compiled."""

    client: int
    program: int  # the client's name for it


class ProgramTakenBack(Observation, frozen=True):
    """The client has unregistered it before it was told."""

    client: int
    program: int


class ProgramToldSeen(Observation, frozen=True):
    """The client was told of it."""

    client: int
    program: int


class ClientLost(Observation, frozen=True):
    """The client is gone, and will not be told how its runs end."""

    client: int
