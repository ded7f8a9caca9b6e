"""What the controller looks like at one moment: copies of names and numbers, which do not change.

`Controller.snapshot()` makes one. Drivers, `seaway status` and `seaway replay` show it. Product code outside of the
controller does not read the controller's tables.
"""

import msgspec

from ..model import Spans, device_spans, spans
from ..schedule import WaitingGang
from ..slices import Refusal, Resources
from .modules import Modules
from .policy_news import KeptDevices
from .records import ClientRecord, InFlight, Stall
from .state import IslandState


class OperationView(msgspec.Struct, frozen=True):
    """Something in an island's order that is not over: a gang, half of a transfer, a put, a get, or a copy."""

    seq: int
    kind: str
    program: str
    node: str
    left: Spans  # hosts that have not ended it


class IslandView(msgspec.Struct, frozen=True):
    index: int
    name: str
    phase: str
    epoch: int
    members: Spans
    backlog: int  # messages that some host may not have seen
    order: str  # the hash of its order
    in_flight: tuple[OperationView, ...]
    waiting: tuple[WaitingGang, ...]  # gangs that have been offered and have not entered
    reserved: tuple[KeptDevices, ...]  # what the policy keeps free
    broken: str  # why its epochs broke again and again; "" if they did not
    since: int  # when the first of them did


class RunView(msgspec.Struct, frozen=True):
    number: int  # the client's
    program: str
    state: str


class ClientView(msgspec.Struct, frozen=True):
    number: int
    peer: int  # its connection
    name: str
    account: str
    weight: int
    programs: int
    buffers: int
    runs: tuple[RunView, ...]  # those that have not ended
    codes: frozenset[str]  # of its programs: by hash, the code that must be kept
    slices: tuple[tuple[str, Spans], ...]  # and their devices; none while they wait for some


class RelocationView(msgspec.Struct, frozen=True):
    """Slices of a client that are on their way, or in host memory."""

    client: int
    slices: tuple[str, ...]
    words: str  # as in "is being moved"
    waits: str  # for what; "": for nothing that takes long
    since: int


class DrainView(msgspec.Struct, frozen=True):
    host: int
    waits: str  # why it is not empty yet
    since: int
    until: int  # the deadline; 0: none


class Snapshot(msgspec.Struct, frozen=True):
    incarnation: int
    islands: tuple[IslandView, ...]
    clients: tuple[ClientView, ...]
    left: dict[str, int]  # what is not over; see `Controller.left`
    references: int  # to buffers, of all that hold one
    stalls: tuple[Stall, ...]  # what stalls now; the longest first
    waits: tuple[Stall, ...]  # runs that wait and do not stall
    stalls_ever: int
    refusals: tuple[Refusal, ...]  # agents that may not be hosts
    relocations: tuple[RelocationView, ...]
    not_moved: tuple[tuple[int, str], ...]  # client, and what was not done that was asked for last
    drains: tuple[DrainView, ...]
    cordoned: tuple[int, ...]  # hosts
    drained: tuple[int, ...]  # hosts that have left, and stay away until their cordon is lifted
    order: str  # the hash of all islands' orders


def snapshot_of(of: Modules, left: dict[str, int]) -> Snapshot:
    state, resources, relocation, drains = of.state, of.resources, of.relocation, of.drains
    return Snapshot(
        state.incarnation,
        tuple(_island(island, of) for island in state.islands),
        tuple(_client(session, resources) for session in state.sessions.values()),
        left, sum(buffer.references * buffer.count for buffer in of.buffers),
        tuple(of.stalls.now()), tuple(of.stalls.waits()), state.stalls_ever,
        tuple(resources.refusals.all()),
        tuple(
            RelocationView(each.session.number, each.names, each.words, relocation.waits(each), each.since)
            for each in dict.fromkeys(relocation.under_way.values())
        ),
        tuple(dict.fromkeys((number, why) for (number, _), why in relocation.failed.items())),
        tuple(DrainView(each.host, each.waits, each.since, each.until) for each in drains.under_way.values()),
        tuple(host for host in range(state.cluster.hosts) if drains.is_cordoned(host)),
        tuple(state.drained), of.order.whole(),
    )  # fmt: skip


def _island(island: IslandState, of: Modules) -> IslandView:
    index = island.island.index
    return IslandView(
        index, island.island.name, island.phase, island.epoch, island.members, island.stream.backlog,
        of.order.island(index), tuple(_operation(each) for each in island.in_flight.values()),
        tuple(island.scheduler.waiting()), of.policy_news.kept(index),
        island.broken.text, island.broken.since,
    )  # fmt: skip


def _operation(entry: InFlight) -> OperationView:
    program, node = entry.run.describe(entry.step) if entry.run is not None else ("", "")
    return OperationView(entry.seq, entry.kind, program, node, entry.left)


def _client(session: ClientRecord, resources: Resources) -> ClientView:
    records = session.programs.values()
    mine = [binding for binding in resources.bindings() if binding.session == session.number]
    return ClientView(
        session.number, session.peer, session.name, session.account.limits.name, session.weight, len(records),
        session.names.names(),
        tuple(RunView(run.call.run, run.program.ir.name, run.state) for run in session.runs.values()),
        frozenset(each.code for record in records for each in record.ir.computations if each.code),
        tuple((each.spec.name, device_spans(each.place) if each.place else spans.EMPTY) for each in mine),
    )  # fmt: skip
