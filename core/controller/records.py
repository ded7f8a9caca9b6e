"""What the controller remembers of clients, programs, runs and operations: facts, and no decisions.

`AccountRecord` is whose clients are, and `ClientRecord` one client. `BufferName` is what a client's name for a buffer
stands for. `ProgramRecord` is a registered program, `RunRecord` one execution of it, and `InFlight` one thing that has
entered an island's order and is not over. They are msgspec structs because one of each is made for every gang, and a
struct is made in C.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from ..memory import Buffer
from ..model import Account, Layout, Node, Place, Plan, Program, RangeTable, Spans, ranges, spans
from ..protocol import OF_ANOTHER, Blame, Get, RunHeader, Submit, View
from ..schedule.policy import Ticket
from .plan_rows import PlanRows, PlanView
from .usage import Usage

Amounts = tuple[tuple[int, int], ...]  # (key of a place, bytes on each of its devices)

LATER: Any = ()  # the default of what is made when the run is lowered or started; nothing reads it before
NO_PLAN: Any = None  # likewise, of what is looked at to see whether it has been


class AccountRecord(msgspec.Struct, eq=False):
    """An account: its limits, who of it is here, and what it has used."""

    limits: Account
    usage: Usage
    sessions: dict[int, ClientRecord] = {}
    share: int = 0  # the number by which policies know its clients, while any is here


# upper ends of a histogram's buckets, in nanoseconds: 100 us, 200 us, 500 us, ... 1000 s
BOUNDS = (*(digit * 10**power for power in range(5, 12) for digit in (1, 2, 5)), 10**12)


class Histogram(msgspec.Struct, eq=False):
    """How many times were how long. The last count is of those beyond all bounds. Times are added in place: each gang
    is counted, and a call would cost more than that."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: int = 0


class ClientMeter(msgspec.Struct, eq=False):
    """What clients of one name have had so far; see `meters`."""

    name: str
    failed: int = 0  # runs; the next two are of those that did not fail
    run_time: Histogram = msgspec.field(default_factory=Histogram)
    wait_time: Histogram = msgspec.field(default_factory=Histogram)  # until a run's first gang had its devices
    device_time: dict[int, int] = {}  # by island: nanoseconds of all devices together
    shown_time: dict[int, int] = {}  # the same with what gangs under way have had, when it was last looked at

    def run_over(self, run: RunRecord, now: int) -> None:
        if run.blame is not None:
            self.failed += 1
            return
        for histogram, until in ((self.wait_time, run.begun), (self.run_time, now)):
            if until >= 0:
                taken = until - run.submitted
                histogram.counts[bisect_left(BOUNDS, taken)] += 1
                histogram.total += taken


class ClientRecord(msgspec.Struct, eq=False):
    """One client, as long as it lives. Its own names map to the controller's ids here and nowhere else."""

    number: int
    peer: int
    name: str
    weight: int
    priority: int
    account: AccountRecord
    share: int  # the number by which policies know it: its own, or that of its account
    meter: ClientMeter  # that of all who share its name
    # the client's name -> its buffer
    names: RangeTable[BufferName] = msgspec.field(default_factory=RangeTable)
    top: int = 0  # no name above it was ever used
    programs: dict[int, ProgramRecord] = {}
    on_slice: dict[str, dict[int, ProgramRecord]] = {}  # those that are valid, by the slices that they need
    runs: dict[int, RunRecord] = {}  # the client's name -> run, until it has ended
    last_run: int = 0  # names of runs only grow, so that one ends once
    gone: bool = False

    def enter(self, named: BufferName) -> BufferName:
        """It has a name for a buffer that it puts or views, or has held since before a restart."""
        self.names[named.name] = named
        self.top = max(self.top, named.name)
        return named

    def validated(self, program: ProgramRecord) -> None:
        for spec in program.ir.slices:
            self.on_slice.setdefault(spec.name, {})[program.name] = program

    def unregistered(self, name: int) -> ProgramRecord | None:
        program = self.programs.pop(name, None)
        for spec in program.ir.slices if program is not None else ():
            there = self.on_slice.get(spec.name, {})
            there.pop(name, None)
            if not there:
                self.on_slice.pop(spec.name, None)
        return program

    def priced_on(self, kind: str, slices: Sequence[str]) -> bool:
        """Whether all that it computes on these slices has a cost on devices of this kind."""
        irs = [each.ir for name in slices for each in self.on_slice.get(name, {}).values()]
        nodes = [(ir, each) for ir in irs for each in ir.nodes if isinstance(each, Node)]
        on = [(ir.computations[each.computation], ir.slices[each.slice]) for ir, each in nodes]
        here = [computation for computation, spec in on if spec.name in slices or spec.of in slices]
        return all(not each.by_kind or kind in each.by_kind for each in here)

    def ran(self, run: int) -> None:
        """Before a restart it had a run of this name."""
        self.last_run = max(self.last_run, run)

    def ended(self, run: int) -> None:
        self.runs.pop(run, None)


