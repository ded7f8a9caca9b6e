"""The commands that a machine gives its driver, and the events that the driver gives back.

Commands are named by imperatives (`Launch`, `Send`), events by past participles (`Finished`). A driver decides
nothing: a command says what to do, with what, and commands are carried out in the order in which they come.

A cause names an event at one host: `("order", number)`, `("done", seq)` of a gang or a copy, `("recv", transfer)`,
`("sent", transfer)`, `("count", transfer)`, `("code", plan << 20 | code)`, `("seat", tree)`, `("reformed", epoch)`,
`("failed", seq)`, `("lost", device)`; or an earlier command of the same host: `("launch", seq)`, and `("sending",
transfer)` for its OpenSend. An executor's command happens at the time of the last of its causes. So a driver may run
one executor for a thousand identical hosts, and take the maximum of the causes' times at each host.
"""

from __future__ import annotations

import msgspec

from ..model import Layout, Range, ranges
from .dataplane import Chunk
from .messages import Blame, Report, Seated

Cause = tuple[str, int]


class Event(msgspec.Struct, frozen=True, gc=False):
    """What a machine is told has happened."""


class Command(msgspec.Struct, frozen=True, gc=False):
    """What a machine tells its driver to do, or to pass on."""


# Where one machine drives another, what the one commands, the other is told. `Received` and `Sent` are both: the
# executor is told of them, and the driver is shown them.
Effect = Event | Command


# --- any machine -> its driver or its neighbours -----------------------------------------------------------------


class Send(Command, frozen=True):
    """Send one message to each of these peers. The driver encodes it once."""

    peers: tuple[int, ...]
    message: msgspec.Struct
    causes: tuple[Cause, ...] = ()


class Close(Command, frozen=True):
    """Close the connection to this peer. If the peer can still be reached, it has been sent `reason` before."""

    peer: int
    reason: str
    breach: str = "protocol"  # the rule that the peer broke; "" if none


# --- executor -> devices of its host -----------------------------------------------------------------------------


class CompileCode(Command, frozen=True):
    """Compile a code of a plan in the background, for the devices of its step. Answer: CodeReady."""

    plan: int
    code: int
    causes: tuple[Cause, ...]


class Prepare(Command, frozen=True):
    """Host work of a gang that needs no data may be done now. The Launch follows when the inputs are here."""

    seq: int
    run: int
    step: int
    causes: tuple[Cause, ...]


