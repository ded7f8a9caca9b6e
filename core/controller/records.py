"""What the controller remembers of clients, programs, runs and operations: facts, and no decisions.

`ClientRecord` is one client. `BufferName` is what a client's name for a buffer stands for. `ProgramRecord` is a
registered program, `RunRecord` one execution of it, and `InFlight` one thing that has entered an island's order and
is not over. They are msgspec structs because one of each is made for every gang, and a struct is made in C.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..memory import Buffer
from ..model import Layout, Place, Plan, Program, Spans
from ..protocol import Blame, Get, RunHeader, Submit
from ..schedule.policy import Ticket
from .plan_rows import PlanRows

LATER: Any = ()  # the default of what is made when the run is lowered or started; nothing reads it before


class ClientRecord(msgspec.Struct, eq=False):
    """One client, as long as it lives. Its own names map to the controller's ids here and nowhere else."""

    number: int
    peer: int
    name: str
    weight: int
    priority: int
    names: dict[int, BufferName] = {}  # the client's name for a buffer -> what it stands for
    programs: dict[int, ProgramRecord] = {}
    runs: dict[int, RunRecord] = {}  # the client's name -> run, until it has ended
    last_run: int = 0  # names of runs only grow, so that one ends once
    gone: bool = False


class BufferName(msgspec.Struct, eq=False):
    """What a client's name for a buffer stands for. A result is named before its run is lowered, so before it has
    an id; runs that read it wait here."""

    session: ClientRecord
    name: int
    buffer: int = -1
    alias: bool = False  # a second name for a buffer: a result, or argument, that is returned once more
    others: list[BufferName] = []  # aliases of this that clients hold
    read_on: list[BufferName] = []  # aliases that no client holds any more, by which runs read it
    ready: bool = False  # its contents are there
    released: bool = False
    blame: Blame | None = None
    readers: dict[int, RunRecord] = {}  # runs that read it and have not ended
    gets: list[tuple[ClientRecord, Get]] = []  # asked for before it was ready

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
    blame: Blame | None = None  # why it can never run here

    bound_at: int = -1  # `Resources.version` when its slices were bound to ...
    places: tuple[Place, ...] = ()
    homes: tuple[Layout, ...] = ()  # where literals lie, by argument
    lowered_at: int = -1  # `Lowerings.version` when it was lowered, for arguments that lie as ...
    layouts: tuple[Layout, ...] = ()
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
    sources: list[BufferName | bytes]  # its arguments
    reads: int  # how many of them are buffers
    state: str = "submitted"
    base: int = 0  # slot s is buffer base + s
    names: list[BufferName] = []  # of its results, by index; empty if its client keeps none of them ...
    unkept: bool = False  # ... and nothing else needs names for them: each is free when its gang has run
    made_results: dict[int, list[tuple[int, int]]] = {}  # step -> results that it makes: (slot, buffer)
    held: dict[int, int] = {}  # argument index -> buffer id, while this run holds it
    literals: dict[int, int] = LATER  # argument index -> slot
    own: dict[int, int] = {}  # slot -> buffer of a result that later steps of this run still read
    rows: PlanRows | None = None
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
        return self.base + slot if arg < 0 else self.header.args[arg]

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