class WaitingGet(msgspec.Struct, eq=False):
    """A get of a buffer that has no contents yet. It is answered then; or the hosts send early, as `transfer`, and it
    waits for the word that what they send is final."""

    session: ClientRecord
    call: Get
    transfer: int = -1
    blame: Blame | None = None  # why not all hosts have sent
    over: bool = False


class BufferName(msgspec.Struct, eq=False):
    """What a client's name for a buffer stands for. A result is named before its run is lowered, so before it has
    an id; runs that read it wait here. It may be several consecutive names at once (`count`), for buffers with
    consecutive ids: one record is enough while they are all used alike. When one of them is used apart, the record is
    cut in two. The first keeps the second in `behind`, so a run that knows the long one finds all of its parts."""

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
    gets: list[WaitingGet] = []  # asked for before it was ready
    count: int = 1
    behind: BufferName | None = None
    copies: BufferName | None = None  # its buffer is a copy of this one's, elsewhere, and will take its place
    copied: int = -1  # that buffer, of which it is a copy

    def part(self, at: int) -> BufferName:
        """Keep the first `at` names of several; return what holds the others. Their buffers are cut by the caller."""
        rest = self.behind = BufferName(
            self.session, self.name + at, self.buffer + at if self.buffer >= 0 else -1, ready=self.ready,
            released=self.released, blame=self.blame, readers=self.readers.copy(), count=self.count - at,
            behind=self.behind, copies=self.copies, copied=self.copied + at if self.copies is not None else -1,
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

    def fill(self) -> None:
        self.ready = True

    def spoil(self, blame: Blame) -> None:
        self.blame = blame

    def stand_for(self, source: BufferName) -> None:
        """It is one more name for the buffer of this one."""
        self.buffer, self.alias, self.ready = source.buffer, True, source.ready

    def copy_of(self, named: BufferName) -> BufferName:
        self.copies, self.copied = named, named.buffer
        return self

    def take_gets(self) -> list[WaitingGet]:
        """They wait no longer."""
        gets, self.gets = self.gets, []
        return gets

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
    blame: Blame | None = None  # why it cannot run here
    fits: bool = True  # False: only for its slices, so each run asks for them again, since the cluster may have grown

    pinned: bool = False  # it is the controller's own, and is bound to these places for good
    bound_at: int = -1  # `Resources.version` when its slices were bound to ...
    places: tuple[Place, ...] = ()
    homes: tuple[Layout, ...] = ()  # where literals lie, by argument
    lowered_at: int = -1  # `Lowerings.version` when it was lowered, for arguments that lie as ...
    layouts: tuple[Layout | tuple[Layout, ...], ...] = ()
    rows: PlanRows | None = None
    # by step of that plan: what stands for client, program and step in the order's hash
    tokens: list[int] = []

    def can_run(self) -> None:
        """Its slices have been had."""
        self.fits, self.blame = True, None


# A run's life: what happened -> state before -> state after. Anything else is a fault of ours and raises.
RUN_TABLE: dict[str, dict[str, str]] = {
    # said by `runs`
    "planned": {"submitted": "planned"},  # slices bound, arguments' layouts known, lowered
    "compiled": {"planned": "compiled"},  # every host has reported ready
    "moved": {"planned": "submitted", "compiled": "submitted"},  # the device map changed under it: lower again
    "stale": {"compiled": "planned"},  # a new epoch: its code must be compiled again
    # said by `admission`
    "admitted": {"compiled": "running"},  # all its memory is reserved on all islands
    # said by `outcomes`
    "settled": {"running": "over", "draining": "over"},
    "failed": {
        "submitted": "over", "planned": "over", "compiled": "over",
        "running": "draining",  # what has entered an order runs to its end, the rest never enters
        "draining": "draining",
    },
}  # fmt: skip


class RunRecord(msgspec.Struct, eq=False):
    """One execution of a program, from the call to the last report. What it derives from its plan is in `rows`. Each
    field is written here and by the module that is named above it, and `state` by `turn` (`RUN_TABLE`)."""

    id: int
    program: ProgramRecord
    session: ClientRecord
    call: Submit
    submitted: int
    sources: dict[int, BufferName | bytes]  # its arguments, by index; of several as one, by that of the first
    width: dict[int, int]  # how many arguments there are as one, where there are several
    reads: int  # how many of the sources are buffers
    state: str = "submitted"
    # written by `buffer_names`
    names: list[BufferName] = []  # of its results, in order; empty if its client keeps none of them ...
    counts: list[int] = []  # of the names, where some are several as one: how many
    # written by `runs`
    base: int = 0  # slot s is buffer base + s
    rows: PlanRows = NO_PLAN
    view: PlanView = NO_PLAN  # of the rows, for the arguments that are counted as one
    header: RunHeader = NO_PLAN
    # written by `results`
    unkept: bool = False  # ... and nothing else needs names for them: each is free when its gang has run
    # step -> results that it makes: (slot, buffer, count)
    made_results: dict[int, list[tuple[int, int, int]]] = {}
    literals: dict[int, int] = LATER  # argument index -> slot
    # written by `array_copies`
    cold: frozenset[Place] = frozenset()  # arguments that lie there are sent from host memory, if they are in it
    # written by `buffer_refs`
    held: dict[int, int] = {}  # argument index -> buffer id, while this run holds it; of several, the first
    own: dict[int, int] = {}  # slot -> buffer of a result that later steps of this run still read
    # written by `admission`
    donated: frozenset[int] = frozenset()  # arguments whose memory it really takes over
    in_line: int = 0  # its number among those that wait for memory; 0: it is not among them
    using: bool = False  # admitted: what it holds is in use, and stays on the devices
    # written by `compilation`
    untold: dict[int, Spans] = LATER  # islands (and their hosts) that have not been told of it
    # written by `dispatch`
    gates: list[int] = LATER  # by step: how many steps must still enter (or more, see dispatch) before it may
    entered: bytearray = LATER  # by step: whether it has entered an order
    offered: dict[int, Ticket] = {}  # while a scheduler has it
    open_steps: int = 0  # in an order and not over
    stopping: bool = False  # its gangs of several steps are to end early
    # written by `completion`
    unsettled: list[int] = LATER  # by step: its own end, and that of everything it reads; 0: it is settled
    late: list[int] = LATER  # by step: producers on other islands that are not over
    spoilt: dict[int, Blame] = {}  # step -> first blame of what it made
    sizes: dict[int, tuple[int, ...]] = {}  # irregular step -> what came out
    left_out: dict[int, tuple[int, ...]] = {}  # gang of several steps -> how many of them were left undone
    users: dict[int, int] = {}  # slot read by moves -> reads that have not ended
    left: int = 0  # steps that have not settled
    # written by `outcomes`
    blame: Blame | None = None
    ended: bool = False  # the client has been told
    # written by `meters`
    begun: int = -1  # when its first gang had its devices; known when that is over
    # written by `run_waits`
    waits: str = ""  # what it waits for, in words; see `stalls`
    since: int = 0  # when that began
    told: str = ""  # what its client was told of that
    stalled: bool = False  # it has outlasted its soft bound

    def turn(self, happened: str) -> None:
        self.state = RUN_TABLE[happened][self.state]

    def begin(self, rows: PlanRows) -> None:
        """It is admitted: none of its steps has entered an order."""
        self.left = len(rows.steps)
        self.entered = bytearray(self.left)
        self.gates, self.late, self.unsettled = rows.gates.copy(), rows.late.copy(), rows.unsettled.copy()
        if rows.sender_users:
            self.users = rows.sender_users.copy()
        self.untold = rows.island_hosts.copy()

    def step_over(self) -> bool:
        """True: it drains, and nothing of it is in an order any more."""
        self.open_steps -= 1
        return not self.open_steps and self.state == "draining"

    def await_argument(self, step: int) -> None:
        """What this step reads has no contents yet, so it cannot settle before that has."""
        self.unsettled[step] += 1

    def wait_behind(self, seq: int) -> None:
        """Its literals take memory that is free behind this one."""
        self.header = msgspec.structs.replace(self.header, after=seq)

    def withdraw(self) -> None:
        """No scheduler has steps of it."""
        self.offered.clear()

    def recount(
        self, sources: dict[int, BufferName | bytes], width: dict[int, int], parts: dict[int, dict[int, BufferName]]
    ) -> None:
        """Know its arguments as they are counted now. `parts`: of those that it knew as one."""
        held, self.sources, self.width, self.held = self.held, sources, width, {}
        for index, ident in held.items():
            if index in parts:
                self.held.update({at: part.buffer for at, part in parts[index].items()})
            else:
                self.held[index] = ident

    @property
    def plan(self) -> Plan:
        return self.rows.plan

    def buffer_of(self, slot: int) -> int:
        """Buffer id of a slot: arguments keep the id they came with."""
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

    def undone(self) -> int:
        """How many steps its gangs have left undone, if it has ended well."""
        return sum(map(sum, self.left_out.values())) if self.stopping and self.blame is None else 0

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
    shard: int = -1  # of a get: only this one
    request: int = 0  # the client's name for the get, or for the buffer that it puts
    early: WaitingGet | None = None  # a get that hosts send before its buffer is ready
    late: str = ""  # of a stall: what was last said of it
    blame: Blame | None = None

    def cut(self, gone: Spans, blame: Blame) -> None:
        """Some hosts are gone, or all give it up. A blame of its own is kept, and that of another's failure is not."""
        if self.blame is None or self.blame.code in OF_ANOTHER:
            self.blame = blame
        self.left = spans.minus(self.left, gone)

    def give_up(self, blame: Blame) -> None:
        self.blame = self.blame or blame


class Stall(NamedTuple):
    """Something that waits. `island`: "" if several; `node`: "" for a whole program; `hosts`: those it waits for."""

    since: int
    island: str
    client: str
    program: str
    node: str
    hosts: Spans
    reason: str


class Waiter(msgspec.Struct, eq=False):
    """Something that wants memory: a run, or (without one) a put, or what comes back to the devices for a get."""

    run: RunRecord | None
    islands: tuple[int, ...]  # all of them must be at work
    mine: Amounts = ()  # of a put: what it brings
    named: BufferName | None = None  # of a get
    session: ClientRecord | None = None  # of a put
    admitted: Callable[[int], None] | None = None  # of a put or get: what is done then
    refused: Callable[[Blame, int], None] | None = None  # of a put
    since: int = 0  # when it was found that it does not fit
    late: bool = False  # it has outlasted its soft bound
    watched: bool = False  # its wait has bounds
    passes: int = 0
    atoms: frozenset[int] = frozenset()
    spills: int = 0  # what `Admission.spills` was when its arguments were last found to be there


class WaitingView(msgspec.Struct, eq=False):
    """A view that has not been ordered yet."""

    named: BufferName
    call: View
    sources: dict[int, BufferName]  # by the client's name
    held: dict[int, int] = {}  # the client's name -> the buffer that it holds
    pins: bool = False  # all of these have been ordered, and stay on the devices from now on
