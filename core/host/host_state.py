"""What one host knows, as plain data: the tables that the parts of its executor read and write.

Nothing here decides anything. `GANG` and `MOVE` say which states follow which; what is not in them is illegal
for the device or the transfer that says it happened.

Each gang, send, receive and copy that this host takes part in has one record (`HostGang`, `HostMove`): from when
its step is read until it is over here and settled everywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..model import Illegal, Layout, Range, RangeTable, Spans
from ..protocol import Blame, Cause, Command, Compiled, GangStep, HostFault, Lost, Report, Seat, ToController
from ..transfer import Piece
from .plans import HostCall, HostPlan, PlannedGang
from .run_names import Label, Labels, SlotIds

Causes = tuple[Cause, ...]
Use = tuple[int, Cause]  # (seq, what ends the use)
CodeKey = tuple[int, int]  # (plan, code)

# What happened -> state before -> state after.
GANG: dict[str, dict[str, str]] = {
    "launch": {"queued": "launched"},
    "finish": {"launched": "over", "gone": "gone"},  # gone: the devices had finished before they were told
    # Failed: it was never enqueued here, while its peers may wait for it. The epoch must end.
    "fail": {"launched": "failed", "gone": "gone"},
    # A queued gang that is abandoned leaves a tombstone: gangs behind it go on.
    "abandon": {"queued": "over", "launched": "gone", "failed": "gone"},
}
MOVE: dict[str, dict[str, str]] = {
    "count": {"waiting": "counting"},  # sparse: the host reads which gangs go where
    "open": {"waiting": "open", "counting": "open"},
    "end": {"open": "over"},
}
OVER = ("over", "gone")


class LocalBuffer(msgspec.Struct, eq=False, gc=False):
    """This host's shards of one logical buffer.

    `blame` is known when a reader launches, however messages interleave. `final` is known when the maker has ended.
    A gang that fails while it runs sets only `final`: gangs behind it may have been launched by then, or not, and
    their launches must be the same. They end behind it, and take the blame then."""

    id: int
    layout: Layout | None
    made: Cause | None  # the contents are here when this has happened; None: they always are
    made_seq: int
    foreign: bool = False  # not made by a launch of this host: a launch that reads it waits for `made`
    user: int = -1  # the last gang in the order that makes or reads it; gangs run in order, so it ends last
    uses: tuple[Use, ...] = ()  # sends and copies
    blame: Blame | None = None
    final: Blame | None = None
    labels: tuple[Label, ...] = ()
    spilled: bool = False  # off the devices, once the copy that was ordered is over; of a view: it is folded
    on_disk: bool = False  # in this case: on disk, and not in host memory
    void: bool = False  # its maker never ran here, or it is folded: there is nothing to free
    count: int = 1  # several with consecutive ids that were made as one, and never used apart
    layouts: tuple[Layout, ...] = ()  # of several
    whole: list[LocalBuffer] | None = None  # of one that has been cut: all that were made as one
    sources: tuple[LocalBuffer, ...] = ()  # of a view: whose memory it shares
    shares: tuple[int, ...] = ()  # of a view: the same by device

    def part(self, at: int) -> LocalBuffer:
        """Keep the first `at` of several; return the others, of which all is true that is true of these."""
        layouts, labels = self.layouts, tuple([(client, name + at) for client, name in self.labels])
        if self.whole is None:
            self.whole = [self]
        rest = msgspec.structs.replace(
            self, id=self.id + at, layout=layouts[at], labels=labels, count=self.count - at, layouts=layouts[at:]
        )
        self.count, self.layouts = at, layouts[:at]
        self.whole.append(rest)
        return rest

    def parts(self) -> Sequence[LocalBuffer]:
        """What has become of several that were made as one."""
        return self.whole or (self,)

    def spoil(self, blame: Blame | None) -> None:
        """Its contents have come, or never will. The first blame stays."""
        self.blame = self.final = self.final or blame


class HostGang(msgspec.Struct, eq=False, gc=False):
    """A gang on this host: queued, then launched, then over. Also: failed, gone (see `GANG`)."""

    seq: int
    step: GangStep
    planned: PlannedGang
    inputs: Sequence[LocalBuffer]
    outputs: Sequence[LocalBuffer]
    blame: Blame | None
    reads: tuple[int | Range, ...]  # ids of the inputs
    makes: tuple[int | Range, ...]  # ids of the outputs
    donated: tuple[int | Range, ...]
    frees: Sequence[LocalBuffer]  # free when it has finished
    causes: Causes  # of its launch
    plain: bool  # it waits for nothing but the stream, and so do all gangs before it in its lanes
    state: str = "queued"
    said: tuple[Report, ...] = ()  # said again after a new seat, until it is settled

    def turn(self, happened: str) -> str:
        """Returns its state from now on."""
        after = GANG[happened].get(self.state)
        if after is None:
            raise Illegal(f"gang {self.seq} is {self.state} here: it cannot {happened}")
        self.state = after
        return after


class HostMove(msgspec.Struct, eq=False, gc=False):
    """A send, a receive, or a copy on this host: waiting, open, over; a sparse send is counting before it is open."""

    kind: str  # "send", "receive", "spill", "restore"; "none": a step that made no sense, over at once
    seq: int
    key: int  # the transfer; of a copy, the seq
    buffers: tuple[LocalBuffer, ...]
    state: str = "waiting"
    said: tuple[Report, ...] = ()
    pieces: tuple[Piece, ...] = ()
    waited: Causes = ()  # what it waits for, beside the order itself, before it can open
    sources: tuple[Layout, ...] = ()  # (): it comes from a client
    targets: tuple[Layout, ...] = ()  # (): it goes to a client
    sparse: bool = False
    empty: bool = False  # nothing travels to or from this host
    shard: int = -1  # of a send to a client: the only one that it wants; -1: all
    disk: bool = False  # of a copy: to or from the disk
    program: str = ""
    node: str = ""

    @property
    def blame(self) -> Blame | None:
        """That of the first buffer which is spoilt."""
        return next((each.final for each in self.buffers if each.final is not None), None)

    def turn(self, happened: str) -> None:
        after = MOVE[happened].get(self.state)
        if after is None:
            raise Illegal(f"{self.kind} {self.key} is {self.state} here: it cannot {happened}")
        self.state = after


class HostRun(msgspec.Struct, eq=False, gc=False):
    """One execution of a plan: its buffers by slot, and how many reads are still to come of slots that moves read."""

    id: int
    plan: HostPlan
    call: HostCall
    ids: Sequence[int] | SlotIds
    literal: dict[int, bytes]  # by argument
    labels: Labels  # the clients that were promised a slot
    # likewise, of several as one: slot, client, name, how many
    together: tuple[tuple[int, int, int, int], ...]
    parts: int  # steps that have not come
    reads: dict[int, int]  # by slot

    def owns(self, arg: int) -> bool:
        """Whether the run itself frees such a slot. Arguments belong to their holders, unless they came with the
        call."""
        return arg < 0 or arg in self.literal

    def last_read(self, slot: int) -> bool:
        """One more read of a slot that moves read has been ordered. True: it was the last, and nobody holds the
        slot."""
        self.reads[slot] -= 1
        here = self.plan.plan.slots[slot]
        return not self.reads[slot] and not here.keep and self.owns(here.arg)


class HeldEffect(msgspec.Struct, eq=False):
    """`act(subject, causes)` is called when no cause is missing any more."""

    causes: Causes
    missing: int
    act: Callable[[Any, Causes], None]  # a bound method, no closure: a copy of the executor has its own
    subject: Any


@dataclass(slots=True, eq=False)
class HostState:
    """The tables of one executor."""

    # Who this is.
    host: int
    members: Spans  # the hosts that reports are about: this one, or all for which it stands
    devices: Spans
    among: tuple[Spans, ...] = ()  # the last two sets of hosts that were found to have this one in them
    # How far the stream has come.
    epoch: int = -1
    tree: int = -1
    last: int = -1  # message
    settled: int = -1  # seqs below it are final everywhere
    order: Causes = (("order", -1),)  # what is being read, as the cause of what is done at once
    forming: Seat | None = None  # the new epoch that this host has not yet reported
    reforming: bool = False
    # What this turn says.
    out: list[Command] = field(default_factory=list)
    # What the stream has named.
    plans: dict[int, HostPlan] = field(default_factory=dict)
    runs: dict[int, HostRun] = field(default_factory=dict)
    ended_runs: deque[tuple[int, int]] = field(default_factory=deque)  # (last seq, run): no step is to come
    buffers: RangeTable[LocalBuffer] = field(default_factory=RangeTable)
    lost: dict[int, Blame] = field(default_factory=dict)  # dropped with a host; earlier orders may name them
    codes: dict[CodeKey, Compiled | None] = field(default_factory=dict)  # None: under way
    codes_asked: dict[CodeKey, int] = field(default_factory=dict)  # how often, and not answered
    # What this host takes part in.
    # all of it, in the order of the stream
    records: deque[HostGang | HostMove] = field(default_factory=deque)
    gangs: dict[int, HostGang] = field(default_factory=dict)  # by seq
    sends: dict[int, HostMove] = field(default_factory=dict)  # by transfer
    receives: dict[int, HostMove] = field(default_factory=dict)  # by transfer
    copies: dict[int, HostMove] = field(default_factory=dict)  # by seq
    last_on_disk: Cause | None = None  # what ends the last copy to or from the disk
    # What waits: a cause is here from when it is expected until it happens.
    pending: dict[Cause, list[HeldEffect] | None] = field(default_factory=dict)
    # The launch queue.
    tails: dict[int, HostGang] = field(default_factory=dict)  # by lane: the last gang
    stopped: bool = False  # nothing launches now
    held_gangs: list[HostGang] = field(default_factory=list)  # they might launch, were it not for `stopped`
    broken: set[int] = field(default_factory=set)  # gangs not launched here, while their peers may wait
    abandoned_early: dict[int, Blame] = field(default_factory=dict)  # gangs and moves, before they came


# --- what a host says about itself --------------------------------------------------------------------------------


def fault(state: HostState, text: str, seq: int = -1) -> Blame:
    """The controller said something that makes no sense here. It is told so, and nothing is raised."""
    blame = Blame("protocol", text)
    state.out.append(ToController(HostFault(state.host, seq, blame), state.order))
    return blame


def own_blame(state: HostState, blame: Blame | None, program: str = "", node: str = "") -> Blame | None:
    """A blame from this host's own devices, with the names that the devices do not know."""
    if blame is None or blame.host >= 0:
        return blame
    return msgspec.structs.replace(blame, host=state.host, program=blame.program or program, node=blame.node or node)


def repeat(state: HostState, report: Report) -> None:
    """Say it again, for the hosts for which this executor stands now."""
    if not isinstance(report, (HostFault, Lost)) and report.hosts != state.members:
        report = msgspec.structs.replace(report, hosts=state.members)
    state.out.append(ToController(report, state.order))
