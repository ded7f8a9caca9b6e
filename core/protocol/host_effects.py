"""What a host's machine commands, and what it is told: by its devices, and by the transfer machine beside it.

Start with `effects`, which has the words, causes among them. Neighbours: `core.host` and `core.transfer`; the drivers.
"""

from __future__ import annotations

from ..model import Layout, Range, ranges
from .dataplane import Chunk
from .effect_base import Cause, Command, Event
from .host_messages import Report, Seated
from .wire import Blame

MOST_ABOUT = 1 << 20


# --- executor -> devices of its host -----------------------------------------------------------------------------


class CompileCode(Command, frozen=True):
    """Compile a code of a plan in the background, for the devices of its step. Answer: CodeReady.

    `about`: the answer should say what is known of the code now that it is compiled. That is asked of the host with
    the first device of the plan's node 0, and only for the code of that node.
    """

    plan: int
    code: int
    causes: tuple[Cause, ...]
    about: bool = False


class ForgetPlan(Command, frozen=True):
    """No later command names this plan. What was compiled for it need not be kept. Nobody wants what is still to be
    compiled for it, so a driver may give that up; its CodeReady comes all the same, perhaps at once and with a blame.
    """

    plan: int
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


class Cut(Command, frozen=True):
    """End a gang of several steps with the step that is under way (`model.GangSteps`). Its Launch came before, and it
    may have ended meanwhile. Devices that cannot do that let it go on to its end."""

    seq: int
    causes: tuple[Cause, ...]


class FreeBuffer(Command, frozen=True):
    """Free this host's shards of the buffer, on its devices or, if spilled, in host memory or on disk; and those of the
    buffers whose ids come next, if `count` says that they are several."""

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


class MakeView(Command, frozen=True):
    """Make this host's shards of a buffer of shards that are here: those of the named buffers on the named devices.

    Nothing is copied or allocated. The shards stay usable by the names of their own buffers. FreeBuffer for the view
    frees no memory: it comes before any FreeBuffer, SpillBuffer or donation of a buffer that the view shares.
    """

    buffer: int
    layout: Layout
    shards: tuple[tuple[int, int], ...]  # (device, the buffer whose shard on it becomes the view's), ascending
    causes: tuple[Cause, ...]


class VoidView(Command, frozen=True):
    """There is nothing to do: a source of the view is spoilt, so is the view, and none of it is made. A driver that
    calculates times needs to know when this is so, since readers wait for it."""

    buffer: int
    causes: tuple[Cause, ...]


class SpillBuffer(Command, frozen=True):
    """Copy this host's shards of the buffer to its memory, or to its disk, and free those on its devices.

    If they cannot be written to the disk, they stay in memory; Copied says so. One copy at a time uses the disk.
    """

    seq: int
    buffer: int
    causes: tuple[Cause, ...]
    to_disk: bool = False


class RestoreBuffer(Command, frozen=True):
    """Copy them back. `from_disk`: they were to be there, and may be in memory."""

    seq: int
    buffer: int
    causes: tuple[Cause, ...]
    from_disk: bool = False


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
    for_good: bool = False  # the process is to end


# --- executor <-> the transfer machine of its host ------------------------------------------------------------------


class OpenSend(Command, frozen=True):
    """The local sources of a transfer are ready; `pieces` are (receiver, piece, nbytes).

    A move has the layouts of both ends; its pieces are numbered as in `resharding.numbered`, or as in `RowsCounted` if
    it is sparse. Without `targets`, there is one source, and pieces are its whole shards.
    """

    transfer: int
    buffers: tuple[int, ...]
    pieces: tuple[tuple[int, int, int], ...]
    blame: Blame | None
    causes: tuple[Cause, ...]
    sources: tuple[Layout, ...] = ()
    targets: tuple[Layout, ...] = ()


class OpenRecv(Command, frozen=True):
    """Memory for the targets of a transfer is here; `pieces` are (sender, piece, nbytes).

    Transfers are granted credits in the order of `seq`. If sparse, ExpectRecv says later how many pieces come. A
    move has the layouts of both ends; without `sources`, there is one target, and pieces are its whole shards.
    """

    transfer: int
    seq: int
    buffers: tuple[int, ...]
    pieces: tuple[tuple[int, int, int], ...]
    sparse: bool
    causes: tuple[Cause, ...]
    sources: tuple[Layout, ...] = ()
    targets: tuple[Layout, ...] = ()


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
    """To the driver: write the contents of this chunk into the buffer of its piece, at their place.

    A driver throws away a chunk for which no Fill follows: it is not needed any more, and its buffer may be gone.
    """

    chunk: Chunk


class Received(Event, Command, frozen=True):
    """All pieces of the transfer are in the target buffer; or, with a blame, they never will be."""

    transfer: int
    blame: Blame | None = None
    request: int = 0  # at a client: the get that is over ...
    rows: int = -1  # ... and how many rows of it are valid; -1: all


class Sent(Event, Command, frozen=True):
    """All receivers have confirmed that they have what this host sent them."""

    transfer: int


# --- devices -> executor ----------------------------------------------------------------------------------------------


class Finished(Event, frozen=True):
    """The gang has ended on all devices of this host. `sizes`: as in `Done`."""

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
    """`about` is for the client that registered the program, and opaque to core: at most `MOST_ABOUT` bytes."""

    plan: int
    code: int
    blame: Blame | None = None
    about: bytes = b""


class Copied(Event, frozen=True):
    """A spill or restore has ended. `no_disk`: why it could not be written to the disk, and is in memory."""

    seq: int
    blame: Blame | None = None
    no_disk: str = ""


class RowsCounted(Event, frozen=True):
    """The pieces of a sparse exchange that this host will send."""

    transfer: int
    pieces: tuple[tuple[int, int, int], ...]  # (receiver, piece, nbytes)
    blame: Blame | None = None


class SourceLost(Event, frozen=True):
    """The contents of this chunk cannot be read, and it goes without them. This comes before its receiver can have
    confirmed it; of a chunk to the host itself, it may come behind Sent and Received."""

    chunk: Chunk
    array: int  # which source of the transfer it is cut from
    blame: Blame


class DeviceLost(Event, frozen=True):
    device: int
    blame: Blame


class Reformed(Event, frozen=True):
    """`blame`: why this host could not join the epoch's world."""

    epoch: int
    blame: Blame | None = None


class LeaveRequested(Event, frozen=True):
    """To a host: its operator wants it drained (a planned stop, or a pre-emption notice), see `Leave`."""

    reason: str = ""
    patience: int = 0
