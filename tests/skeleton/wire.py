"""What both ends of the gRPC driver share: bytes, method names, addresses, a machine in an asyncio loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import grpc
import grpc.aio
import msgspec

from . import vocabulary as v
from .tape import Machine, Recorder

STREAM = "/seaway.Skeleton/Stream"  # controller <-> host, controller <-> client
FETCH = "/seaway.Skeleton/Fetch"  # client -> host: the data plane
LOOPBACK = "127.0.0.1:0"
OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.so_reuseport", 0)]


class Address(v.Word, frozen=True):
    """A driver's own frame: where a name is. It goes ahead, on one stream, of messages that use it."""

    name: str
    address: str


Frame = v.Message | Address
encode = msgspec.msgpack.Encoder().encode
decode_frame: Callable[[bytes], Frame] = msgspec.msgpack.Decoder(Frame).decode


def service(path: str, handler: grpc.RpcMethodHandler) -> grpc.GenericRpcHandler:
    _, kind, method = path.split("/")
    return grpc.method_handlers_generic_handler(kind, {method: handler})


def caller(context: grpc.aio.ServicerContext, key: str = "name") -> str:
    return str(dict(context.invocation_metadata() or ()).get(key, ""))


class Node:
    """A machine in an asyncio loop: events in, one at a time; commands out; its one timer."""

    def __init__(self, machine: Machine, perform: Callable[[v.Command], None]) -> None:
        self.machine, self._perform = Recorder(machine), perform
        self.loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[None] = self.loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._origin = time.monotonic_ns()

    def post(self, event: v.Event) -> None:
        """Any thread may call; never re-enters the machine."""
        self.loop.call_soon_threadsafe(self._feed, event)

    def _feed(self, event: v.Event) -> None:
        if self.failure.done():
            return
        try:
            now = time.monotonic_ns() - self._origin
            for command in self.machine.handle(event, now):
                self._perform(command)
            if self._timer:
                self._timer.cancel()
            at = self.machine.next_wakeup()
            delay = 0.0 if at is None else max(0, at - now) / 1e9
            self._timer = None if at is None else self.loop.call_later(delay, self._feed, v.Wakeup())
        except Exception as error:
            self._fail(error)

    def fail(self, error: BaseException) -> None:
        """An effect failed in a way no event tells of; any thread may call."""
        self.loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)
