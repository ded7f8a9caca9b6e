"""What a driver is told to do, and what it tells back: the edge between a machine and the world it lives in.

Commands to a driver are imperatives (`Launch`, `Deliver`), events from it are past participles (`Finished`).
A driver never decides: what to do, in which order and with what is all in the command.

A cause is the natural name of an event at one host: `("order", number)`, `("done", seq)` of a gang or a copy,
`("recv", transfer)`, `("sent", transfer)`, `("count", transfer)`, `("code", plan << 20 | code)`, `("seat", tree)`,
`("reformed", epoch)`, `("failed", seq)`, `("lost", device)`; or of an earlier effect of the same host: `("launch",
seq)`, and `("sending", transfer)` for its OpenSend. An executor's effect happens when the last of its causes has: a
driver that runs one executor for a thousand alike hosts takes the maximum over the causes' times at each host.
"""

from __future__ import annotations

import msgspec

from ..model import Layout
from .dataplane import Chunk
from .messages import Blame, Report, Reports, Seated

Cause = tuple[str, int]


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Base of commands and of local events."""


# --- any machine -> its driver or its neighbours -----------------------------------------------------------------


class Send(Effect, frozen=True):
    """One message to each of these peers (the driver encodes it once). A peer is a connection's number."""

    peers: tuple[int, ...]
    message: msgspec.Struct
    causes: tuple[Cause, ...] = ()


class Close(Effect, frozen=True):
    """End this connection; `reason` has been sent before, if the peer can still hear."""

    peer: int
    reason: str
    breach: str = "protocol"  # what it has done wrong; "" if nothing


# --- executor -> devices of its host -----------------------------------------------------------------------------


class CompileCode(Effect, frozen=True):
    """In the background, for the devices of step `step` of the plan. Answer: CodeReady."""

    plan: int
    code: int
    causes: tuple[Cause, ...]


class Prepare(Effect, frozen=True):
    """Host work that needs no data (buffers, arguments) may be done now; the Launch follows when inputs are here."""

    seq: int
    run: int
    step: int
    causes: tuple[Cause, ...]


class Launch(Effect, frozen=True):
    """Enqueue on this host's devices of the gang, in the order in which Launches come. Inputs are futures of
    earlier launches or buffers that are here. placeholders: inputs are spoilt; launch with contents of any value,
    because the peers' collective waits for this host. So does a driver with an input whose maker has failed
    meanwhile. Answer: Finished, always; or LaunchFailed, and then nothing more is enqueued until `Abandon` names it."""

    seq: int
    run: int
    step: int
    inputs: tuple[int, ...]  # buffer ids
    outputs: tuple[int, ...]
    donated: tuple[int, ...]
    sizes: tuple[int, ...]
    placeholders: bool
    causes: tuple[Cause, ...]


class FreeBuffer(Effect, frozen=True):
    """Give this host's shards back to the devices (or to host DRAM, if spilled)."""

    buffer: int
    causes: tuple[Cause, ...]


class MakeBuffer(Effect, frozen=True):
    """Room for this host's shards of a buffer that will be received or filled from a literal."""

    buffer: int
    layout: Layout
    literal: bytes | None
    causes: tuple[Cause, ...]


class SpillBuffer(Effect, frozen=True):
    seq: int
    buffer: int
    causes: tuple[Cause, ...]


class RestoreBuffer(Effect, frozen=True):
    seq: int
    buffer: int
    causes: tuple[Cause, ...]


class CountRows(Effect, frozen=True):
    """Sparse exchange: read on the host how many rows go to each target host. Answer: RowsCounted."""

    transfer: int
    buffer: int
    target: Layout
    causes: tuple[Cause, ...]
    source: Layout | None = None  # of the buffer, which nobody else may know any more


class Reform(Effect, frozen=True):
    """Old epoch is over on this host: drop these gangs wherever they are, join the new world. Answer: Reformed."""

    epoch: int
    members: tuple[tuple[int, int], ...]
    abandon: tuple[int, ...]
    causes: tuple[Cause, ...] = ()


class Abandon(Effect, frozen=True):
    """These launched gangs can never finish (a member is gone): make the devices give them up, whatever that
    takes. Finished is not expected for them any more, and ignored."""

    seqs: tuple[int, ...]
    causes: tuple[Cause, ...] = ()


