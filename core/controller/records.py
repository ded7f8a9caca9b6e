"""What the controller remembers of clients, programs, runs and operations: facts, and no decisions.

`ClientRecord` is one client. `BufferName` is what a client's name for a buffer stands for. `ProgramRecord` is a
registered program, `RunRecord` one execution of it, and `InFlight` one thing that has entered an island's order and
is not over. They are msgspec structs because one of each is made for every gang, and a struct is made in C.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..memory import Buffer
from ..model import Layout, Place, Plan, Program, RangeTable, Spans, ranges
from ..protocol import Blame, Get, RunHeader, Submit
from ..schedule.policy import Ticket
from .plan_rows import PlanRows, PlanView

LATER: Any = ()  # the default of what is made when the run is lowered or started; nothing reads it before


class ClientRecord(msgspec.Struct, eq=False):
    """One client, as long as it lives. Its own names map to the controller's ids here and nowhere else."""

    number: int
    peer: int
    name: str
    weight: int
    priority: int
    names: RangeTable[BufferName] = msgspec.field(
        default_factory=RangeTable
    )  # the client's name -> its buffer
    top: int = 0  # no name above it was ever used
    programs: dict[int, ProgramRecord] = {}
    runs: dict[int, RunRecord] = {}  # the client's name -> run, until it has ended
    last_run: int = 0  # names of runs only grow, so that one ends once
    gone: bool = False


class BufferName(msgspec.Struct, eq=False):
    """What a client's name for a buffer stands for. A result is named before its run is lowered, so before it has
    an id; runs that read it wait here. It may be `count` consecutive names, for buffers with consecutive ids, to all of
    which the same has happened. What is cut off is `behind`, so whoever knew it when it was longer finds all parts."""

    session: ClientRecord
    name: int  # the first
    buffer: int = -1
    alias: bool = False  # a second name for a buffer: a result, or argument, that is returned once more
    others: list[BufferName] = []  # aliases of this that clients hold
    read_on: list[BufferName] = []  # aliases that no client holds any more, by which runs read it
    ready: bool = False  # its contents are there
    released: bool = False
    blame: Blame | None = None
    readers: dict[int, RunRecord] = {}  # runs that read it and have not ended
    gets: list[tuple[ClientRecord, Get]] = []  # asked for before it was ready
    count: int = 1
    behind: BufferName | None = None

    def part(self, at: int) -> BufferName:
        """Keep the first `at` names of several; return what holds the others. Their buffers are cut by the caller."""
        rest = self.behind = BufferName(
            self.session, self.name + at, self.buffer + at if self.buffer >= 0 else -1, ready=self.ready,
            released=self.released, blame=self.blame, readers=self.readers.copy(), count=self.count - at,
            behind=self.behind,
        )  # fmt: skip
        self.count = at
        names = self.session.names
        if names.get(self.name) is self:
            names.divided(self.name, rest.name, rest)
        return rest

    def parts(self, count: int) -> list[BufferName]:
        """What has become of it, which was once for so many names."""
        found, named, left = [self], self, count - self.count
        while left:
            assert named.behind is not None
            named = named.behind
            found.append(named)
            left -= named.count
        return found

    @property
    def wanted(self) -> bool:
        """Its client holds it; or a get from before the client let go is still to be answered."""
        return not self.released or bool(self.gets)


class ProgramRecord(msgspec.Struct, eq=False):
    """A registered program of a session. The last block is the plan of its last run, which the next run takes too
    while the slices and the arguments lie where they lay."""

    session: ClientRecord
    name: int
    ir: Program
    nbytes: tuple[int, ...] = ()  # by argument
    small: bool = False  # all arguments may be literals
    donated: frozenset[int] = frozenset()  # arguments
    edges: tuple[int, ...] = ()  # arguments of which just one of itself and the one before it is donated
    blame: Blame | None = None  # why it can never run here

    bound_at: int = -1  # `Resources.version` when its slices were bound to ...
    places: tuple[Place, ...] = ()
    homes: tuple[Layout, ...] = ()  # where literals lie, by argument
    lowered_at: int = -1  # `Lowerings.version` when it was lowered, for arguments that lie as ...
    layouts: tuple[Layout | tuple[Layout, ...], ...] = ()
    rows: PlanRows | None = None
    tokens: tuple[int, ...] = ()  # by step of that plan, what the order's hash takes for it


# A run's life: what happened -> state before -> state after. Anything else is a fault of ours and raises.
RUN_TABLE: dict[str, dict[str, str]] = {
    "planned": {"submitted": "planned"},  # slices bound, arguments' layouts known, lowered
    "compiled": {"planned": "compiled"},  # every host has reported ready
    "moved": {"planned": "submitted", "compiled": "submitted"},  # the device map changed under it: lower again
    "stale": {"compiled": "planned"},  # a new epoch: its code must be compiled again
    "admitted": {"compiled": "running"},  # all its memory is reserved on all islands
    "settled": {"running": "over", "draining": "over"},
    "failed": {
        "submitted": "over", "planned": "over", "compiled": "over",
        "running": "draining",  # what has entered an order runs to its end, the rest never enters
        "draining": "draining",
    },
}  # fmt: skip
PLANNED, COMPILED, ADMITTED = RUN_TABLE["planned"], RUN_TABLE["compiled"], RUN_TABLE["admitted"]
SETTLED = RUN_TABLE["settled"]


