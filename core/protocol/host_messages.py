"""The messages between the controller and hosts: what is ordered, down the tree of hosts, and reports, up.

Start with `messages`, which has the words and the picture. Neighbours: the controller's `outbox`, one end; `fanout`
and `host`, the other.
"""

from __future__ import annotations

from ..model import AllHosts, Layout, Plan, Range, Spans
from .wire import Blame, Wire

# ---------------------------------------------------------------------------------------------------------------
# Controller -> hosts: one ordered stream for each island, down a tree of hosts. A message is encoded once for all.


class RunHeader(Wire, frozen=True):
    """A run of a plan. The buffer of slot s is `base + s`, except that of an argument, which `args` names."""

    run: int
    plan: int
    base: int
    args: tuple[int | Range, ...]  # buffer ids, by argument index
    literals: tuple[tuple[int, bytes], ...] = ()  # (argument index, contents)
    kept: tuple[tuple[int, int, int], ...] = ()  # (slot, client, its name for the buffer): lets a controller restart
    after: int = -1  # there is memory for the literals once all gangs up to this one have finished
    at: int = 0  # how many steps of the message come before the run; they may free memory for the literals
    # as `kept`, of slots that follow one another: (..., how many)
    kept_ranges: tuple[tuple[int, int, int, int], ...] = ()


class GangStep(Wire, frozen=True, tag="gang"):
    """Enqueue a step of a run on exactly these hosts, as number `seq` of the global sequence."""

    seq: int
    run: int
    step: int
    hosts: Spans
    ack: bool = False  # whether to report Enqueued, for which sequential dispatch waits
    sizes: tuple[int, ...] = ()  # actual sizes of irregular inputs
    donate: bool = True


class SendStep(Wire, frozen=True, tag="send"):
    """The source half of a move. Both halves and the data plane name the move by `transfer`."""

    seq: int
    run: int
    step: int
    hosts: Spans
    transfer: int
    client: int = 0  # if not 0: send to this client (a Get); `run` is then -1 and `step` the buffer
    shard: int = -1  # of a Get: only this shard; -1: all


class RecvStep(Wire, frozen=True, tag="recv"):
    """The target half of a move. Its memory is reserved, and free once gang `after` has finished."""

    seq: int
    run: int
    step: int
    hosts: Spans
    transfer: int
    after: int = -1
    client: int = 0  # if not 0: receive from this client (a Put); `run` is then -1 and `step` the buffer
    name: int = 0  # for a Put: the client's name for the buffer
    layout: Layout | None = None  # for a Put


class FreeStep(Wire, frozen=True, tag="free"):
    """No reference to these buffers is left. Each host frees its shards when its earlier work with them is done."""

    buffers: tuple[int | Range, ...]


class ViewStep(Wire, frozen=True, tag="view_step"):
    """Make a buffer of shards of other buffers, on the same devices, once their contents are here. It shares their
    memory, which stays until the view has been freed: that is ordered first."""

    buffer: int
    hosts: Spans
    layout: Layout
    sources: tuple[int | Range, ...]  # by device of the layout's place, in its order: what it shares there
    client: int  # the owner of the view
    name: int  # the client's name for it


class FoldStep(Wire, frozen=True, tag="fold"):
    """What this view shares is to leave the devices for a while: each host forgets its array, behind its earlier work
    with that, and remembers the view, until a ViewStep makes it again."""

    buffer: int


class SpillStep(Wire, frozen=True, tag="spill"):
    """Move a buffer to host memory, or to the disks of its hosts, after the work that was ordered before."""

    seq: int
    buffer: int
    hosts: Spans
    to_disk: bool = False


class RestoreStep(Wire, frozen=True, tag="restore"):
    seq: int
    buffer: int
    hosts: Spans
    after: int = -1


class PoisonStep(Wire, frozen=True, tag="poison"):
    """This transfer will never complete. Gangs that wait for it run with placeholders, and their outputs are marked."""

    transfer: int
    blame: Blame


class ExpectStep(Wire, frozen=True, tag="expect"):
    """All sources of a sparse exchange have counted: says how many pieces each host will receive in all."""

    transfer: int
    pieces: tuple[tuple[int, int], ...]  # (host, pieces); hosts not named receive none


class CompileStep(Wire, frozen=True, tag="compile"):
    """Compile these codes of a plan, in the background. Answer: Compiled."""

    plan: int
    codes: tuple[int, ...]
    hosts: tuple[Spans, ...] = ()  # by code: the hosts that run it and answer; () means all that get the message


class ForgetStep(Wire, frozen=True, tag="forget"):
    """Forget these runs and plans: no later message names them."""

    runs: tuple[int, ...] = ()
    plans: tuple[int, ...] = ()


class AskStep(Wire, frozen=True, tag="ask"):
    """The watchdog asks which hosts have launched this gang. Answer: Arrived."""

    seq: int


class CutStep(Wire, frozen=True, tag="cut"):
    """This gang of several steps is to end with the step that is under way. Its Done says how many are left."""

    seq: int


class GrownStep(Wire, frozen=True, tag="grown_step"):
    """The cluster has these hosts now. This comes before anything that names the new ones."""

    all_hosts: AllHosts


