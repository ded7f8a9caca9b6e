"""What is asked and answered in the unary calls beside the streams.

Enrol    a host asks for its number, and shows what it has
About    a client asks what the cluster is
Keep     a client leaves code with the controller's process, before the message that names it
Find     a host fetches it there, by the hash of its contents
Lacks    a client that has found a controller again asks which of its code that one does not have
Status   anybody who may come asks how things are
Recorded ... or what happened: the controller's trace, page by page
Seen     ... or how long computations took lately
Cancel   ... or that the runs of a client end
Tick     a process of hosts asks what time it is, and tells how far its clock is off
Permit   a client asks which runs are its own, signed
Stamps   it asks hosts, with that, when these runs' gangs were enqueued and ended there; the one call that hosts answer
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from core.model import Cluster

MOST = 1 << 62  # of a number on the wire: two of them add up to one that still is
MOST_HASHES = 4096  # in one question
Name = Annotated[str, msgspec.Meta(max_length=64)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]


class Enrol(msgspec.Struct, frozen=True):
    """name: of the agent, the same each time it starts. start: of this process, another each time.

    host: the number that it wants; -1 any of its island. rank: or the number within its island, which it then names.
    island: "" any that has room."""

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


class About(msgspec.Struct, frozen=True):
    version: str


class Described(msgspec.Struct, frozen=True):
    """What a client must know before it traces: platforms name what its code is lowered for."""

    cluster: Cluster
    platforms: tuple[str, ...]
    lease: int
    version: str


class Keep(msgspec.Struct, frozen=True):
    code: bytes


class Kept(msgspec.Struct, frozen=True):
    hash: str


class Find(msgspec.Struct, frozen=True):
    hash: str


class Lacks(msgspec.Struct, frozen=True):
    hashes: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_HASHES)]


class Lacking(msgspec.Struct, frozen=True):
    hashes: tuple[str, ...]


class Found(msgspec.Struct, frozen=True):
    code: bytes


class Status(msgspec.Struct, frozen=True):
    pass


class Report(msgspec.Struct, frozen=True):
    """As JSON, for people and scripts."""

    json: bytes


class Recorded(msgspec.Struct, frozen=True):
    """snapshot: 0 for one that is taken now."""

    snapshot: int = 0
    page: int = 0


class Seen(msgspec.Struct, frozen=True):
    pass


class Times(msgspec.Struct, frozen=True):
    """By the name of a step: how many executions, and their median time in nanoseconds."""

    seen: dict[str, tuple[int, int]]


class RecordedPage(msgspec.Struct, frozen=True):
    snapshot: int
    pages: int
    contents: bytes


class Cancel(msgspec.Struct, frozen=True):
    """client: its number, or what it calls itself. run: the client's number of it; 0: all that have not ended."""

    client: str
    run: int = 0


class Cancelled(msgspec.Struct, frozen=True):
    client: int
    runs: tuple[int, ...]


class Tick(msgspec.Struct, frozen=True):
    """hosts: those of this process. proof: that it has them. At `asked` of their clock it lacked `offset` of the
    controller's, or `bound` (-1: nothing is known yet) more or less. jumps: how often that turned out to be wrong."""

    hosts: Annotated[tuple[Count, ...], msgspec.Meta(min_length=1, max_length=65536)]
    proof: str
    asked: Count
    offset: Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
    bound: Annotated[int, msgspec.Meta(ge=-1, le=MOST)]
    jumps: Count = 0


class Tock(msgspec.Struct, frozen=True):
    """By the controller's clock, which `start` names: when the question came, and when this left. pause: nanoseconds
    until the next is welcome."""

    start: Annotated[int, msgspec.Meta(ge=1, le=MOST)]
    received: Count
    sent: Count
    pause: Annotated[int, msgspec.Meta(ge=10_000_000, le=3_600_000_000_000)]


class Permit(msgspec.Struct, frozen=True):
    """clients: (number, the pass that it was given)."""

    clients: Annotated[tuple[tuple[int, str], ...], msgspec.Meta(max_length=256)]


class Permitted(msgspec.Struct, frozen=True):
    """runs: pairs of numbers (first, one past the last); proof: that the controller has said so."""

    runs: Annotated[bytes, msgspec.Meta(max_length=1 << 20)]
    proof: str


class Stamps(msgspec.Struct, frozen=True):
    """most: so many gangs, the last of them."""

    runs: Annotated[bytes, msgspec.Meta(max_length=1 << 20)]
    proof: str
    most: Count


class Stamped(msgspec.Struct, frozen=True):
    """As `gang_times` packs them: gangs by the host's clock, and what it knows of the controller's: readings, nothing
    of what was before `since` (-1: of no time), rate of drift."""

    records: bytes
    readings: bytes
    since: int
    rate: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


PAIRS: dict[type[msgspec.Struct], type[msgspec.Struct]] = {
    Enrol: Enrolled, About: Described, Keep: Kept, Find: Found, Lacks: Lacking, Status: Report,
    Recorded: RecordedPage, Seen: Times, Cancel: Cancelled, Tick: Tock, Permit: Permitted,
}  # fmt: skip
# Those that hosts answer; the others are the controller's.
OF_HOSTS: dict[type[msgspec.Struct], type[msgspec.Struct]] = {Stamps: Stamped}
MEETINGS = (Enrol, About)  # with which two processes meet: they are of one version, or do not go on