class Up(Effect, frozen=True):
    """Tell the controller: a Report by way of the relay, which combines it with others'; Seated directly."""

    report: Report | Seated
    causes: tuple[Cause, ...]


class Stop(Effect, frozen=True):
    """Dismissed: free everything and start anew under another incarnation, or end."""

    reason: str


# --- executor <-> the transfer machine of its host ------------------------------------------------------------------


class OpenSend(Effect, frozen=True):
    """The local source of a transfer is ready: `pieces` are (receiver, piece, nbytes). Of a move, both layouts are
    told, and pieces are those of `resharding.Piece`; a sparse one's are as `RowsCounted` numbered them. Without
    `target`, pieces are whole shards of `source`."""

    transfer: int
    buffer: int
    pieces: tuple[tuple[int, int, int], ...]
    blame: Blame | None
    causes: tuple[Cause, ...]
    source: Layout | None = None
    target: Layout | None = None


class OpenRecv(Effect, frozen=True):
    """Memory for a transfer's target is here: `pieces` are (sender, piece, nbytes). Grant credits, in the order
    of `seq` (the global one). Sparse: how many come is told later (ExpectRecv). Of a move, both layouts are told;
    without `source`, pieces are whole shards of `target`."""

    transfer: int
    seq: int
    buffer: int
    pieces: tuple[tuple[int, int, int], ...]
    sparse: bool
    causes: tuple[Cause, ...]
    source: Layout | None = None
    target: Layout | None = None


class ExpectRecv(Effect, frozen=True):
    """Sparse: that many pieces will have come when all have."""

    transfer: int
    pieces: int
    causes: tuple[Cause, ...]


class DropTransfer(Effect, frozen=True):
    """Forget a transfer on either side: poisoned, abandoned or its peer is gone. A side that is open and has not
    been answered for is answered for now, `Received` with the blame, or `Sent`; one that has is left alone."""

    transfer: int
    blame: Blame
    causes: tuple[Cause, ...]


class Fill(Effect, frozen=True):
    """To the driver: what this chunk carries goes into the buffer, at its place. A chunk that has come and is not
    followed by this is thrown away: nobody wants it any more, and its buffer may be gone."""

    buffer: int
    chunk: Chunk


class Received(Effect, frozen=True):
    """All pieces of the transfer are in the target buffer; or it is spoilt."""

    transfer: int
    blame: Blame | None = None


class Sent(Effect, frozen=True):
    """All receivers have landed what this host had for them."""

    transfer: int


# --- devices -> executor ----------------------------------------------------------------------------------------------


class Finished(Effect, frozen=True):
    """The gang is over on all devices of this host."""

    seq: int
    blame: Blame | None = None
    sizes: tuple[int, ...] = ()


class FinishedTogether(Effect, frozen=True):
    """To a host: these, in their order. As one after another, but what is reported of them goes as one message."""

    ends: tuple[Finished, ...]


class LaunchFailed(Effect, frozen=True):
    """It could not be enqueued here, while peers may have: ends the epoch. Its outputs count as made, its donated
    inputs as gone. Launches that come behind it wait, not enqueued, until Abandon has named it: their peers'
    collectives must not meet with the wrong one."""

    seq: int
    blame: Blame


class CodeReady(Effect, frozen=True):
    plan: int
    code: int
    blame: Blame | None = None


class Copied(Effect, frozen=True):
    """A spill or restore is over."""

    seq: int
    blame: Blame | None = None


class RowsCounted(Effect, frozen=True):
    """(receiver host, pieces) this host will send; and (receiver, piece, nbytes) in detail."""

    transfer: int
    pieces: tuple[tuple[int, int, int], ...]
    blame: Blame | None = None


class DeviceLost(Effect, frozen=True):
    device: int
    blame: Blame


class Reformed(Effect, frozen=True):
    epoch: int


class LeaveRequested(Effect, frozen=True):
    """To a host: those who run it want it drained (a planned stop, or a pre-emption notice)."""

    reason: str = ""


# --- controller -> its driver, and back: the collective world of an island ---------------------------------


