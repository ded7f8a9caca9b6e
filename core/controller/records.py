"""What the controller remembers: sessions, programs, plans in use, runs, and what is under way in an island's order.

Records hold facts and no decisions; the rooms beside this file decide. Every record is reachable from `books.Books`.
"""

from __future__ import annotations

from ..memory import Buffer, donates, effective
from ..model import Gang, Move, Plan, Program, Spans
from ..protocol import Blame, Get, Open, RunHeader, Submit
from ..schedule.policy import Ticket


class Session:
    """One client, as long as it lives. Its own names map to the controller's ids here and nowhere else."""

    def __init__(self, number: int, peer: int, opening: Open) -> None:
        self.number = number
        self.peer = peer
        self.name = opening.name
        self.weight = opening.weight
        self.priority = opening.priority
        self.names: dict[int, Named] = {}  # client's name for a buffer -> what it stands for
        self.programs: dict[int, ProgramRecord] = {}
        self.runs: dict[int, Run] = {}  # client's name -> run, until it has ended
        self.last_run = 0  # names of runs only grow, so that one ends once
        self.gone = False


class Named:
    """What a client's name for a buffer stands for. A result is named before its run is lowered, so before it has
    an id; runs that read it wait here."""

    __slots__ = ("alias", "blame", "buffer", "gets", "name", "others", "read_on", "readers", "ready",
                 "released", "session")  # fmt: skip

    def __init__(self, session: Session, name: int, buffer: int = -1) -> None:
        self.session = session
        self.name = name
        self.buffer = buffer
        self.alias = (
            False  # another name for a buffer that has one: of a result, or argument, returned once more
        )
        self.others: list[Named] = []  # aliases of this that clients hold
        self.read_on: list[Named] = []  # aliases that no client holds any more, by which runs read it
        self.ready = False  # its contents are there
        self.released = False
        self.blame: Blame | None = None
        self.readers: dict[int, Run] = {}  # runs that read it and have not ended
        self.gets: list[tuple[Session, Get]] = []  # asked for before it was ready

    @property
    def wanted(self) -> bool:
        """By its client's hold; or by a get from before it let go, which is answered first."""
        return not self.released or bool(self.gets)


class ProgramRecord:
    """A registered program of a session. `blame`: it can never run here."""

    def __init__(self, session: Session, name: int, ir: Program) -> None:
        self.session = session
        self.name = name
        self.ir = ir
        self.blame: Blame | None = None


