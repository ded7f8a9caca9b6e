"""What a world reports to the checkers: small facts, each told when it happens, one call each.

Hosts, devices, islands, seqs, buffers and transfers have the controller's ids; runs have the client's names.
"""

from __future__ import annotations

import msgspec

from ..model import Spans
from ..protocol import Blame


class Observation(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Something that happened in the world."""


# --- hosts and epochs ----------------------------------------------------------------------------------


class HostJoined(Observation, frozen=True):
    """A host process is up, with nothing on its devices. `memory`: bytes of each device."""

    host: int
    devices: Spans
    memory: int


class HostLost(Observation, frozen=True):
    """Its process is gone, and all that was on its devices (one that is only cut off is not lost)."""

    host: int


class HostSeated(Observation, frozen=True):
    """The host has reformed for this epoch: from here on, it acts on messages of this epoch only."""

    host: int
    island: int
    epoch: int


class EpochFormed(Observation, frozen=True):
    """The controller has heard all members: the island is at work again."""

    island: int
    epoch: int
    members: Spans


class Obeyed(Observation, frozen=True):
    """The host acted on an Ordered (it did not refuse it): its epoch and its number."""

    host: int
    island: int
    epoch: int
    number: int


class Heeded(Observation, frozen=True):
    """The controller acted on Reports of this epoch (it did not drop them)."""

    island: int
    epoch: int


# --- gangs ---------------------------------------------------------------------------------------------


class Entered(Observation, frozen=True):
    """A gang (no transfer half) is in its island's order: a GangStep has left the controller."""

    seq: int
    run: int
    step: int
    island: int
    epoch: int
    hosts: Spans
    devices: Spans


class Launched(Observation, frozen=True):
    """A host has enqueued it on its devices of the gang, with contents or as a placeholder."""

    host: int
    seq: int
    epoch: int  # of the seat the host has
    devices: Spans  # this host's devices of the gang
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    donated: tuple[int, ...] = ()
    placeholders: bool = False


class Started(Observation, frozen=True):
    """These devices of the host run it (which may mean: wait in it for their peers)."""

    host: int
    seq: int
    devices: Spans


class Finished(Observation, frozen=True):
    """It is over on these devices of the host, well or badly, or given up (see Abandoned)."""

    host: int
    seq: int
    devices: Spans


class Abandoned(Observation, frozen=True):
    """The end of an epoch gave it up: hosts drop it wherever it is. Reported when the controller says so."""

    seq: int


# --- buffers and memory --------------------------------------------------------------------------------


class Allocated(Observation, frozen=True):
    """`what` takes memory of a device: a buffer's shard ("buffer 7"), a gang's scratch ("gang 12")."""

    device: int
    what: str
    nbytes: int


class Released(Observation, frozen=True):
    """`what` gave back all it had of this device."""

    device: int
    what: str


class BufferMade(Observation, frozen=True):
    """The host has its shards of a buffer from here on (as a future, too). Outputs of gangs are reported by
    Launched; this is for what is received, put, restored or filled from a literal."""

    host: int
    buffer: int


class BufferFreed(Observation, frozen=True):
    """The host carries out a FreeBuffer. (A donated input goes with its Launched.)"""

    host: int
    buffer: int


class BufferUsed(Observation, frozen=True):
    """Something that is no gang reads or fills it on this host: `by`: "send 14", "recv 9", "spill 3"."""

    host: int
    buffer: int
    by: str


class BufferUnused(Observation, frozen=True):
    host: int
    buffer: int
    by: str


class BufferHeld(Observation, frozen=True):
    """Somebody counts on it: `holder` names who ("client 2", "run 17"). One reference for each report."""

    buffer: int
    holder: str


class BufferLetGo(Observation, frozen=True):
    buffer: int
    holder: str


class BufferLost(Observation, frozen=True):
    """A failure took it: holders have been told, hosts may free what is left of it."""

    buffer: int


# --- runs and clients ----------------------------------------------------------------------------------


class RunSubmitted(Observation, frozen=True):
    """The controller has taken the client's call."""

    client: int
    run: int  # the client's name for it


class RunEnded(Observation, frozen=True):
    """The client was told."""

    client: int
    run: int
    blame: Blame | None = None


class ClientLost(Observation, frozen=True):
    """Nobody is there to be told of its runs any more."""

    client: int


# --- transfers -----------------------------------------------------------------------------------------


class TransferOpened(Observation, frozen=True):
    """A receiver knows what will come: (sender, piece, nbytes). Sparse: empty, and not known before."""

    transfer: int
    receiver: int
    pieces: tuple[tuple[int, int, int], ...]
    sparse: bool = False


class Granted(Observation, frozen=True):
    """The receiver has promised room for so many more bytes."""

    transfer: int
    sender: int
    receiver: int
    nbytes: int


class PeerLost(Observation, frozen=True):
    """The receiver has learnt that a sender is gone: what it had promised to it is free for others."""

    receiver: int
    sender: int


class SpoiltCame(Observation, frozen=True):
    """The receiver has heard that a sender will send no more: what it had promised to it is free for others."""

    transfer: int
    sender: int
    receiver: int


class ChunkSent(Observation, frozen=True):
    transfer: int
    sender: int
    receiver: int
    nbytes: int


class ChunkArrived(Observation, frozen=True):
    """Contents were written into the receiver's buffer."""

    transfer: int
    sender: int
    receiver: int
    piece: int
    offset: int
    nbytes: int


class TransferOver(Observation, frozen=True):
    """The receiver's side has ended: all is here, or a blame says why nothing more will be."""

    transfer: int
    receiver: int
    blame: Blame | None = None
