"""The messages between clients, the controller and hosts. Start here to read core.

A core machine is `handle(event, now) -> [command, ...]` and `next_wakeup() -> time or None`. It knows no clock, no
network and no device. Two thin drivers, sim/ and backend/, carry out its commands and turn what happens into events.

    client  --Calls-->  controller  --Ordered-->  host (relay -> executor)  --Launch...-->  its devices
    client  <--Notes--  controller  <--Reports--  host (relay <- executor)  <--Finished--   its devices
                     host  <-- Grant / Offer / Chunk / Spoilt / Landed -->  host or client      (data plane)

Words: a *run* is one execution of a program. A *gang* is one execution of one computation on all its devices. An
island's *order* is the one sequence in which all its gangs are enqueued. `seq` is the place of a gang or transfer in
the one global sequence, from which each island's order is cut. A *buffer* is one logical sharded array. Times are
integer nanoseconds. Ids are small integers: the controller counts buffers, runs and seqs, a client chooses its own
names for buffers, runs and programs, and the topology numbers hosts, devices and islands. Where a message lists many
buffers, those with consecutive numbers are one `Range`.
"""

from __future__ import annotations

from typing import Any, Literal, Self

import msgspec

from ..model import Layout, Plan, Program, Range, SliceSpec, Spans, Value

# ---------------------------------------------------------------------------------------------------------------
# Shared pieces


class Blame(msgspec.Struct, frozen=True):
    """Why something failed, as the user is told: the cause, and the program, node and host where it arose."""

    # "user", "cancelled", "host-lost", "refused", "no-memory", "timeout", "client-lost", "restart", ...; a driver also
    # says "peer" if a collective failed because of another member (the lease that runs out shows which), see `blames`
    code: str
    cause: str  # the text of the first failure
    program: str = ""
    node: str = ""
    host: int = -1

    def __deepcopy__(self, memo: dict[int, Any]) -> Blame:
        return self  # it is immutable

    def __str__(self) -> str:
        parts = [
            f"program {self.program!r}" if self.program else "",
            f"node {self.node!r}" if self.node else "",
        ]
        where = ", ".join(p for p in [*parts, f"host {self.host}" if self.host >= 0 else ""] if p)
        return f"[{self.code}] {self.cause}" + (f" ({where})" if where else "")


