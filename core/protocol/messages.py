"""The vocabulary: every message between machines, every event from a driver, every command to one. Start here.

A core machine is `handle(event, now) -> [command, ...]` and `next_wakeup() -> time or None`. It knows no
clock, no network and no device; two thin drivers (sim/, backend/) turn commands into effects and effects
into events.

    client  --Calls-->  controller  --Ordered-->  host (relay -> executor)  --Launch...-->  its devices
    client  <--Notes--  controller  <--Reports--  host (relay <- executor)  <--Finished--   its devices
                     host  <-- Grant / Offer / Chunk / Spoilt / Landed -->  host or client      (data plane)

Words: a *run* is one execution of a program; a *gang* one execution of one computation on all its devices;
an island's *order* the one sequence in which all its gangs are enqueued; `seq` a gang's (or transfer's)
place in the one global sequence, from which each island's order is cut; a *buffer* one logical sharded
array. Times are integer nanoseconds. Ids are small integers, counted per controller (buffers, runs, seqs),
chosen by the client (its names for buffers, runs and programs), or given by the topology (hosts, devices,
islands).
"""

from __future__ import annotations

from typing import Any, Literal, Self

import msgspec

from ..model import Layout, Plan, Program, SliceSpec, Spans, Value

# ---------------------------------------------------------------------------------------------------------------
# Shared pieces


class Blame(msgspec.Struct, frozen=True):
    """Why something failed, in the user's words: which program, node, host; `cause` is the first text of it."""

    # "user", "cancelled", "host-lost", "refused", "no-memory", "timeout", "client-lost", "restart", ...; and from a
    # driver "peer" (a collective failed because of another member; its lease tells who that was), and its kin: `blames`
    code: str
    cause: str
    program: str = ""
    node: str = ""
    host: int = -1

    def __deepcopy__(self, memo: dict[int, Any]) -> Blame:
        return self  # nobody can change it

    def __str__(self) -> str:
        parts = [
            f"program {self.program!r}" if self.program else "",
            f"node {self.node!r}" if self.node else "",
        ]
        where = ", ".join(p for p in [*parts, f"host {self.host}" if self.host >= 0 else ""] if p)
        return f"[{self.code}] {self.cause}" + (f" ({where})" if where else "")


