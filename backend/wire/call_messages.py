"""Requests and answers of the unary calls beside the streams; docs/backend.md says who makes which, and why."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from core.model import Cluster
from core.record import Look

MOST = 1 << 62  # largest number on the wire; the sum of two of them still fits 64 bits
MOST_HASHES = 4096  # most hashes in one request
Name = Annotated[str, msgspec.Meta(max_length=64)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class Enrol(msgspec.Struct, frozen=True):
    """A host's request for its number.

    name: the agent's, the same at each start. start: identifies this process, different at each start.
    island: "" means any that has room. host: the number that it asks for; -1 means any on its island.
    rank: instead of `host`, the number within the island, which must then be named."""

    name: str
    start: int
    address: str
    platform: str
    kind: str
    devices: int
    memory: int
    island: str = ""
    host: int = -1
    rank: int = -1


class Enrolled(msgspec.Struct, frozen=True):
    host: int
    cluster: Cluster
    secret: bytes
    lease: int
    beat: int
    start: int = 0  # see `Join.start`


class AboutReply(msgspec.Struct, frozen=True):
    version: str


class Described(msgspec.Struct, frozen=True):
    """What a client must know before it traces. `platforms`: those for which its code is lowered."""

    cluster: Cluster
    platforms: tuple[str, ...]
    lease: int
    version: str


class Keep(msgspec.Struct, frozen=True):
    code: bytes


class KeepReply(msgspec.Struct, frozen=True):
    hash: str


class Find(msgspec.Struct, frozen=True):
    hash: str


class Lacks(msgspec.Struct, frozen=True):
    hashes: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_HASHES)]


class Lacking(msgspec.Struct, frozen=True):
    hashes: tuple[str, ...]


class FindReply(msgspec.Struct, frozen=True):
    code: bytes


class Status(msgspec.Struct, frozen=True):
    pass


class Report(msgspec.Struct, frozen=True):
    """The cluster's status as JSON, or its accounts, for people and scripts."""

    json: bytes


class LookReply(msgspec.Struct, frozen=True):
    """version: of the controller's process. packed: a `LiveLook`, which only a process of that version reads."""

    version: str
    packed: bytes


class Recorded(msgspec.Struct, frozen=True):
    """snapshot: which recorded trace; 0 takes a new one."""

    snapshot: int = 0
    page: int = 0


class SeenReply(msgspec.Struct, frozen=True):
    """`clients`: by the controller's numbers of them, if the times of each are wanted; (): those of all together."""

    clients: tuple[int, ...] = ()


class StepTimes(msgspec.Struct, frozen=True):
    """By the name of a step: the number of executions, and their typical time in nanoseconds. `by_client`: of each
    client that was asked about."""

    seen: dict[str, tuple[int, int]] = {}
    by_client: dict[int, dict[str, tuple[int, int]]] = {}


class RecordedPage(msgspec.Struct, frozen=True):
    snapshot: int
    pages: int
    contents: bytes


class CancelCall(msgspec.Struct, frozen=True):
    """client: its number, or its name. run: the client's number for the run; 0: all its runs that have not ended."""

    client: str
    run: int = 0


class UsageCall(msgspec.Struct, frozen=True):
    """hours: of which use is wanted, beside that in all."""

    hours: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 24


class CancelReply(msgspec.Struct, frozen=True):
    client: int
    runs: tuple[int, ...]


class OperateCall(msgspec.Struct, frozen=True):
    """What an operator wants: of slices of a client (its number, or its name), or of a host (its number, or the name of
    its agent). hosts: of a move, those to which it may not go. seconds: of a drain, its deadline; 0: none."""

    action: Literal["move", "suspend", "resume", "cordon", "uncordon", "drain"]
    client: str = ""
    slice: str = ""  # "": all of the client's
    host: str = ""
    hosts: tuple[str, ...] = ()
    island: str = ""  # of a move: where it is to go
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0


class OperateReply(msgspec.Struct, frozen=True):
    """It has begun. The number of the client, or of the host; of hosts, if the cluster has grown."""

    number: int


class GrowCall(msgspec.Struct, frozen=True):
    """The cluster is to be what this file says, which has all that there is, and more. Answer: so many hosts."""

    file: Annotated[bytes, msgspec.Meta(max_length=4 << 20)]
    name: str  # of the file, for messages


class Tick(msgspec.Struct, frozen=True):
    """hosts: the hosts of this process. proof: that it has them. offset: what its clock lacked of the controller's
    when it showed `asked`, within `bound` (-1: nothing is known yet). jumps: how often an estimate was wrong."""

    hosts: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1, max_length=65536)]
    proof: str
    asked: Count
    offset: Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
    bound: Annotated[int, msgspec.Meta(ge=-1, le=MOST)]
    jumps: Count = 0


class Tock(msgspec.Struct, frozen=True):
    """received, sent: when the request came and when this answer left, by the controller's clock, which `start`
    identifies. pause: nanoseconds after which the host may ask again."""

    start: Annotated[int, msgspec.Meta(ge=1, le=MOST)]
    received: Count
    sent: Count
    pause: Annotated[int, msgspec.Meta(ge=10_000_000, le=3_600_000_000_000)]


class Permit(msgspec.Struct, frozen=True):
    """clients: for each client, its number and the pass that it was given."""

    clients: Annotated[tuple[tuple[int, str], ...], msgspec.Meta(max_length=256)]


class Permitted(msgspec.Struct, frozen=True):
    """runs: ranges of numbers, as pairs (first, one past the last). proof: the controller's signature for them."""

    runs: Annotated[bytes, msgspec.Meta(max_length=1 << 20)]
    proof: str


class GangTimesReply(msgspec.Struct, frozen=True):
    """Asked of hosts, on a stream of its own (`streams.ask`). most: the largest number of gangs to return; the latest
    are returned."""

    runs: Annotated[bytes, msgspec.Meta(max_length=1 << 20)]
    proof: str
    most: Count


class Stamped(msgspec.Struct, frozen=True):
    """Packed by `gang_times`: gangs by the host's clock, and what the host knows of the controller's clock.
    `readings` cover no time before `since` (-1: none at all); `rate` is the rate of drift."""

    records: bytes
    readings: bytes
    since: int
    rate: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


PAIRS: dict[type[msgspec.Struct], type[msgspec.Struct]] = {
    Enrol: Enrolled, AboutReply: Described, Keep: KeepReply, Find: FindReply, Lacks: Lacking, Status: Report,
    Look: LookReply, Recorded: RecordedPage, SeenReply: StepTimes, CancelCall: CancelReply, Tick: Tock,
    OperateCall: OperateReply, GrowCall: OperateReply, Permit: Permitted, UsageCall: Report,
}  # fmt: skip
MEETINGS = (Enrol, AboutReply)  # the first calls between two processes: both must be of one version, or they stop