class RunRecord(msgspec.Struct, eq=False):
    """One execution of a program, from the call to the last report. What it derives from its plan is in `rows`."""

    id: int
    program: ProgramRecord
    session: ClientRecord
    call: Submit
    submitted: int
    since: int  # when what it `waits` for began
    sources: dict[int, BufferName | bytes]  # its arguments, by index; of several as one, by that of the first
    width: dict[int, int]  # how many arguments there are as one, where there are several
    reads: int  # how many of the sources are buffers
    state: str = "submitted"
    base: int = 0  # slot s is buffer base + s
    names: list[BufferName] = []  # of its results, in order; empty if its client keeps none of them ...
    unkept: bool = False  # ... and nothing else needs names for them: each is free when its gang has run
    counts: list[int] = []  # of the names, where some are several as one: how many
    made_results: dict[
        int, list[tuple[int, int, int]]
    ] = {}  # step -> results that it makes: (slot, buffer, count)
    held: dict[int, int] = {}  # argument index -> buffer id, while this run holds it; of several, the first
    literals: dict[int, int] = LATER  # argument index -> slot
    own: dict[int, int] = {}  # slot -> buffer of a result that later steps of this run still read
    rows: PlanRows | None = None
    view: PlanView | None = None  # of the rows, for the arguments that are counted as one
    header: RunHeader | None = None
    untold: dict[int, Spans] = LATER  # islands (and their hosts) that have not been told of it
    donated: frozenset[int] = frozenset()  # arguments whose memory it really takes over
    in_line: int = 0  # its number among those that wait for memory; 0: it is not among them
    using: bool = False  # admitted: what it holds is in use, and stays on the devices
    gates: list[int] = LATER  # by step: how many steps must still enter (or more, see dispatch) before it may
    unsettled: list[int] = LATER  # by step: its own end, and that of everything it reads
    entered: bytearray = LATER  # by step: 0 not yet, 1 in an order, 2 over on its hosts, 3 settled
    late: list[int] = LATER  # by step: producers on other islands that are not over
    spoilt: dict[int, Blame] = {}  # step -> first blame of what it made
    sizes: dict[int, tuple[int, ...]] = {}  # irregular step -> what came out
    users: dict[int, int] = {}  # slot read by moves -> reads that have not ended
    open_steps: int = 0  # in an order and not over
    left: int = 0  # steps that have not settled
    offered: dict[int, Ticket] = {}  # while a scheduler has it
    blame: Blame | None = None
    ended: bool = False  # the client has been told
    waits: str = ""  # what it waits for, in words; see `stalls`
    told: str = ""  # what its client was told of that
    stalled: bool = False  # it has outlasted its soft bound

    def turn(self, happened: str) -> None:
        self.state = RUN_TABLE[happened][self.state]

    @property
    def plan(self) -> Plan:
        assert self.rows is not None
        return self.rows.plan

    def buffer_of(self, slot: int) -> int:
        """Buffer id of a slot: arguments keep the id they came with."""
        assert self.header is not None
        assert self.rows is not None
        arg = self.rows.plan.slots[slot].arg
        if arg < 0:
            return self.base + slot
        if not self.width:
            return self.header.args[arg]  # type: ignore[return-value]  # there are no ranges
        found: int = ranges.each(self.header.args)[arg]
        return found

    def is_held(self, arg: int) -> bool:
        """Whether it holds a buffer for this argument."""
        if arg in self.held or not self.width:
            return arg in self.held
        return any(first in self.held and first <= arg < first + count for first, count in self.width.items())

    def result_names(self) -> list[BufferName]:
        """The names of its results, as they are counted now."""
        if not self.counts:
            return self.names
        both = zip(self.names, self.counts, strict=True)
        return [part for named, count in both for part in named.parts(count)]

    def describe(self, step: int) -> tuple[str, str]:
        """Program and node, as the user named them."""
        return self.program.ir.name, self.plan.steps[step].name


class InFlight(msgspec.Struct, eq=False):
    """Something with a seq that is in an island's order and not over on all its hosts."""

    seq: int
    kind: str  # "gang", "send", "recv", "put", "get", "spill", "restore"
    island: int
    hosts: Spans
    left: Spans  # hosts that have not reported Done
    missing: Spans  # of a stall: have not launched it
    entered: int
    since: int  # when it became the oldest of its island
    run: RunRecord | None = None
    step: int = -1
    buffer: int = -1
    transfer: int = -1
    cost: int = 0
    ticket: Ticket | None = None
    unacked: Spans = ()  # hosts that have not reported Enqueued (asked of gangs under sequential dispatch)
    uncounted: Spans = ()  # hosts that have not reported PieceCounts (asked of sends)
    counts: dict[int, int] | None = None
    poisoned: bool = False
    copied: Buffer | None = None  # of a spill or restore
    session: ClientRecord | None = None  # of a put or get
    request: int = 0  # of a get: the client's name for it
    late: str = ""  # of a stall: what was last said of it
    blame: Blame | None = None