class FormWorld(Effect, frozen=True):
    """Set up what the members of this epoch need before they can form (a coordination service, addresses). What was
    set up for earlier epochs stays until DropWorlds. Answer: WorldUp or WorldFailed."""

    island: int
    epoch: int
    members: tuple[tuple[int, int], ...]  # spans of hosts


class DropWorlds(Effect, frozen=True):
    """Every member of this epoch is in its world now: nobody needs what was set up for those before it."""

    island: int
    epoch: int


class WorldUp(Effect, frozen=True):
    island: int
    epoch: int


class WorldFailed(Effect, frozen=True):
    island: int
    epoch: int
    blame: Blame


class HostRefused(Effect, frozen=True):
    """A process wanted to be a host here and could not be; core tells whoever waits for hosts. `island`: which it was
    for; -1 if any would do, or nobody knows."""

    island: int
    name: str
    reason: str


class HostTaken(Effect, frozen=True):
    """One of this name is a host now: it will join."""

    name: str


class Tell(Effect, frozen=True):
    """For the people who run the controller: an event worth a line in its log. Never parsed. `passing`: it says how
    things are now, which may be over when it is read."""

    text: str
    passing: bool = False


class PolicyReplaced(Effect, frozen=True):
    """An island's policy did what none may, and fifo decides there from now on: no user may miss it. `fault`: what it
    did, as "raised KeyError: 'x' when asked to pick"."""

    island: str
    policy: str
    fault: str

    @property
    def text(self) -> str:
        return f"island {self.island!r}: policy {self.policy} {self.fault}; fifo has taken over"


# --- client -> the user's process it lives in --------------------------------------------------------------------


class RunEnded(Effect, frozen=True):
    """Exactly once a run that was submitted. `lacks`: why it was not submitted again, though it was to be: arguments
    that are gone, and what became of them."""

    run: int
    blame: Blame | None = None
    lacks: tuple[tuple[int, str], ...] = ()


class RunAgain(Effect, frozen=True):
    """It has failed through no fault of its own, and will be submitted again at `at`: for the `number`th time."""

    run: int
    blame: Blame
    number: int
    at: int


class GetAgain(Effect, frozen=True):
    """What has come as `transfer` is of no use: it is asked for again, under the same request."""

    request: int
    transfer: int
    blame: Blame


class Unneeded(Effect, frozen=True):
    """Contents of these puts, which were kept so that they could be put again, need not be kept any more."""

    buffers: tuple[int, ...]


class BuffersReady(Effect, frozen=True):
    """These have contents now; or never will."""

    buffers: tuple[int, ...]
    blame: Blame | None = None


class GetComing(Effect, frozen=True):
    """The contents of a Get come from the hosts that have its shards, as `transfer`. `rows`: see `Sending`."""

    request: int
    transfer: int
    layout: Layout
    rows: int = -1


class PutWanted(Effect, frozen=True):
    """The hosts are ready for the contents of a Put, as `transfer`."""

    buffer: int
    transfer: int
    layout: Layout


class CallRefused(Effect, frozen=True):
    """A program, put, get or slice (`what`) that cannot be."""

    what: str
    name: int
    blame: Blame


class Unblocked(Effect, frozen=True):
    """A call that was answered `Blocked` may be tried again."""


class Called(Effect, frozen=True):
    """The user has called the client: take what came of it."""


# --- connections (every machine that has peers) --------------------------------------------------------------------


class Connected(Effect, frozen=True):
    peer: int


class Disconnected(Effect, frozen=True):
    """The link is gone for good: its lease has run out, or the peer closed it, or has begun another."""

    peer: int
    reason: str = ""
    anew: bool = False  # another link with it begins at once


class Came(Effect, frozen=True):
    """A decoded message from a peer, in its order."""

    peer: int
    message: msgspec.Struct


class CameTogether(Effect, frozen=True):
    """To the controller: each of these hosts, all roots of one tree, has said this, for the part of the reports' hosts
    that is below it. The same as their messages one after another, in their order, at the cost of one."""

    peers: tuple[tuple[int, int], ...]  # spans
    message: Reports


class Malformed(Effect, frozen=True):
    """Bytes from a peer that are no message."""

    peer: int
    reason: str


class Wakeup(Effect, frozen=True):
    """`next_wakeup()` has come."""