class Shape:
    """What the controller derives from a plan once, so that each run of it costs little."""

    def __init__(self, plan: Plan, keys: list[int], hosts: list[Spans], per_island: dict[int, Spans]) -> None:
        self.plan = plan
        self.keys = keys  # by step: place key of a gang, of a move's target
        self.hosts = hosts  # by step: hosts of a gang, of a move's target
        self.island_hosts = per_island  # every host that must know the plan
        self.parts: dict[int, Plan] = {}  # cut for an island
        self.sent: dict[int, int] = {}  # island -> epoch in which its hosts were told the plan
        self.followers: list[list[int]] = [[] for _ in plan.steps]  # steps that wait for step i to enter
        self.makers: list[tuple[int, ...]] = []  # by step: steps that make its inputs
        self.arg_inputs: list[tuple[int, ...]] = []  # by step: arguments it reads
        self.feeds: list[list[int]] = [[] for _ in plan.steps]  # steps that read what step i makes
        self.ripens: list[list[int]] = [
            [] for _ in plan.steps
        ]  # gangs on other islands that its end makes ripe
        self.late: list[int] = [0] * len(plan.steps)  # producers on other islands, by gang
        self.users = 0  # runs lowered to it that are not over
        self.sender_users: dict[
            int, int
        ] = {}  # slots read by moves -> how many reads must end before they die
        self.results_read: dict[int, None] = {}  # results that this run reads itself
        self.read_at: list[list[int]] = [[] for _ in plan.steps]  # results whose last such gang is step i
        self.dies_at: list[list[int]] = [
            [] for _ in plan.steps
        ]  # slots whose last reader in the order is step i
        self._derive()
        self._derive_for_runs()

    def _derive_for_runs(self) -> None:
        """What each run of it begins with, so that none works it out again."""
        plan = self.plan
        self.gates = [len(after) for after in plan.after]
        self.first = [index for index, gates in enumerate(self.gates) if not gates]
        self.unsettled = [
            (1 if isinstance(step, Gang) else 2) + len(self.makers[index])
            for index, step in enumerate(plan.steps)
        ]
        self.arg_slots = [(number, slot.arg) for number, slot in enumerate(plan.slots) if slot.arg >= 0]
        self.arg_bytes = {arg: plan.slots[number].nbytes for number, arg in self.arg_slots}
        dying = [[self.plan.slots[slot].arg for slot in slots] for slots in self.dies_at]
        self.read_on = [  # by step: arguments that it reads, and is not the last to read
            [arg for arg in args if arg not in dying[index]] for index, args in enumerate(self.arg_inputs)
        ]
        self.unread = [  # arguments that no step reads, nor the program returns
            arg for number, arg in self.arg_slots
            if plan.slots[number].last < 0 and not plan.slots[number].senders and number not in plan.results
        ]  # fmt: skip
        self.exact = [not self._is_bound(slot) for slot in plan.results]
        self.passed_on: dict[tuple[int, frozenset[int]], bool] = {}
        self.donating: dict[frozenset[int], frozenset[int]] = {}  # held by nobody else -> effectively donated

    def _is_bound(self, slot: int) -> bool:
        """What it takes is known when its maker has run."""
        maker = self.plan.slots[slot].maker
        step = self.plan.steps[maker] if maker >= 0 else None
        return isinstance(step, Gang) and step.irregular

    def donated(self, sole: frozenset[int]) -> frozenset[int]:
        """Arguments whose memory a run takes over, if nobody else holds these."""
        found = self.donating.get(sole)
        if found is None:
            found = self.donating[sole] = effective(self.plan, sole)
        return found

    def donates(self, step: int, donated: frozenset[int]) -> bool:
        """Whether this gang passes its donated inputs' memory on, if these arguments are effectively donated."""
        found = self.passed_on.get((step, donated))
        if found is None:
            found = self.passed_on[step, donated] = donates(self.plan, step, donated)
        return found

    def _derive(self) -> None:
        plan = self.plan
        for index, step in enumerate(plan.steps):
            for before in plan.after[index]:
                self.followers[before].append(index)
            slots = step.inputs if isinstance(step, Gang) else (step.source,)
            makers = dict.fromkeys(plan.slots[s].maker for s in slots if plan.slots[s].maker >= 0)
            self.makers.append(tuple(makers))
            self.arg_inputs.append(
                tuple(dict.fromkeys(plan.slots[s].arg for s in slots if plan.slots[s].arg >= 0))
            )
            for maker in makers:
                self.feeds[maker].append(index)
            if isinstance(step, Gang):
                self._find_late(index, step)
        for number, slot in enumerate(plan.slots):
            if slot.senders:
                readers = sum(number in s.inputs for s in plan.steps if isinstance(s, Gang))
                self.sender_users[number] = readers + len(slot.senders)
            elif slot.last >= 0:
                self.dies_at[slot.last].append(number)
        for number in dict.fromkeys(plan.results):
            gangs = [at for at, s in enumerate(plan.steps) if isinstance(s, Gang) and number in s.inputs]
            if gangs or plan.slots[number].senders:
                self.results_read[number] = None
                if not plan.slots[number].senders:
                    self.read_at[max(gangs)].append(number)

    def _find_late(self, index: int, gang: Gang) -> None:
        """A gang is late while a producer on another island, behind a move, has not finished."""
        for number in gang.inputs:
            maker = self.plan.slots[number].maker
            step = self.plan.steps[maker] if maker >= 0 else None
            if not isinstance(step, Move):
                continue
            source = self.plan.slots[step.source]
            if source.maker >= 0 and source.layout.place.island != gang.place.island:
                self.ripens[source.maker].append(index)
                self.late[index] += 1


# A run's life. Key: (state, what happened) -> next state. Anything else is a fault of ours and raises.
RUN_TABLE: dict[tuple[str, str], str] = {
    ("submitted", "planned"): "planned",  # slices bound, arguments' layouts known, lowered
    ("planned", "compiled"): "compiled",  # every host has reported ready
    ("planned", "moved"): "submitted",  # the device map changed under it: lower again
    ("compiled", "moved"): "submitted",
    ("compiled", "stale"): "planned",  # a new epoch: its code must be compiled again
    ("compiled", "admitted"): "running",  # all its memory is reserved on all islands
    ("running", "settled"): "over",
    ("submitted", "failed"): "over",
    ("planned", "failed"): "over",
    ("compiled", "failed"): "over",
    ("running", "failed"): "draining",  # what has entered an order runs to its end, the rest never enters
    ("draining", "failed"): "draining",
    ("draining", "settled"): "over",
}  # fmt: skip