class Wire(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages between processes. They are encoded as compact arrays with a short tag."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it is immutable


# ---------------------------------------------------------------------------------------------------------------
# Client -> controller. The client chooses every name in a call in advance, so no call waits for an answer.


class Open(Wire, frozen=True, tag="open"):
    """The first message of a client, also when it reconnects."""

    name: str
    weight: int = 1
    priority: int = 0
    client: int = 0  # when it reconnects: the number that it had before
    held: tuple[int, ...] = ()  # when it reconnects: the buffers that it still holds
    open_runs: tuple[int, ...] = ()  # when it reconnects: the runs whose end it has not seen


class Register(Wire, frozen=True, tag="register"):
    """Register a program. Compilation starts in the background; runs of it may be submitted at once."""

    program: int
    ir: Program


class Unregister(Wire, frozen=True, tag="unregister"):
    program: int


class Submit(Wire, frozen=True, tag="submit"):
    """Start one run of a program. `waited` and `think` are recorded for what-if studies."""

    run: int
    program: int
    args: tuple[int | bytes | Range, ...]  # the client's names of buffers, or literals (4 KiB in all)
    results: tuple[int | Range, ...]  # names for the results; 0 for a result that the client will not hold
    dispatch: Literal["parallel", "sequential"] = "parallel"
    deadline: int = 0
    waited: tuple[int, ...] = ()  # the runs whose ends the client waited for before this call
    think: int = 0  # nanoseconds from the last of these ends to this call


class Put(Wire, frozen=True, tag="put"):
    """Announce a buffer. The client sends its contents directly to hosts, once they grant it credits."""

    buffer: int
    value: Value
    slice: SliceSpec


class Get(Wire, frozen=True, tag="get"):
    """Ask for a buffer's contents. Hosts send them directly to this client. Answer: GetAccepted or Refused."""

    request: int
    buffer: int


class Release(Wire, frozen=True, tag="release"):
    buffers: tuple[int | Range, ...]


class ReleaseSlice(Wire, frozen=True, tag="release_slice"):
    name: str


class Cancel(Wire, frozen=True, tag="cancel"):
    run: int


class CloseSession(Wire, frozen=True, tag="bye"):
    pass


Call = Register | Unregister | Submit | Put | Get | Release | ReleaseSlice | Cancel | CloseSession


class Calls(Wire, frozen=True, tag="calls"):
    """Several calls in one message: a busy client sends its small calls together."""

    calls: tuple[Call, ...]


# ---------------------------------------------------------------------------------------------------------------
# Controller -> client, in the client's names


class Opened(Wire, frozen=True, tag="opened"):
    client: int
    incarnation: int


class ContentsReady(Wire, frozen=True, tag="ready"):
    """These buffers have contents now; or, with a blame, they never will."""

    buffers: tuple[int | Range, ...]
    blame: Blame | None = None


class Ended(Wire, frozen=True, tag="ended"):
    """The run has ended. This is sent exactly once for each run."""

    run: int
    blame: Blame | None = None


class Waiting(Wire, frozen=True, tag="waiting"):
    """Says what a run waits for. Nothing is wrong with the run."""

    run: int  # a negative number means the put of that buffer
    reason: str  # "" if it does not wait any more
    age: int = 0  # of the wait, in nanoseconds


class Stalled(Wire, frozen=True, tag="stalled"):
    """A wait has exceeded its soft bound. The hard bound will end it."""

    run: int
    program: str
    node: str
    island: str
    missing: Spans  # hosts that have not arrived
    reason: str
    age: int = 0  # of the wait, in nanoseconds


class GetAccepted(Wire, frozen=True, tag="sending"):
    """Answer to Get: the hosts that have the shards send them as `transfer`."""

    request: int
    transfer: int
    layout: Layout
    rows: int = -1  # how many rows of the first dimension are valid; -1: all


class PutAccepted(Wire, frozen=True, tag="taking"):
    """Answer to Put: memory is reserved, and hosts will grant credits for `transfer`, which carries the contents."""

    buffer: int
    transfer: int
    layout: Layout


class Refused(Wire, frozen=True, tag="refused"):
    """The controller refuses a call. The blame says what was asked, what there is, and what would fit."""

    what: str  # "program", "put", "get" or "slice"; "sending": a get after `GetAccepted`; not all contents may come
    name: int
    blame: Blame


class ConnectionClosed(Wire, frozen=True, tag="goodbye"):
    """The controller closes the connection: the peer broke the protocol, or was dismissed."""

    reason: str


Note = (
    Opened
    | ContentsReady
    | Ended
    | Waiting
    | Stalled
    | GetAccepted
    | PutAccepted
    | Refused
    | ConnectionClosed
)


class ClientMessages(Wire, frozen=True, tag="notes"):
    notes: tuple[Note, ...]


# ---------------------------------------------------------------------------------------------------------------
# Controller -> hosts: one ordered stream for each island, down a tree of hosts. A message is encoded once for all.


class RunHeader(Wire, frozen=True):
    """A run of a plan. The buffer of slot s is `base + s`, except that of an argument, which `args` names."""

    run: int
    plan: int
    base: int
    args: tuple[int | Range, ...]  # buffer ids, by argument index
    literals: tuple[tuple[int, bytes], ...] = ()  # (argument index, contents)
    kept: tuple[
        tuple[int, int, int], ...
    ] = ()  # (slot, client, its name for the buffer): lets a controller restart
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


class SpillStep(Wire, frozen=True, tag="spill"):
    """Move a buffer to host memory, after the work that was ordered before."""

    seq: int
    buffer: int
    hosts: Spans


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
    hosts: tuple[
        Spans, ...
    ] = ()  # by code: the hosts that run it and answer; () means all that get the message


class ForgetStep(Wire, frozen=True, tag="forget"):
    """Forget these runs and plans: no later message names them."""

    runs: tuple[int, ...] = ()
    plans: tuple[int, ...] = ()


class AskStep(Wire, frozen=True, tag="ask"):
    """The watchdog asks which hosts have launched this gang. Answer: Arrived."""

    seq: int


Step = (
    GangStep | SendStep | RecvStep | FreeStep | SpillStep | RestoreStep
    | PoisonStep | ExpectStep | CompileStep | ForgetStep | AskStep
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


class Dismiss(Wire, frozen=True, tag="dismiss"):
    """This host is not a member, or not any more. It must stop and forget everything; it may then join again."""

    host: int
    reason: str


# ---------------------------------------------------------------------------------------------------------------
# Hosts -> controller. Join and Seated go directly, the rest up the tree; a relay combines the reports from below it.


class Held(Wire, frozen=True):
    """A buffer that a host still has, and the client that holds it."""

    buffer: int
    client: int
    name: int  # the client's name for the buffer
    layout: Layout
    ready: bool
    spilled: bool = False  # in host memory, or on its way there


class Join(Wire, frozen=True, tag="join"):
    """A host asks for a seat: it is new, or back after a failure (with another incarnation), or has lost its path."""

    host: int
    incarnation: int
    epoch: int = -1  # of the seat that it still has, if any
    last: int = -1  # the last order number that it has seen
    held: tuple[Held, ...] = ()
    unfinished: tuple[int, ...] = ()  # seqs that it still has to finish


class Seated(Wire, frozen=True, tag="seated"):
    """The epoch has formed on this host: all old work is done or abandoned."""

    host: int
    epoch: int
    tree: int
    last: int  # the last order number that it has seen


class Leave(Wire, frozen=True, tag="leave"):
    """The host asks to be drained (a planned stop, or a pre-emption notice)."""

    host: int
    reason: str = ""


class Done(Wire, frozen=True, tag="done"):
    """Gang, transfer half, spill or restore `seq` has ended on these hosts. A blame poisons its outputs."""

    seq: int
    hosts: Spans
    blame: Blame | None = None
    sizes: tuple[int, ...] = ()  # by output of an irregular node: the first dimension of the largest shard


class Enqueued(Wire, frozen=True, tag="enqueued"):
    seq: int
    hosts: Spans


class Compiled(Wire, frozen=True, tag="compiled"):
    plan: int
    code: int
    hosts: Spans
    blame: Blame | None = None


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
    """A launch failed, which ends the epoch, or a device is lost. Relays pass it on at once and do not combine it."""

    host: int
    seq: int
    blame: Blame
    device: int = -1


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
