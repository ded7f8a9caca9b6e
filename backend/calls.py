"""The unary calls beside the streams: their messages, how they are asked and how they are answered.

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

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NoReturn, TypeAlias, TypeVar

import grpc
import grpc.aio
import msgspec

from core.model import Cluster

from . import parcels, versions
from .access import Access
from .refusals import Door
from .turns import READING, Busy, Gate, Turn

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
NO_TOKEN = "the token is wrong or missing"
FULL, INVALID = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT
SERVICE = "seaway.Cluster"
# gRPC refuses it by itself and tells us nothing: what we see is an end, as of a call that is cut off.
LARGE = f"one of more than {parcels.MESSAGE >> 20} MiB, or cut off by its sender"
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
    """As `stamps` packs them: gangs by the host's clock, and what it knows of the controller's: readings, nothing of
    what was before `since` (-1: of no time), rate of drift."""

    records: bytes
    readings: bytes
    since: int
    rate: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Wrong(Exception):
    """The caller cannot have this; the text is for him."""

    def __init__(self, text: str, code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT) -> None:
        super().__init__(text)
        self.code = code


PAIRS: dict[type[msgspec.Struct], type[msgspec.Struct]] = {
    Enrol: Enrolled, About: Described, Keep: Kept, Find: Found, Lacks: Lacking, Status: Report,
    Recorded: RecordedPage, Seen: Times, Cancel: Cancelled, Tick: Tock, Permit: Permitted,
}  # fmt: skip
# Those that hosts answer; the others are the controller's.
OF_HOSTS: dict[type[msgspec.Struct], type[msgspec.Struct]] = {Stamps: Stamped}
MEETINGS = (Enrol, About)  # with which two processes meet: they are of one version, or do not go on
T = TypeVar("T")
Answer = Callable[[Any], Awaitable[Any]]


async def ask(
    channel: grpc.aio.Channel,
    access: Access,
    request: msgspec.Struct,
    timeout: float = 30.0,
    wait: bool = True,
) -> Any:
    """The answer; a `Wrong` where the other says no. `wait`: for a server that is not up yet."""
    kind = type(request)
    call = channel.unary_unary(f"/{SERVICE}/{kind.__name__}")
    try:
        asked = call(
            msgspec.msgpack.encode(request), metadata=access.shown(), timeout=timeout, wait_for_ready=wait
        )
        data = await asked
        if kind in MEETINGS and (other := versions.answers_otherwise(dict(await asked.initial_metadata()))):
            raise Wrong(other, versions.OTHER)
    except grpc.aio.AioRpcError as error:
        raise Wrong(error.details() or str(error.code()), error.code()) from None
    return msgspec.msgpack.decode(data, type=PAIRS.get(kind) or OF_HOSTS[kind])


def handlers(
    access: Access, answers: dict[type[msgspec.Struct], Answer], door: Door, gate: Gate
) -> Sequence[grpc.GenericRpcHandler]:
    """As calls of a stream of one message: so it is read when it is its turn, and nobody's before he has shown the
    token."""
    methods = {
        kind.__name__: grpc.stream_unary_rpc_method_handler(_answering(access, kind, act, door, gate))
        for kind, act in answers.items()
    }
    return [grpc.method_handlers_generic_handler(SERVICE, methods)]


def _answering(
    access: Access, kind: type[msgspec.Struct], act: Answer, door: Door, gate: Gate
) -> Callable[..., Awaitable[bytes]]:
    decoder, name = msgspec.msgpack.Decoder(kind), kind.__name__

    async def worked(data: bytes) -> bytes:
        return msgspec.msgpack.encode(await act(decoder.decode(data)))

    async def answer(_: object, context: Context) -> bytes:
        shown, address = shown_in(context), context.peer()
        known = access.accepts(shown)
        try:
            async with gate.turn(address, strange=not known) as turn:
                if not known:
                    await refuse(
                        door, context, address, "token", name, NO_TOKEN, grpc.StatusCode.UNAUTHENTICATED
                    )
                if kind in MEETINGS:
                    if other := versions.refusal(shown):
                        await refuse(door, context, address, "version", name, other, versions.OTHER)
                    await context.send_initial_metadata(versions.shown())
                return await turn.of(worked(await message_of(turn, door, context, name)))
        except Busy as busy:
            await refuse(door, context, address, "busy", name, str(busy), FULL)
        except Wrong as wrong:
            why = (
                "pass"
                if wrong.code == grpc.StatusCode.PERMISSION_DENIED
                else "agent"
                if kind is Enrol
                else ""
            )
            await refuse(door, context, address, why, name, str(wrong), wrong.code)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            await refuse(door, context, address, "malformed", name, f"this is no {name}: {error}", INVALID)

    return answer


def shown_in(context: Context) -> dict[str, str]:
    return {str(key): str(value) for key, value in context.invocation_metadata() or ()}


async def message_of(turn: Turn, door: Door, context: Context, called: str) -> bytes:
    """The one message of a call. What is larger than gRPC takes never comes: then the call just ends."""
    try:
        async with turn.reading(), asyncio.timeout(READING):
            data = await context.read()
    except TimeoutError:
        await refuse(
            door, context, turn.address, "malformed", called, f"no message came in {READING:g} s", INVALID
        )
    if data is grpc.aio.EOF:
        why = f"it ended before its message: {LARGE}"
        await refuse(door, context, turn.address, "oversized", called, why, FULL)
    return bytes(data)


async def refuse(
    door: Door, context: Context, address: str, kind: str, called: str, why: str, code: grpc.StatusCode
) -> NoReturn:
    """`address`: of the caller, asked for when the call began, since gRPC forgets it with the call. `kind`: of
    `refusals`; "" for an answer that the caller may well have expected."""
    if kind:
        door.refuse(kind, address, called, why)
    await context.abort(code, why)
    raise AssertionError("abort raises")


class Unknown(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types of it
    """Behind all others: a call that nobody answers."""

    def __init__(self, door: Door, gate: Gate) -> None:
        self._door, self._gate = door, gate

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        called = str(details.method)

        async def answer(_: object, context: Context) -> bytes:
            address = context.peer()
            try:
                async with self._gate.turn(address, strange=True):
                    why, code = "there is no such call", grpc.StatusCode.UNIMPLEMENTED
                    await refuse(self._door, context, address, "call", called, why, code)
            except Busy as busy:
                await refuse(self._door, context, address, "busy", called, str(busy), FULL)

        return grpc.stream_unary_rpc_method_handler(answer)