class Launch(Command, frozen=True):
    """Enqueue a gang on its devices of this host, in the order in which Launches come.

    Inputs are futures of earlier launches, or buffers that are here. With `placeholders` some inputs are poisoned:
    launch with any contents, because the other hosts' collective waits for this host. A driver does the same by
    itself if an input's maker has failed meanwhile. Answer: Finished, always; or LaunchFailed, and then enqueue
    nothing more until `Abandon` names the gang.
    """

    seq: int
    run: int
    step: int
    reads: tuple[int | Range, ...]  # ids of its inputs
    makes: tuple[int | Range, ...]  # ids of its outputs
    gives: tuple[int | Range, ...]  # ids of those inputs that are donated
    sizes: tuple[int, ...]
    placeholders: bool
    causes: tuple[Cause, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """One by one, as the next two."""
        return tuple(ranges.each(self.reads))

    @property
    def outputs(self) -> tuple[int, ...]:
        return tuple(ranges.each(self.makes))

    @property
    def donated(self) -> tuple[int, ...]:
        return tuple(ranges.each(self.gives))


class FreeBuffer(Command, frozen=True):
    """Free this host's shards of the buffer, on its devices or, if spilled, in host memory; and those of the buffers
    whose ids come next, if `count` says that they are several."""

    buffer: int
    causes: tuple[Cause, ...]
    count: int = 1

    @property
    def buffers(self) -> range:
        """One by one."""
        return range(self.buffer, self.buffer + self.count)


class MakeBuffer(Command, frozen=True):
    """Allocate this host's shards of a buffer that will be received, or fill them from a literal."""

    buffer: int
    layout: Layout
    literal: bytes | None
    causes: tuple[Cause, ...]


class SpillBuffer(Command, frozen=True):
    seq: int
    buffer: int
    causes: tuple[Cause, ...]


class RestoreBuffer(Command, frozen=True):
    seq: int
    buffer: int
    causes: tuple[Cause, ...]


class CountRows(Command, frozen=True):
    """Read, for a sparse exchange, how many rows go to each target host. Answer: RowsCounted."""

    transfer: int
    buffer: int
    target: Layout
    causes: tuple[Cause, ...]
    source: Layout | None = None  # layout of the buffer; the driver may have forgotten it


class Reform(Command, frozen=True):
    """The old epoch is over on this host: drop these gangs wherever they are, and join the new world.

    Answer: Reformed.
    """

    epoch: int
    members: tuple[tuple[int, int], ...]
    abandon: tuple[int, ...]
    causes: tuple[Cause, ...] = ()


class Abandon(Command, frozen=True):
    """These launched gangs can never finish because a member is gone: make the devices give them up.

    Finished is not expected for them any more; if it comes, it is ignored.
    """

    seqs: tuple[int, ...]
    causes: tuple[Cause, ...] = ()


class ToController(Command, frozen=True):
    """Send this to the controller. A Report goes up the tree, where relays combine it; a Seated goes directly."""

    report: Report | Seated
    causes: tuple[Cause, ...]


class Stop(Command, frozen=True):
    """The host was dismissed: free everything, and start again under another incarnation or exit."""

    reason: str


# --- executor <-> the transfer machine of its host ------------------------------------------------------------------


class OpenSend(Command, frozen=True):
    """The local source of a transfer is ready; `pieces` are (receiver, piece, nbytes).

    A move has both layouts; its pieces are numbered as in `resharding.Piece`, or as in `RowsCounted` if it is
    sparse. Without `target`, pieces are whole shards of `source`.
    """

    transfer: int
    buffer: int
    pieces: tuple[tuple[int, int, int], ...]
    blame: Blame | None
    causes: tuple[Cause, ...]
    source: Layout | None = None
    target: Layout | None = None


class OpenRecv(Command, frozen=True):
    """Memory for the target of a transfer is here; `pieces` are (sender, piece, nbytes).

    Transfers are granted credits in the order of `seq`. If sparse, ExpectRecv says later how many pieces come. A
    move has both layouts; without `source`, pieces are whole shards of `target`.
    """

    transfer: int
    seq: int
    buffer: int
    pieces: tuple[tuple[int, int, int], ...]
    sparse: bool
    causes: tuple[Cause, ...]
    source: Layout | None = None
    target: Layout | None = None


class ExpectRecv(Command, frozen=True):
    """The sparse transfer has this many pieces in all for this host."""

    transfer: int
    pieces: int
    causes: tuple[Cause, ...]


class DropTransfer(Command, frozen=True):
    """Forget the transfer, on whichever side this machine is: it is poisoned or abandoned, or its peer is gone.

    If a side is open and has not been answered yet, answer it now: `Received` with the blame, or `Sent`.
    """

    transfer: int
    blame: Blame
    causes: tuple[Cause, ...]


class Fill(Command, frozen=True):
    """To the driver: write the contents of this chunk into the buffer, at their place.

    A driver throws away a chunk for which no Fill follows: it is not needed any more, and its buffer may be gone.
    """

    buffer: int
    chunk: Chunk


class Received(Event, Command, frozen=True):
    """All pieces of the transfer are in the target buffer; or, with a blame, they never will be."""

    transfer: int
    blame: Blame | None = None


class Sent(Event, Command, frozen=True):
    """All receivers have confirmed that they have what this host sent them."""

    transfer: int


# --- devices -> executor ----------------------------------------------------------------------------------------------


class Finished(Event, frozen=True):
    """The gang has ended on all devices of this host."""

    seq: int
    blame: Blame | None = None
    sizes: tuple[int, ...] = ()


class FinishedTogether(Event, frozen=True):
    """To a host: these gangs have ended, in this order. The reports about them travel as one message."""

    ends: tuple[Finished, ...]


class LaunchFailed(Event, frozen=True):
    """The gang could not be enqueued here, though other hosts may have enqueued it. This ends the epoch.

    Its outputs count as made and its donated inputs as gone. The driver holds back later launches until Abandon
    names this gang; otherwise their collectives would pair with the wrong ones on other hosts.
    """

    seq: int
    blame: Blame


class CodeReady(Event, frozen=True):
    plan: int
    code: int
    blame: Blame | None = None


class Copied(Event, frozen=True):
    """A spill or restore has ended."""

    seq: int
    blame: Blame | None = None


class RowsCounted(Event, frozen=True):
    """The pieces of a sparse exchange that this host will send."""

    transfer: int
    pieces: tuple[tuple[int, int, int], ...]  # (receiver, piece, nbytes)
    blame: Blame | None = None


class DeviceLost(Event, frozen=True):
    device: int
    blame: Blame


class Reformed(Event, frozen=True):
    epoch: int


class LeaveRequested(Event, frozen=True):
    """To a host: its operator wants it drained (a planned stop, or a pre-emption notice)."""

    reason: str = ""


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


class LogLine(Command, frozen=True):
    """A line for the controller's log. Only people read it."""

    text: str
    passing: bool = False  # it describes a state that may have ended by the time it is read


class PolicyReplaced(Command, frozen=True):
    """An island's policy broke its contract, and fifo replaces it from now on. The driver must show this to users."""

    island: str
    policy: str
    fault: str  # for example "raised KeyError: 'x' when asked to pick"

    @property
    def text(self) -> str:
        return f"island {self.island!r}: policy {self.policy} {self.fault}; fifo has taken over"


# --- client -> the user's process it lives in --------------------------------------------------------------------


class RunEnded(Command, frozen=True):
    """A run that was submitted has ended. This comes exactly once for each run."""

    run: int
    blame: Blame | None = None
    lacks: tuple[tuple[int, str], ...] = ()  # (argument, what became of it): why a run could not be retried


class RunAgain(Command, frozen=True):
    """The run failed through no fault of its own, and will be submitted again."""

    run: int
    blame: Blame
    number: int  # which retry it will be, from 1
    at: int  # when


class GetAgain(Command, frozen=True):
    """The contents that came as `transfer` are useless; they are asked for again under the same request."""

    request: int
    transfer: int
    blame: Blame


class PutContentsUnneeded(Command, frozen=True):
    """The contents of these puts were kept so that they could be put again; the driver may drop them now."""

    buffers: tuple[int, ...]


class BuffersReady(Command, frozen=True):
    """These buffers have contents now; or, with a blame, they never will."""

    buffers: tuple[int, ...]
    blame: Blame | None = None


class GetStarted(Command, frozen=True):
    """The hosts that have the shards will send the contents of a Get, as `transfer`. `rows`: see `GetAccepted`."""

    request: int
    transfer: int
    layout: Layout
    rows: int = -1


class PutStarted(Command, frozen=True):
    """The hosts are ready to receive the contents of a Put, as `transfer`."""

    buffer: int
    transfer: int
    layout: Layout


class CallRefused(Command, frozen=True):
    """The controller has refused a call."""

    what: str  # "program", "put", "get", "slice" or "sending", as in `Refused`
    name: int
    blame: Blame


class Unblocked(Command, frozen=True):
    """The user may repeat a call that was answered with `Blocked`."""


class CallsMade(Event, frozen=True):
    """The user has called methods of the client: return the commands that resulted."""


# --- connections (every machine that has peers) --------------------------------------------------------------------


class Connected(Event, frozen=True):
    peer: int


class Disconnected(Event, frozen=True):
    """The link to this peer has ended for good: its lease ran out, or the peer closed it or began a new one."""

    peer: int
    reason: str = ""
    anew: bool = False  # a new link to the peer begins at once


class MessageReceived(Event, frozen=True):
    """A message from a peer has arrived, decoded. Messages of a peer come in the order in which it sent them."""

    peer: int
    message: msgspec.Struct


class Malformed(Event, frozen=True):
    """A peer has sent bytes that are not a message."""

    peer: int
    reason: str


class Wakeup(Event, frozen=True):
    """The time that `next_wakeup()` named has come."""
