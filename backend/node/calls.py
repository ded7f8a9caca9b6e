"""The unary calls beside the streams: how a process makes them, and how it answers them.

Their messages are in `backend.wire.call_messages`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio
import msgspec

from core.model import Account

from ..auth import OPTIONS, READING, Access, Busy, CallTurn, RefusalLogger, TurnGate
from ..wire import MEETINGS, PAIRS, Enrol, framing, versions

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
NO_TOKEN = "the token is wrong or missing"
FULL, INVALID = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT
SERVICE = "seaway.Cluster"
# gRPC refuses such a message by itself and does not tell us: we see the end of the call, as when it is cut off.
LARGE = f"one of more than {framing.MESSAGE >> 20} MiB, or cut off by its sender"


class CallError(Exception):
    """The call cannot be answered; the text is for the caller."""

    def __init__(self, text: str, code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT) -> None:
        super().__init__(text)
        self.code = code


class NotAllowed(CallError):
    """The caller's account may not make this call."""


Answer = Callable[[Any], Awaitable[Any]]
WhyNot = Callable[[Account, msgspec.Struct], str]  # why an account may not make a call; "" if it may


def new_server() -> grpc.aio.Server:
    return grpc.aio.server(options=OPTIONS)


async def ask(
    channel: grpc.aio.Channel, access: Access, request: msgspec.Struct, timeout: float = 30.0, wait: bool = True
) -> Any:
    """Makes a call and returns the answer; raises `CallError` if it is refused. `wait`: until the server is up."""
    kind = type(request)
    call = channel.unary_unary(f"/{SERVICE}/{kind.__name__}")
    try:
        asked = call(msgspec.msgpack.encode(request), metadata=access.shown(), timeout=timeout, wait_for_ready=wait)
        data = await asked
        if kind in MEETINGS and (other := versions.answers_otherwise(dict(await asked.initial_metadata()))):
            raise CallError(other, versions.OTHER)
    except grpc.aio.AioRpcError as error:
        raise CallError(error.details() or str(error.code()), error.code()) from None
    return msgspec.msgpack.decode(data, type=PAIRS[kind])


def handlers(
    access: Access, answers: dict[type[msgspec.Struct], Answer], refusals: RefusalLogger, gate: TurnGate,
    why_not: WhyNot = lambda account, request: "",
) -> Sequence[grpc.GenericRpcHandler]:  # fmt: skip
    """The handlers of all calls. They handle streams of one message: so a message is read only when it is the
    call's turn, and not before the caller has sent the token."""
    methods = {
        kind.__name__: grpc.stream_unary_rpc_method_handler(_answering(access, kind, act, refusals, gate, why_not))
        for kind, act in answers.items()
    }
    return [grpc.method_handlers_generic_handler(SERVICE, methods)]


def _answering(
    access: Access, kind: type[msgspec.Struct], act: Answer, refusals: RefusalLogger, gate: TurnGate, why_not: WhyNot
) -> Callable[..., Awaitable[bytes]]:
    decoder, name = msgspec.msgpack.Decoder(kind), kind.__name__

    async def worked(data: bytes, account: Account) -> bytes:
        request = decoder.decode(data)
        if why := why_not(account, request):
            raise NotAllowed(why, grpc.StatusCode.PERMISSION_DENIED)
        return msgspec.msgpack.encode(await act(request))

    async def answer(_: object, context: Context) -> bytes:
        shown, caller = shown_in(context), RpcCaller(context, name, refusals, gate)
        account = access.identify(access.token_in(shown), common_name_in(context) if access.people else "")
        try:
            async with caller.turn(strange=account is None) as turn:
                if account is None:
                    await caller.refuse("token", NO_TOKEN, grpc.StatusCode.UNAUTHENTICATED)
                if kind in MEETINGS:
                    if other := versions.refusal(shown):
                        await caller.refuse("version", other, versions.OTHER)
                    await context.send_initial_metadata(versions.shown())
                return await turn.of(worked(await caller.message(turn), account))
        except CallError as wrong:
            why = "agent" if kind is Enrol else ""
            if wrong.code == grpc.StatusCode.PERMISSION_DENIED:
                why = "role" if isinstance(wrong, NotAllowed) else "pass"
            await caller.refuse(why, str(wrong), wrong.code)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            await caller.refuse("malformed", f"this is no {name}: {error}", INVALID)

    return answer


def shown_in(context: Context) -> dict[str, str]:
    return {str(key): str(value) for key, value in context.invocation_metadata() or ()}


def common_name_in(context: Context) -> str:
    """Of the caller's certificate; "" if it has none, or several."""
    names = list(context.auth_context().get("x509_common_name", ()))
    return names[0].decode(errors="replace") if len(names) == 1 else ""


class RpcCaller:
    """Who makes a call (`called`), and how it is refused. gRPC forgets the caller's address with the call."""

    def __init__(self, context: Context, called: str, refusals: RefusalLogger, gate: TurnGate) -> None:
        self._context, self._called, self._refusals, self._gate = context, called, refusals, gate
        self._address = refusals.address_of(context.peer())

    @asynccontextmanager
    async def turn(self, strange: bool = False) -> AsyncIterator[CallTurn]:
        try:
            async with self._gate.turn(self._address, strange=strange) as turn:
                yield turn
        except Busy as busy:
            await self.refuse("busy", str(busy), FULL)

    async def message(self, turn: CallTurn) -> bytes:
        """The single message of a call. A message that is larger than gRPC allows never comes: the call just ends."""
        try:
            async with turn.reading(), asyncio.timeout(READING):
                data = await self._context.read()
        except TimeoutError:
            await self.refuse("malformed", f"no message came in {READING:g} s", INVALID)
        if data is grpc.aio.EOF:
            await self.refuse("oversized", f"it ended before its message: {LARGE}", FULL)
        return bytes(data)

    async def refuse(self, kind: str, why: str, code: grpc.StatusCode) -> NoReturn:
        """`kind`: as in `refusal_log`; "" for an answer that the caller may have expected, which is not logged."""
        if kind:
            self._refusals.refuse(kind, self._address, self._called, why)
        await self._context.abort(code, why)
        raise AssertionError("abort raises")


class UnknownCall(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types of it
    """The last handler: it refuses calls that do not exist."""

    def __init__(self, refusals: RefusalLogger, gate: TurnGate) -> None:
        self._refusals, self._gate = refusals, gate

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        called = str(details.method)

        async def answer(_: object, context: Context) -> bytes:
            caller = RpcCaller(context, called, self._refusals, self._gate)
            async with caller.turn(strange=True):
                await caller.refuse("call", "there is no such call", grpc.StatusCode.UNIMPLEMENTED)

        return grpc.stream_unary_rpc_method_handler(answer)
