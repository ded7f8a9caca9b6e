"""The observations that a driver reports to the checkers, one call for each as it happens; and the controller's own.

Hosts, devices, islands, seqs, buffers and transfers have the controller's ids; runs have the client's names.
"""

from __future__ import annotations

from core.controller.observations import *
from core.controller.observations import Observation
from core.model import Spans
from core.protocol import Blame

# --- hosts and epochs ----------------------------------------------------------------------------------


class HostJoined(Observation, frozen=True):
    """A host process is up, with nothing on its devices."""

    host: int
    devices: Spans
    memory: int  # bytes of each device


class HostLost(Observation, frozen=True):
    """A host process has ended, and all that was on its devices is lost. (A host that is only cut off is not lost.)"""

    host: int


class HostSeated(Observation, frozen=True):
    """The host has joined this epoch: from now on it acts only on messages of this epoch."""

    host: int
    island: int
    epoch: int


class Obeyed(Observation, frozen=True):
    """The host has acted on an Ordered of this epoch and number (and did not refuse it)."""

    host: int
    island: int
    epoch: int
    number: int


# --- gangs ---------------------------------------------------------------------------------------------


class Launched(Observation, frozen=True):
    """A host has enqueued a gang on its devices, with contents or with placeholders."""

    host: int
    seq: int
    epoch: int  # of the seat that the host has
    devices: Spans  # this host's devices of the gang
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    donated: tuple[int, ...] = ()
    placeholders: bool = False


class Started(Observation, frozen=True):
    """These devices of the host have started the gang. (They may wait in it for other devices.)"""

    host: int
    seq: int
    devices: Spans


class FinishedSeen(Observation, frozen=True):
    """The gang has ended on these devices of the host: it succeeded, failed, or was abandoned."""

    host: int
    seq: int
    devices: Spans


# --- buffers and memory --------------------------------------------------------------------------------


class Allocated(Observation, frozen=True):
    """Memory of a device was allocated."""

    device: int
    what: str  # "buffer 7" for a buffer's shard, "gang 12" for a gang's scratch memory
    nbytes: int


class Released(Observation, frozen=True):
    """All memory that `what` had on this device was freed."""

    device: int
    what: str


class BufferMade(Observation, frozen=True):
    """The host has its shards of a buffer from now on, perhaps as a future.

    This is for buffers that are received, put, restored or filled from a literal. Launched reports outputs of gangs.
    """

    host: int
    buffer: int


class BufferFreed(Observation, frozen=True):
    """The host carries out a FreeBuffer. (The Launched of a gang frees its donated inputs.)"""

    host: int
    buffer: int


class BufferUsed(Observation, frozen=True):
    """A user other than a gang begins to read or fill the buffer on this host."""

    host: int
    buffer: int
    by: str  # "send 14", "recv 9", "spill 3"


class BufferUnused(Observation, frozen=True):
    """A user that BufferUsed has reported does not use the buffer any more."""

    host: int
    buffer: int
    by: str


# --- runs and clients ----------------------------------------------------------------------------------


# --- transfers -----------------------------------------------------------------------------------------


class TransferOpened(Observation, frozen=True):
    """A receiver has opened its half of a transfer."""

    transfer: int
    receiver: int
    # (sender, piece, nbytes); if sparse: empty, because not known yet
    pieces: tuple[tuple[int, int, int], ...]
    sparse: bool = False


class Granted(Observation, frozen=True):
    """The receiver has granted the sender so many more bytes."""

    transfer: int
    sender: int
    receiver: int
    nbytes: int


class PeerLost(Observation, frozen=True):
    """The receiver has learnt that a sender is gone, and takes back the credits that it had granted it."""

    receiver: int
    sender: int


class SpoiltReceived(Observation, frozen=True):
    """The receiver has got a sender's Spoilt, and takes back the credits that it had granted it."""

    transfer: int
    sender: int
    receiver: int


class ChunkSent(Observation, frozen=True):
    transfer: int
    sender: int
    receiver: int
    nbytes: int


class ChunkArrived(Observation, frozen=True):
    """The contents of a chunk were written into the receiver's buffer."""

    transfer: int
    sender: int
    receiver: int
    piece: int
    offset: int
    nbytes: int


class TransferOver(Observation, frozen=True):
    """The receiver's half has ended: all pieces have arrived, or a blame says why they never will."""

    transfer: int
    receiver: int
    blame: Blame | None = None