Step = (
    GangStep | SendStep | RecvStep | FreeStep | ViewStep | FoldStep | SpillStep | RestoreStep
    | PoisonStep | ExpectStep | CompileStep | ForgetStep | AskStep | CutStep | GrownStep
)  # fmt: skip


class Ordered(Wire, frozen=True, tag="ordered"):
    """All that one turn of the controller orders on an island, in order."""

    island: int
    epoch: int
    tree: int
    number: int  # counts up; a host refuses a message whose number is not above its last
    hosts: Spans  # the hosts that must see it; a relay passes it on only to children that have one of these below
    settled: int  # all seqs below this are final, and hosts need not report them again
    plans: tuple[Plan, ...]
    runs: tuple[RunHeader, ...]
    steps: tuple[Step, ...]


class Seat(Wire, frozen=True, tag="seat"):
    """A host's place in its island's tree, for one epoch and tree. The controller sends it directly to the host.

    From then on the host ignores messages of older epochs and trees. `abandon` lists the gangs that will never finish
    because a member is gone: the host drops those that have not started, and marks their outputs.
    """

    island: int
    epoch: int
    tree: int
    host: int
    parent: int  # -1: the controller itself
    children: tuple[tuple[int, Spans], ...]  # (child host, all hosts below it, itself included)
    members: Spans
    last: int  # the host accepts only order numbers above this
    abandon: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()  # buffers that are lost, or that have no owner any more
    start: int = 0  # by which the controller's start is known, see `Join`
    all_hosts: AllHosts = ()  # of the cluster, as it is now


class Dismiss(Wire, frozen=True, tag="dismiss"):
    """This host is not a member, or not any more. It must stop and forget everything; it may then join again."""

    host: int
    reason: str
    for_good: bool = False  # it is not to join again by itself


# ---------------------------------------------------------------------------------------------------------------
# Hosts -> controller. Join and Seated go directly, the rest up the tree; a relay combines the reports from below it.


class Held(Wire, frozen=True):
    """A buffer that a host still has, and the client that holds it."""

    buffer: int
    client: int
    name: int  # the client's name for the buffer
    layout: Layout
    ready: bool
    spilled: bool = False  # it has left the devices, or is about to; of a view: it is folded
    sources: tuple[int, ...] = ()  # of a view: by device of its place on this host, the buffer that it shares there
    on_disk: bool = False  # of a spilled one: it is there, and not in host memory


class Join(Wire, frozen=True, tag="join"):
    """A host asks for a seat: it is new, or back after a failure (with another incarnation), or has lost its path."""

    host: int
    incarnation: int
    epoch: int = -1  # of the seat that it still has, if any
    last: int = -1  # the last order number that it has seen
    held: tuple[Held, ...] = ()
    unfinished: tuple[int, ...] = ()  # seqs that it still has to finish
    # The start of the controller that it served last: a random number. 0: it does not say. A controller whose state
    # does not go back to that start (an older copy of the state, say) would take one buffer for another.
    start: int = 0


class Seated(Wire, frozen=True, tag="seated"):
    """The epoch has formed on this host: all old work is done or abandoned."""

    host: int
    epoch: int
    tree: int
    last: int  # the last order number that it has seen


class Leave(Wire, frozen=True, tag="leave"):
    """The host asks to be drained (a planned stop, or a pre-emption notice). `patience`: nanoseconds in which what it
    has may move away."""

    host: int
    reason: str = ""
    patience: int = 0


class Done(Wire, frozen=True, tag="done"):
    """Gang, transfer half, spill or restore `seq` has ended on these hosts. A blame poisons its outputs."""

    seq: int
    hosts: Spans
    blame: Blame | None = None
    # by output of an irregular node: the first dimension of the largest shard; of a gang of several steps: how many of
    # them were left undone
    sizes: tuple[int, ...] = ()


class Enqueued(Wire, frozen=True, tag="enqueued"):
    seq: int
    hosts: Spans


class Compiled(Wire, frozen=True, tag="compiled"):
    plan: int
    code: int
    hosts: Spans
    blame: Blame | None = None
    about: bytes = b""  # of node 0: what the host with its first device says about the code, see `CodeReady`


class PieceCounts(Wire, frozen=True, tag="counted"):
    """Sparse exchange: how many pieces these hosts send to each target host, in all."""

    transfer: int
    hosts: Spans
    pieces: tuple[tuple[int, int], ...]  # (target host, pieces)


class Arrived(Wire, frozen=True, tag="arrived"):
    """Answer to AskStep: these hosts have launched the gang."""

    seq: int
    hosts: Spans


class HostFault(Wire, frozen=True, tag="trouble"):
    """A launch failed, which ends the epoch; a device is lost, or what the host has of a buffer; or the host could not
    write to its disk. Relays pass it on at once and do not combine it."""

    host: int
    seq: int
    blame: Blame
    device: int = -1
    buffer: int = -1


class Lost(Wire, frozen=True, tag="lost"):
    """A relay's lease on a child has run out."""

    host: int
    reporter: int  # the relay


class Heartbeat(Wire, frozen=True, tag="beat"):
    """These hosts are alive, and each has seen every message for it up to `number`."""

    hosts: Spans
    number: int


Report = Done | Enqueued | Compiled | PieceCounts | Arrived | HostFault | Lost | Heartbeat


class Reports(Wire, frozen=True, tag="reports"):
    island: int
    epoch: int
    tree: int
    reports: tuple[Report, ...]
