"""Every word the skeleton speaks: messages (between machines), events (into one), commands (out of one).

Core sees *names* (`host/0`, `client/0`) and never an address; a driver keeps the directory. Ids are the
client's own, made global by its name: a `Key`. Nothing here depends on time, ports, process ids or on which
driver runs, so two runs compare byte for byte.
"""

from __future__ import annotations

from msgspec import Struct

Key = tuple[str, int]  # (client, the id it chose)


class Word(Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    pass


class Literal(Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[int, ...]
    data: bytes


# ---- messages: client -> controller


class Register(Word, frozen=True):
    computation: int
    name: str
    blob: bytes  # StableHLO, opaque to core
    cost_ns: int


class Submit(Word, frozen=True):
    run: int
    computation: int
    argument: Literal
    output: int  # the buffer's id, chosen before anything ran


class Release(Word, frozen=True):
    buffer: int


# ---- controller -> client


class RunDone(Word, frozen=True):
    run: int
    output: int
    hosts: tuple[str, ...]


class RunFailed(Word, frozen=True):
    run: int
    blame: str


# ---- controller -> host: the same message for every host of the island, so it is encoded once


class Form(Word, frozen=True):
    epoch: int
    members: tuple[str, ...]


class Compile(Word, frozen=True):
    computation: Key
    blob: bytes
    cost_ns: int


class Gang(Word, frozen=True):
    epoch: int
    order: int
    computation: Key
    argument: Literal
    output: Key


class Free(Word, frozen=True):
    buffer: Key


# ---- host -> controller


class Joined(Word, frozen=True):
    epoch: int


class Ready(Word, frozen=True):
    computation: Key
    error: str


class Enqueued(Word, frozen=True):
    order: int


class Finished(Word, frozen=True):
    order: int
    error: str


# ---- client -> host


class Fetch(Word, frozen=True):
    buffer: Key


Message = (
    Register | Submit | Release | RunDone | RunFailed | Form | Compile | Gang | Free
    | Joined | Ready | Enqueued | Finished | Fetch
)  # fmt: skip

# ---- events


class Connected(Word, frozen=True):
    peer: str


class Disconnected(Word, frozen=True):
    peer: str


class Received(Word, frozen=True):
    peer: str  # from the connection, not from the message: a peer cannot speak for another
    message: Message


class Wakeup(Word, frozen=True):
    pass


class CoordinationUp(Word, frozen=True):  # controller
    epoch: int


class WorldJoined(Word, frozen=True):  # executor, and so the next three
    epoch: int


class Built(Word, frozen=True):
    computation: Key
    error: str


class Launched(Word, frozen=True):
    order: int


class Ended(Word, frozen=True):
    order: int
    error: str


class Pulled(Word, frozen=True):  # client
    buffer: Key
    host: str


Event = (
    Connected | Disconnected | Received | Wakeup | CoordinationUp
    | WorldJoined | Built | Launched | Ended | Pulled
)  # fmt: skip

# ---- commands


class Send(Word, frozen=True):
    to: tuple[str, ...]
    message: Message


class StartCoordination(Word, frozen=True):  # controller
    epoch: int
    members: tuple[str, ...]


class ReportLate(Word, frozen=True):
    order: int
    computation: str
    missing: tuple[str, ...]


class JoinWorld(Word, frozen=True):  # executor, and so the next four
    epoch: int
    rank: int
    members: tuple[str, ...]


class Build(Word, frozen=True):
    computation: Key
    blob: bytes
    cost_ns: int


class Launch(Word, frozen=True):
    order: int
    computation: Key
    argument: Literal
    output: Key
    members: tuple[str, ...]


class Drop(Word, frozen=True):
    buffer: Key


class Deliver(Word, frozen=True):
    to: str
    buffer: Key


class Pull(Word, frozen=True):  # client, and so the next
    buffer: Key
    host: str


class Finish(Word, frozen=True):
    failures: tuple[str, ...]


Command = (
    Send | StartCoordination | ReportLate | JoinWorld | Build | Launch | Drop | Deliver | Pull | Finish
)  # fmt: skip