class Run:
    """One execution of a program, from the call to the last report."""

    __slots__ = (
        "base", "blame", "call", "donated", "ended", "entered", "gates", "header", "held", "id", "late", "left",
        "literals", "made_results", "names", "offered", "open_steps", "own", "program", "session", "shape", "since",
        "sizes", "sources", "spoilt", "stalled", "state", "submitted", "told", "unsettled", "untold", "users",
        "using", "waits",
    )  # fmt: skip

    def __init__(self, ident: int, program: ProgramRecord, call: Submit, now: int) -> None:
        self.id = ident
        self.program = program
        self.session = program.session
        self.call = call
        self.submitted = now
        self.state = "submitted"
        self.base = 0  # slot s is buffer base + s
        self.sources: list[Named | bytes] = []  # its arguments
        self.names: list[Named] = []  # of its results, by index
        self.made_results: dict[int, list[tuple[int, Named]]] = {}  # step -> results (slots) that it makes
        self.held: dict[int, int] = {}  # argument index -> buffer id, while this run holds it
        self.literals: dict[int, int] = {}  # argument index -> slot
        self.own: dict[int, int] = {}  # slot -> buffer of a result that later steps of this run still read
        self.shape: Shape | None = None
        self.header: RunHeader | None = None
        self.untold: dict[int, Spans] = {}  # islands (and their hosts) that have not been told of it
        self.donated: frozenset[int] = frozenset()  # arguments whose memory it really takes over
        self.using = False  # admitted: what it holds is in use, and stays on the devices
        self.gates: list[
            int
        ] = []  # by step: how many steps must still enter (or more, see dispatch) before it may
        self.unsettled: list[int] = []  # by step: its own end, and that of everything it reads
        self.entered = bytearray()  # by step: 0 not yet, 1 in an order, 2 over on its hosts, 3 settled
        self.late: list[int] = []
        self.spoilt: dict[int, Blame] = {}  # step -> first blame of what it made
        self.sizes: dict[int, tuple[int, ...]] = {}  # irregular step -> what came out
        self.users: dict[int, int] = {}  # slot read by moves -> reads that have not ended
        self.open_steps = 0  # in an order and not over
        self.left = 0  # steps that have not settled
        self.offered: dict[int, Ticket] = {}  # while a scheduler has it
        self.blame: Blame | None = None
        self.ended = False  # the client has been told
        self.waits = ""  # what it waits for, in words; see `stalls`
        self.since = now  # when that began
        self.told = ""  # what its client was told of that
        self.stalled = False  # it has outlasted its soft bound

    def turn(self, happened: str) -> None:
        self.state = RUN_TABLE[self.state, happened]

    @property
    def plan(self) -> Plan:
        assert self.shape is not None
        return self.shape.plan

    def buffer_of(self, slot: int) -> int:
        """Buffer id of a slot: arguments keep the id they came with."""
        assert self.header is not None
        assert self.shape is not None
        arg = self.shape.plan.slots[slot].arg
        return self.base + slot if arg < 0 else self.header.args[arg]

    def describe(self, step: int) -> tuple[str, str]:
        """Program and node, as the user named them."""
        return self.program.ir.name, self.plan.steps[step].name


class Flight:
    """Something with a seq that is in an island's order and not over on all its hosts."""

    __slots__ = ("blame", "buffer", "copied", "cost", "counts", "entered", "hosts", "island", "kind", "late", "left",
                 "missing", "poisoned", "request", "run", "seq", "session", "since", "step", "ticket", "transfer",
                 "unacked", "uncounted")  # fmt: skip

    def __init__(
        self, seq: int, kind: str, island: int, hosts: Spans, now: int, *,
        run: Run | None = None, step: int = -1, buffer: int = -1, transfer: int = -1, cost: int = 0,
    ) -> None:  # fmt: skip
        self.seq = seq
        self.kind = kind  # "gang", "send", "recv", "put", "get", "spill", "restore"
        self.island = island
        self.hosts = hosts
        self.left = hosts  # hosts that have not reported Done
        self.unacked: Spans = ()  # that have not reported Enqueued (asked of gangs under sequential dispatch)
        self.uncounted = hosts if kind == "send" else ()  # that have not reported Counted
        self.counts: dict[int, int] = {}
        self.missing = hosts  # of a stall: have not launched it
        self.poisoned = False
        self.copied: Buffer | None = None  # of a spill or restore
        self.session: Session | None = None  # of a put or get
        self.request = 0  # of a get: the client's name for it
        self.entered = now
        self.since = now  # when it became the oldest of its island
        self.late = ""  # of a stall: what was last said of it
        self.run = run
        self.step = step
        self.buffer = buffer
        self.transfer = transfer
        self.cost = cost
        self.blame: Blame | None = None
        self.ticket: Ticket | None = None


class Company:
    """Roots of one tree that say the same, and what is below them."""

    __slots__ = ("below", "each", "shared")

    def __init__(self, below: Spans, each: tuple[Spans, ...]) -> None:
        self.below = below  # all of them
        self.each = each
        self.shared: dict[Spans, bool] = {}  # by hosts: each of the roots has some of them below it