class Wire(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of what travels between processes: compact arrays with a short tag."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # nobody can change it


# ---------------------------------------------------------------------------------------------------------------
# Client -> controller. Every name in a call is the client's own, chosen in advance: no call awaits an answer.


class Open(Wire, frozen=True, tag="open"):
    """First call of a client. `held` and `open_runs`, when it comes back, tell the controller what it believes."""

    name: str
    weight: int = 1
    priority: int = 0
    client: int = 0  # the number it had before, when it comes back
    held: tuple[int, ...] = ()
    open_runs: tuple[int, ...] = ()


class Register(Wire, frozen=True, tag="register"):
    """Compilation starts now, in the background; runs of the program may be submitted at once."""

    program: int
    ir: Program


class Unregister(Wire, frozen=True, tag="unregister"):
    program: int


class Submit(Wire, frozen=True, tag="submit"):
    """One run. `args` are the client's buffer names, or bytes (literals, 4 KiB in all). `waited`/`think`: which runs'
    ends the client had waited for before this call and how long it thought since (closes what-if's loop)."""

    run: int
    program: int
    args: tuple[int | bytes, ...]
    results: tuple[int, ...]  # names for the results; 0 for one that nobody will hold
    dispatch: Literal["parallel", "sequential"] = "parallel"
    deadline: int = 0
    waited: tuple[int, ...] = ()
    think: int = 0


class Put(Wire, frozen=True, tag="put"):
    """Announce a buffer whose contents the client sends straight to hosts, once it is granted credits."""

    buffer: int
    value: Value
    slice: SliceSpec


class Get(Wire, frozen=True, tag="get"):
    """Ask that a buffer's contents be sent straight to this client (under transfer id `-request`)."""

    request: int
    buffer: int


class Release(Wire, frozen=True, tag="release"):
    buffers: tuple[int, ...]


class ReleaseSlice(Wire, frozen=True, tag="release_slice"):
    name: str


class Cancel(Wire, frozen=True, tag="cancel"):
    run: int


class Bye(Wire, frozen=True, tag="bye"):
    pass


Call = Register | Unregister | Submit | Put | Get | Release | ReleaseSlice | Cancel | Bye


class Calls(Wire, frozen=True, tag="calls"):
    """Small calls travel together when the pipe is busy."""

    calls: tuple[Call, ...]


# ---------------------------------------------------------------------------------------------------------------
# Controller -> client, in the client's names


class Opened(Wire, frozen=True, tag="opened"):
    client: int
    incarnation: int


class Ready(Wire, frozen=True, tag="ready"):
    """These buffers have contents now; or never will."""

    buffers: tuple[int, ...]
    blame: Blame | None = None


class Ended(Wire, frozen=True, tag="ended"):
    """Sent exactly once a run."""

    run: int
    blame: Blame | None = None


class Waiting(Wire, frozen=True, tag="waiting"):
    """Nothing is wrong; this is what the run waits for, and for how many nanoseconds it has. reason: "" is nothing any
    more. run: a negative number stands for the put of that buffer."""

    run: int
    reason: str
    age: int = 0


class Stalled(Wire, frozen=True, tag="stalled"):
    """A wait outlasted its soft bound. Reported by name; the hard bound ends it."""

    run: int
    program: str
    node: str
    island: str
    missing: Spans  # hosts that have not arrived
    reason: str
    age: int = 0  # of the wait, in nanoseconds


class Sending(Wire, frozen=True, tag="sending"):
    """Answer to Get: what will arrive as `transfer`, from where; `rows` of its first dimension are meant (-1: all)."""

    request: int
    transfer: int
    layout: Layout
    rows: int = -1


class Taking(Wire, frozen=True, tag="taking"):
    """Answer to Put: memory is there; hosts grant credits for `transfer`, by which the contents travel."""

    buffer: int
    transfer: int
    layout: Layout


class Refused(Wire, frozen=True, tag="refused"):
    """A program, put, get or slice that cannot be: what there is, what was asked, the nearest that would fit.

    "sending": a get that had been answered by Sending, and whose contents may not all come."""

    what: str
    name: int
    blame: Blame


class Goodbye(Wire, frozen=True, tag="goodbye"):
    """The controller closes the connection: the peer broke the protocol, or it was told to go."""

    reason: str


Note = Opened | Ready | Ended | Waiting | Stalled | Sending | Taking | Refused | Goodbye


class Notes(Wire, frozen=True, tag="notes"):
    notes: tuple[Note, ...]


# ---------------------------------------------------------------------------------------------------------------
# Controller -> hosts: one ordered stream an island, down the tree. One message for all hosts, encoded once.


class RunHeader(Wire, frozen=True):
    """A run of a plan: buffer of slot s is `base + s`, except arguments, which are named in `args`."""

    run: int
    plan: int
    base: int
    args: tuple[int, ...]  # buffer ids, by argument index
    literals: tuple[tuple[int, bytes], ...] = ()  # (argument index, contents)
    kept: tuple[
        tuple[int, int, int], ...
    ] = ()  # (slot, client, its name for it): what a restart is rebuilt from
    after: int = -1  # there is room for the literals once all gangs up to this one have finished
    at: int = 0  # so many steps of the message come before it: they may free what the literals take


class GangStep(Wire, frozen=True, tag="gang"):
    """Enqueue step `step` of run `run`, as number `seq` of the global sequence, on exactly these hosts."""

    seq: int
    run: int
    step: int
    hosts: Spans
    ack: bool = False  # report Enqueued (sequential dispatch waits for it)
    sizes: tuple[int, ...] = ()  # actual sizes of irregular inputs
    donate: bool = True


class SendStep(Wire, frozen=True, tag="send"):
    """Source half of a move. `transfer` is the name both halves and the data plane use."""

    seq: int
    run: int
    step: int
    hosts: Spans
    transfer: int
    client: int = 0  # not 0: the contents go to this client (a Get); `run` is then -1 and `step` the buffer


class RecvStep(Wire, frozen=True, tag="recv"):
    """Target half of a move: memory is reserved; it is physically there once gang `after` has finished."""

    seq: int
    run: int
    step: int
    hosts: Spans
    transfer: int
    after: int = -1
    client: int = (
        0  # not 0: the contents come from this client (a Put); `run` is then -1 and `step` the buffer
    )
    name: int = 0  # of a Put: the client's name for it
    layout: Layout | None = None  # of a Put


class FreeStep(Wire, frozen=True, tag="free"):
    """Nobody holds these any more; each host frees its shards when its own earlier work with them is done."""

    buffers: tuple[int, ...]


class SpillStep(Wire, frozen=True, tag="spill"):
    """Move a buffer to host DRAM, after the work that was ordered before."""

    seq: int
    buffer: int
    hosts: Spans


class RestoreStep(Wire, frozen=True, tag="restore"):
    seq: int
    buffer: int
    hosts: Spans
    after: int = -1


class PoisonStep(Wire, frozen=True, tag="poison"):
    """This transfer will never complete: whoever still waits for it takes placeholders and marks what
    follows."""

    transfer: int
    blame: Blame


class ExpectStep(Wire, frozen=True, tag="expect"):
    """Sparse exchange, all sources have run: host h of these will receive `pieces` in all, and no more."""

    transfer: int
    pieces: tuple[tuple[int, int], ...]  # (host, pieces); hosts not named receive none


class CompileStep(Wire, frozen=True, tag="compile"):
    """Prepare these codes of a plan for its places; never in a device's queue. Answered by Compiled."""

    plan: int
    codes: tuple[int, ...]
    hosts: tuple[Spans, ...] = ()  # by code: who runs it, and so answers; () stands for all who are told


class ForgetStep(Wire, frozen=True, tag="forget"):
    """Runs and plans that no later message names."""

    runs: tuple[int, ...] = ()
    plans: tuple[int, ...] = ()


class AskStep(Wire, frozen=True, tag="ask"):
    """The watchdog's question: which hosts have launched this gang? Answered by Arrived."""

    seq: int


Step = (
    GangStep | SendStep | RecvStep | FreeStep | SpillStep | RestoreStep
    | PoisonStep | ExpectStep | CompileStep | ForgetStep | AskStep
)  # fmt: skip


class Ordered(Wire, frozen=True, tag="ordered"):
    """Everything one turn of the controller has to say to an island, in order. A host whose last number is
    not lower refuses it. `settled`: seqs below it are final, hosts need not re-report them."""

    island: int
    epoch: int
    tree: int
    number: int
    hosts: Spans  # who must see it; relays pass it on only where one of these is below
    settled: int
    plans: tuple[Plan, ...]
    runs: tuple[RunHeader, ...]
    steps: tuple[Step, ...]


class Seat(Wire, frozen=True, tag="seat"):
    """A host's place in its island for an epoch and tree: sent directly, not down the tree. Fences older
    paths.

    `last`: the order number from which this host goes on. `abandon`: gangs that will never finish, because
    a member is gone: drop them where they have not started, mark their outputs (tombstones in the
    order)."""

    island: int
    epoch: int
    tree: int
    host: int
    parent: int  # -1: the controller itself
    children: tuple[tuple[int, Spans], ...]  # (child host, all hosts below it, itself included)
    members: Spans
    last: int
    abandon: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()  # buffers that are lost or that nobody owns any more


class Dismiss(Wire, frozen=True, tag="dismiss"):
    """This host is not, or no longer, a member: stop, forget everything; join again to come back."""

    host: int
    reason: str


# ---------------------------------------------------------------------------------------------------------------
# Hosts -> controller. Through the tree all but Join and Seated; relays combine: one event a subtree.


class Held(Wire, frozen=True):
    """A buffer that a host still has, and to whom it was promised."""

    buffer: int
    client: int
    name: int
    layout: Layout
    ready: bool
    spilled: bool = False  # in host memory, or on its way there


class Join(Wire, frozen=True, tag="join"):
    """A host presents itself: new, back after a failure (another incarnation), or re-seated after a lost
    path."""

    host: int
    incarnation: int
    epoch: int = -1  # of the seat it still has, if any
    last: int = -1
    held: tuple[Held, ...] = ()
    unfinished: tuple[int, ...] = ()  # seqs it still has to finish


class Seated(Wire, frozen=True, tag="seated"):
    """The epoch has formed on this host: old work is done or abandoned, `last` is the last number it has
    seen."""

    host: int
    epoch: int
    tree: int
    last: int


class Leave(Wire, frozen=True, tag="leave"):
    """Graceful: drain me (a planned stop, or a pre-emption notice)."""

    host: int
    reason: str = ""


class Done(Wire, frozen=True, tag="done"):
    """Gang, transfer half, spill or restore `seq` is over on these hosts. A blame poisons what it made."""

    seq: int
    hosts: Spans
    blame: Blame | None = None
    sizes: tuple[int, ...] = ()  # of an irregular node's outputs: largest shard's leading size


class Enqueued(Wire, frozen=True, tag="enqueued"):
    seq: int
    hosts: Spans


class Compiled(Wire, frozen=True, tag="compiled"):
    plan: int
    code: int
    hosts: Spans
    blame: Blame | None = None


class Counted(Wire, frozen=True, tag="counted"):
    """Sparse exchange: these hosts have sent all they will, so many pieces to each target host."""

    transfer: int
    hosts: Spans
    pieces: tuple[tuple[int, int], ...]


class Arrived(Wire, frozen=True, tag="arrived"):
    """Answer to AskStep: these have launched it."""

    seq: int
    hosts: Spans


class Trouble(Wire, frozen=True, tag="trouble"):
    """Passed on at once, never combined: a launch failed (ends the epoch), a device is lost."""

    host: int
    seq: int
    blame: Blame
    device: int = -1


class Lost(Wire, frozen=True, tag="lost"):
    """A relay's lease on a child ran out."""

    host: int
    reporter: int


class Beat(Wire, frozen=True, tag="beat"):
    """These hosts are alive, and all of them have seen every message up to `number` that was for them."""

    hosts: Spans
    number: int


Report = Done | Enqueued | Compiled | Counted | Arrived | Trouble | Lost | Beat


class Reports(Wire, frozen=True, tag="reports"):
    island: int
    epoch: int
    tree: int
    reports: tuple[Report, ...]
