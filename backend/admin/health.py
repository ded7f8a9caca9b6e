"""The standard health service, `grpc.health.v1.Health`, by hand: its two messages have one field each.

What is asked for is "" or "seaway.Cluster", the controller itself, or the name of an island, which serves when it runs.
Neighbours: `server`. It is the one service that wants no token: probes (Kubernetes, a load balancer) have none, and
learn only whether something of a name that they know serves. So that is bounded: `WATCHERS` streams at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import grpc
import grpc.aio

from ..auth import RefusalLogger, TurnGate
from ..node import FULL, INVALID, SERVICE, Context, RpcCaller

HEALTH = "grpc.health.v1.Health"
SERVING, NOT_SERVING, UNKNOWN = 1, 2, 3
EVERY = 0.5  # seconds between looks, for who watches
WATCHERS = 64  # who do, at most
Serves = Callable[[str], bool | None]  # None: there is no such service


def decoded(data: bytes) -> str:
    """HealthCheckRequest: `string service = 1`. Raises ValueError."""
    if not data:
        return ""
    if len(data) < 2 or data[0] != 0x0A or data[1] >= 0x80 or len(data) != 2 + data[1]:
        raise ValueError("this is no HealthCheckRequest")
    return data[2:].decode()


def encoded(status: int) -> bytes:
    """HealthCheckResponse: `ServingStatus status = 1`."""
    return bytes((0x08, status))


def handlers(serves: Serves, refusals: RefusalLogger, gate: TurnGate) -> Sequence[grpc.GenericRpcHandler]:
    """`serves(service)`, called in the loop."""
    watchers = 0

    async def asked(caller: RpcCaller) -> str:
        try:
            async with caller.turn() as turn:
                return turn.step(decoded, await caller.message(turn))
        except ValueError as error:
            await caller.refuse("malformed", str(error), INVALID)

    async def check(_: object, context: Context) -> bytes:
        service = await asked(RpcCaller(context, "health Check", refusals, gate))
        found = serves(service)
        if found is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"nothing here is called {service!r}")
        return encoded(SERVING if found else NOT_SERVING)

    async def watch(_: object, context: Context) -> AsyncIterator[bytes]:
        nonlocal watchers
        caller = RpcCaller(context, "health Watch", refusals, gate)
        service = await asked(caller)
        if watchers >= WATCHERS:
            await caller.refuse("busy", f"{watchers} watch already", FULL)
        watchers += 1
        last = -1
        try:
            while True:
                found = serves(service)
                now = UNKNOWN if found is None else SERVING if found else NOT_SERVING
                if now != last:
                    last = now
                    yield encoded(now)
                await asyncio.sleep(EVERY)
        finally:
            watchers -= 1

    methods = {
        "Check": grpc.stream_unary_rpc_method_handler(check),
        "Watch": grpc.stream_stream_rpc_method_handler(watch),
    }
    return [grpc.method_handlers_generic_handler(HEALTH, methods)]


NAMES = ("", SERVICE)
